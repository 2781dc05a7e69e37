"""
Envelopes made by hand, whose rules, texts and signatures may be wrong.

The same arguments give the same bytes each time. This module imports nothing from the code under test. The defaults are
those of a worked example. Under its rules, ETH requires two members of ``ops`` or one of ``board``, but only one member
of ``ops`` for the wallet ``demo/7``. All other chains require one member of each group.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Key = ec.EllipticCurvePrivateKey

#: The number of points of P-256, and the prime of its field.
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
PRIME = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
TIMESTAMP = 1767225600

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
ANY, INTERNAL_WALLET, INTERNAL_ADDRESS = 0, 1, 2


# Keys and signatures


@cache
def private_key(name: str, curve: type[ec.EllipticCurve] = ec.SECP256R1) -> Key:
    """Return the key that belongs to a name."""
    digest = hashlib.sha256(f"verification example {name}".encode()).digest()
    return ec.derive_private_key(int.from_bytes(digest, "big") % ORDER, curve())


def der(key: str | Key) -> bytes:
    """Return the public key of a name, or of a private key, as SubjectPublicKeyInfo."""
    public = (private_key(key) if isinstance(key, str) else key).public_key()
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def pem(key: str | bytes) -> str:
    """Return a name's public key, or a SubjectPublicKeyInfo, as PEM text that ends with a line end."""
    text = b64(der(key) if isinstance(key, str) else key)
    rows = "".join(f"{text[start : start + 64]}\n" for start in range(0, len(text), 64))
    return f"-----BEGIN PUBLIC KEY-----\n{rows}-----END PUBLIC KEY-----\n"


def _algorithm() -> ec.ECDSA:
    """Return the signature algorithm, deterministic from version 43 of cryptography."""
    try:
        return ec.ECDSA(SHA256(), deterministic_signing=True)
    except TypeError:
        return ec.ECDSA(SHA256())


@cache
def sign(key: str | Key, message: bytes) -> bytes:
    """Return the signature of a name, or of a private key, over a message: 64 bytes, the same each time."""
    key = private_key(key) if isinstance(key, str) else key
    return raw(*decode_dss_signature(key.sign(message, _algorithm())))


def raw(r: int, s: int) -> bytes:
    """Return a signature's two numbers as 64 bytes."""
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def twin(signature: bytes) -> bytes:
    """Return the other signature that is valid wherever this one is: ``(r, n - s)``."""
    return signature[:32] + (ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")


def b64(body: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(body).decode()


# Protobuf


def varint(number: int) -> bytes:
    """Return a number as a varint; negative numbers in two's complement."""
    number %= 1 << 64
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def tag(number: int, wire_type: int) -> bytes:
    """Return the tag before a field: its number and wire type."""
    return varint(number << 3 | wire_type)


def field(number: int, value: int | str | bytes) -> bytes:
    """Return a field: a number as varint, everything else with its length before it."""
    if isinstance(value, int):
        return tag(number, VARINT) + varint(value)
    body = value.encode() if isinstance(value, str) else value
    return tag(number, LENGTH) + varint(len(body)) + body


def fields(number: int, values: Iterable[int | str | bytes]) -> bytes:
    """Return a repeated field."""
    return b"".join(field(number, each) for each in values)


def packed(numbers: Iterable[int]) -> bytes:
    """Return numbers as the body of a packed field."""
    return b"".join(map(varint, numbers))


#: Fields that no message has, one of each wire type.
UNKNOWN = field(99, 7) + field(98, b"new") + tag(97, FIXED32) + b"\x01\0\0\0" + tag(96, FIXED64) + b"\xff" * 8


# Rules


def user_id(name: str) -> str:
    """Return a name's user id."""
    return f"{name}@example.test"


def user(name: str, *, key: str | None = None, roles: bytes | None = None, extra: bytes = b"") -> bytes:
    """
    Return a user of the rules.

    :param name: the name, from which the user's id is made.
    :param key: the public key's PEM. Default: the name's.
    :param roles: the encoded roles. Default: 0 and 11, packed.
    :param extra: further fields of the message.
    """
    roles = field(3, packed([0, 11])) if roles is None else roles
    return field(1, user_id(name)) + field(2, pem(name) if key is None else key) + roles + extra


def group(group_id: str, *names: str, extra: bytes = b"") -> bytes:
    """Return a group of users."""
    return field(1, group_id) + fields(2, map(user_id, names)) + extra


def path(*thresholds: tuple[str, int]) -> bytes:
    """Return a branch: groups that must all reach their thresholds."""
    return fields(
        1,
        (
            (field(1, group_id) if group_id else b"") + (field(2, minimum) if minimum else b"")
            for group_id, minimum in thresholds
        ),
    )


def wallet_cell(wallet_path: str) -> bytes:
    """Return a cell that stands for a wallet."""
    return field(1, INTERNAL_WALLET) + field(2, field(1, wallet_path))


def line(wallet_path: str, *paths: bytes, cells: Iterable[bytes] | None = None) -> bytes:
    """Return a line of a rule, for a wallet or with other cells, and its thresholds."""
    return fields(1, [wallet_cell(wallet_path)] if cells is None else cells) + fields(2, paths)


def rule(currency: str, *paths: bytes, network: str = "", lines: Iterable[bytes] = (), extra: bytes = b"") -> bytes:
    """Return a rule; without a currency, it applies to all other chains."""
    encoded = field(1, currency) if currency else b""
    encoded += fields(2, paths)
    encoded += field(4, network) if network else b""
    return encoded + fields(5, lines) + extra


#: The keys of two super-administrators, both of whom have signed the rules.
PINNED = [pem("admin1"), pem("admin2")]
USERS = (user("alice"), user("bob"), user("carol"))
GROUPS = (group("ops", "alice", "bob"), group("board", "carol"))
ETH_PATHS = (path(("ops", 2)), path(("board", 1)))
DEFAULT_RULE = rule("", path(("ops", 1), ("board", 1)))
RULES = (rule("ETH", *ETH_PATHS, lines=[line("demo/7", path(("ops", 1)))]), DEFAULT_RULE)


def container(
    *,
    users: Iterable[bytes] = USERS,
    groups: Iterable[bytes] = GROUPS,
    rules: Iterable[bytes] = RULES,
    timestamp: int | None = TIMESTAMP,
    extra: bytes = b"",
) -> bytes:
    """Return the bytes that super-administrators sign."""
    encoded = fields(1, users) + fields(2, groups) + fields(6, rules)
    return encoded + (b"" if timestamp is None else field(10, timestamp)) + extra


def superadmin_entry(
    key: str | Key, rules: bytes, *, label: str | None = None, signature: bytes | None = None
) -> bytes:
    """
    Return one super-administrator's signature.

    :param key: whose key signs: a name, or a private key, which needs a label.
    :param rules: the bytes that are signed.
    :param label: the user id that it is sent under. Default: the name's.
    :param signature: what is sent as signature. Default: a true one.
    """
    signature = sign(key, rules) if signature is None else signature
    return field(1, _label(key, label)) + field(2, signature)


def _label(key: str | Key, label: Any) -> Any:
    if label is None:
        assert isinstance(key, str)
        return user_id(key)
    return label


def rules_signatures(rules: bytes, *entries: str | bytes) -> str:
    """
    Return super-administrators' signatures in the form that the service sends.

    :param rules: the bytes that are signed.
    :param entries: names, each of which signs the rules, or entries, which are used unchanged.
    """
    return b64(fields(1, (superadmin_entry(each, rules) if isinstance(each, str) else each for each in entries)))


# Texts

ADDRESS = "0x00000000000000000000000000000000000000A1"
LINKED_ADDRESS = "0x0000000000000000000000000000000000000D12"
WALLET = {"id": 7, "name": "hot", "path": "demo/7"}
_KEYS = (
    *("currency", "network", "addressType", "address", "memo", "label", "customerId", "exchangeAccountId"),
    *("linkedInternalAddresses", "linkedWallets", "contractType", "tnParticipantID"),
)
_ABSENT_IF_EMPTY = ("network", "linkedWallets", "tnParticipantID")


def text_of(*, without: Iterable[str] = (), **values: Any) -> str:
    """
    Return a text as the service writes it.

    :param without: keys that are left out.
    :param values: values of keys, instead of address A's.
    """
    known: dict[str, Any] = {"currency": "ETH", "addressType": "individual", "address": ADDRESS, "label": "demo A"}
    known |= {"linkedInternalAddresses": []} | values
    content = {key: known.get(key, "") for key in _KEYS if known.get(key) or key not in _ABSENT_IF_EMPTY}
    return compact({key: value for key, value in content.items() if key not in without})


def compact(content: Any) -> str:
    """Return JSON without white space."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def hash_of(text: str) -> str:
    """Return the hash of a text, which users sign."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


TEXT_A = text_of()
TEXT_B = text_of(address="0x00000000000000000000000000000000000000B2", label="demo B", linkedWallets=[WALLET])
_C = {"address": "0x00000000000000000000000000000000000000C3", "memo": "4242", "label": "demo C"}
TEXT_C = text_of(**_C, linkedInternalAddresses=[{"id": "12", "address": LINKED_ADDRESS, "label": "renamed later"}])
#: The text of C that was signed before texts had a contract type and labels of linked addresses.
TEXT_CS = text_of(**_C, linkedInternalAddresses=[{"id": "12", "address": LINKED_ADDRESS}], without=["contractType"])


# Envelopes


def user_entry(
    key: str | Key,
    *hashes: Any,
    label: Any = None,
    signature: bytes | None = None,
    signed: Iterable[str] | None = None,
) -> dict[str, Any]:
    """
    Return one user's signature as an envelope shows it.

    :param key: whose key signs: a name, or a private key, which needs a label.
    :param hashes: the hashes that are shown.
    :param label: the user id that it is sent under. Default: the name's.
    :param signature: what is sent as signature. Default: a true one.
    :param signed: the hashes that are really signed. Default: those shown.
    """
    signature = sign(key, message_of(hashes if signed is None else signed)) if signature is None else signature
    return {"signature": {"userId": _label(key, label), "signature": b64(signature)}, "hashes": list(hashes)}


def message_of(hashes: Iterable[str]) -> bytes:
    """Return the bytes that a user signs."""
    return compact(list(hashes)).encode("utf-8", "surrogatepass")


def envelope(
    text: str,
    *entries: Any,
    rules: bytes | None = None,
    superadmins: Iterable[str | bytes] = ("admin1", "admin2"),
    **changes: Any,
) -> dict[str, Any]:
    """
    Return an envelope.

    :param text: the text.
    :param entries: names, which sign the text's hash, or signatures as they are given.
    :param rules: the rules. Default: those of the worked example.
    :param superadmins: who signs the rules: names, or entries as they are given.
    :param changes: values of keys of the envelope.
    """
    rules = container() if rules is None else rules
    shown = [user_entry(one, hash_of(text)) if isinstance(one, str) else copy.deepcopy(one) for one in entries]
    return {
        "id": "3711",
        "status": "approved",
        "blockchain": "ETH",
        "network": "mainnet",
        "metadata": {"hash": hash_of(text), "payloadAsString": text, "payload": {}},
        "signedAddress": {"signatures": shown},
        "rulesContainer": b64(rules),
        "rulesSignatures": rules_signatures(rules, *superadmins),
    } | changes


def with_text(given: dict[str, Any], text: str) -> dict[str, Any]:
    """Return an envelope with another text and hash, but the same signatures."""
    return given | {"metadata": given["metadata"] | {"payloadAsString": text, "hash": hash_of(text)}}
