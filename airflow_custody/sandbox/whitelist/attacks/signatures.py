"""Attacks on the users' signatures."""

from __future__ import annotations

import base64
import copy
from typing import Any

from airflow_custody.sandbox.whitelist.attacks.base import (
    Envelope,
    Means,
    Unsuitable,
    attack,
    encode,
    entries_of,
    entry,
    hash_of,
    mirrored,
    own_key,
    set_entries,
    to_der,
)


def _signature_of(each: dict[str, Any]) -> bytes:
    return base64.b64decode(each["signature"]["signature"])


def _with(each: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an entry with another signature or user."""
    return {**each, "signature": {**each["signature"], **fields}}


def _change_signatures(envelope: Envelope, change: Any) -> None:
    """Write each signature anew: what a function returns for its bytes."""
    set_entries(envelope, [_with(each, signature=change(_signature_of(each))) for each in entries_of(envelope)])


@attack(5, "signatures in DER")
def _in_der(envelope: Envelope, _: Means) -> None:
    """Write the users' signatures in DER."""
    _change_signatures(envelope, lambda data: encode(to_der(data)))


@attack(5, "signatures of 63 bytes")
def _one_byte_less(envelope: Envelope, _: Means) -> None:
    """Cut a byte off the users' signatures."""
    _change_signatures(envelope, lambda data: encode(data[:-1]))


@attack(5, "signatures of 65 bytes")
def _one_byte_more(envelope: Envelope, _: Means) -> None:
    """Append a byte to the users' signatures."""
    _change_signatures(envelope, lambda data: encode(data + b"\0"))


@attack(5, "base64 without padding")
def _no_padding(envelope: Envelope, _: Means) -> None:
    """Leave the padding of the users' signatures out."""
    _change_signatures(envelope, lambda data: encode(data).rstrip("="))


@attack(6, "one user repeated")
def _repeat_user(envelope: Envelope, _: Means) -> None:
    """Show the first user's signature once for each who must sign."""
    first, *others = entries_of(envelope, 2)
    set_entries(envelope, [first, *(copy.deepcopy(first) for _ in others)])


@attack(6, "one user under several names")
def _rename_user(envelope: Envelope, _: Means) -> None:
    """Show the first user's signature under the names of all who must sign."""
    first, *others = entries_of(envelope, 2)
    names = [each["signature"]["userId"] for each in others]
    set_entries(envelope, [first, *(_with(first, userId=name) for name in names)])


@attack(6, "one user mirrored")
def _mirror_user(envelope: Envelope, _: Means) -> None:
    """Make the other users' signatures of the first one's: n - s for s."""
    first, *others = entries_of(envelope, 2)
    signature = encode(mirrored(_signature_of(first)))
    more = [_with(first, signature=signature, userId=each["signature"]["userId"]) for each in others]
    set_entries(envelope, [first, *more])


@attack(7, "hash removed")
def _remove_hash(envelope: Envelope, _: Means) -> None:
    """Leave the first hash out of each list that was signed."""
    set_entries(envelope, [{**each, "hashes": each["hashes"][1:]} for each in entries_of(envelope)])


@attack(7, "hash added")
def _add_hash(envelope: Envelope, _: Means) -> None:
    """Append a hash to each list that was signed."""
    set_entries(envelope, [{**each, "hashes": [*each["hashes"], "66" * 32]} for each in entries_of(envelope)])


@attack(7, "hashes reordered")
def _reorder_hashes(envelope: Envelope, _: Means) -> None:
    """Turn each list that was signed round."""
    entries = entries_of(envelope)
    if max(len(each["hashes"]) for each in entries) < 2:
        raise Unsuitable("it takes a request that was signed together with another")
    set_entries(envelope, [{**each, "hashes": each["hashes"][::-1]} for each in entries])


@attack(7, "hash in an old signature")
def _reuse_signature(envelope: Envelope, means: Means) -> None:
    """Take the signatures of another request, and append this one's hash to the lists that they are of."""
    for other in means.others():
        found = (other.get("signedAddress") or {}).get("signatures")
        if found and hash_of(other) != hash_of(envelope):
            set_entries(envelope, [{**each, "hashes": [*each["hashes"], hash_of(envelope)]} for each in found])
            return
    raise Unsuitable("it takes another request that is signed")


@attack(8, "signer outside of the group")
def _signer_outside_group(envelope: Envelope, means: Means) -> None:
    """Have super-administrators sign the address: users of the rules, in no group."""
    set_entries(envelope, [entry(name, key, [hash_of(envelope)]) for name, key in means.superadmins.items()])


@attack(8, "unknown signer")
def _unknown_signer(envelope: Envelope, _: Means) -> None:
    """Sign the address with keys of its own, under names that the rules do not have."""
    names = ("mallory@example.test", "trudy@example.test")
    set_entries(envelope, [entry(name, own_key(name), [hash_of(envelope)]) for name in names])


@attack(8, "signatures under the users' names")
def _forged_signatures(envelope: Envelope, _: Means) -> None:
    """Sign the address with keys of its own, under the names of the users who signed."""
    names = [each["signature"]["userId"] for each in entries_of(envelope)]
    set_entries(envelope, [entry(name, own_key(name), [hash_of(envelope)]) for name in names])


@attack(16, "junk entry first", "not read")
def _junk_first(envelope: Envelope, _: Means) -> None:
    """Put an entry that covers the hash, and that nobody signed, before those that are signed."""
    entries = entries_of(envelope)
    junk = _with(entries[0], signature=encode(bytes(range(64))))
    set_entries(envelope, [{**junk, "hashes": [hash_of(envelope)]}, *entries])


@attack(17, "hashes that are none")
def _odd_hashes(envelope: Envelope, _: Means) -> None:
    """Send lists with texts that are no hashes, and are written differently by each JSON writer."""
    hashes = ["\u00e9<&>", hash_of(envelope).upper(), hash_of(envelope)]
    set_entries(envelope, [{**each, "hashes": hashes} for each in entries_of(envelope)])


@attack(17, "null lists")
def _null_lists(envelope: Envelope, _: Means) -> None:
    """Send null in place of the lists of hashes."""
    set_entries(envelope, [{**each, "hashes": None} for each in entries_of(envelope)])


@attack(17, "numbers for signatures")
def _numbers(envelope: Envelope, _: Means) -> None:
    """Send numbers in place of the entries."""
    set_entries(envelope, [3711, *(0 for _ in entries_of(envelope))])
