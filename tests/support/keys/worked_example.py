"""
The worked example of the protocol, byte by byte: keys, rules, texts and signatures, and the private keys behind them.

All of it is synthetic.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from airflow_custody.client.signers import raw_signature
from airflow_custody.client.verification.verifier import VerificationPins

ADMIN1 = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE+F3Udaziu7WMvAFUflQagqcSHhMpejToK31NTTpeGNvqGEXvRit4ZgjYeMDMjZ7R"
    "3Yy7xVXr3t15ZxB2apxpVg=="
)
ADMIN2 = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEVrrUsGFERP4OtdOo8yet7akXppMMxdthgzaN3sj9RxlbUdTdEvkQ8Hr29k1bvzpD"
    "etzM9/Qi4BYfngiqbPDcrQ=="
)
CONTAINER = (
    "Cs0BChJhbGljZUBleGFtcGxlLnRlc3QSsgEtLS0tLUJFR0lOIFBVQkxJQyBLRVktLS0tLQpNRmt3RXdZSEtvWkl6ajBDQVFZSUtv"
    "Wkl6ajBEQVFjRFFnQUVPZU9qU3pqY2gvNnc3ZFBEdU9Nd0cwdVBuRk9ICkx4OUZEdmZwZEhUd0JhZVQyYS8vVVJJTXdlVzlicVZh"
    "WjdiTEIzL0FTM01KdlF3cGNtRzg1OTNTanc9PQotLS0tLUVORCBQVUJMSUMgS0VZLS0tLS0KGgIACwrLAQoQYm9iQGV4YW1wbGUu"
    "dGVzdBKyAS0tLS0tQkVHSU4gUFVCTElDIEtFWS0tLS0tCk1Ga3dFd1lIS29aSXpqMENBUVlJS29aSXpqMERBUWNEUWdBRTZZajN1"
    "dWgzZVZRVHBUR1BFQVMvNHJHNmJ5TzMKcG1ZcFN3SDFucW52RnBiS0tOVVR1ejRHekdmWU16L2UyMmg2TUMwM0laNDFkK2FWTWhB"
    "MXBTNDJ4Zz09Ci0tLS0tRU5EIFBVQkxJQyBLRVktLS0tLQoaAgALCs0BChJjYXJvbEBleGFtcGxlLnRlc3QSsgEtLS0tLUJFR0lO"
    "IFBVQkxJQyBLRVktLS0tLQpNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVrTExyd2tpSy9QVFlROURZUnZ1d0NT"
    "WUtIR1hpCkZrbG5hMWYrM1ZEb2xIR1RtbUpBa2RPUGFCNi9pZWptbkxDemV1WHVBYU93R2lYMjRocXZxeTBkeVE9PQotLS0tLUVO"
    "RCBQVUJMSUMgS0VZLS0tLS0KGgIACxIrCgNvcHMSEmFsaWNlQGV4YW1wbGUudGVzdBIQYm9iQGV4YW1wbGUudGVzdBIbCgVib2Fy"
    "ZBISY2Fyb2xAZXhhbXBsZS50ZXN0MjgKA0VUSBIJCgcKA29wcxACEgsKCQoFYm9hcmQQASoZCgwIARIICgZkZW1vLzcSCQoHCgNv"
    "cHMQATIWEhQKBwoDb3BzEAEKCQoFYm9hcmQQAVCA8tbKBg=="
)
SIGNATURES = (
    "ClcKE2FkbWluMUBleGFtcGxlLnRlc3QSQODvftwewvjeOUYzV9cTnYIaANzqTqlSSxQvz98BbZ9VEk5b4JfXdJ8244b6Uf33PCLH"
    "wNXP4DwP9yHt6+TXqKQKVwoTYWRtaW4yQGV4YW1wbGUudGVzdBJAxUUcQFxsNiUjRoo/hCGWywu3LYvddmtvuzY5FP5m4SF2IrAP"
    "nTkxUZxi2Iopz8oevELUaPEuwZii8DRuYs+Lfg=="
)
HASH_A = "62f3fb2815634d719b53193e6dbd6466912f2b18feff42d66d5d4340ccb1782a"
TEXT_A = (
    '{"currency":"ETH","addressType":"individual","address":"0x00000000000000000000000000000000000000A1",'
    '"memo":"","label":"demo A","customerId":"","exchangeAccountId":"","linkedInternalAddresses":[],"cont'
    'ractType":""}'
)
HASH_B = "e1fbbebb6afe1983b5f27453375aedc39c2b42086b9d3a3e8f068ee6828db71e"
TEXT_B = (
    '{"currency":"ETH","addressType":"individual","address":"0x00000000000000000000000000000000000000B2",'
    '"memo":"","label":"demo B","customerId":"","exchangeAccountId":"","linkedInternalAddresses":[],"link'
    'edWallets":[{"id":7,"name":"hot","path":"demo/7"}],"contractType":""}'
)
HASH_C = "44ab68b7077fb61ae367bc203e61b71601d3d760e280b0814ed732e95076bc9b"
TEXT_C = (
    '{"currency":"ETH","addressType":"individual","address":"0x00000000000000000000000000000000000000C3",'
    '"memo":"4242","label":"demo C","customerId":"","exchangeAccountId":"","linkedInternalAddresses":[{"i'
    'd":"12","address":"0x0000000000000000000000000000000000000D12","label":"renamed later"}],"contractTy'
    'pe":""}'
)
HASH_CS = "8cb9331f9f066dcdec7b40a26ae09fd5ea5dcf5462543d5b06fcfe397faa9c77"
TEXT_CS = (
    '{"currency":"ETH","addressType":"individual","address":"0x00000000000000000000000000000000000000C3",'
    '"memo":"4242","label":"demo C","customerId":"","exchangeAccountId":"","linkedInternalAddresses":[{"i'
    'd":"12","address":"0x0000000000000000000000000000000000000D12"}]}'
)
TEXT_X = (
    '{"currency":"ETH","addressType":"individual","address":"0x00000000000000000000000000000000000000C3",'
    '"contractType":"\\",","contractType":"\\"memo","contractType":"\\":","contractType":"\\"4242","label":"d'
    'emo C","customerId":"","exchangeAccountId":"","linkedInternalAddresses":[{"id":"12","address":"0x000'
    '0000000000000000000000000000000000D12"}]}'
)
ALICE = "W9alMYcSQ7MtBM5O7WKVn+/NjXu72mxDmhSO2E9t+U2mKCZXZRoz1YwlEyN0pbIxLTybpcVhHbBD7AQYodI8yQ=="
BOB = "0jRrFuW0F2qOxBJ/ioVwNeGXvWkVH6Qw3GlOs2hzL9Qc/py1MzLr6y6Fs/K3aan9F3Lht9FqmOqLrnaH/J9hHQ=="
CAROL = "hI+exrBjTkLjM4wTzCnB/vnS7vtAqsS7DDiTthuQjU3jrtv1aXXMqbxhDLCni9fzqtnWms/zLja3MvCwIo4XbQ=="

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def pem(der: str) -> str:
    """Return a key in PEM."""
    return f"-----BEGIN PUBLIC KEY-----\n{der[:64]}\n{der[64:]}\n-----END PUBLIC KEY-----\n"


PINS = VerificationPins([pem(ADMIN1), pem(ADMIN2)], 2)


def private_key(name: str) -> ec.EllipticCurvePrivateKey:
    """Return the key of a user or a super-administrator."""
    digest = hashlib.sha256(f"verification example {name}".encode()).digest()
    return ec.derive_private_key(int.from_bytes(digest, "big") % _ORDER, ec.SECP256R1())


def sign(name: str, message: bytes) -> bytes:
    """Return the signature of a user or a super-administrator: 64 bytes."""
    return raw_signature(private_key(name).sign(message, ec.ECDSA(SHA256())))


def entry(name: str, signature: str, *hashes: str) -> dict[str, Any]:
    """Return a signature of an envelope."""
    return {
        "signature": {"userId": f"{name}@example.test", "signature": signature, "comment": "ok"},
        "hashes": [*hashes],
    }


def signed_entry(name: str, *hashes: str) -> dict[str, Any]:
    """Return a signature of an envelope that is made here."""
    message = '["' + '","'.join(hashes) + '"]'
    return entry(name, base64.b64encode(sign(name, message.encode())).decode(), *hashes)


BY_ALICE = entry("alice", ALICE, HASH_A, HASH_B)
BY_BOB = entry("bob", BOB, HASH_A)
BY_CAROL = entry("carol", CAROL, HASH_CS)


def envelope(text: str, *signatures: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return an envelope as the service shows it, with the hash of its text."""
    return {
        "id": "7",
        "blockchain": "ETH",
        "network": "mainnet",
        "metadata": {"hash": hashlib.sha256(text.encode()).hexdigest(), "payloadAsString": text, "payload": {}},
        "signedAddress": {"payload": "", "signatures": [*signatures]},
        "rulesContainer": CONTAINER,
        "rulesSignatures": SIGNATURES,
        **changes,
    }
