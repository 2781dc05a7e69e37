"""Signers of connections: errors describe what is wrong with a connection, and keys are masked in every spelling."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Connection
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from pydantic import SecretStr
from support.airflow.airflow_runs import AIRFLOW, redacted
from support.service.people import pem_of

from airflow_custody.client import CustodyConfigurationError
from airflow_custody.client.signers.pkcs11 import Pkcs11Key
from airflow_custody.hooks._lookup import read_connection
from airflow_custody.signers import _MAX_KEY, ConnectionSigner, Pkcs11ConnectionSigner, _mask_key

PASSWORD = "correct-horse"
WORDS = "BEGIN a PRIVATE matter: EC KEY, Proc-Type: 4,ENCRYPTED, DEK-Info:, END"
HSM = {"pkcs11_module": "/m.so", "pkcs11_token": "t", "pkcs11_key": "k"}


def define(monkeypatch: pytest.MonkeyPatch, extra: Any, password: str | None = PASSWORD) -> None:
    connection = {"conn_type": "generic", "password": password, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNER", extra if password == "raw" else json.dumps(connection))


@pytest.mark.parametrize(
    ("signer", "extra", "password", "why"),
    [
        (ConnectionSigner, {"privatekey": "x"}, None, "no extra 'private_key'"),
        (Pkcs11ConnectionSigner, HSM, None, "the PIN is missing"),
        (Pkcs11ConnectionSigner, {}, "12345", "no extra 'pkcs11_module', 'pkcs11_token', 'pkcs11_key'"),
        (Pkcs11ConnectionSigner, HSM | {"pkcs11_module": "m.so"}, "12345", "must be an absolute path"),
        (Pkcs11ConnectionSigner, HSM | {"pkcs11_module": "/no/such"}, "12345", "The signing key comes from the"),
        *(
            (each, extra, "12345", "the connection's Extra is not a JSON object, .*\nCorrect the Extra")
            for each in (ConnectionSigner, Pkcs11ConnectionSigner)
            for extra in ("[]", '{"private_key": "x", "private_key": "y"}')
        ),
        (ConnectionSigner, "{not JSON", "raw", r"cannot be read from .* AIRFLOW_CONN_SIGNER\nCorrect"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_an_unusable_connection_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, signer: Any, extra: Any, password: str | None, why: str
) -> None:
    define(monkeypatch, extra, password)
    with pytest.raises(CustodyConfigurationError, match=why):
        signer("signer").public_key()
    monkeypatch.delenv("AIRFLOW_CONN_SIGNER")
    with pytest.raises(CustodyConfigurationError, match=r"'signer' is not defined\nCreate a connection with this id"):
        signer("signer").public_key()


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that has a secrets backend return the signer's connection."""

    def define(**fields: Any) -> None:
        connection = Connection(conn_id="signer", conn_type="generic", **fields)
        find = staticmethod(lambda conn_id, *arguments, **others: read_connection(connection))
        monkeypatch.setattr("airflow_custody.signers.find_connection", find)

    return define


def test_line_breaks_after_a_password_are_not_part_of_it(returned: Callable[..., None]) -> None:
    returned(password=f"{PASSWORD}\r\n", extra=json.dumps({"private_key": f"\n {encrypted()}\n"}))
    assert len(ConnectionSigner("signer").sign(b"message")) == 64
    returned(password="12345\n", extra=json.dumps({each: f" {value}\n" for each, value in HSM.items()}))
    assert Pkcs11ConnectionSigner("signer")._where() == Pkcs11Key("/m.so", "t", "k", SecretStr("12345"))


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="Airflow 2 does not accept such a connection")
def test_a_password_that_is_a_number_is_refused(returned: Callable[..., None]) -> None:
    # The PIN may have lost leading zeros, and a wrong PIN locks an HSM.
    for signer, extra in ((ConnectionSigner, {"private_key": encrypted()}), (Pkcs11ConnectionSigner, HSM)):
        returned(password=12345678, extra=extra)
        with pytest.raises(
            CustodyConfigurationError, match="Password is not text: put it in quotation marks"
        ) as caught:
            signer("signer").public_key()
        assert "12345678" not in str(caught.value)


def test_the_pin_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, HSM, "a-pin-of-words")
    with pytest.raises(CustodyConfigurationError):
        Pkcs11ConnectionSigner("signer").public_key()
    assert "a-pin-of-words" not in redacted("logged: a-pin-of-words")


@pytest.mark.parametrize("text", ["-----A", "a: ", "A\n"], ids=repr)
def test_masking_a_text_that_is_no_key_takes_little_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("airflow_custody.signers.mask", lambda secret: None)
    started = time.process_time()
    _mask_key(SecretStr(text * (_MAX_KEY // len(text))))
    # Processor time of this process only. An earlier, quadratic version took more than ten seconds.
    assert time.process_time() - started < 1


def test_a_text_that_is_too_long_for_a_key_is_masked_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "0123456789\n" * 2_000
    define(monkeypatch, {"private_key": f"{text}."}, None)
    with pytest.raises(CustodyConfigurationError, match="it has more than 16384 characters"):
        ConnectionSigner("signer").public_key()
    assert redacted(f"{text}.") == "***"


def plain() -> str:
    return pem_of(ec.generate_private_key(ec.SECP256R1()))


def encrypted() -> str:
    return pem_of(ec.generate_private_key(ec.SECP256R1()), PASSWORD)


def with_headers() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = BestAvailableEncryption(PASSWORD.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, encryption).decode()


def lines_of(pem: str) -> list[str]:
    """Return the lines of a key without its markers and headers."""
    return [line for line in pem.splitlines() if line and "-----" not in line and ":" not in line]


#: Spellings of a key that can be loaded.
LOADED: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "CRLF": lambda pem: pem.replace("\n", "\r\n"),
    "line ends of two characters": lambda pem: pem.replace("\n", "\\n"),
    "CRLF of four characters": lambda pem: pem.replace("\n", "\\r\\n"),
}
#: Spellings of a key that cannot be loaded.
BROKEN: dict[str, Callable[[str], str]] = {
    "a broken marker": lambda pem: pem.replace("\n", " ").replace("-----END", "----END"),
    "half a marker": lambda pem: pem.replace("KEY-----\n", "KEY\n", 1),
    "no markers": lambda pem: "".join(lines_of(pem)),
    "lines without markers": lambda pem: "\n".join(lines_of(pem)),
}
KINDS = pytest.mark.parametrize("make", [plain, encrypted, with_headers], ids=lambda make: make.__name__)


def check_masked(pem: str) -> None:
    """Check that the output contains no eight successive characters of a key, however its lines are joined."""
    lines = lines_of(pem)
    for secret in [*lines, "".join(lines), " ".join(lines), "\\n".join(lines)]:
        shown = redacted(f"it is {secret}!")
        assert not any(secret[at : at + 8] in shown for at in range(len(secret) - 7))


@KINDS
@pytest.mark.parametrize("form", LOADED)
def test_a_key_that_can_be_loaded_is_masked(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], str], form: str
) -> None:
    pem, words = make(), redacted(WORDS)
    define(monkeypatch, {"private_key": LOADED[form](pem)}, None if make is plain else PASSWORD)
    assert len(ConnectionSigner("signer").sign(b"message")) == 64
    check_masked(pem)
    # The parts that all keys have in common are not secret.
    assert redacted(WORDS) == words


@pytest.mark.parametrize("make", [plain, encrypted], ids=lambda make: make.__name__)
@pytest.mark.parametrize("end", ["", " "], ids=["no line ends", "spaces"])
def test_a_key_on_one_line_is_masked(monkeypatch: pytest.MonkeyPatch, make: Callable[[], str], end: str) -> None:
    pem = make()
    define(monkeypatch, {"private_key": pem.replace("\n", end)}, None if make is plain else PASSWORD)
    # Older releases of cryptography need the line ends.
    with suppress(CustodyConfigurationError):
        ConnectionSigner("signer").sign(b"message")
    check_masked(pem)


@KINDS
@pytest.mark.parametrize("form", BROKEN)
def test_a_key_that_cannot_be_loaded_is_masked(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], str], form: str
) -> None:
    pem = make()
    define(monkeypatch, {"private_key": BROKEN[form](pem)}, None if make is plain else PASSWORD)
    with pytest.raises(CustodyConfigurationError, match="PEM"):
        ConnectionSigner("signer").sign(b"message")
    check_masked(pem)
