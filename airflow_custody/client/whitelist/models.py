"""Whitelisting requests: what is asked for, and what the service shows of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Any, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from airflow_custody.client.arguments import MAX_ID, NATIVE_RENDERING, describe, identifier_fault, text_fault
from airflow_custody.client.errors import CustodyRequestError, CustodyResponseError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import count, escape, has_unprintable, is_decimal, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.whitelist.review import ALL_KEYS
from airflow_custody.client.wire import LENIENT, TypedDict

#: Maximum size of a payload in bytes; a larger one is refused unread.
MAX_PAYLOAD_BYTES = 1024 * 1024
# A request cannot be older than any blockchain: such a date is the zero value of some program.
_EARLIEST_DATE = datetime(2009, 1, 1, tzinfo=timezone.utc)


# --- ids ---------------------------------------------------------------------------------------------------


def check_request_id(value: object, name: str = "the id of a whitelisting request") -> str:
    """
    Return the id of a whitelisting request: only a number may become part of a path or of a signed batch.

    :param value: the id, a decimal number as text or as an int, of 64 bits at most.
    :param name: what an error calls it.
    :return: the id as text.
    :raises CustodyRequestError: if it is anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID:
        return int.__repr__(value)
    if isinstance(value, str) and is_decimal(value) and len(value) <= len(str(MAX_ID)) and int(value) <= MAX_ID:
        return str.__str__(value)
    raise CustodyRequestError(f"{name} must be a whole number, like '3711', not {describe(value)}; nothing was sent")


def check_request_ids(values: object) -> list[str]:
    """
    Return the ids of one batch.

    :param values: one id of a whitelisting request, or several, at most 100.
    :return: the ids in ascending numeric order, as an approval signs them.
    :raises CustodyRequestError: if there is none, one is not a number or is repeated, or there are too many.
    """
    if isinstance(values, (str, int)):
        given = [check_request_id(values, "request_ids")]
    elif isinstance(values, (bytes, bytearray, Mapping)) or not isinstance(values, Iterable):
        raise CustodyRequestError(
            f"request_ids must be one id or a list of ids, not {describe(values)}; nothing was sent"
        )
    else:
        given = [check_request_id(each, f"request_ids[{index}]") for index, each in enumerate(values)]
    ids = sorted(given, key=int)
    if not ids:
        raise CustodyRequestError("there are no ids; nothing was sent")
    if len({int(each) for each in ids}) != len(ids):
        raise CustodyRequestError("an id is repeated; nothing was sent")
    if len(ids) > MAX_PAGE_SIZE:
        raise CustodyRequestError(
            f"there are {count(len(ids), 'id')}, and a batch holds at most {MAX_PAGE_SIZE}; nothing was sent"
        )
    return ids


# --- what is asked for -------------------------------------------------------------------------------------


def _text(value: object) -> object:
    """Take text only: what became another type on its way has lost how it was written."""
    if fault := text_fault(value):
        raise ValueError(fault)
    return value


def _identifier(value: object) -> object:
    """Take text or a whole number, which is written in one way only."""
    if fault := identifier_fault(value):
        raise ValueError(fault)
    return int.__repr__(value) if isinstance(value, int) else value


def _free_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty (did a template find no value?)")
    if has_unprintable(value):
        raise ValueError("contains a control or invisible character")
    return value


def _symbol(value: str) -> str:
    _free_text(value)
    if value != value.strip():
        raise ValueError("begins or ends with white space: remove it, it is not removed for you")
    return value


def _to_list(value: object) -> object:
    """Return a list of any sequence, such as the lazy one that a mapped task's XCom is."""
    if isinstance(value, (str, bytes, bytearray, Mapping, AbstractSet)) or not isinstance(value, Iterable):
        # A set has no order: the same one would ask for something else in each process.
        raise ValueError(f"must be a list of ids, not {describe(value)}")
    return list(value)


def _not_empty(value: list[str]) -> list[str]:
    if not value:
        raise ValueError("is an empty list; leave it out if no restriction is meant")
    return value


_FreeText = Annotated[str, Strict(), BeforeValidator(_text), AfterValidator(_free_text)]
_Symbol = Annotated[str, Strict(), BeforeValidator(_text), AfterValidator(_symbol)]
_Identifier = Annotated[str, Strict(), BeforeValidator(_identifier), AfterValidator(_symbol)]
_Identifiers = Annotated[list[_Identifier], BeforeValidator(_to_list), AfterValidator(_not_empty)]


class WhitelistRequest(BaseModel):
    """
    A destination address to be whitelisted: what is asked for.

    Name the chain by ``blockchain`` or by ``currency``; only what is given is sent. Naming both is allowed if
    they are equal. Input is never corrected: white space around an address is refused, and so is a value of another
    type than text. Only ``exchange_account_id`` and the ids in lists may be whole numbers.

    :param label: label of the address.
    :param address: the destination address; the service checks it against the rules of its chain.
    :param blockchain: symbol of the chain (``ETH``). No chain is refused for being unknown.
    :param currency: the same under its other name, a deprecated alias of ``blockchain`` that some services expect.
    :param linked_internal_address_ids: only funds from these internal addresses may go there.
    :param linked_wallet_ids: only funds from these wallets may go there.
    :param network: network of the chain. This field and all that follow are undocumented.
    :param memo: memo or destination tag that goes with the address.
    :param address_type: kind of the address: ``individual``, ``exchange``, ``contract``, ...
    :param contract_type: kind of the contract behind the address.
    :param customer_id: the customer the address belongs to.
    :param exchange_account_id: the account at the exchange.
    :param visibility_group_id: group of users who see the address.
    :raises CustodyRequestError: if a field is missing, empty or malformed; it names the field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    label: _FreeText
    address: _Symbol
    blockchain: _Symbol | None = None
    currency: _Symbol | None = None
    linked_internal_address_ids: _Identifiers | None = None
    linked_wallet_ids: _Identifiers | None = None
    network: _Symbol | None = None
    memo: _FreeText | None = None
    address_type: _Symbol | None = None
    contract_type: _Symbol | None = None
    customer_id: _Symbol | None = None
    exchange_account_id: _Identifier | None = None
    visibility_group_id: Annotated[_Symbol | None, Field(alias="visibilityGroupID")] = None

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_by_name(cls, data: Any, handler: Any) -> Any:
        """Raise an error of ours: pydantic's own would show whole values and a link to its manual."""
        hint = ""
        try:
            request = handler(data)
        except ValidationError as error:
            faults = [_fault(each) for each in error.errors(include_url=False)]
            if any(isinstance(each["input"], (int, float, list, dict)) for each in error.errors(include_url=False)):
                hint = NATIVE_RENDERING
        else:
            faults = list(_chain_faults(request))
        if faults:
            raise CustodyRequestError(
                f"nothing was sent: {'; '.join(faults)}{hint}",
                operation="create whitelisting request",
            )
        return request

    @property
    def chain(self) -> str:
        """The chain, by whichever name it was given."""
        return self.blockchain or self.currency or ""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON body: the fields that were given, by their names on the wire."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _chain_faults(request: WhitelistRequest) -> Iterable[str]:
    if request.blockchain is None and request.currency is None:
        yield "neither blockchain nor currency is given: one of them must name the chain"
    elif request.blockchain and request.currency and request.blockchain != request.currency:
        yield (
            f"blockchain is {sanitize(request.blockchain, 40)!r} and currency is "
            f"{sanitize(request.currency, 40)!r}: they name the same thing and must be equal"
        )


def _fault(error: Mapping[str, Any]) -> str:
    """Say what is wrong with a field, by the name the caller gave it."""
    names = {field.alias: name for name, field in WhitelistRequest.model_fields.items()}
    place = [str(names.get(part, part)) for part in error["loc"]]
    # pydantic puts the members of a union into the place; the user knows of none.
    name = place[0] if place else "the request"
    # The position in a list.
    name += "".join(f"[{part}]" for part in error["loc"][1:] if isinstance(part, int))
    if error["type"] == "missing" or error["input"] is None:
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"{name} is not a field of a whitelisting request"
    if error["type"] == "value_error":
        return f"{name} {error['ctx']['error']}"
    return f"{name} is malformed"


# --- what the service shows --------------------------------------------------------------------------------


class WireCreated(TypedDict, total=False):
    # Strict: lenient, true is the id 1.
    id: StrictStr | StrictInt


class WireCreateResponse(TypedDict, total=False):
    result: WireCreated | None


class WireMetadata(TypedDict, total=False):
    hash: str | None
    payloadAsString: str | None


class WireTrail(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    userId: str | None
    externalUserId: str | None
    action: str | None
    comment: str | None
    date: str | None


class WireSignature(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    userId: str | None
    signature: str | None


class WireSigning(TypedDict, total=False):
    signature: WireSignature | None
    hashes: list[str] | None


class WireSignedAddress(TypedDict, total=False):
    signatures: list[WireSigning] | None


class WireEnvelope(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    id: str
    tenantId: str | None
    status: str | None
    action: str | None
    blockchain: str | None
    network: str | None
    metadata: WireMetadata | None
    signedAddress: WireSignedAddress | None
    trails: list[WireTrail] | None
    visibilityGroupID: str | None


class WireEnvelopes(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    result: list[WireEnvelope] | None
    totalItems: str | None


class WireEnvelopeResponse(TypedDict, total=False):
    result: WireEnvelope | None


class WireSignatures(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    signatures: str | None


@dataclass(frozen=True)
class Signing:
    """
    One signature of a whitelisting request, which may cover others too.

    :param user_id: the external id of the user who signed. No signature covers it.
    :param signature: 64 bytes ``r || s`` in base64, as sent.
    :param hashes: what was signed: the list of these hashes.
    """

    user_id: str
    signature: str
    hashes: tuple[str, ...]


class WhitelistEnvelope:
    """
    One whitelisting request, as the service shows it.

    Only :meth:`payload` is covered by the hash that approvers sign; everything else is the service's word.
    """

    __slots__ = ("wire",)

    def __init__(self, wire: WireEnvelope) -> None:
        #: The envelope as it was sent, by the names on the wire.
        self.wire = wire

    @property
    def id(self) -> str:
        """The request's id."""
        return self.wire.get("id", "")

    @property
    def status(self) -> str | None:
        """The status word, as sent. The service's makers publish no list of them."""
        return self.wire.get("status")

    @property
    def hash(self) -> str | None:
        """The hash that approvers sign."""
        return (self.wire.get("metadata") or {}).get("hash")

    @property
    def tenant_id(self) -> str | None:
        """The id of the tenant it belongs to."""
        return self.wire.get("tenantId")

    @property
    def action(self) -> str | None:
        """What approving it does, in the service's word. The service's makers publish no list of them."""
        return self.wire.get("action")

    @property
    def blockchain(self) -> str | None:
        """The symbol of the chain, outside of what is hashed."""
        return self.wire.get("blockchain")

    @property
    def network(self) -> str | None:
        """The network, outside of what is hashed."""
        return self.wire.get("network")

    @property
    def visibility_group_id(self) -> str | None:
        """The group of users who see the address."""
        return self.wire.get("visibilityGroupID")

    @property
    def signings(self) -> tuple[Signing, ...]:
        """The signatures, as the service shows them: unverified."""
        found = []
        for each in (self.wire.get("signedAddress") or {}).get("signatures") or ():
            signature = each.get("signature") or {}
            hashes = tuple(each.get("hashes") or ())
            found.append(Signing(signature.get("userId") or "", signature.get("signature") or "", hashes))
        return tuple(found)

    @property
    def signed_by(self) -> frozenset[str]:
        """The external ids of the users who have signed it, whatever they signed."""
        return frozenset(each.user_id for each in self.signings if each.user_id)

    @property
    def trails(self) -> tuple[WireTrail, ...]:
        """The entries of its history, as sent."""
        return tuple(self.wire.get("trails") or ())

    @property
    def created_at(self) -> datetime | None:
        """The date of the first entry of the trail; None if it is not known which that is, or from when."""
        dates = [_trail_date(trail) for trail in self.trails]
        return None if None in dates else min(filter(None, dates), default=None)

    @property
    def created_by(self) -> frozenset[str]:
        """The id and the external id of the user who made the first entry of the trail; empty if that is not known."""
        first = [each for each in self.trails if len(self.trails) == 1 or _trail_date(each) == self.created_at]
        if len(first) != 1 or (len(self.trails) > 1 and self.created_at is None):
            return frozenset()
        return frozenset(filter(None, (first[0].get("userId"), first[0].get("externalUserId"))))

    def payload(self) -> dict[str, Any]:
        """
        Return what the request asks for, verified against its hash.

        :return: the JSON object of ``payloadAsString``.
        :raises CustodyResponseError: if payload or hash is missing, they do not belong together, or the payload is
            larger than 1 MiB or no JSON object. Also if two of its keys are equal or differ only in case, or a known
            key has another case: the service's own reader ignores the case of keys, and takes the last.
        """
        metadata = self.wire.get("metadata") or {}
        text, hash_ = metadata.get("payloadAsString"), metadata.get("hash")
        if not text or not hash_:
            raise self._unusable("its payload or its hash is missing")
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise self._unusable("its payload is not Unicode text") from None
        if len(data) > MAX_PAYLOAD_BYTES:
            raise self._unusable(f"its payload is larger than {MAX_PAYLOAD_BYTES} bytes")
        if hashlib.sha256(data).hexdigest() != hash_:
            raise self._unusable("its payload does not have the hash that the service gives for it")
        try:
            payload = json.loads(text, object_pairs_hook=_strict_object, parse_constant=_refuse_constant)
        except _KeyError as error:
            raise self._unusable(f"its payload {error}") from None
        except (ValueError, RecursionError):
            raise self._unusable("its payload is not JSON") from None
        if not isinstance(payload, dict):
            raise self._unusable("its payload is not a JSON object")
        return payload

    def _unusable(self, why: str) -> CustodyResponseError:
        return CustodyResponseError(f"whitelisting request {sanitize(self.id, 40)} cannot be verified: {why}")

    def __repr__(self) -> str:
        return f"WhitelistEnvelope({self.id!r}, status={self.status!r})"


def _trail_date(trail: WireTrail) -> datetime | None:
    date = parse_timestamp(trail.get("date"))
    return date if date is not None and date >= _EARLIEST_DATE else None


class _KeyError(ValueError):
    """Raised when a key of a payload can be read in two ways."""


_KNOWN_KEYS = {key.casefold(): key for key in ALL_KEYS}


def _strict_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # casefold, and not only ASCII: the service's reader takes a Kelvin sign for a "k", too.
    seen: dict[str, str] = {}
    for key, _ in pairs:
        folded = key.casefold()
        if seen.get(folded) == key:
            raise _KeyError(f"has the key {sanitize(key, 60)} twice")
        if folded in seen:
            raise _KeyError(f"has the keys {sanitize(seen[folded], 60)} and {sanitize(key, 60)}, which differ in case")
        if _KNOWN_KEYS.get(folded, key) != key:
            raise _KeyError(f"has the key {_KNOWN_KEYS[folded]} in another case: {escape(key[:60])}")
        seen[folded] = key
    return dict(pairs)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
