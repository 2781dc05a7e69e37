"""Encodes rules and their signatures as protocol buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# The wire types.
_VARINT = 0
_BYTES = 2

#: The numbers of the roles that users of the sandbox may have.
ROLES = {
    "REQUESTAPPROVER": 0,
    "SUPERADMIN": 3,
    "WHITELISTEDADDRESSCREATOR": 9,
    "TPUSER": 10,
    "WHITELISTEDADDRESSAPPROVER": 11,
}


def encode_rules_container(
    users: Iterable[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
    parallel: Iterable[Mapping[str, Any]],
    timestamp: int,
) -> bytes:
    """
    Return a rules container with one rule, for any chain and network.

    :param users: the users, each with `id`, `publicKey` (PEM) and `roles` (names). Roles that have no number in
        :data:`ROLES` are left out.
    :param groups: the ids of each group's users, by group.
    :param parallel: the branches of required signers, in the form that ``set_approvers`` accepts.
    :param timestamp: seconds since 1970.
    """
    return b"".join(
        [
            *(_element(1, _user(each)) for each in users),
            *(_element(2, _encode_text(1, name) + _elements(2, ids)) for name, ids in groups.items()),
            _element(6, _elements(2, map(_branch, parallel))),
            _encode_number(10, timestamp),
        ]
    )


def encode_user_signatures(signatures: Iterable[tuple[str, bytes]]) -> bytes:
    """Return pairs of user id and signature (64 bytes) as one message."""
    return _elements(1, (_encode_text(1, user_id) + _element(2, signature) for user_id, signature in signatures))


def _user(user: Mapping[str, Any]) -> bytes:
    roles = sorted({ROLES[role.upper()] for role in user["roles"] if role.upper() in ROLES})
    packed = b"".join(_varint(role) for role in roles)
    return _encode_text(1, user["id"]) + _encode_text(2, user["publicKey"]) + (_element(3, packed) if packed else b"")


def _branch(branch: Mapping[str, Any]) -> bytes:
    return _elements(1, map(_threshold, branch["sequential"]))


def _threshold(group: Mapping[str, Any]) -> bytes:
    return _encode_text(1, group["externalGroupID"]) + _encode_number(2, group["minimumSignatures"])


def _encode_number(field: int, value: int) -> bytes:
    """Encode a number; zero is omitted."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _encode_text(field: int, value: str) -> bytes:
    """Encode a text; an empty text is omitted."""
    return _element(field, value) if value else b""


def _element(field: int, value: str | bytes) -> bytes:
    """Encode a text or a message, even if it is empty."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data


def _elements(field: int, values: Iterable[str | bytes]) -> bytes:
    return b"".join(_element(field, each) for each in values)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
