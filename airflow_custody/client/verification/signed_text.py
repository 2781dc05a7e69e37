"""The text of a whitelisting request, which its hash covers: read so that there is only one way to read it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from airflow_custody.client.text import escape, is_decimal, sanitize
from airflow_custody.client.whitelist.review import ALL_KEYS

#: Maximum size of a text in bytes; a larger one is refused unread.
MAX_PAYLOAD_BYTES = 1024 * 1024

# Of any text, whoever reads it: it takes three levels.
_MAX_DEPTH = 16
# It has twelve keys, and its links have five. More than these could make a message, or the work on it, large.
_MAX_KEYS = 200
_SURROGATE = re.compile("[\ud800-\udfff]")
_KNOWN_NAMES = frozenset(ALL_KEYS)
_KNOWN_KEYS = {key.casefold(): key for key in ALL_KEYS}


class SignedTextError(ValueError):
    """Raised when a text cannot be used; says why, as in "its payload ..."."""


@dataclass(frozen=True)
class SignedText:
    """
    A text that users may have signed.

    :param hash: its hash, in hex.
    :param fields: its keys and values.
    :param legacy: whether it is a legacy form of the text that was received.
    :param omitted: the keys of the received text that it lacks.
    """

    hash: str
    fields: Mapping[str, Any]
    legacy: bool = False
    omitted: tuple[str, ...] = ()

    @property
    def wallet_path(self) -> str:
        """The path of the one linked wallet, if it is the one link; else empty."""
        wallets = self.fields.get("linkedWallets") or []
        if self.fields.get("linkedInternalAddresses") or len(wallets) != 1:
            return ""
        path: str = wallets[0].get("path") or ""
        return path


def read_object(text: str, hash_: str) -> dict[str, Any]:
    """
    Return the JSON object of a text, verified against its hash.

    :param text: the text.
    :param hash_: the hash that the service gives for it, in hex.
    :raises SignedTextError: if they do not belong together, or the text is larger than 1 MiB or no JSON object. Also if
        two of its keys are equal or differ only in case, or a known key has another case: the service's own reader
        ignores the case of keys, and takes the last. Also if it is nested so deeply that it could not be printed.
    """
    found = _read(text, hash_, _DECODER)
    # No text is deeper than it has brackets.
    if text.count("[") + text.count("{") >= _MAX_DEPTH:
        for _ in _values(found):
            pass
    return found


def _read(text: str, hash_: str, decoder: json.JSONDecoder) -> dict[str, Any]:
    if _hash(text) != hash_:
        raise SignedTextError("does not have the hash that the service gives for it")
    return _parse(text, decoder)


def decode_strictly(text: str) -> Any:
    """
    Return the value of a JSON text, in which no key is there twice, in another case or not: see :func:`read_object`.

    :param text: the text.
    :raises SignedTextError: if it cannot be read in one way only.
    """
    try:
        return _DECODER.decode(text)
    except SignedTextError:
        raise
    except (ValueError, RecursionError):
        raise SignedTextError("is not JSON") from None


def read_signed_text(text: str, hash_: str) -> SignedText:
    """
    Return what a text says, if it is the text of a whitelisted address: as :func:`read_object`, and with all the keys
    that every such text has, of known types.

    :param text: the text.
    :param hash_: the hash that the service gives for it, in hex.
    :raises SignedTextError: as :func:`read_object`, and if it is the text of something else.
    """
    fields = _read(text, hash_, _DECODER_OF_ADDRESSES)
    _check_shape(text, fields)
    return SignedText(hash_, fields)


def legacy_forms(text: str, received: SignedText) -> Iterator[SignedText]:
    """
    Yield the legacy forms of a text: without ``contractType``, without the labels of linked addresses, without both.

    What users signed then is found by changing the text, as the service's makers do it. But a change counts only if it
    removes these keys as JSON, and nothing else: a value may look like the end of one to the expression, and not to
    JSON, so that signed text would vanish.

    :param text: the text that was received.
    :param received: what it says.
    """
    seen = {text}
    for change, omits_contract, omits_labels in _LEGACY_CHANGES:
        changed = change(text)
        if changed in seen:
            continue
        seen.add(changed)
        expected, omitted = _without(received.fields, omits_contract, omits_labels)
        try:
            fields = _parse(changed, _DECODER_OF_ADDRESSES)
            _check_shape(changed, fields)
        except SignedTextError:
            continue
        # As text: for Python 1, 1.0 and true are equal.
        if json.dumps(fields) == json.dumps(expected):
            yield SignedText(_hash(changed), fields, legacy=True, omitted=omitted)


def _drop_contract(text: str) -> str:
    return re.sub(r',"contractType":"[^"]*"', "", text)


def _drop_labels(text: str) -> str:
    return re.sub(r',"label":"[^"]*"}', "}", text)


_LEGACY_CHANGES: tuple[tuple[Callable[[str], str], bool, bool], ...] = (
    (_drop_contract, True, False),
    (_drop_labels, False, True),
    (lambda text: _drop_contract(_drop_labels(text)), True, True),
)


def _without(fields: Mapping[str, Any], contract: bool, labels: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields without these keys, and the names of those that were there."""
    omitted = []
    kept = dict(fields)
    if contract and "contractType" in kept:
        del kept["contractType"]
        omitted.append("contractType")
    links = kept.get("linkedInternalAddresses") or []
    if labels and any("label" in link for link in links):
        kept["linkedInternalAddresses"] = [{key: link[key] for key in link if key != "label"} for link in links]
        omitted.append("linkedInternalAddresses.label")
    return kept, tuple(omitted)


# --- shape -------------------------------------------------------------------------------------------------

_TEXTS = frozenset(
    {
        "currency",
        "network",
        "addressType",
        "address",
        "memo",
        "label",
        "customerId",
        "exchangeAccountId",
        "contractType",
        "tnParticipantID",
    }
)
# Always there, empty or not. Old texts lack contractType; a network, wallets and a participant are left out when empty.
_REQUIRED = (
    "currency",
    "addressType",
    "address",
    "memo",
    "label",
    "customerId",
    "exchangeAccountId",
    "linkedInternalAddresses",
)
_LINKS: Mapping[str, Mapping[str, type]] = {
    "linkedInternalAddresses": {"id": str, "address": str, "label": str},
    "linkedWallets": {"id": int, "name": str, "path": str},
}
_KEYS = _TEXTS | _LINKS.keys()


def _check_shape(text: str, fields: Mapping[str, Any]) -> None:
    """Refuse what is not the text of an address: a hash of another kind of thing may have been signed, too."""
    for name in ("currency", "address"):
        if not fields.get(name):
            raise SignedTextError(f"has no {name}: it is not the text of an address")
    for name in _REQUIRED:
        if name not in fields:
            raise SignedTextError(f"has no {name}: it is not the text of an address")
    for name, value in fields.items():
        if name in _TEXTS and not isinstance(value, str):
            raise SignedTextError(f"has a {name} that is not a text")
    account = fields.get("exchangeAccountId", "")
    if account and not is_decimal(account):
        raise SignedTextError("has an exchangeAccountId that is no number in a text")
    for name, types in _LINKS.items():
        links = fields.get(name, [])
        if not isinstance(links, list) or not all(_is_link(link, types) for link in links):
            raise SignedTextError(f"has {name} that cannot be read")
    # Outside of escapes there is no half of a surrogate pair: the text is UTF-8.
    if "\\u" in text or not _is_plain(fields):
        _check_values(fields)


def _is_plain(fields: Mapping[str, Any]) -> bool:
    """Tell whether all keys are those whose values have just been checked."""
    return fields.keys() <= _KEYS and all(
        link.keys() <= types.keys() for name, types in _LINKS.items() for link in fields.get(name, ())
    )


def _check_values(fields: Mapping[str, Any]) -> None:
    """Refuse half of a surrogate pair, and what is deep."""
    for value in _values(fields):
        if isinstance(value, str) and _SURROGATE.search(value):
            raise SignedTextError("has half of a surrogate pair")


def _values(fields: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all keys and values, and refuse what is deep. Level by level: no recursion by data."""
    level: list[Any] = [fields]
    for _ in range(_MAX_DEPTH):
        yield from level
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
        if not below:
            return
        level = below
    raise SignedTextError("is nested too deeply")


def _is_link(link: object, types: Mapping[str, type]) -> bool:
    if not isinstance(link, dict) or "id" not in link:
        return False
    # type(), not isinstance(): for Python true is an int.
    return all(type(link[name]) is types[name] for name in types if name in link)


# --- JSON --------------------------------------------------------------------------------------------------


def _hash(text: str) -> str:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise SignedTextError("is not Unicode text") from None
    if len(data) > MAX_PAYLOAD_BYTES:
        raise SignedTextError(f"is larger than {MAX_PAYLOAD_BYTES} bytes")
    return hashlib.sha256(data).hexdigest()


def _parse(text: str, decoder: json.JSONDecoder) -> dict[str, Any]:
    try:
        parsed = decoder.decode(text)
    except SignedTextError:
        raise
    except (ValueError, RecursionError):
        raise SignedTextError("is not JSON") from None
    if not isinstance(parsed, dict):
        raise SignedTextError("is not a JSON object")
    if _number_of_keys(parsed) > _MAX_KEYS:
        raise SignedTextError(f"has more than {_MAX_KEYS} keys")
    return parsed


def _number_of_keys(fields: Mapping[str, Any]) -> int:
    """Return how many keys a text has, and its links."""
    links = (link for value in fields.values() if isinstance(value, list) for link in value if isinstance(link, dict))
    return len(fields) + len({key for link in links for key in link})


def _strict_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs) and found.keys() <= _KNOWN_NAMES:
        return found
    # casefold, and not only ASCII: the service's reader takes a Kelvin sign for a "k", too.
    seen: dict[str, str] = {}
    for key, _ in pairs:
        folded = key.casefold()
        if seen.get(folded) == key:
            raise SignedTextError(f"has the key {sanitize(key, 60)} twice")
        if folded in seen:
            raise SignedTextError(
                f"has the keys {sanitize(seen[folded], 60)} and {sanitize(key, 60)}, which differ in case"
            )
        if _KNOWN_KEYS.get(folded, key) != key:
            raise SignedTextError(f"has the key {_KNOWN_KEYS[folded]} in another case: {escape(key[:60])}")
        seen[folded] = key
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_float(_: str) -> NoReturn:
    raise SignedTextError("has a number that is not whole")


_DECODER = json.JSONDecoder(object_pairs_hook=_strict_object, parse_constant=_refuse_constant)
_DECODER_OF_ADDRESSES = json.JSONDecoder(
    object_pairs_hook=_strict_object, parse_constant=_refuse_constant, parse_float=_refuse_float
)
