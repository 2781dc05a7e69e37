"""The trigger that fires asset events for webhook calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from airflow.triggers.base import TriggerEvent

from airflow_custody.client.arguments import check_seconds, check_text, describe, plain_names
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.webhooks.call_events import FILTERS, CallFilter
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import error_event, serialized

try:
    from airflow.triggers.base import BaseEventTrigger
except ImportError:  # Airflow 2 has no event-driven scheduling.
    from airflow.triggers.base import BaseTrigger as BaseEventTrigger  # type: ignore[assignment]

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import SharedStreamProducer

_HAS_SHARED_STREAMS = find_spec("airflow.triggers.shared_stream") is not None


class CustodyWebhookCallTrigger(BaseEventTrigger):
    """
    A trigger for asset watchers that fires for new webhook calls.

    Use it with an ``AssetWatcher`` on Airflow 3.3 or later. It reads the service's journal, ``GET /webhooks/calls``, so
    it needs no open port. Each event holds at most 100 calls and 64 KiB: ``{"count": 2, "calls": [...], "late_ids": [],
    "gap": "", "more": False}``. Each call has the ``type``, ``event_at`` and ``data`` of its event, with ids as text
    (see :class:`WebhookCall`). If a single call exceeds the 64 KiB, its event has the call's id in ``call_ids`` instead
    of the call. ``late_ids`` names the calls of this event that were created before a call of an earlier event. ``gap``
    describes calls that may be lost; an event with a gap may have no calls. ``more`` tells whether more events follow.

    Each call is fired at least once, in order of creation. A watcher keeps its position in the journal as a cursor in
    the asset's state store. The cursor moves once the events are in Airflow's database. If the triggerer is killed
    before that, or shortly after, it fires the same calls again: recognize repeated calls by their ids. If the events
    of one watcher cannot be stored, no cursor of the connection moves until they can be stored.

    In a triggerer, all watchers with the same connection and interval share one poll, and watchers at the same position
    share the calls that it reads. Each watcher fires at most 50 events per poll. If the journal cannot be read, the
    failure is logged, polls become less frequent until the service responds again, and no calls are lost.

    Give each watcher its own ``cursor_name``: Airflow only stores state for a trigger of exactly one asset, and two
    watchers with the same cursor would skip each other's calls. In a triggerer, a second watcher with the same cursor
    waits until the first one ends. If a watcher cannot use its cursor, it fires nothing, and the triggerer's log
    describes what to do. An unreadable cursor is never replaced: to start over, delete the key
    ``custody_webhook_calls:...`` in the asset's state store. A task that defers to this trigger fails.

    :param webhook_ids: ids of the webhooks whose calls are fired. None (default): all webhooks.
    :param webhook_types: types of the webhooks whose calls are fired, such as ``currencyStatus.updated``. The types
        come from the listing of webhooks; for a webhook that was deleted, the type in the call's payload counts. None
        (default): all types.
    :param event_ids: ids of the events whose calls are fired. None (default): all events.
    :param statuses: delivery statuses, at the time of reading, of the calls that are fired. A later change of status
        does not fire. None (default): all statuses.
    :param data_statuses: values of ``status`` in the ``data`` of the events whose calls are fired, such as
        ``disabled``. A call whose payload does not have the published form is fired in any case. None (default): all
        values.
    :param start: where to start if there is no cursor: ``"now"`` (default), at the time at which the journal is first
        read; or ``"beginning"``, at the oldest call that the service still lists.
    :param with_payload: whether events include the calls' payloads, and the ``data`` from these payloads. If so, they
        are stored in Airflow's database and in the triggerer's log, because Airflow logs every event. Default True.
    :param poke_interval: seconds between two polls, or a timedelta. Default 30.
    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param cursor_name: name of the cursor. A watcher that replaces another watcher continues from the cursor with the
        same name, even with other filters. Default ``default``.
    :raises ValueError: if an argument has a wrong type or value.
    """

    def __init__(
        self,
        *,
        webhook_ids: Iterable[str] | None = None,
        webhook_types: Iterable[str] | None = None,
        event_ids: Iterable[str] | None = None,
        statuses: Iterable[str] | None = None,
        data_statuses: Iterable[str] | None = None,
        start: Literal["now", "beginning"] = "now",
        with_payload: bool = True,
        poke_interval: float | timedelta = 30.0,
        custody_conn_id: str = CustodyHook.default_conn_name,
        cursor_name: str = "default",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.webhook_ids = _names(webhook_ids)
        self.webhook_types = _names(webhook_types)
        self.event_ids = _names(event_ids)
        self.statuses = _names(statuses)
        self.data_statuses = _names(data_statuses)
        self.start = start
        self.with_payload = with_payload
        self.poke_interval = poke_interval.total_seconds() if isinstance(poke_interval, timedelta) else poke_interval
        self.custody_conn_id = custody_conn_id
        self.cursor_name = cursor_name
        # Check the arguments when the DAG file is parsed. This is possible because none of them is a template.
        self._check_arguments()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        return serialized(self)

    def shared_stream_key(self) -> Hashable | None:
        """Return the key of the poll that this trigger shares; None: it cannot share one."""
        if not _HAS_SHARED_STREAMS or getattr(self, "task_instance", None) is not None:
            return None
        return self.serialize()[0], self.custody_conn_id, float(self.poke_interval)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the shared poll."""
        from airflow_custody.triggers._calls import JournalProducer

        return JournalProducer(kwargs["custody_conn_id"], float(kwargs["poke_interval"]))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire for the new calls in the shared readings."""
        from airflow_custody.triggers._calls import CallWatcher

        watcher = CallWatcher(
            self.custody_conn_id,
            self._call_filter(),
            getattr(self, "asset_state_store", None),
            f"custody_webhook_calls:{self.cursor_name}",
            start=self.start,
            with_payload=self.with_payload,
            log=self.log,
        )
        try:
            async for reading in shared_stream:
                found = await watcher.take(reading)
                for payload in found.events if found else ():
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                # Move the cursor only now, because a watcher may end before it has fired all events.
                watcher.handed_over(reading, found)
        finally:
            watcher.close()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """
        Refuse to run without a shared stream, because Airflow would not acknowledge that it has stored events.
        """
        is_task = getattr(self, "task_instance", None) is not None
        why = "a task cannot use this trigger" if is_task else "this version of Airflow does not acknowledge events"
        refusal = CustodyConfigurationError(
            f"{type(self).__name__}: {why}",
            advice="Use the trigger with an AssetWatcher on Airflow 3.3 or later. On an earlier version, run "
            "CustodyReadWebhookCallsOperator on a schedule.",
            code="unexpected",
        )
        if is_task:
            yield error_event(refusal)
            return
        # Do not return, because Airflow would restart the trigger every second.
        while True:
            self.log.error("%s", refusal)
            await asyncio.sleep(max(float(self.poke_interval), 600.0))

    def _call_filter(self) -> CallFilter:
        return CallFilter.of({name: getattr(self, name) for name in FILTERS})

    def _check_arguments(self) -> None:
        try:
            self._call_filter()
            check_text("custody_conn_id", self.custody_conn_id)
            check_text("cursor_name", self.cursor_name)
            seconds = check_seconds("poke_interval", self.poke_interval)
        except CustodyError as error:
            raise ValueError(error.text) from None
        if "{{" in self.custody_conn_id or "{{" in self.cursor_name:
            raise ValueError("custody_conn_id and cursor_name must not be templates, because watchers render none")
        if not seconds > 0:
            raise ValueError("poke_interval must be greater than zero")
        if not isinstance(self.with_payload, bool):
            raise ValueError(f"with_payload must be True or False, not {describe(self.with_payload)}")
        if self.start not in ("now", "beginning"):
            raise ValueError(f"start must be 'now' or 'beginning', not {describe(self.start)}")


def _names(names: Iterable[str] | None) -> Any:
    return plain_names([names] if isinstance(names, str) else names)
