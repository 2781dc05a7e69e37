"""
The signed text of a whitelisting request: the content that its hash covers.

A text that could be read in two ways is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import Required

from airflow_custody.client.json_text import check_structure
from airflow_custody.client.text import escape, sanitize
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.wire import TypedDict

#: Maximum size of a text in bytes. A larger text is refused before it is read.
MAX_PAYLOAD_BYTES = 1024 * 1024
# These limits keep messages and work small. Usual texts are far below them: they have three levels, twelve keys, and
# five keys in links.
_MAX_DEPTH = 16
_MAX_KEYS = 200
_STRICT = ConfigDict(strict=True, extra="allow")


class SignedAddressLink(TypedDict, total=False):
    """An internal address that is linked."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    id: Required[str]
    address: str
    label: str


class SignedWalletLink(TypedDict, total=False):
    """A wallet that is linked."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    id: Required[int]
    name: str
    path: str


class SignedFields(TypedDict, total=False):
    """
    The fields in the text of an address.

    The required fields are always present, but most of them may be empty. Old texts lack ``contractType``. The network,
    the wallets and the participant are left out if they are empty.
    """

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    currency: Required[Annotated[str, Field(min_length=1)]]
    network: str
    addressType: Required[str]
    address: Required[Annotated[str, Field(min_length=1)]]
    memo: Required[str]
    label: Required[str]
    customerId: Required[str]
    exchangeAccountId: Required[Annotated[str, Field(pattern="^[0-9]*$")]]
    linkedInternalAddresses: Required[list[SignedAddressLink]]
    linkedWallets: list[SignedWalletLink]
    contractType: str
    tnParticipantID: str


_SHAPE = TypeAdapter(SignedFields)
#: The keys of a text, in the published order.
TEXT_KEYS = tuple(SignedFields.__annotations__)
#: The keys of a link. Creating a request sends only the link's id; the service adds the other keys.
LINK_KEYS = tuple({**SignedAddressLink.__annotations__, **SignedWalletLink.__annotations__})
#: All known keys of a text, at any level.
KNOWN_KEYS = frozenset({*TEXT_KEYS, *LINK_KEYS})
_KNOWN_BY_FOLDED = {key.casefold(): key for key in KNOWN_KEYS}


@dataclass(frozen=True)
class SignedText:
    """
    A text that users may have signed.

    :param hash: its hash, in hex.
    :param fields: its keys and values.
    :param legacy: whether this is a legacy form of the received text.
    :param omitted: the keys of the received text that this legacy form lacks.
    """

    hash: str
    fields: Mapping[str, Any]
    legacy: bool = False
    omitted: tuple[str, ...] = ()
    #: The path of the only linked wallet; empty: no wallet is linked, or something else is linked, too.
    wallet_path: str = field(init=False)

    def __post_init__(self) -> None:
        wallets = self.fields.get("linkedWallets") or []
        is_only_link = len(wallets) == 1 and not self.fields.get("linkedInternalAddresses")
        object.__setattr__(self, "wallet_path", (wallets[0].get("path") or "") if is_only_link else "")


def read_json_object(text: str, hash_: str) -> dict[str, Any]:
    """
    Return the JSON object of a text, verified against its hash.

    :param text: the text.
    :param hash_: the hash of the text that the service returns, in hex.
    :raises RefusalError: if the hash differs, or the text is larger than 1 MiB or not a JSON object. Also if two keys
        are equal or differ only in case, or a known key is written in another case, because the service's own reader
        ignores the case of keys, and uses the last value. Also if the text has a number that is not whole, half of a
        surrogate pair, or too many keys, or is nested too deeply. The error's text is the rest of a sentence that
        begins with "its payload".
    """
    if _hash(text) != hash_:
        raise RefusalError("does not have the hash that the service gives for it")
    return _parse(text)


def read_signed_text(text: str, hash_: str) -> SignedText:
    """
    Read the text of a whitelisted address.

    In addition to the checks of :func:`read_json_object`, the text must have all required keys, with the known types.
    Otherwise, another kind of text whose hash a user has signed could pass as an address.

    :param text: the text.
    :param hash_: the hash of the text that the service returns, in hex.
    :raises RefusalError: like :func:`read_json_object`, and if the text does not describe a whitelisted address.
    """
    fields = read_json_object(text, hash_)
    check_shape(fields)
    return SignedText(hash_, fields)


def legacy_forms(text: str, received: SignedText) -> Iterator[SignedText]:
    """
    Yield the legacy forms of a text: without ``contractType``, without the labels of linked addresses, and without
    both.

    Users may have signed a text before these keys existed. That text is restored from the received text by the vendor's
    own method, with regular expressions. The result is used only if, read as JSON, it lacks these keys and nothing
    else, because a regular expression could also match a part of a value, and remove signed text.

    :param text: the received text.
    :param received: the content of the received text.
    """
    seen = {text}
    for change, omits_contract, omits_labels in _LEGACY_CHANGES:
        changed = change(text)
        if changed in seen:
            continue
        seen.add(changed)
        expected, omitted = _without(received.fields, omits_contract, omits_labels)
        try:
            fields = _parse(changed)
            check_shape(fields)
        except RefusalError:
            continue
        # Compare the values as JSON text, because 1 == True in Python.
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
    """Return the fields without the chosen keys, and the removed keys."""
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


def check_shape(fields: Mapping[str, Any]) -> None:
    """
    Refuse the content of a text that does not describe a whitelisted address.

    :param fields: the content.
    :raises RefusalError: if a required key is missing, or the value of a key has a wrong type. The error's text is the
        rest of a sentence that begins with "its payload".
    """
    try:
        _SHAPE.validate_python(fields)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise RefusalError(f"does not describe a whitelisted address: {where}: {fault['msg']}") from None


# --- JSON --------------------------------------------------------------------------------------------------


def _hash(text: str) -> str:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise RefusalError("is not Unicode text") from None
    if len(data) > MAX_PAYLOAD_BYTES:
        raise RefusalError(f"is larger than {MAX_PAYLOAD_BYTES} bytes")
    return hashlib.sha256(data).hexdigest()


def _parse(text: str) -> dict[str, Any]:
    try:
        # Allow many values: a text of this maximum size may have thousands of links, but still needs little memory.
        check_structure(text, 16 * MAX_PAYLOAD_BYTES)
        parsed = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise RefusalError("is not JSON") from None
    if not isinstance(parsed, dict):
        raise RefusalError("is not a JSON object")
    # Fast path for nearly every text: a short text cannot have too many keys, a text with few brackets cannot be nested
    # too deeply, and a text without escapes has no surrogates.
    if len(text) <= 1000 and text.count("{") + text.count("[") < _MAX_DEPTH and "\\" not in text:
        return parsed
    _check_limits(parsed)
    return parsed


def _check_limits(parsed: dict[str, Any]) -> None:
    links = (link for value in parsed.values() if isinstance(value, list) for link in value if isinstance(link, dict))
    if len(parsed) + len({key for link in links for key in link}) > _MAX_KEYS:
        raise RefusalError(f"has more than {_MAX_KEYS} keys")
    _check_depth(parsed, _MAX_DEPTH - 1)
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RefusalError("has half of a surrogate pair") from None


def _check_depth(value: object, levels: int) -> None:
    if levels < 0:
        raise RefusalError("is nested too deeply")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _check_depth(each, levels - 1)


def _strict_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    # Fast path for nearly every object: known keys, each once.
    if len(found) == len(pairs) and found.keys() <= KNOWN_KEYS:
        return found
    # Use casefold, not only ASCII, because the service's reader also accepts a Kelvin sign as a "k".
    seen: dict[str, str] = {}
    for key, _ in pairs:
        folded = key.casefold()
        if seen.get(folded) == key:
            raise RefusalError(f"has the key {sanitize(key, 60)} twice")
        if folded in seen:
            raise RefusalError(
                f"has the keys {sanitize(seen[folded], 60)} and {sanitize(key, 60)}, which differ in case"
            )
        if _KNOWN_BY_FOLDED.get(folded, key) != key:
            raise RefusalError(f"has the key {_KNOWN_BY_FOLDED[folded]} in another case: {escape(key[:60])}")
        seen[folded] = key
    return found


def _refuse_number(number: str) -> NoReturn:
    raise RefusalError(f"has a number that is not whole: {sanitize(number, 40)}")


_DECODER = json.JSONDecoder(object_pairs_hook=_strict_object, parse_constant=_refuse_number, parse_float=_refuse_number)
