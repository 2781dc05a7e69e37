"""A whitelisting request: the requested content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel

from airflow_custody.client.arguments import MAX_ID, NATIVE_RENDERING, describe, identifier_fault, text_fault
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import character_fault, sanitize, without_emoji_style
from airflow_custody.client.whitelist.addresses.checks import memo_fault

if TYPE_CHECKING:
    from typing_extensions import Self


def _as_identifier(value: object) -> object:
    """Accept text, and a whole number, because a whole number has only one spelling."""
    if fault := identifier_fault(value):
        raise ValueError(fault)
    return int.__repr__(value) if isinstance(value, int) else value


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty", " (did a template find no value?)")
    # Fast path for nearly every text.
    if not (value.isascii() and value.isprintable()) and (fault := character_fault(value)):
        raise ValueError(fault)
    if value != value.strip():
        raise ValueError("begins or ends with white space: remove it, because it is not removed automatically")
    return value


def _label(value: str) -> str:
    # Allow the invisible variation selector that keyboards insert after emoji. Only labels may contain emoji.
    _text(value if value.isascii() else without_emoji_style(value))
    return value


def _address(value: str) -> str:
    _text(value)
    if any(map(str.isspace, value)):
        raise ValueError("contains white space, but addresses never do: was it wrapped, or copied with other text?")
    return value


def _to_list(value: object) -> object:
    """Convert any sequence, such as the lazy XCom of a mapped task, to a list."""
    if isinstance(value, (str, bytes, bytearray, Mapping, AbstractSet)) or not isinstance(value, Iterable):
        # Refuse a set, because its order would differ between processes, and so would the request.
        raise ValueError(f"must be a list of ids, not {describe(value)}")
    if not (found := list(value)):
        raise ValueError("is an empty list; leave the field out if there is no restriction")
    return found


# The checks that a JSON Schema can express.
_TEXT_SCHEMA = Field(json_schema_extra={"pattern": r"^\S(.*\S)?$"})
_WholeNumber = Annotated[int, Field(ge=0, le=MAX_ID)]

_Label = Annotated[str, Strict(), AfterValidator(_label), _TEXT_SCHEMA]
_Text = Annotated[str, Strict(), AfterValidator(_text), _TEXT_SCHEMA]
_ADDRESS_SCHEMA = Field(json_schema_extra={"pattern": r"^\S+$"})
_Address = Annotated[str, Strict(), AfterValidator(_address), _ADDRESS_SCHEMA]
_Identifier = Annotated[
    str,
    Strict(),
    BeforeValidator(_as_identifier, json_schema_input_type=Annotated[str, _TEXT_SCHEMA] | _WholeNumber),
    AfterValidator(_text),
]
_Identifiers = Annotated[
    list[_Identifier],
    # Stop at the first error, because a long list could cause as many errors as it has members.
    Field(fail_fast=True, json_schema_extra={"minItems": 1}),
    BeforeValidator(_to_list),
]


class FieldFault(NamedTuple):
    """
    A fault of a field of a request.

    :param name: the field, with the position in its list; empty if the fault is about several fields.
    :param text: the fault, as the rest of a sentence that begins with the name.
    :param hint: the usual cause in a DAG, to be appended to the text. Default empty.
    """

    name: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.text}{self.hint}" if self.name else self.text


class WhitelistRequest(BaseModel):
    """
    The content of a request to whitelist a destination address.

    Name the chain by ``blockchain`` or by ``currency``, or by both if they are equal. Only the fields that are set are
    sent. Input is never corrected: white space around a value or in an address is refused, and so are values that are
    not text. Only ``exchange_account_id`` and the ids in lists may be whole numbers.

    :param label: label of the address.
    :param address: the destination address; the service checks it against the rules of its chain.
    :param blockchain: symbol of the chain (``ETH``). Unknown chains are not refused.
    :param currency: a deprecated alias of ``blockchain`` that some services expect.
    :param linked_internal_address_ids: only these internal addresses may send funds to the address.
    :param linked_wallet_ids: only these wallets may send funds to the address. If both lists are set, the service may
        apply other approval thresholds.
    :param network: network of the chain. This field, and all fields after it, are undocumented.
    :param memo: memo or destination tag that goes with the address. On XRP, it must be a number from 0 to 4294967295,
        and must not contradict the tag of an X-address.
    :param address_type: kind of the address: ``individual``, ``exchange``, ``contract``, ...
    :param contract_type: kind of the contract behind the address.
    :param customer_id: the customer the address belongs to.
    :param exchange_account_id: the account at the exchange.
    :param visibility_group_id: group of users who see the address.
    :raises CustodyRequestError: if a field is missing, empty or malformed; the error names the field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    label: _Label
    address: _Address
    blockchain: _Text | None = None
    currency: _Text | None = None
    linked_internal_address_ids: _Identifiers | None = None
    linked_wallet_ids: _Identifiers | None = None
    network: _Text | None = None
    memo: _Text | None = None
    address_type: _Text | None = None
    contract_type: _Text | None = None
    customer_id: _Text | None = None
    exchange_account_id: _Identifier | None = None
    visibility_group_id: Annotated[_Text | None, Field(alias="visibilityGroupID")] = None

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_by_name(cls, data: Any, handler: Any, info: ValidationInfo) -> Any:
        """Raise this package's own error, because pydantic's would contain whole values and a link to its manual."""
        hint = ""
        try:
            request = handler(data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            faults = [*map(_to_field_fault, errors), *_chain_faults(data.get("blockchain"), data.get("currency"))]
            if any(isinstance(each["input"], (int, float, list, dict)) for each in errors):
                hint = NATIVE_RENDERING
        else:
            faults, chain = _chain_faults(request.blockchain, request.currency), request.chain
            if request.memo and (fault := memo_fault(request.address, request.memo, chain)):
                # Address and memo are both involved, so the fault has no single name.
                faults.append(FieldFault("", fault))
        if faults:
            if isinstance(info.context, list):
                info.context.extend(faults)
            raise CustodyRequestError(
                f"nothing is sent: {'; '.join(map(str, faults))}{hint}",
                operation="create whitelisting request",
            )
        return request

    @cached_property
    def chain(self) -> str:
        """The chain, from ``blockchain`` or ``currency``."""
        return self.blockchain or self.currency or ""

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """
        Return a copy, as pydantic does.

        :param update: new values, which are not checked. Default None: none.
        :param deep: whether to copy the lists, too. Default False.
        """
        copied = super().model_copy(update=update, deep=deep)
        # The copy may be for another chain.
        copied.__dict__.pop("chain", None)
        return copied

    def to_wire(self) -> dict[str, object]:
        """Return the JSON body: the fields that are set, by their names on the wire."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


#: The fields that are lists.
LISTS = ("linked_internal_address_ids", "linked_wallet_ids")


@dataclass(frozen=True, slots=True)
class FileRow:
    """
    One row of a whitelist file.

    :param request: the request, with the file's defaults.
    :param where: its place: ``line 12``, or ``row 3`` in a JSON file, counted from 1.
    """

    request: WhitelistRequest
    where: str


def request_from_fields(fields: Mapping[str, object]) -> tuple[WhitelistRequest | None, list[FieldFault]]:
    """
    Build a request, or find all faults of its fields.

    :param fields: values by field name.
    :return: the request, None if it has faults; and all of its faults.
    """
    faults: list[FieldFault] = []
    with suppress(CustodyRequestError):
        return WhitelistRequest.model_validate(fields, context=faults), faults
    return None, faults


def _chain_faults(blockchain: object, currency: object) -> list[FieldFault]:
    if blockchain is None and currency is None:
        return [FieldFault("", "blockchain and currency are missing: one of these fields must name the chain")]
    if isinstance(blockchain, str) and isinstance(currency, str) and blockchain != currency:
        same = "both name the chain, so they must be equal"
        named = f"blockchain is {sanitize(blockchain, 40)!r} and currency is {sanitize(currency, 40)!r}"
        return [FieldFault("", f"{named}: {same}")]
    return []


def _to_field_fault(error: Mapping[str, Any]) -> FieldFault:
    """Describe a field's fault by the field's name, not its alias."""
    names = {field.alias: name for name, field in WhitelistRequest.model_fields.items()}
    place = [str(names.get(part, part)) for part in error["loc"]]
    # pydantic adds the members of a union to the location, which mean nothing to users.
    name = place[0] if place else "the request"
    # A number is the position in a list.
    name += "".join(f"[{part}]" for part in error["loc"][1:] if isinstance(part, int))
    if error["type"] == "missing" or error["input"] is None:
        return FieldFault(name, "is missing")
    if error["type"] == "extra_forbidden":
        return FieldFault(name, "is not a field of a whitelisting request")
    if error["type"] == "string_type":
        # Only text is accepted, because any other type of value has lost its original spelling.
        return FieldFault(name, text_fault(error["input"]) or "is malformed")
    if error["type"] == "value_error":
        return FieldFault(name, *error["ctx"]["error"].args)
    return FieldFault(name, "is malformed")
