"""The README's signer for a KMS, with a fake KMS."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from people import Person

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.signers import raw_signature
from airflow_custody.client.whitelist.approval import Approver
from airflow_custody.sandbox import Sandbox


# [START howto_kms_signer]
class KmsSigner:
    """Sign with a P-256 key that never leaves AWS KMS."""

    def __init__(self, key_id: str) -> None:
        self.name = key_id  # for the log

    def sign(self, message: bytes) -> bytes:
        import boto3

        response = boto3.client("kms").sign(
            KeyId=self.name, Message=message, MessageType="RAW", SigningAlgorithm="ECDSA_SHA_256"
        )
        return raw_signature(response["Signature"])  # KMS returns DER

    def public_key(self) -> bytes:  # optional: then each signature is verified before it is sent
        import boto3

        key: bytes = boto3.client("kms").get_public_key(KeyId=self.name)["PublicKey"]
        return key


# [END howto_kms_signer]


class FakeKms:
    """A KMS that returns signatures as AWS does: in DER."""

    def __init__(self, person: Person) -> None:
        self._key = person.key

    def sign(self, *, KeyId: str, Message: bytes, MessageType: str, SigningAlgorithm: str) -> dict[str, Any]:
        assert (KeyId, MessageType, SigningAlgorithm) == ("alias/custody", "RAW", "ECDSA_SHA_256")
        return {"Signature": self._key.sign(Message, ECDSA(SHA256()))}

    def get_public_key(self, *, KeyId: str) -> dict[str, Any]:
        assert KeyId == "alias/custody"
        return {"PublicKey": self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)}


def test_the_service_accepts_a_signature_of_the_kms(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = Person(sandbox, "ann", "approvers")
    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=lambda name: FakeKms(ann)))
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, ann.token) as client:
        number = client.create_whitelist_request(request)
        approver = Approver(client, KmsSigner("alias/custody"), log=logging.getLogger(__name__))
        assert approver.approve([number], {number: request}, "checked") == 1
