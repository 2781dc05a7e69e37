"""Webhook configurations and their calls, as the service sends them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any, NoReturn

from airflow_custody.client.json_text import check_structure
from airflow_custody.client.secrets import shorten_urls
from airflow_custody.client.text import as_name, ascii_lower, read_number, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.wire import LENIENT, TypedDict

#: Maximum number of characters of a webhook's secret.
MAX_SECRET_LENGTH = 150
#: Maximum length of a payload that is parsed, in characters. A longer payload stays text.
MAX_PARSED_LENGTH = 1024 * 1024
#: Maximum depth of a payload that is parsed. A deeper payload stays text.
MAX_DEPTH = 32
# Characters that JSON allows, but databases and encoders reject: half a surrogate pair, and the null character.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
# The keys of ids in an event's data.
_ID_KEY = re.compile("(^id|Id|ID)s?$")


class WireWebhook(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    id: str
    type: str | None
    url: str | None
    status: str | None
    timeoutUntil: str | None
    updatedAt: str | None
    createdAt: str | None


class WireCursor(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    currentPage: str | None
    hasNext: bool | None


class WireWebhooks(TypedDict, total=False):
    webhooks: list[WireWebhook] | None
    cursor: WireCursor | None


class WireCreatedWebhook(TypedDict, total=False):
    webhook: WireWebhook | None
    secret: str | None


class WireWebhookCalls(TypedDict, total=False):
    # The fields of a call are passed on unchanged, so they have no types here.
    calls: list[dict[str, Any]] | None
    cursor: WireCursor | None


@dataclass(frozen=True)
class WebhookEvent:
    """
    An event, as described by the payload of a call or of a delivery.

    :param type: its type, such as ``currencyStatus.updated``; None: the payload does not have the published form.
    :param created_at: time of the event by the service's clock; None: not given, or not readable.
    :param data: what the event is about, by the service's names. A number is kept as text if its key is the key of an
        id (``requestId``), or if parsing would change the number.
    """

    type: str | None = None
    created_at: datetime | None = None
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class WebhookCall:
    """
    A call to a webhook: an entry of the service's journal.

    The service has made the call, or is about to make it.

    :param id: the call's id. If the service repeats the call, the id stays the same.
    :param webhook_id: id of the webhook that the call goes to.
    :param event_id: id of its event.
    :param payload_text: the text of its payload, as received; None if there is none.
    :param status: status of its delivery, as the service sent it.
    :param status_message: the service's message on its status; empty if there is none.
    :param attempts: number of delivery attempts; None: not given.
    :param created_at: creation time by the service's clock; None: not given, or not readable.
    :param updated_at: time of the last change; None: not given, or not readable.
    """

    id: str
    webhook_id: str
    event_id: str = ""
    payload_text: str | None = None
    status: str = ""
    status_message: str = ""
    attempts: int | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @classmethod
    def from_wire(cls, call_id: str, row: Mapping[str, object]) -> WebhookCall:
        """
        Return the call in a row of the listing.

        Unreadable values count as missing.

        :param call_id: its id, as text.
        :param row: the row.
        """
        return cls(
            id=call_id,
            webhook_id=_storable_text(row.get("webhookId")),
            event_id=_storable_text(row.get("eventId")),
            payload_text=_payload_text(row.get("payload")),
            status=_storable_text(row.get("status")),
            status_message=_storable_text(row.get("statusMessage")),
            attempts=_number(row.get("attempts")),
            created_at=_time(row.get("createdAt")),
            updated_at=_time(row.get("updatedAt")),
        )

    @property
    def payload(self) -> object:
        """
        The payload; None if there is none.

        JSON is parsed anew on each access. Any other payload is returned as text.
        """
        return read_payload(self.payload_text)

    @cached_property
    def event(self) -> WebhookEvent:
        """The event that the payload describes."""
        return read_event(self.payload_text)

    @property
    def type(self) -> str | None:
        """The event's type; None: the payload does not have the published form."""
        return self.event.type

    @property
    def event_at(self) -> datetime | None:
        """
        Time of the event: ``createdAt`` of the payload.

        This is not :attr:`created_at`, the time at which the call was created and by which calls are listed.
        """
        return self.event.created_at

    @property
    def data(self) -> Mapping[str, object]:
        """What the event is about, with ids as text, such as ``{"requestId": "123", "status": "APPROVED"}``."""
        return self.event.data

    def to_json(self, *, with_payload: bool = True) -> dict[str, object]:
        """
        Return the call as plain JSON data.

        Times are ISO 8601 text. URLs in the service's message about the status are shortened, because they may contain
        a secret.

        :param with_payload: whether to include the payload, and the event's ``data`` from it. Default True.
        """
        return {
            "id": self.id,
            "webhook_id": self.webhook_id,
            "event_id": self.event_id,
            "type": self.type,
            "event_at": self.event_at and self.event_at.isoformat(),
            **({"data": dict(self.data), "payload": self.payload} if with_payload else {}),
            "status": self.status,
            # The service may quote the webhook's URL, for example if it cannot be reached.
            "status_message": shorten_urls(self.status_message),
            "attempts": self.attempts,
            "created_at": self.created_at and self.created_at.isoformat(),
            "updated_at": self.updated_at and self.updated_at.isoformat(),
        }


def has_status(webhook: Mapping[str, object], status: str) -> bool:
    """
    Tell whether a webhook has a status.

    :param webhook: the webhook, as the service sends it.
    :param status: the status word; compared without case.
    """
    return ascii_lower(str(webhook.get("status") or "")) == ascii_lower(status)


def status_of(webhook: Mapping[str, object], now: datetime | None = None) -> str:
    """
    Return a webhook's status as text.

    A webhook that is cooling down after failed deliveries counts as ``enabled``, because it delivers again by itself.
    The service's word for this state is not published. Therefore, a webhook counts as cooling down until the time in
    its field ``timeoutUntil``.

    :param webhook: the webhook, as the service sends it.
    :param now: the time; None (default): now.
    :return: ``enabled``, or the status as the service sent it; ``not given`` if it sent none.
    """
    until = parse_timestamp(str(webhook.get("timeoutUntil")))
    is_cooling = until is not None and until > (now or datetime.now(timezone.utc))
    if is_cooling and not has_status(webhook, "disabled"):
        return "enabled"
    return str(webhook.get("status") or "not given")


def cooling_until(webhook: Mapping[str, object], now: datetime | None = None) -> str:
    """
    Return the end of a webhook's cool-down, as text; empty if the webhook is not cooling down.

    A webhook with an unreadable time counts as cooling down.

    :param webhook: the webhook, as the service sends it.
    :param now: the time; None (default): now.
    """
    text = webhook.get("timeoutUntil")
    if not text:
        return ""
    # A time of zero means that there is no cool-down.
    until = parse_timestamp(str(text), keep_zero=True)
    if until is None:
        return f"a time that cannot be read ({sanitize(text, 40)!r})"
    return f"{until:%Y-%m-%d %H:%M:%S} UTC" if until > (now or datetime.now(timezone.utc)) else ""


# --- values of a call ----------------------------------------------------------------------------------------


def _payload_text(value: Any) -> str | None:
    """
    Return the text of a payload.

    According to the vendor, a payload is text. Any other value is converted to JSON.
    """
    return value if isinstance(value, str) or value is None else json.dumps(value)


def read_payload(text: str | None) -> Any:
    """
    Return the payload of a call as plain JSON data.

    JSON text is parsed. It stays text if it is very long or deep, or has very many values. It also stays text if
    different JSON readers could read it differently, because a key is repeated; a number is not finite, has more than
    64 bits or would be changed by parsing; or a string holds a null character or half a surrogate pair.

    :param text: the text of the payload; None: there is none.
    :return: the data, or the text; None: there is none.
    """
    if not text:
        return None
    try:
        return _parse(text, _DECODER)
    except (ValueError, ArithmeticError, RecursionError):
        return _clean(text)


def read_event(text: str | None) -> WebhookEvent:
    """
    Return the event that a payload describes.

    The published form is ``{"type": ..., "createdAt": ..., "data": {...}}``. For any other payload, an event without
    type, time and data is returned, and also for text that :func:`read_payload` does not parse for a reason other than
    its numbers.

    :param text: the text of the payload; None: there is none.
    """
    try:
        payload = _parse(text or "", _EVENT_DECODER)
    except (ValueError, RecursionError):
        return WebhookEvent()
    if not isinstance(payload, dict):
        return WebhookEvent()
    type_, data = payload.get("type"), payload.get("data")
    if data is None:
        # The service leaves out empty values.
        data = {}
    if not type_ or not isinstance(type_, str) or isinstance(type_, _Number) or not isinstance(data, dict):
        return WebhookEvent()
    return WebhookEvent(type_, _time(payload.get("createdAt")), _with_numbers(data))


def _parse(text: str, decoder: json.JSONDecoder) -> Any:
    """
    Return data that every reader of JSON reads in the same way, and every database stores.

    :raises ValueError: if the text is not such data.
    """
    if len(text) > MAX_PARSED_LENGTH:
        raise ValueError("too long")
    check_structure(text, MAX_PARSED_LENGTH)
    parsed = decoder.decode(text)
    _require_storable(parsed)
    return parsed


class _Number(str):
    """A number in the spelling of the payload."""

    __slots__ = ()


def _with_numbers(value: Any, *, is_id: bool = False) -> Any:
    """Return data with parsed numbers. An id, or a number that parsing would change, stays text."""
    if isinstance(value, _Number):
        return str(value) if is_id else read_payload(str(value))
    if isinstance(value, dict):
        return {key: _with_numbers(each, is_id=_ID_KEY.search(key) is not None) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_numbers(each, is_id=is_id) for each in value]
    return value


def _refuse(_: str) -> NoReturn:
    raise ValueError("not JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _float(text: str) -> float:
    number = float(text)
    if Decimal(text) != Decimal(repr(number)):
        raise ValueError("the number would change")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_refuse, parse_float=_float)
_EVENT_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_refuse, parse_float=_Number, parse_int=_Number
)


def _require_storable(data: Any, depth: int = 1) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    parts: list[Any] = []
    if isinstance(data, dict):
        parts = [*data, *data.values()]
    elif isinstance(data, list):
        parts = data
    for each in parts:
        _require_storable(each, depth + 1)
    if isinstance(data, str) and _UNSTORABLE.search(data):
        raise ValueError("a string cannot be stored")
    # JSON readers differ about larger numbers.
    if isinstance(data, int) and not -(2**63) <= data < 2**64:
        raise ValueError("a number has too many bits")


def _clean(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def _storable_text(value: object) -> str:
    return _clean(as_name(value) or "")


def _number(value: object) -> int | None:
    text = as_name(value)
    return None if text is None else read_number(text, 2**63 - 1)


def _time(value: object) -> datetime | None:
    return parse_timestamp(value) if isinstance(value, str) else None
