"""Filters for webhook calls, and the events that are fired for them. Nothing here reads from the service."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from airflow_custody.client.arguments import check_names, describe
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import ascii_lower, is_uuid, name_some
from airflow_custody.client.webhooks.models import WebhookCall, WireWebhook

#: Maximum size of the calls in an event, in bytes of JSON. If the calls are larger, the event has only their ids.
MAX_EVENT_BYTES = 65_536


@dataclass(frozen=True)
class CallFilter:
    """
    A selection of webhook calls. All words are compared without regard to case. An empty filter selects all calls.

    :param webhook_ids: ids of the webhooks whose calls are selected. Default: empty.
    :param webhook_types: types of the webhooks whose calls are selected. Default: empty.
    :param event_ids: ids of the events whose calls are selected. Default: empty.
    :param statuses: delivery statuses, at the time of reading, of the calls that are selected. Default: empty.
    :param data_statuses: values of ``status`` in the data of the events whose calls are selected. Default: empty.
    """

    webhook_ids: Collection[str] = ()
    webhook_types: Collection[str] = ()
    event_ids: Collection[str] = ()
    statuses: Collection[str] = ()
    data_statuses: Collection[str] = ()

    @classmethod
    def of(cls, filters: Mapping[str, Any]) -> CallFilter:
        """
        Return the selection for values from a user. Values are sorted, so that equal selections compare as equal.

        :param filters: the values by the names of the fields; None: the filter is empty.
        :raises CustodyRequestError: if a value is not a list of names, or a webhook's id is not a UUID.
        """
        given = {name: check_names(name, value) or () for name, value in filters.items()}
        for each in given["webhook_ids"]:
            if not is_uuid(each):
                raise CustodyRequestError(
                    f"webhook_ids must be UUIDs, not {describe(each)}; nothing is sent",
                    setting="webhook_ids",
                    code="parameter-wrong",
                )
        return cls(**{name: tuple(sorted(set(values))) for name, values in given.items()})

    def to_json(self) -> dict[str, list[str]]:
        """Return the filters that are set, as plain JSON data."""
        return {name: list(values) for name, values in asdict(self).items() if values}

    def unknown(self, webhooks: Iterable[WireWebhook]) -> list[str]:
        """Return warnings about ids and types in the filters that none of these webhooks has."""
        webhooks, found = list(webhooks), []
        ids = {ascii_lower(each["id"]) for each in webhooks}
        types = {ascii_lower(each.get("type") or "") for each in webhooks}
        for name, key, values, known in (
            ("webhook_ids", "id", self.webhook_ids, ids),
            ("webhook_types", "type", self.webhook_types, types),
        ):
            if missing := [each for each in values if ascii_lower(each) not in known]:
                found.append(f"{name}: no webhook has the {key} {name_some(missing, 60)}.")
        return found

    def select(self, calls: Iterable[WebhookCall], webhooks: Iterable[WireWebhook]) -> list[WebhookCall]:
        """
        Return the calls that are selected, in their order.

        :param calls: the calls.
        :param webhooks: the webhooks, for their types. If a webhook's type is unknown, because it was deleted or has no
            type, the type in the call's payload is used instead. A call without a type, without a delivery status, or
            with a payload that does not have the published form is selected, because an extra call does less harm than
            a lost call.
        """
        types = {ascii_lower(each["id"]): each.get("type") for each in webhooks}
        return [call for call in calls if self._selects(call, types.get(ascii_lower(call.webhook_id)))]

    def _selects(self, call: WebhookCall, webhook_type: str | None) -> bool:
        return (
            _is_one_of(call.webhook_id, self.webhook_ids)
            and _is_one_of(webhook_type or call.type, self.webhook_types)
            and _is_one_of(call.event_id, self.event_ids)
            and _is_one_of(call.status, self.statuses)
            and self._selects_data(call)
        )

    def _selects_data(self, call: WebhookCall) -> bool:
        if not self.data_statuses or call.type is None:
            return True
        status = call.data.get("status")
        if status is None or status == "":
            # An event without a status has none of the statuses to select.
            return False
        return not isinstance(status, str) or _is_one_of(status, self.data_statuses)


#: The names of the filters.
FILTERS = tuple(each.name for each in fields(CallFilter))


def to_event(
    calls: Sequence[WebhookCall],
    *,
    late: Collection[str] = (),
    gap: str = "",
    more: bool = False,
    with_payload: bool = True,
) -> dict[str, Any]:
    """
    Return an event for calls, as plain JSON data.

    :param calls: the calls, each with its creation time.
    :param late: ids of the calls that appeared in the journal after a newer call. Default: no ids.
    :param gap: description of calls that may be lost. Default empty: none are lost.
    :param more: whether there are more new calls. Default False.
    :param with_payload: whether to include the calls' payloads, and the ``data`` from these payloads. Default True.
    :return: the keys ``count``, ``calls``, ``late_ids``, ``gap`` and ``more``. Calls have the form of
        :meth:`WebhookCall.to_json`. If they are larger than 64 KiB, the event has ``call_ids`` and ``since`` (the
        creation time of the oldest call) instead of ``calls``.
    """
    event: dict[str, Any] = {"count": len(calls)}
    rows = [call.to_json(with_payload=with_payload) for call in calls]
    if len(json.dumps(rows)) <= MAX_EVENT_BYTES:
        event["calls"] = rows
    else:
        event["call_ids"] = [call.id for call in calls]
        # A task that reads these calls from the journal need not read older ones.
        event["since"] = min(call.created_at for call in calls if call.created_at).isoformat()
    return {**event, "late_ids": [call.id for call in calls if call.id in late], "gap": gap, "more": more}


def _is_one_of(value: str | None, words: Collection[str]) -> bool:
    return not words or not value or ascii_lower(value) in {ascii_lower(each) for each in words}
