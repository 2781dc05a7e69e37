"""Users' signatures over a hash: read, verified, and counted by group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_custody.client.text import as_name, sanitize
from airflow_custody.client.verification.keys import SIGNATURE_BYTES, PublicKey, decode_base64
from airflow_custody.client.verification.results import GroupSignatures, RefusalError
from airflow_custody.client.verification.rules_container import Path, RulesContainer

#: Maximum number of signatures of a request; more are refused unread.
MAX_ENTRIES = 200
#: Maximum number of hashes that one signature covers. A signature over more hashes does not count.
MAX_HASHES = 10_000
# Length of 64 bytes in base64.
_SIGNATURE_LENGTH = 88
_MAX_PATHS_SHOWN = 3
_HASH_LENGTH = 64
_HEX = re.compile("[0-9a-f]*")

#: Returns whether a key made a signature over a message with this digest.
Verifies = Callable[[PublicKey, bytes, bytes], bool]


@dataclass
class Entry:
    """
    One signature of a request.

    :param user_id: id of its user, as the service reports it. No signature covers the id.
    :param signature: its bytes.
    :param hashes: the signed hashes, as sent.
    :param fault: the reason why the signature cannot be used. If there is a reason, the other fields are meaningless.
        Default empty.
    """

    user_id: str = ""
    signature: bytes = b""
    hashes: Sequence[Any] = ()
    fault: str = ""

    @cached_property
    def digest(self) -> bytes | None:
        """
        The SHA-256 of the signed message; None if unusable.

        The message is the whole list of hashes.

        The digest is unusable if a member of the list is not a hash: JSON writers escape other texts differently, so
        the signed message is ambiguous. Omitting the member would change the message.
        """
        try:
            are_hashes = {*map(len, self.hashes)} == {_HASH_LENGTH} and _HEX.fullmatch("".join(self.hashes))
        except TypeError:  # a member is not text
            return None
        return hashlib.sha256(('["' + '","'.join(self.hashes) + '"]').encode()).digest() if are_hashes else None


def read_entries(envelope: Mapping[str, Any]) -> list[Entry]:
    """
    Return the signatures of a request, with faults.

    :param envelope: the envelope as received.
    :raises RefusalError: if the signatures cannot be read at all.
    """
    address = envelope.get("signedAddress")
    found = address.get("signatures") if isinstance(address, dict) else None
    if address is None or (isinstance(address, dict) and found is None):
        return []
    if not isinstance(found, list):
        raise RefusalError("its signatures are not a list")
    if len(found) > MAX_ENTRIES:
        raise RefusalError(f"it has more than {MAX_ENTRIES} signatures")
    return [_read_entry(each) for each in found]


def _read_entry(found: object) -> Entry:
    signature = found.get("signature") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(signature, dict):
        return Entry(fault="it is missing")
    text, hashes = signature.get("signature"), found.get("hashes")
    user_id = as_name(signature.get("userId"))
    if not user_id:
        return Entry(fault="it names no user")
    if not isinstance(hashes, list) or len(hashes) > MAX_HASHES:
        return Entry(fault=f"its hashes are not a list, or are more than {MAX_HASHES}")
    try:
        data = decode_base64(text) if isinstance(text, str) and len(text) == _SIGNATURE_LENGTH else b""
    except ValueError:
        data = b""
    if len(data) != SIGNATURE_BYTES:
        return Entry(fault="it is not 64 bytes in base64")
    return Entry(user_id, data, hashes)


def why_invalid(entry: Entry, hashes: Collection[str], container: RulesContainer, verifies: Verifies) -> str:
    """
    Return why a signature is invalid; empty if it is valid.

    A valid signature is made by a user in the rules, over one of the hashes.

    :param entry: the signature.
    :param hashes: the hashes of the text and of its accepted legacy forms.
    :param container: the rules.
    :param verifies: verifies signatures.
    """
    if entry.fault:
        return entry.fault
    if not _covers(entry, hashes):
        return "it covers another text than the current one"
    key = container.key_of(entry.user_id)
    if key is not None and entry.digest is not None and verifies(key, entry.signature, entry.digest):
        return ""
    who = repr(sanitize(entry.user_id, 60))
    if entry.user_id not in container.users:
        return f"{who} is not a user in its rules"
    return f"the key of {who} in its rules cannot be used" if key is None else f"it is not a signature of {who}"


def _covers(entry: Entry, hashes: Collection[str]) -> bool:
    return any(each in entry.hashes for each in hashes)


class SignatureCount:
    """
    The users who have validly signed one of several hashes.

    :param hashes: the hash of a text, and the hashes of the other accepted forms of this text.
    :param entries: the request's signatures. Unusable signatures do not count.
    :param container: the rules.
    :param verifies: verifies signatures.
    """

    def __init__(
        self, hashes: Collection[str], entries: Sequence[Entry], container: RulesContainer, verifies: Verifies
    ) -> None:
        self._container = container
        #: The signatures over one of the hashes, valid or not.
        self.entries = [each for each in entries if not each.fault and _covers(each, hashes)]
        valid = [each.user_id for each in self.entries if not why_invalid(each, hashes, container, verifies)]
        # The users with valid signatures.
        self._signers = dict.fromkeys(valid)

    def count(self, path: Path) -> tuple[GroupSignatures, ...]:
        """
        Return the valid signers of each group of a path.

        For each group, at most as many users as it needs are returned.
        """
        found = []
        for threshold in path:
            members = self._container.groups.get(threshold.group_id, frozenset())
            # Users with the same key count once: they cannot be distinguished, because users' names are not signed.
            by_key: dict[PublicKey | None, str] = {}
            for user in self._signers:
                if user in members:
                    by_key.setdefault(self._container.key_of(user), user)
            users = tuple(by_key.values())[: threshold.minimum]
            found.append(GroupSignatures(threshold.group_id, threshold.minimum, users))
        return tuple(found)

    def complete(self, paths: Sequence[Path]) -> tuple[GroupSignatures, ...] | None:
        """
        Return the groups of the first complete path, or None.

        A path is never complete if it has no groups, or if one of its groups is unknown, has no users, or has a
        threshold of 0. Another path may still be complete, which is enough.

        :param paths: the paths; one complete path is enough.
        """
        for path in paths:
            groups = self.count(path)
            if groups and all(1 <= each.minimum <= len(each.user_ids) for each in groups):
                return groups
        return None

    def describe(self, paths: Sequence[Path]) -> str:
        """
        Describe the existing and the needed signatures, for a message.

        :param paths: the paths; none of them is complete.
        """
        shown = [
            " and ".join(
                f"{len(each.user_ids)} of {each.minimum} in the group {sanitize(each.group_id, 30)!r}"
                for each in self.count(path[:_MAX_PATHS_SHOWN])
            )
            for path in paths[:_MAX_PATHS_SHOWN]
        ]
        return sanitize(", or ".join(shown), 200) or "its rule has no path in which each group has a threshold above 0"
