"""Signers of connections: their keys are masked in logs, however they are written."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from airflow_runs import redacted
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from people import pem_of

from airflow_custody.client import CustodyConfigurationError
from airflow_custody.signers import ConnectionSigner

PASSWORD = "correct-horse"
WORDS = "BEGIN a PRIVATE matter: EC KEY, Proc-Type: 4,ENCRYPTED, DEK-Info:, END"


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


def use(monkeypatch: pytest.MonkeyPatch, text: str, password: str | None) -> ConnectionSigner:
    """Return a signer whose connection has a key, written like this."""
    connection = {"conn_type": "generic", "password": password, "extra": {"private_key": text}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(connection))
    return ConnectionSigner("signing_key")


def check_masked(pem: str) -> None:
    lines = lines_of(pem)
    for secret in [*lines, "".join(lines), " ".join(lines), "\\n".join(lines)]:
        shown = redacted(f"it is {secret}!")
        assert not any(secret[at : at + 8] in shown for at in range(len(secret) - 7))


def test_a_mistyped_extra_is_asked_about_in_whole_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps({"conn_type": "generic", "extra": {"privatekey": "x"}}))
    with pytest.raises(CustodyConfigurationError) as caught:
        ConnectionSigner("signing_key").check()
    end = "do you mean 'private_key'? It comes from the Airflow connection 'signing_key'. [custody/signing-failed]"
    assert str(caught.value).endswith(end)


@pytest.mark.parametrize(
    ("make", "write"),
    [
        (plain, str),
        (plain, lambda pem: pem.replace("\n", "\r\n")),
        (plain, lambda pem: pem.replace("\n", "")),
        (plain, lambda pem: pem.replace("\n", " ")),
        (encrypted, str),
        (encrypted, lambda pem: pem.replace("\n", "")),
        (with_headers, str),
        (with_headers, lambda pem: pem.replace("\n", "\r\n")),
    ],
)
def test_a_key_is_masked_however_its_lines_end(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], str], write: Callable[[str], str]
) -> None:
    pem, words = make(), redacted(WORDS)
    signer = use(monkeypatch, write(pem), None if make is plain else PASSWORD)
    try:
        assert len(signer.sign(b"message")) == 64
    except CustodyConfigurationError:
        # Older releases of cryptography need the line ends; what they refuse is masked all the same.
        assert "\n" not in write(pem)
    check_masked(pem)
    # What every key has is no secret.
    assert redacted(WORDS) == words


@pytest.mark.parametrize("make", [plain, with_headers])
@pytest.mark.parametrize(
    "write",
    [
        lambda pem: pem.replace("\n", "\\n"),
        lambda pem: pem.replace("\n", " ").replace("-----END", "----END"),
        lambda pem: pem.replace("KEY-----\n", "KEY\n", 1),
        lambda pem: "".join(lines_of(pem)),
        lambda pem: "\n".join(lines_of(pem)),
    ],
    ids=["line ends of two characters", "a broken marker", "half a marker", "no markers", "lines without markers"],
)
def test_a_key_that_cannot_be_loaded_is_masked_too(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], str], write: Callable[[str], str]
) -> None:
    pem, words = make(), redacted(WORDS)
    with pytest.raises(CustodyConfigurationError, match="not a private key in PEM"):
        use(monkeypatch, write(pem), None).check()
    check_masked(pem)
    assert redacted(WORDS) == words
