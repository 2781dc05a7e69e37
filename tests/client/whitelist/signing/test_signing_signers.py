"""Signers and keys: their signatures are checked before they are sent, and their exceptions are not quoted."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from support.service.people import pem_of, public_pem_of
from support.service.request_signing import SignedInApprover

from airflow_custody.client import CustodyConfigurationError, CustodyError
from airflow_custody.client.signers import PemSigner, raw_signature


def signer_with(**parts: Any) -> Any:
    """Return a signer with some parts; those that are None are missing."""
    given = {"name": "a key", "sign": lambda self, message: bytes(64), **parts}
    return type("Odd", (), {name: part for name, part in given.items() if part is not None})()


def new_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("failure", "retryable"),
    [
        (ValueError("PIN 8642-PIN"), False),
        # An AttributeError that a property raises does not mean that the signer lacks this part.
        (AttributeError("8642-PIN"), False),
        (RuntimeError("8642-PIN"), True),
        # This error is both an OSError and a ValueError.
        (ssl.SSLCertVerificationError("8642-PIN"), True),
        # An error of this package is passed on unchanged.
        (CustodyError("away for a moment", retryable=True, code="signing-failed"), True),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize(
    ("part", "as_property"),
    [("name", True), *((part, kind) for part in ("sign", "check", "public_key") for kind in (True, False))],
)
def test_an_exception_of_a_signer_is_not_quoted(
    approver: SignedInApprover, part: str, as_property: bool, failure: Exception, retryable: bool
) -> None:
    def fail(self: Any, *args: Any) -> Any:
        raise failure

    approver.create()
    approver.signer = signer_with(**{part: property(fail) if as_property else fail})
    with pytest.raises(CustodyError) as caught:
        approver.approve()
    error = caught.value
    if failure is not error:
        assert f" failed: {type(failure).__name__}; its" in str(error)
        assert "8642-PIN" not in f"{error} {error.to_json()}"
        assert error.__cause__ is None
        assert error.__context__ is None
    assert error.code == "signing-failed"
    assert error.retryable == retryable
    assert approver.sent == 0


def test_a_public_key_can_be_given_in_many_ways(approver: SignedInApprover) -> None:
    key = approver.person.key.public_key()
    pem = public_pem_of(approver.person.key)
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    right = approver.signer.sign
    for each in (pem, pem.encode(), pem.replace("\n", "\\n"), der, key, None):
        for part in (each, lambda self, each=each: each):
            approver.expected.clear()
            approver.create()
            approver.signer = signer_with(sign=lambda self, message: right(message), public_key=part)
            assert approver.approve() == 1


UNVERIFIED = "the signer's public key does not verify it"


@pytest.mark.parametrize(
    ("change", "has_key", "why"),
    [
        *((lambda raw, odd=odd: odd, False, "64 bytes") for odd in (None, b"x" * 63, "x" * 64)),
        *(
            (lambda raw, odd=odd: odd, False, "out of range for P-256")
            for odd in (b"\xff" * 64, bytes(32) + b"\x01" * 32)
        ),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), True, UNVERIFIED),
    ],
)
def test_an_unusable_signature_is_not_sent(
    approver: SignedInApprover, change: Callable[[bytes], Any], has_key: bool, why: str
) -> None:
    approver.create()
    right = approver.signer.sign
    public_key = public_pem_of(approver.person.key) if has_key else None
    approver.signer = signer_with(sign=lambda self, message: change(right(message)), public_key=public_key)
    with pytest.raises(CustodyConfigurationError, match=f"{why}.*; it was not sent") as caught:
        approver.approve()
    assert caught.value.setting == "signer"
    assert "nothing was signed" not in str(caught.value)
    assert approver.sent == 0


def key_of(pem: str) -> PemSigner:
    return PemSigner(lambda: pem, name="the key")


def text_of_a_public_key(text: str) -> str:
    return f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----"


OTHER_KEYS: list[Any] = [ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()]


@pytest.mark.parametrize(
    ("signer", "why"),
    [
        *((odd, "must have a 'name' and a method 'sign'") for odd in (None, object(), signer_with(name=None), "key")),
        *(
            (signer_with(public_key=text), "not a public key in PEM or DER")
            for text in ("nonsense", "no text: \ud800", b"", text_of_a_public_key("AAAA"))
        ),
        (signer_with(public_key=7), "must be on P-256"),
        (signer_with(public_key=new_key()), "must be on P-256"),
        *((signer_with(public_key=each.public_key()), "must be on P-256") for each in OTHER_KEYS),
        *(
            (key_of(pem), f"'the key'.*{why}")
            for pem, why in (
                *((pem_of(each), "must be on P-256") for each in OTHER_KEYS),
                (pem_of(rsa.generate_private_key(65537, 2048)), "must be on P-256"),
                (text_of_a_public_key("8642-PIN").replace("PUBLIC", "PRIVATE"), "not a private key in PEM"),
                (pem_of(new_key(), "pw"), "password"),
            )
        ),
        (PemSigner(lambda: Path("/no/such/key.pem").read_text(), name="the key"), "'the key'.*cannot be read"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_an_unusable_key_is_refused_before_anything_is_read(approver: SignedInApprover, signer: Any, why: str) -> None:
    approver.create()
    approver.sandbox.control.clear_request_log()
    approver.signer = signer
    with pytest.raises(CustodyConfigurationError, match=why) as caught:
        approver.approve()
    assert "8642-PIN" not in str(caught.value)
    assert approver.sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("failure", "why", "retryable"),
    [
        (
            TimeoutError("8642-PIN"),
            "cannot be used now: it cannot be read: TimeoutError; this signature was not made",
            True,
        ),
        # Numbers that are not the system's.
        (socket.gaierror(-2, "8642-PIN"), "it cannot be read: gaierror; this signature", True),
        (FileNotFoundError(errno.ENOENT, "8642-PIN"), "it cannot be read: No such file", False),
        (PermissionError("8642-PIN"), "it cannot be read: PermissionError", False),
    ],
)
def test_an_unreadable_key_is_retried_unless_the_failure_is_permanent(
    approver: SignedInApprover, failure: OSError, why: str, retryable: bool
) -> None:
    def load() -> str:
        raise failure

    approver.create()
    approver.signer = PemSigner(load, name="the key")
    with pytest.raises(CustodyError, match=why) as caught:
        approver.approve()
    assert caught.value.retryable == retryable
    assert isinstance(caught.value, CustodyConfigurationError) == (not retryable)
    assert "8642-PIN" not in str(caught.value)
    assert approver.sent == 0


def test_a_key_from_a_file_with_a_password(tmp_path: Path) -> None:
    key = new_key()
    path = tmp_path / "key.pem"
    path.write_text(pem_of(key, "open sesame"))
    signer = PemSigner.from_file(path, password="open sesame")
    signature = signer.sign(b"message")
    assert len(signature) == 64
    der = encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
    key.public_key().verify(der, b"message", ec.ECDSA(SHA256()))
    assert "sesame" not in repr(signer)


@given(st.integers(1, 2**256 - 1), st.integers(1, 2**256 - 1))
def test_a_der_signature_becomes_a_raw_one(r: int, s: int) -> None:
    assert raw_signature(encode_dss_signature(r, s)) == r.to_bytes(32, "big") + s.to_bytes(32, "big")
    for malformed in (b"", b"x" * 64, encode_dss_signature(2**300, 1)):
        with pytest.raises(ValueError):  # noqa: PT011 - the message is a library's
            raw_signature(malformed)
