"""The README's signer for a KMS, with a KMS that is not there."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from people import Person

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.approval import Approving
from airflow_custody.client.signers import raw_signature
from airflow_custody.sandbox import Sandbox


# [START howto_kms_signer]
class KmsSigner:
    """Sign with a P-256 key that never leaves AWS KMS."""

    def __init__(self, key_id: str) -> None:
        self.name = key_id  # for the log

    def sign(self, message: bytes) -> bytes:
        import boto3

        answer = boto3.client("kms").sign(
            KeyId=self.name, Message=message, MessageType="RAW", SigningAlgorithm="ECDSA_SHA_256"
        )
        return raw_signature(answer["Signature"])  # KMS answers in DER


# [END howto_kms_signer]


class FakeKms:
    """Answer as AWS KMS does: in DER."""

    def __init__(self, person: Person) -> None:
        self._key = person.key

    def sign(self, *, KeyId: str, Message: bytes, MessageType: str, SigningAlgorithm: str) -> dict[str, Any]:
        assert (KeyId, MessageType, SigningAlgorithm) == ("alias/custody", "RAW", "ECDSA_SHA_256")
        return {"Signature": self._key.sign(Message, ECDSA(SHA256()))}


def test_the_service_accepts_what_the_kms_signs(sandbox: Sandbox, monkeypatch):
    ann = Person(sandbox, "ann", "approvers")
    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=lambda name: FakeKms(ann)))
    asked = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, ann.token) as client:
        number = client.create_whitelist_request(asked)
        approving = Approving(client, KmsSigner("alias/custody"), log=logging.getLogger(__name__))
        assert approving.approve([number], {number: asked}, "checked") == 1
