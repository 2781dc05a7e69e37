"""What travels on the wire."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import has_unprintable, readable

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

# --- whitelisting ------------------------------------------------------------------------------------------


def _text(value: object) -> object:
    """Take a whole number where the interface speaks of a string; anything else is left to the validation."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _free_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; leave it out if nothing is meant")
    if has_unprintable(value):
        raise ValueError("holds a control or invisible character")
    return value


def _symbol(value: str) -> str:
    _free_text(value)
    if value != value.strip():
        raise ValueError("begins or ends with white space; it is not repaired silently")
    return value


def _given(value: list[str]) -> list[str]:
    if not value:
        raise ValueError("is an empty list; leave it out if no restriction is meant")
    return value


_String = Annotated[str, BeforeValidator(_text)]
_FreeText = Annotated[_String, AfterValidator(_free_text)]
_Symbol = Annotated[_String, AfterValidator(_symbol)]
_Identifiers = Annotated[list[_Symbol], AfterValidator(_given)]


class WhitelistRequest(BaseModel):
    """
    Describe a destination address to be whitelisted.

    Name the chain by ``blockchain`` or by ``currency``; exactly what is given travels. Naming both is allowed if
    they are equal. Nothing is repaired: white space around an address is refused.

    :param label: label of the address.
    :param address: the destination address; the service checks it against the rules of its chain.
    :param blockchain: symbol of the chain (``ETH``). No chain is refused for being unknown.
    :param currency: the same under its other name, which the given interface's samples use; published knowledge
        calls it a deprecated alias of ``blockchain``.
    :param linked_internal_address_ids: only funds from these internal addresses may go there.
    :param linked_wallet_ids: only funds from these wallets may go there.
    :param network: network of the chain (published knowledge, as all that follow).
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
            faults = [_fault(each) for each in error.errors(include_url=False, include_input=False)]
        else:
            faults = list(_chain_faults(request))
        if faults:
            raise CustodyRequestError(
                "the whitelisting request is not sent: " + "; ".join(faults),
                operation="create whitelisting request",
            )
        return request

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON body: the fields that were given, by their names on the wire."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _chain_faults(request: WhitelistRequest) -> Iterable[str]:
    if request.blockchain is None and request.currency is None:
        yield "neither blockchain nor currency is given: one of them must name the chain"
    elif None not in (request.blockchain, request.currency) and request.blockchain != request.currency:
        yield (
            f"blockchain is {readable(request.blockchain, 40)!r} and currency is "
            f"{readable(request.currency, 40)!r}: they name the same thing and must be equal"
        )


def _fault(error: Mapping[str, Any]) -> str:
    """Say what is wrong with a field, by the name the caller gave it."""
    names = {field.alias: name for name, field in WhitelistRequest.model_fields.items()}
    place = [str(names.get(part, part)) for part in error["loc"]]
    # pydantic puts the members of a union into the place; the user knows of none.
    name = place[0] if place else "the request"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"{name} is not a field of a whitelisting request"
    if error["type"] == "value_error":
        return f"{name} {error['ctx']['error']}"
    wanted = "a list of strings" if name.startswith("linked_") else "a string"
    return f"{name} must be {wanted}"


class WireCreated(TypedDict, total=False):
    id: str | int


class WireCreateAnswer(TypedDict, total=False):
    result: WireCreated | None


# --- health ------------------------------------------------------------------------------------------------

# TypedDicts, not models: pydantic validates a listing from bytes into them as fast as json.loads parses it, and
# models cost half as much again. The classes below give them attributes, converted when they are looked at.

_LENIENT = ConfigDict(coerce_numbers_to_str=True)


class WireVaultdClient(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    hostPort: str | None
    connected: bool | None
    error: str | None
    lastPing: str | None


class WireHealthReport(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    name: str | None
    status: str | None
    duration: str | None
    results: dict[str, str | None] | None
    message: str | None
    error: str | None
    vaultdClients: list[WireVaultdClient] | None


class WireHealthCheck(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    tenantId: str | None
    componentName: str | None
    componentId: str | None
    group: str | None
    healthCheck: str | None
    status: str | None
    report: WireHealthReport | None
    lastUpdateDate: str | None
    validUntilDate: str | None


class WireHealthGroup(TypedDict, total=False):
    healthChecks: list[WireHealthCheck] | None


class WireHealthListing(TypedDict, total=False):
    groups: dict[str, WireHealthGroup | None] | None


class HealthReport:
    """
    Show what a health check reported, in the service's own words.

    All attributes are part of the given interface except ``message``, ``error`` and ``vaultd_clients``, which are
    published knowledge. What the service did not send is None.
    """

    __slots__ = ("_wire",)

    def __init__(self, wire: WireHealthReport) -> None:
        self._wire = wire

    @property
    def name(self) -> str | None:
        """The name of the report."""
        return self._wire.get("name")

    @property
    def status(self) -> str | None:
        """The status word, as sent."""
        return self._wire.get("status")

    @property
    def duration(self) -> timedelta | None:
        """How long the check took; None if missing or unreadable."""
        return parse_duration(self._wire.get("duration"))

    @property
    def results(self) -> Mapping[str, str | None]:
        """One result for each key, say a currency code: ``success`` or a message."""
        return self._wire.get("results") or {}

    @property
    def message(self) -> str | None:
        """A message for people."""
        return self._wire.get("message")

    @property
    def error(self) -> str | None:
        """What went wrong, in the service's words."""
        return self._wire.get("error")

    @property
    def vaultd_clients(self) -> tuple[WireVaultdClient, ...]:
        """The connections to the vault's daemons: ``hostPort``, ``connected``, ``error``, ``lastPing``."""
        return tuple(self._wire.get("vaultdClients") or ())

    def __repr__(self) -> str:
        return f"HealthReport({self._wire!r})"


class HealthCheck:
    """
    Show one entry of the health listing, in the service's own words.

    All attributes are part of the given interface. What the service did not send is None.
    """

    __slots__ = ("listed_under", "wire")

    def __init__(self, wire: WireHealthCheck, listed_under: str) -> None:
        #: The entry as it was sent, by the names on the wire.
        self.wire = wire
        #: The group the entry is listed under.
        self.listed_under = listed_under

    @property
    def tenant_id(self) -> str | None:
        """The tenant: a decimal number in a string."""
        return self.wire.get("tenantId")

    @property
    def component_name(self) -> str | None:
        """The component that was checked."""
        return self.wire.get("componentName")

    @property
    def component_id(self) -> str | None:
        """The component's UUID."""
        return self.wire.get("componentId")

    @property
    def group(self) -> str | None:
        """The group the entry itself names."""
        return self.wire.get("group")

    @property
    def health_check(self) -> str | None:
        """The name of the check."""
        return self.wire.get("healthCheck")

    @property
    def status(self) -> str | None:
        """The status word, as sent."""
        return self.wire.get("status")

    @property
    def report(self) -> HealthReport | None:
        """What the check reported."""
        report = self.wire.get("report")
        return None if report is None else HealthReport(report)

    @property
    def last_update_date(self) -> datetime | None:
        """When the check last ran; None if missing or unreadable."""
        return parse_timestamp(self.wire.get("lastUpdateDate"))

    @property
    def valid_until_date(self) -> datetime | None:
        """Until when its result is considered valid; None if missing or unreadable."""
        return parse_timestamp(self.wire.get("validUntilDate"))

    def __repr__(self) -> str:
        return f"HealthCheck({self.wire!r}, listed_under={self.listed_under!r})"


# --- times -------------------------------------------------------------------------------------------------

_UNITS = {
    "ns": 1e-3,
    "us": 1.0,
    "\u00b5s": 1.0,
    "\u03bcs": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "m": 60e6,
    "h": 3600e6,
}
_DURATION_PART = re.compile("([0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


# From Python 3.11 on, datetime reads nine digits and "Z" itself, which is twice as fast as taking them apart.
_READS_ANY_FRACTION = sys.version_info >= (3, 11)


def parse_duration(text: str | None) -> timedelta | None:
    """
    Read a Go duration.

    :param text: number and unit, possibly several: ``1.5s``, ``850µs``, ``1m2.5s``, ``-3h``, ``0``.
    :return: the duration, rounded to microseconds; None if there is none or it is not of this form.
    """
    if not text:
        return None
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    if digits == "0":
        return timedelta(0)
    position, microseconds = 0, 0.0
    while position < len(digits):
        part = _DURATION_PART.match(digits, position)
        if part is None:
            return None
        microseconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    try:
        return timedelta(microseconds=sign * microseconds) if position else None
    except OverflowError:
        return None


def parse_timestamp(text: str | None) -> datetime | None:
    """
    Read an RFC 3339 timestamp.

    :param text: date and time with offset or ``Z``, up to nine fractional digits.
    :return: the aware time in UTC, cut to microseconds; None if there is none or it is not of this form.
    """
    if not text or (parts := _TIMESTAMP.fullmatch(text)) is None:
        return None
    date, clock, fraction, offset = parts.groups()
    if offset == "Z" and _READS_ANY_FRACTION:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            return None
    micros = fraction[:6].ljust(6, "0") if fraction else "000000"
    try:
        if offset in "Zz":
            return datetime.fromisoformat(f"{date}T{clock}.{micros}+00:00")
        return datetime.fromisoformat(f"{date}T{clock}.{micros}{offset}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
