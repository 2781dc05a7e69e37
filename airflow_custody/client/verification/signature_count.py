"""Users' signatures over a hash: read, verified when they are needed, and counted by group."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_custody.client.text import as_name, sanitize
from airflow_custody.client.verification.keys import SIGNATURE_BYTES, PublicKey, decode_base64
from airflow_custody.client.verification.results import GroupSignatures
from airflow_custody.client.verification.rules_container import Path, RulesContainer, Threshold

#: Maximum number of signatures of a request; more are refused unread.
MAX_ENTRIES = 200
#: Maximum number of hashes that one signature covers; one with more does not count.
MAX_HASHES = 10_000
#: Maximum number of verified signatures that are remembered.
MAX_SIGNATURES = 65_536
# Of 64 bytes in base64.
_SIGNATURE_LENGTH = 88
_MAX_PATHS_SHOWN = 3
_HASH_LENGTH = 64
_HEX = re.compile("[0-9a-f]*")


class SignatureCache:
    """Verifies signatures, none of them twice as long as it is remembered. May be used by several threads."""

    def __init__(self) -> None:
        self._known: dict[bytes, bool] = {}
        self._lock = threading.Lock()

    def verifies(self, key: PublicKey, signature: bytes, digest: bytes) -> bool:
        """
        Tell whether a signature is one of a key over a message.

        :param key: the key.
        :param signature: 64 bytes ``r || s``; anything else is no signature.
        :param digest: the SHA-256 of the message.
        """
        if len(signature) != SIGNATURE_BYTES:
            return False
        name = key.point + digest + signature
        known = self._known.get(name)
        if known is None:
            known = key.verifies_digest(signature, digest)
            with self._lock:
                if len(self._known) >= MAX_SIGNATURES:
                    del self._known[next(iter(self._known))]
                self._known[name] = known
        return known


class Entry:
    """
    One signature of a request.

    :param user_id: whose it is, as the service says: no signature covers that.
    :param signature: its bytes.
    :param hashes: what is signed, as sent.
    """

    def __init__(self, user_id: str, signature: bytes, hashes: Sequence[Any]) -> None:
        self.user_id = user_id
        self.signature = signature
        self.hashes = hashes
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes | None:
        """
        The SHA-256 of what was signed: of the whole list; None: it cannot be signed.

        It cannot if one of its hashes is none: how such a text would be escaped differs between JSON writers, so that
        a message could be read in two ways. Dropping the one hash only would be another message.
        """
        if self._digest is not None:
            return self._digest
        try:
            are_hashes = {*map(len, self.hashes)} == {_HASH_LENGTH} and _HEX.fullmatch("".join(self.hashes))
        except TypeError:  # one of them is no text
            return None
        if are_hashes:
            self._digest = hashlib.sha256(('["' + '","'.join(self.hashes) + '"]').encode()).digest()
        return self._digest


class EntriesError(ValueError):
    """Raised when a request has too many signatures, or what it has are not a list."""


def read_entries(envelope: Mapping[str, Any]) -> list[Entry | str]:
    """
    Return the signatures of a request, each as an entry or, if it cannot be used, as the reason why.

    :param envelope: the envelope as it came.
    :raises EntriesError: if they cannot be read at all.
    """
    address = envelope.get("signedAddress")
    if address is None:
        return []
    found = address.get("signatures") if isinstance(address, dict) else ""
    if found is None:
        return []
    if not isinstance(found, list):
        raise EntriesError("its signatures are not a list")
    if len(found) > MAX_ENTRIES:
        raise EntriesError(f"it has more than {MAX_ENTRIES} signatures")
    return [_read_entry(each) for each in found]


def check_size(envelope: Mapping[str, Any]) -> None:
    """
    Refuse a request whose signatures are too many to verify, or one of which covers too many hashes.

    :param envelope: the envelope as it came.
    :raises EntriesError: if it is.
    """
    address = envelope.get("signedAddress")
    found = address.get("signatures") if isinstance(address, dict) else None
    if not isinstance(found, list):
        return
    if len(found) > MAX_ENTRIES:
        raise EntriesError(f"it has more than {MAX_ENTRIES} signatures")
    for each in found:
        hashes = each.get("hashes") if isinstance(each, dict) else None
        if isinstance(hashes, list) and len(hashes) > MAX_HASHES:
            raise EntriesError(f"a signature of it covers more than {MAX_HASHES} hashes")


def _read_entry(found: object) -> Entry | str:
    signature = found.get("signature") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(signature, dict):
        return "it is not there"
    user_id, text, hashes = signature.get("userId"), signature.get("signature"), found.get("hashes")
    user_id = as_name(user_id)
    if not user_id:
        return "it names no user"
    if not isinstance(hashes, list) or len(hashes) > MAX_HASHES:
        return f"its hashes are no list, or more than {MAX_HASHES}"
    try:
        data = decode_base64(text) if isinstance(text, str) and len(text) == _SIGNATURE_LENGTH else b""
    except ValueError:
        data = b""
    if len(data) != SIGNATURE_BYTES:
        return "it is not 64 bytes in base64"
    return Entry(user_id, data, hashes)


class SignatureCount:
    """
    The users who have validly signed one hash.

    Each signature is verified when a path needs it, and not before: most requests have more than they need.

    :param hash_: the hash.
    :param entries: the request's signatures.
    :param container: the rules.
    :param cache: what verifies signatures.
    """

    def __init__(self, hash_: str, entries: Sequence[Entry], container: RulesContainer, cache: SignatureCache) -> None:
        self._container = container
        self._cache = cache
        self._by_user: dict[str, list[Entry]] = {}
        for entry in entries:
            if hash_ in entry.hashes:
                self._by_user.setdefault(entry.user_id, []).append(entry)
        self._candidates: dict[str, list[str]] = {}
        self._signed: dict[str, bool] = {}

    @property
    def has_entries(self) -> bool:
        """Whether there is a signature over the hash, valid or not."""
        return bool(self._by_user)

    def complete(self, paths: Sequence[Path]) -> tuple[GroupSignatures, ...] | None:
        """
        Return the groups of a path that is complete; None: none of the paths is.

        A path without groups is never complete, and neither is one with an unknown group or one without users: nothing
        passes by being empty. Another path may still be complete, and that one is signed as enough.

        :param paths: the paths, any one of which is enough.
        """
        # Without verifying anything: those that have enough who say that they signed, fewest signatures first.
        hopeful = [path for path in paths if path and all(map(self._may_reach, path))]
        if len(hopeful) > 1:
            hopeful.sort(key=_signatures_of)
        for path in hopeful:
            groups = []
            for threshold in path:
                users = self._count(threshold)
                if len(users) < threshold.minimum:
                    break
                groups.append(GroupSignatures(threshold.group_id, threshold.minimum, users))
            else:
                return tuple(groups)
        return None

    def count(self, path: Path) -> tuple[GroupSignatures, ...]:
        """Return, for each group of a path, who has validly signed: no more users than it needs."""
        return tuple(GroupSignatures(each.group_id, each.minimum, self._count(each)) for each in path)

    def describe(self, paths: Sequence[Path]) -> str | None:
        """
        Say which signatures there are and how many it takes, for a message; None: there are enough.

        :param paths: the paths, any one of which is enough.
        """
        if self.complete(paths) is not None:
            return None
        if not any(paths):
            return "its rule names no group that could sign"
        shown = [
            " and ".join(
                f"{len(self._count(each))} of {each.minimum} of the group {sanitize(each.group_id, 30)!r}"
                for each in path[:_MAX_PATHS_SHOWN]
            )
            for path in [path for path in paths if path][:_MAX_PATHS_SHOWN]
        ]
        return sanitize(", or ".join(shown), 200)

    def _may_reach(self, threshold: Threshold) -> bool:
        return len(self._users_of(threshold.group_id)) >= threshold.minimum

    def _users_of(self, group_id: str) -> list[str]:
        if group_id not in self._candidates:
            members = self._container.groups.get(group_id, frozenset())
            self._candidates[group_id] = [user for user in self._by_user if user in members]
        return self._candidates[group_id]

    def _count(self, threshold: Threshold) -> tuple[str, ...]:
        """Return the users of a group who signed, as far as the threshold needs them: each with a key of its own."""
        counted: dict[bytes, str] = {}
        for user in self._users_of(threshold.group_id):
            key = self._container.key_of(user)
            # Who has the key of another cannot be told from it: the names of users are not signed.
            if key is not None and key.point not in counted and self._has_signed(user, key):
                counted[key.point] = user
                if len(counted) == threshold.minimum:
                    break
        return tuple(counted.values())

    def _has_signed(self, user: str, key: PublicKey) -> bool:
        if user not in self._signed:
            self._signed[user] = False
            for entry in self._by_user[user]:
                digest = entry.digest
                if digest is not None and self._cache.verifies(key, entry.signature, digest):
                    self._signed[user] = True
                    break
        return self._signed[user]


def _signatures_of(path: Path) -> int:
    return sum(threshold.minimum for threshold in path)
