"""Whitelisting requests: what is asked for, and what the service shows of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from airflow_custody.client.errors import CustodyRequestError, CustodyResponseError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import count, has_unprintable, is_decimal, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.wire import LENIENT, TypedDict

#: Maximum size of a payload in bytes; a larger one is refused unread.
MAX_PAYLOAD_BYTES = 1024 * 1024


# --- ids ---------------------------------------------------------------------------------------------------


def check_request_id(value: object) -> str:
    """
    Return the id of a whitelisting request: only a number may become part of a path or of a signed batch.

    :param value: the id, a decimal number as text or as an int.
    :return: the id as text.
    :raises CustodyRequestError: if it is anything else.
    """
    text = str(value)
    if isinstance(value, bool) or not is_decimal(text):
        raise CustodyRequestError(
            f"the id of a whitelisting request must be a whole number, like '3711', not {sanitize(repr(value), 40)}; "
            "nothing was sent"
        )
    return text


def check_request_ids(values: Iterable[object]) -> list[str]:
    """
    Return the ids of one batch.

    :param values: ids of whitelisting requests, at most 100.
    :return: the ids in ascending numeric order, as an approval signs them.
    :raises CustodyRequestError: if there is none, one is not a number or is repeated, or there are too many.
    """
    ids = sorted((check_request_id(each) for each in values), key=int)
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
    """Take a whole number where the interface speaks of a string; anything else is left to the validation."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


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
    return value if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable) else list(value)


def _not_empty(value: list[str]) -> list[str]:
    if not value:
        raise ValueError("is an empty list; leave it out if no restriction is meant")
    return value


_String = Annotated[str, Strict(), BeforeValidator(_text)]
_FreeText = Annotated[_String, AfterValidator(_free_text)]
_Symbol = Annotated[_String, AfterValidator(_symbol)]
_Identifiers = Annotated[list[_Symbol], BeforeValidator(_to_list), AfterValidator(_not_empty)]


class WhitelistRequest(BaseModel):
    """
    A destination address to be whitelisted: what is asked for.

    Name the chain by ``blockchain`` or by ``currency``; only what is given is sent. Naming both is allowed if
    they are equal. Input is never corrected: white space around an address is refused.

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
    exchange_account_id: _Symbol | None = None
    visibility_group_id: Annotated[_Symbol | None, Field(alias="visibilityGroupID")] = None

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_by_name(cls, data: Any, handler: Any) -> Any:
        """Raise an error of ours: pydantic's own would show whole values and a link to its manual."""
        try:
            request = handler(data)
        except ValidationError as error:
            faults = [_fault(each) for each in error.errors(include_url=False)]
        else:
            faults = list(_chain_faults(request))
        if faults:
            raise CustodyRequestError(
                f"nothing was sent: {'; '.join(faults)}",
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
    if error["type"] == "missing" or error["input"] is None:
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"{name} is not a field of a whitelisting request"
    if error["type"] == "value_error":
        return f"{name} {error['ctx']['error']}"
    wanted = "a list of strings" if name.startswith("linked_") else "a string"
    return f"{name} must be {wanted}"


# --- what the service shows --------------------------------------------------------------------------------


class WireCreated(TypedDict, total=False):
    id: str | int


class WireCreateResponse(TypedDict, total=False):
    result: WireCreated | None


class WireMetadata(TypedDict, total=False):
    hash: str | None
    payloadAsString: str | None


class WireTrail(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    userId: str | None
    action: str | None
    comment: str | None
    date: str | None


class WireSignature(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    userId: str | None


class WireSigning(TypedDict, total=False):
    signature: WireSignature | None


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
    def signed_by(self) -> frozenset[str]:
        """The ids of the users who have signed it."""
        signings = (self.wire.get("signedAddress") or {}).get("signatures") or ()
        return frozenset(filter(None, ((each.get("signature") or {}).get("userId") for each in signings)))

    @property
    def created_at(self) -> datetime | None:
        """The date of the first entry of the trail; None if there is no readable one."""
        dates = [parse_timestamp(trail.get("date")) for trail in self.wire.get("trails") or ()]
        return min((date for date in dates if date is not None), default=None)

    def payload(self) -> dict[str, Any]:
        """
        Return what the request asks for, verified against its hash.

        :return: the JSON object of ``payloadAsString``.
        :raises CustodyResponseError: if payload or hash is missing, they do not belong together, or the payload is
            larger than 1 MiB, no JSON object, or has a duplicate key.
        """
        metadata = self.wire.get("metadata") or {}
        text, hash_ = metadata.get("payloadAsString"), metadata.get("hash")
        if not text or not hash_:
            raise self._unusable("its payload or its hash is missing")
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_PAYLOAD_BYTES:
            raise self._unusable(f"its payload is larger than {MAX_PAYLOAD_BYTES} bytes")
        if hashlib.sha256(data).hexdigest() != hash_:
            raise self._unusable("its payload does not have the hash that the service gives for it")
        try:
            payload = json.loads(text, object_pairs_hook=_without_duplicates)
        except _DuplicateKeyError as error:
            raise self._unusable(f"its payload has the key {sanitize(error, 60)} twice") from None
        except (ValueError, RecursionError):
            raise self._unusable("its payload is not JSON") from None
        if not isinstance(payload, dict):
            raise self._unusable("its payload is not a JSON object")
        return payload

    def _unusable(self, why: str) -> CustodyResponseError:
        return CustodyResponseError(f"whitelisting request {sanitize(self.id, 40)} cannot be verified: {why}")

    def __repr__(self) -> str:
        return f"WhitelistEnvelope({self.id!r}, status={self.status!r})"


class _DuplicateKeyError(ValueError):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for key in keys if keys.count(key) > 1))
    return found
