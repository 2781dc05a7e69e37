"""Events for webhook calls: the filter, and the form. Pure, no I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_custody.client.text import ascii_lower
from airflow_custody.client.webhooks.models import WebhookCall
from airflow_custody.client.webhooks.results import NewCalls

#: Maximum size of the calls in an event, in bytes of JSON; of more calls, the event holds the ids.
DEFAULT_MAX_EVENT_BYTES = 65_536


@dataclass(frozen=True)
class CallFilter:
    """
    A selection of webhook calls. All words are compared without case.

    :param webhook_ids: only calls of these webhooks. Default: no filter, and so for those below.
    :param webhook_types: only calls of webhooks of these types.
    :param event_ids: only calls of these events.
    :param statuses: only calls whose delivery has one of these statuses when it is read.
    """

    webhook_ids: Collection[str] = ()
    webhook_types: Collection[str] = ()
    event_ids: Collection[str] = ()
    statuses: Collection[str] = ()

    @property
    def needs_types(self) -> bool:
        """Whether the webhooks' types must be known."""
        return bool(self.webhook_types)

    def select(self, calls: Iterable[WebhookCall], webhook_types_by_id: Mapping[str, str]) -> list[WebhookCall]:
        """
        Return the calls that are selected, in their order.

        :param calls: the calls.
        :param webhook_types_by_id: the types of the webhooks. A call does not say its type: where the webhook's is not
            known, as it was deleted or has none, the call is selected, and so is one without a status, because a call
            too many does less harm than a lost one.
        """
        types = {ascii_lower(each): type_ for each, type_ in webhook_types_by_id.items()} if self.needs_types else {}
        return [
            call
            for call in calls
            if self.selects_webhook(call.webhook_id, types.get(ascii_lower(call.webhook_id)))
            and _is_one_of(call.event_id, self.event_ids)
            and _is_one_of(call.status, self.statuses)
        ]

    def selects_webhook(self, webhook_id: str, webhook_type: str | None) -> bool:
        """Tell whether calls of a webhook may be selected; one whose type is not known may be of any."""
        return _is_one_of(webhook_id, self.webhook_ids) and _is_one_of(webhook_type, self.webhook_types)


def to_event(
    calls: NewCalls | Iterable[WebhookCall],
    *,
    with_payload: bool = True,
    max_bytes: int = DEFAULT_MAX_EVENT_BYTES,
) -> dict[str, Any]:
    """
    Return what an event says of calls, as plain JSON data.

    :param calls: the result of a reading, or only the calls.
    :param with_payload: whether to include the calls' payloads. Default True.
    :param max_bytes: maximum size of the calls as JSON; above, only their ids are included. Default 65,536.
    :return: ``count``; ``calls``, each as :meth:`WebhookCall.to_json` returns it, or ``call_ids`` and, if all calls
        have a time stamp, ``since``, the oldest one; ``late_ids``; ``gap``, in words, empty if nothing may have been
        lost; ``more``.
    """
    new = calls if isinstance(calls, NewCalls) else None
    found = list(new.calls) if new is not None else list(calls)  # type: ignore[arg-type]
    event: dict[str, Any] = {"count": len(found)}
    rows = _rows(found, with_payload, max_bytes)
    if rows is None:
        event["call_ids"] = [each.id for each in found]
        times = [each.created_at for each in found if each.created_at]
        if len(times) == len(found):
            # So far back goes who looks these calls up.
            event["since"] = min(times).isoformat()
    else:
        event["calls"] = rows
    late = new.late if new is not None else frozenset()
    return {
        **event,
        "late_ids": [each.id for each in found if each.id in late],
        "gap": new.gap if new is not None else "",
        "more": new.more if new is not None else False,
    }


def _rows(calls: Iterable[WebhookCall], with_payload: bool, max_bytes: int) -> list[dict[str, Any]] | None:
    """Return the calls as JSON data; None if they are too large."""
    rows: list[dict[str, Any]] = []
    size = 2
    for call in calls:
        row = call.to_json()
        if not with_payload:
            del row["payload"]
        size += len(json.dumps(row)) + 2
        if size > max_bytes:
            return None
        rows.append(row)
    return rows


def _is_one_of(value: str | None, words: Collection[str]) -> bool:
    return not words or not value or ascii_lower(value) in {ascii_lower(each) for each in words}
