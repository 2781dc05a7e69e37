"""The guide's signer for AWS KMS: with moto's KMS, where it is installed."""

from __future__ import annotations

import importlib.util
import logging

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from support.keys.hsm import missing
from support.service.people import ROLES
from support.whitelist.calls import REQUEST

from airflow_custody.client import CustodyClient
from airflow_custody.client.signers import raw_signature
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.sandbox import Sandbox


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


@pytest.mark.filterwarnings("ignore")
def test_the_service_accepts_a_signature_of_a_kms_that_boto3_calls(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("moto") is None:
        missing("moto is not installed: pip install boto3 'moto[kms]'")
    import boto3
    from cryptography.hazmat.primitives.serialization import load_der_public_key
    from moto import mock_aws

    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "eu-central-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    # moto answers for AWS only: what goes to the sandbox arrives there.
    with mock_aws():
        kms = boto3.client("kms")
        key = kms.create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")["KeyMetadata"]["KeyId"]
        kms.create_alias(AliasName="alias/custody", TargetKeyId=key)
        public = load_der_public_key(kms.get_public_key(KeyId=key)["PublicKey"])
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        user_id = sandbox.control.add_user("ann", ROLES, groups=("approvers",), public_key=pem)
        with CustodyClient(sandbox.url, sandbox.control.add_token(roles=ROLES, user_id=user_id)) as client:
            number = client.create_whitelist_request(REQUEST)
            approver = RequestSigner(client, KmsSigner("alias/custody"), log=logging.getLogger(__name__))
            assert approver.sign([number], {number: REQUEST}, "checked") == 1
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == ["APPROVED"]
