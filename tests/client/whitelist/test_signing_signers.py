"""Signers and keys: what they return is checked before it is sent."""

from __future__ import annotations

import base64
import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from people import Person, pem_of
from request_signing import SignedInApprover

from airflow_custody.client import (
    CustodyConfigurationError,
    CustodyError,
)
from airflow_custody.client.signers import PemSigner, raw_signature
from airflow_custody.sandbox import Sandbox


class FailingSigner:
    name = "a key"

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def sign(self, message: bytes) -> bytes:
        raise self._failure


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("no DER"),
        TypeError("None"),
        ModuleNotFoundError("No module named 'boto3'"),
        TimeoutError("KMS"),
        # Both an OSError and a ValueError.
        ssl.SSLCertVerificationError("KMS"),
        requests.JSONDecodeError("KMS", "", 0),
        RuntimeError("HSM"),
    ],
)
def test_what_a_signer_raises_is_an_error_of_ours(approver: SignedInApprover, failure: Exception) -> None:
    approver.create()
    approver.signer = FailingSigner(failure)
    with pytest.raises(CustodyError, match=f"'a key' failed: {type(failure).__name__}") as caught:
        approver.approve()
    assert caught.value.retryable is (type(failure) not in (ValueError, TypeError, ModuleNotFoundError))
    assert approver.sent == 0


class FixedSigner:
    name = "fixed"

    def __init__(self, signature: Any) -> None:
        self._signature = signature

    def sign(self, message: bytes) -> Any:
        return self._signature


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        *((odd, "64 bytes") for odd in (None, b"", b"x" * 63, b"x" * 70, "x" * 64)),
        *((odd, "no number of a P-256 signature") for odd in (bytes(64), b"\xff" * 64, bytes(32) + b"\x01" * 32)),
    ],
    ids=str,
)
def test_what_cannot_be_a_signature_is_not_sent(approver: SignedInApprover, signature: Any, why: str) -> None:
    approver.create()
    approver.signer = FixedSigner(signature)
    with pytest.raises(CustodyConfigurationError, match=why):
        approver.approve()
    assert approver.sent == 0


def failing_in(part: str, failure: Exception, *, as_property: bool) -> Any:
    """Return a signer of which one part raises."""

    def fail(self: Any, *args: Any) -> Any:
        raise failure

    parts: dict[str, Any] = {"name": "a key", "sign": lambda self, message: bytes(64)}
    return type("Failing", (), {**parts, part: property(fail) if as_property else fail})()


PARTS = [("name", True), *((part, kind) for part in ("sign", "check", "public_key") for kind in (True, False))]


@pytest.mark.parametrize(
    "failure", [RuntimeError("PIN 8642-PIN"), TimeoutError("8642-PIN"), AttributeError("8642-PIN")], ids=repr
)
@pytest.mark.parametrize(("part", "as_property"), PARTS)
def test_whatever_part_of_a_signer_raises_it_is_not_quoted(
    approver: SignedInApprover, part: str, as_property: bool, failure: Exception
) -> None:
    approver.create()
    approver.signer = failing_in(part, failure, as_property=as_property)
    with pytest.raises(
        CustodyError, match=f"the signer '(a key|Failing)' failed: {type(failure).__name__}; its"
    ) as caught:
        approver.approve()
    error = caught.value
    assert "8642-PIN" not in f"{error} {error.to_json()}"
    assert (error.__cause__, error.__context__) == (None, None)
    assert (error.code, error.retryable) == ("signing-failed", not isinstance(failure, AttributeError))
    assert approver.sent == 0


@pytest.mark.parametrize(("part", "as_property"), PARTS)
def test_an_error_of_ours_that_a_signer_raises_comes_out(
    approver: SignedInApprover, part: str, as_property: bool
) -> None:
    approver.create()
    failure = CustodyError("away for a moment", retryable=True, code="signing-failed")
    approver.signer = failing_in(part, failure, as_property=as_property)
    with pytest.raises(CustodyError) as caught:
        approver.approve()
    assert caught.value is failure
    assert approver.sent == 0


class NamelessSigner:
    def sign(self, message: bytes) -> bytes:
        return b""


@pytest.mark.parametrize("signer", [None, object(), NamelessSigner(), "key"], ids=lambda each: type(each).__name__)
def test_what_is_no_signer_is_refused_before_anything_is_read(approver: SignedInApprover, signer: Any) -> None:
    approver.create()
    approver.sandbox.control.clear_request_log()
    approver.signer = signer
    with pytest.raises(CustodyConfigurationError, match="must have a 'name' and a method 'sign'"):
        approver.approve()
    assert approver.sandbox.control.request_log() == []


# --- a signature is verified before it is sent -------------------------------------------------------------


def public_key(person: Person, encoding: Encoding = Encoding.PEM) -> bytes:
    return person.key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


class OddSigner:
    """A signer that changes its signature, and gives its public key in one of many ways."""

    name = "odd"

    def __init__(self, person: Person, public_key: Any, change: Callable[[bytes], bytes] = bytes) -> None:
        self._signer = PemSigner(lambda: person.pem, name="inner")
        self._change = change
        self.public_key = public_key

    def sign(self, message: bytes) -> bytes:
        return self._change(self._signer.sign(message))


def test_a_public_key_can_be_given_in_many_ways(approver: SignedInApprover) -> None:
    person = approver.person
    pem = public_key(person)
    given: list[Any] = [pem, pem.decode(), public_key(person, Encoding.DER), person.key.public_key(), None]
    for each in (*given, *[lambda each=each: each for each in given]):
        approver.expected.clear()
        approver.create()
        approver.signer = OddSigner(person, each)
        assert approver.approve() == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[32:] + raw[:32],
        lambda raw: raw[:32][::-1] + raw[32:][::-1],
        lambda raw: bytes(64),
        lambda raw: b"\xff" * 64,
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))[:64],
    ],
)
def test_a_signature_that_does_not_verify_is_not_sent(
    approver: SignedInApprover, change: Callable[[bytes], bytes]
) -> None:
    approver.create()
    approver.signer = OddSigner(approver.person, public_key(approver.person), change)
    with pytest.raises(CustodyConfigurationError, match="does not verify it; it was not sent") as caught:
        approver.approve()
    assert caught.value.setting == "signer"
    assert "nothing was signed" not in str(caught.value)
    assert approver.sent == 0


def test_a_signature_of_another_key_is_not_sent(approver: SignedInApprover, sandbox: Sandbox) -> None:
    approver.create()
    approver.signer = OddSigner(approver.person, public_key(Person(sandbox, "bob")))
    with pytest.raises(CustodyConfigurationError, match="does not verify"):
        approver.approve()
    assert approver.sent == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nonsense", "not a public key in PEM or DER"),
        ("no text: \ud800", "not a public key in PEM or DER"),
        (b"", "not a public key in PEM or DER"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "not a public key in PEM or DER"),
        (7, "must be on P-256"),
        (ec.generate_private_key(ec.SECP384R1()).public_key(), "must be on P-256"),
        (ed25519.Ed25519PrivateKey.generate().public_key(), "must be on P-256"),
        (ec.generate_private_key(ec.SECP256R1()), "must be on P-256"),
    ],
)
def test_an_unusable_public_key_is_refused_before_anything_is_read(
    approver: SignedInApprover, given: Any, why: str
) -> None:
    number = approver.create()
    approver.sandbox.control.clear_request_log()
    approver.signer = OddSigner(approver.person, given)
    with pytest.raises(CustodyConfigurationError, match=why):
        approver.approve(number)
    assert approver.sandbox.control.request_log() == []


# --- keys --------------------------------------------------------------------------------------------------


def pem_of_an_unknown_curve() -> str:
    lines = pem_of(ec.generate_private_key(ec.SECP256R1())).strip().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    other = der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030106"))
    return "\n".join([lines[0], base64.b64encode(other).decode(), lines[-1], ""])


@pytest.mark.parametrize(
    ("pem", "message"),
    [
        (lambda: pem_of(ec.generate_private_key(ec.SECP384R1())), "must be on P-256"),
        (lambda: pem_of(ec.generate_private_key(ec.SECP256K1())), "must be on P-256"),
        (lambda: pem_of(ed25519.Ed25519PrivateKey.generate()), "must be on P-256"),
        (pem_of_an_unknown_curve, "of a known type"),
        (lambda: pem_of(rsa.generate_private_key(65537, 2048)), "must be on P-256"),
        (lambda: "-----BEGIN PRIVATE KEY-----\nsecretsecret\n-----END PRIVATE KEY-----", "not a private key in PEM"),
        (lambda: pem_of(ec.generate_private_key(ec.SECP256R1()), "pw"), "password"),
        (lambda: Path("/no/such/key.pem").read_text(), "cannot be read"),
    ],
)
def test_an_unusable_key_is_refused_before_anything_is_read(
    approver: SignedInApprover, pem: Callable[[], str], message: str
) -> None:
    number = approver.create()
    approver.sandbox.control.clear_request_log()
    approver.signer = PemSigner(pem, name="the key")
    with pytest.raises(CustodyConfigurationError, match=message) as caught:
        approver.approve(number)
    assert "'the key'" in str(caught.value)
    assert "secretsecret" not in str(caught.value)
    assert approver.sandbox.control.request_log() == []


def failing_load(failure: OSError) -> PemSigner:
    def load() -> str:
        raise failure

    return PemSigner(load, name="the key")


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (TimeoutError("8642-PIN"), "cannot be used now: it cannot be read: TimeoutError; nothing was signed"),
        (OSError(errno.EIO, "8642-PIN"), "cannot be used now: it cannot be read: Input/output error; nothing"),
        # Numbers that are not the system's.
        (ssl.SSLCertVerificationError(1, "8642-PIN"), "it cannot be read: SSLCertVerificationError; nothing"),
        (socket.gaierror(-2, "8642-PIN"), "it cannot be read: gaierror; nothing"),
        (OSError("8642-PIN", "text"), "it cannot be read: OSError; nothing"),
        (OSError(2**40, "8642-PIN"), "it cannot be read: OSError; nothing"),
    ],
    ids=["a time-out", "an error of the disk", "TLS", "DNS", "a text", "a number too large"],
)
def test_a_key_that_cannot_be_read_now_is_tried_again(approver: SignedInApprover, failure: OSError, why: str) -> None:
    approver.create()
    approver.signer = failing_load(failure)
    with pytest.raises(CustodyError, match=why) as caught:
        approver.approve()
    assert (caught.value.code, caught.value.retryable) == ("signing-failed", True)
    assert "8642-PIN" not in str(caught.value)
    assert approver.sent == 0


@pytest.mark.parametrize("failure", [FileNotFoundError(errno.ENOENT, "8642-PIN"), PermissionError("8642-PIN")])
def test_a_key_that_is_missing_or_forbidden_is_not_tried_again(approver: SignedInApprover, failure: OSError) -> None:
    approver.create()
    approver.signer = failing_load(failure)
    with pytest.raises(CustodyConfigurationError, match=r"it cannot be read: (No such file|PermissionError)") as caught:
        approver.approve()
    assert not caught.value.retryable
    assert "8642-PIN" not in str(caught.value)


def test_a_key_from_a_file_with_a_password(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
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


@pytest.mark.parametrize("der", [b"", b"x" * 64, encode_dss_signature(2**300, 1)])
def test_a_malformed_der_signature_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is a library's
        raw_signature(der)
