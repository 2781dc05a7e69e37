"""What an attack is: how a malicious service changes the envelope of a whitelisting request."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from airflow_custody.sandbox.rules.encoder import encode_user_signatures
from airflow_custody.sandbox.rules.keys import create_private_key, sign
from airflow_custody.sandbox.wire import dumps

Envelope = dict[str, Any]
#: What somebody who verifies by signatures alone makes of an attack: refuses the envelope; does not read what was
#: changed, and finds what was signed; can only compare what was signed with what was asked for; or cannot know.
Outcome = Literal["refused", "not read", "compared", "not visible"]


class Unsuitable(Exception):
    """Raised when an attack does not fit a request; says what it takes."""


@dataclass(frozen=True)
class Means:
    """
    What a malicious service has at hand, or what has once been signed for it.

    :param superadmins: the private keys of the super-administrators by their ids, for rules that they signed once.
    :param superadmin_minimum: how many of them must sign.
    :param signers: the private keys of the sandbox's own signers by their ids, for texts that they signed once.
    :param others: returns the envelopes of the other requests of the tenant.
    """

    superadmins: Mapping[str, str]
    superadmin_minimum: int
    signers: Mapping[str, str]
    others: Callable[[], list[Envelope]]


Change = Callable[[Envelope, Means], None]


@dataclass(frozen=True)
class Attack:
    """
    An attack.

    :param name: its name.
    :param row: its row in the list of attacks.
    :param outcome: what somebody who verifies makes of it.
    :param change: changes an envelope.
    :param status: the status that the service pretends the request has. Default None: its own.
    """

    name: str
    row: int
    outcome: Outcome
    change: Change
    status: str | None = None

    @property
    def description(self) -> str:
        """What it does, in a line."""
        return str(self.change.__doc__)


#: All attacks by their names.
ATTACKS: dict[str, Attack] = {}


def attack(
    row: int, name: str, outcome: Outcome = "refused", *, status: str | None = None
) -> Callable[[Change], Change]:
    """Register what a function does, and its docstring says, as an attack."""

    def register(change: Change) -> Change:
        ATTACKS[name] = Attack(name, row, outcome, change, status)
        return change

    return register


@cache
def own_key(name: str = "mallory") -> str:
    """Return a private key of the service's own, which nobody pinned and no rule names."""
    return create_private_key()


def text_of(envelope: Envelope) -> str:
    """Return the text that is hashed."""
    return str(envelope["metadata"]["payloadAsString"])


def set_text(envelope: Envelope, text: str) -> None:
    """Replace the text, and its hash."""
    envelope["metadata"] = {
        **envelope["metadata"],
        "payloadAsString": text,
        "hash": hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest(),
    }


def change_text(envelope: Envelope, **keys: Any) -> None:
    """Change keys of the text, and its hash; those that are None are removed."""
    payload = {**json.loads(text_of(envelope)), **keys}
    set_text(envelope, dumps({name: value for name, value in payload.items() if value is not None}))


def append_to_text(envelope: Envelope, more: str) -> None:
    """Put more before the last brace of the text."""
    set_text(envelope, f"{text_of(envelope)[:-1]}{more}}}")


def entries_of(envelope: Envelope, minimum: int = 1) -> list[dict[str, Any]]:
    """Return the entries of the users' signatures."""
    entries: list[dict[str, Any]] = (envelope.get("signedAddress") or {}).get("signatures") or []
    if len(entries) < minimum:
        raise Unsuitable(
            f"it takes a request with {minimum} signatures" if minimum > 1 else "it takes a signed request"
        )
    return entries


def set_entries(envelope: Envelope, entries: list[Any]) -> None:
    """Replace the entries of the users' signatures."""
    envelope["signedAddress"] = {**(envelope.get("signedAddress") or {}), "signatures": entries}


def entry(user_id: str, private_key: str, hashes: list[str]) -> dict[str, Any]:
    """Return the entry of a user's signature over a list of hashes."""
    signature = encode(sign(private_key, dumps(hashes).encode()))
    return {"signature": {"userId": user_id, "signature": signature, "comment": "checked"}, "hashes": hashes}


def sign_again(envelope: Envelope, means: Means, text: str) -> None:
    """Have those who signed sign another text instead, as they once did; the text that is served stays."""
    signed = entries_of(envelope)
    names = [each["signature"]["userId"] for each in signed]
    if not set(names) <= means.signers.keys():
        raise Unsuitable("it takes a request that only the sandbox's own signers have signed")
    hashes = [hashlib.sha256(text.encode()).hexdigest()]
    set_entries(envelope, [entry(each, means.signers[each], hashes) for each in names])


def set_rules(envelope: Envelope, container: bytes, signatures: list[tuple[str, bytes]]) -> None:
    """Replace the rules, and their signatures."""
    envelope["rulesContainer"] = encode(container)
    envelope["rulesSignatures"] = encode(encode_user_signatures(signatures))


def signed_by(keys: Mapping[str, str], container: bytes) -> list[tuple[str, bytes]]:
    """Return the signatures of rules with these private keys, by the ids of those who have them."""
    return [(name, sign(key, container)) for name, key in keys.items()]


def container_of(envelope: Envelope) -> bytes:
    """Return the rules."""
    if not envelope.get("rulesContainer"):
        raise Unsuitable("it takes a request that shows its rules")
    return base64.b64decode(envelope["rulesContainer"])


def encode(data: bytes) -> str:
    """Return base64."""
    return base64.b64encode(data).decode()


#: The order of the curve P-256.
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def mirrored(signature: bytes) -> bytes:
    """Return the other signature that verifies wherever this one does: with n - s in place of s."""
    s = ORDER - int.from_bytes(signature[32:], "big")
    return signature[:32] + s.to_bytes(32, "big")


def to_der(signature: bytes) -> bytes:
    """Return a signature of 64 bytes in DER."""
    return encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))


def hash_of(envelope: Envelope) -> str:
    """Return the hash that is signed."""
    return str(envelope["metadata"]["hash"])
