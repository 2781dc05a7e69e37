"""Two spellings of one address: for the search for what a lost response created. Pure functions, no I/O."""

from __future__ import annotations

import re
import unicodedata

from airflow_custody.client.text import ascii_lower

# Maximum difference between the lengths of base58 addresses.
_LENGTHS_VARY = 4
# Length of an address's end that no two different addresses share.
_SAME_END = 24
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(.+)", re.DOTALL)
# An account of Hedera with its checksum, which is another one on each ledger: HIP-15.
_HIP15 = re.compile(r"([0-9]+\.[0-9]+\.[0-9]+)(-[A-Za-z]{5})")
# --- addresses ---------------------------------------------------------------------------------------------


def _split(address: str) -> tuple[str, str]:
    """
    Return the optional part of an address, without case, and the rest.

    It is a prefix such as ``bitcoincash``, or a checksum; ``0x`` is left out, too.
    """
    found = _PREFIX.fullmatch(address)
    prefix, rest = (ascii_lower(found[1]), found[2]) if found else ("", address)
    if found := _HIP15.fullmatch(rest):
        return prefix + ascii_lower(found[2]), found[1]
    is_hex = rest[:2] in ("0x", "0X") and _HEXADECIMAL.fullmatch(rest[2:])
    return prefix, rest[2:] if is_hex else rest


def _without_case(rest: str) -> str:
    """Return the rest of an address without case, if case is no part of it."""
    # In other forms, base58 above all, the case of a letter is a part of the address.
    is_free = _HEXADECIMAL.fullmatch(rest) or rest in (rest.lower(), rest.upper())
    return ascii_lower(rest) if is_free else rest


def address_key(address: str) -> str:
    """
    Return a key that all spellings of an address share.

    Two addresses may have the same key, such as one that has the memo in it and one that has not.
    """
    parts = re.split("[:?]", "".join(unicodedata.normalize("NFKC", address).split()))
    longest = max(parts, key=len)
    if found := _HIP15.fullmatch(longest):
        return found[1]
    return (longest[2:] if longest[:2] in ("0x", "0X") else longest).casefold()


def is_same_address(asked: str, shown: object) -> bool:
    """Tell whether two spellings certainly name the same address."""
    if not isinstance(shown, str):
        return False
    if asked == shown:
        return True
    (prefix, one), (other_prefix, other) = _split(asked), _split(shown)
    if prefix and other_prefix and prefix != other_prefix:
        return False
    return one == other or _without_case(one) == _without_case(other)


def is_alike(one: str, other: str) -> bool:
    """Tell whether one address is a part of the other one, so that they may be the same: with a prefix, with a memo."""
    first, second = _letters_and_digits(one), _letters_and_digits(other)
    return bool(first and second) and (first in second or second in first)


def may_be_respelled(one: str, other: str) -> bool:
    """
    Tell whether two addresses that differ may be one, in two forms.

    Two different addresses in one form, such as hexadecimal with ``0x``, are two destinations. In two forms they may be
    one: a legacy address and a new one, an address with the memo in it and without.
    """
    end = address_end(one)
    return is_alike(one, other) or bool(end and end == address_end(other)) or are_apart(form_of(one), form_of(other))


def address_end(address: str) -> str:
    """Return the end of an address, which no other address has; empty if it is too short."""
    text = _letters_and_digits(address)
    return text[-_SAME_END:] if len(text) >= _SAME_END else ""


def are_apart(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Tell whether what :func:`form_of` returned are two forms, so that two texts may be one address."""
    return one[0] != other[0] or abs(one[1] - other[1]) > _LENGTHS_VARY


def _letters_and_digits(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", _split(text)[1]).casefold()))


def form_of(address: str) -> tuple[str, int]:
    """Return the kind of an encoding, and the length of an address in it; 0 where that says nothing."""
    rest = _split(address)[1]
    if _HEXADECIMAL.fullmatch(rest):
        return "hexadecimal", len(rest)
    prefix, separator, _ = rest.lower().partition("1")
    if separator and prefix.isalpha() and rest in (rest.lower(), rest.upper()):
        return f"bech32 {prefix}", 0
    return ("one case" if rest in (rest.lower(), rest.upper()) else "both cases"), len(rest)
