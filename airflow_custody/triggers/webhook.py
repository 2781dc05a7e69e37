"""The trigger that tells assets of the calls that the service makes to webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from airflow.triggers.base import TriggerEvent

from airflow_custody.client.arguments import check_names, check_seconds, check_text, describe, plain_names
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.webhooks.call_events import CallFilter
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import error_event, serialized

try:
    from airflow.triggers.base import BaseEventTrigger
except ImportError:  # Airflow 2 has no event-driven scheduling.
    from airflow.triggers.base import BaseTrigger as BaseEventTrigger  # type: ignore[assignment]

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import SharedStreamProducer

    from airflow_custody.triggers._calls import CallWatcher

_HAS_SHARED_STREAMS = find_spec("airflow.triggers.shared_stream") is not None
_FILTERS = ("webhook_ids", "webhook_types", "event_ids", "statuses")


class CustodyWebhookCallTrigger(BaseEventTrigger):
    """
    A trigger for an ``AssetWatcher``: it fires when the service has written new webhook calls. Airflow 3.3 or later.

    It reads the journal of calls, ``GET /webhooks/calls``, and needs no open port. Each event holds at most 100 calls
    or 64 KiB: ``{"count": 2, "calls": [...], "late_ids": [], "gap": "", "more": False}``. A call that is larger comes
    as ``call_ids``. ``late_ids`` names calls that were created before one that was handed on earlier. ``gap`` says in
    words which calls may be lost; such an event may have no calls.

    Every call is seen at least once, in the order in which they were created. How far a watcher has come is its cursor,
    in the state store of the asset. It moves when Airflow has the events in its database. A triggerer that is killed
    before that, and sometimes after, fires the same calls again: tell them apart by their ids. If a watcher's events
    cannot be stored, the cursors of all watchers of the connection stay until they can.

    All watchers of one connection and interval in a triggerer share one poll, and those that have come equally far
    share what is read. Each fires at most 50 events at each poll. What fails is logged, polls become rarer until the
    service responds again, and nothing is lost.

    It fires nothing, and says in the triggerer's log what to do, where it has no cursor to go on from: Airflow keeps
    state for a trigger of exactly one asset, so give each asset's watcher a ``cursor_name`` of its own, and so two
    watchers of one asset; otherwise one would move past what the other has yet to fire. Within a triggerer the second
    one waits until the first ends. A stored cursor that cannot be read is never replaced: delete the key
    ``custody_webhook_calls:...`` in the asset's state store to start over. A task that defers to this trigger fails.

    :param webhook_ids: only calls to these webhooks. None (default): to all.
    :param webhook_types: only calls to webhooks of these types, such as ``requestStatus.updated``. The webhook has a
        type, not the call: they are looked up. None (default): of all.
    :param event_ids: only calls about these events. None (default): about all.
    :param statuses: only calls with one of these statuses when they are read. A later change of status is no new call.
        None (default): with any.
    :param start: start without a cursor: ``"now"`` (default), when the journal can be
        read for the first time, or ``"beginning"``.
    :param with_payload: whether events hold the calls' payloads, which are then in Airflow's database, and in the
        triggerer's log, to which Airflow writes every event. Default True.
    :param poke_interval: seconds between two polls, or a timedelta. Default 30.
    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param cursor_name: name of the cursor. A watcher that takes another's place goes on from the cursor of the same
        name, also with other filters. Default ``default``.
    :raises ValueError: if an argument is of another type or value.
    """

    def __init__(
        self,
        *,
        webhook_ids: Iterable[str] | None = None,
        webhook_types: Iterable[str] | None = None,
        event_ids: Iterable[str] | None = None,
        statuses: Iterable[str] | None = None,
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
        self.start = start
        self.with_payload = with_payload
        self.poke_interval = poke_interval.total_seconds() if isinstance(poke_interval, timedelta) else poke_interval
        self.custody_conn_id = custody_conn_id
        self.cursor_name = cursor_name
        # In the DAG file: nobody looks for it in the triggerer's log, and nothing here is rendered later.
        self._check_arguments()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        return serialized(self)

    def shared_stream_key(self) -> Hashable | None:
        """Return what all watchers that share a poll have in common; None: this Airflow has no shared streams."""
        if not _HAS_SHARED_STREAMS or getattr(self, "task_instance", None) is not None:
            return None
        return self.serialize()[0], self.custody_conn_id, float(self.poke_interval)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the shared poll, which acknowledges what Airflow has in its database."""
        from airflow_custody.triggers._calls import JournalProducer

        return JournalProducer(kwargs["custody_conn_id"], float(kwargs["poke_interval"]))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire for what is new in the shared readings."""
        watcher = self._watcher()
        try:
            async for reading in shared_stream:
                for payload in await watcher.take(reading):
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                # Only now: a watcher that ends in between has not handed over all.
                watcher.handed_over(reading)
        finally:
            watcher.close()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Refuse to run without a shared stream: a cursor must not move before Airflow has the events."""
        is_task = getattr(self, "task_instance", None) is not None
        why = "a task cannot wait for it" if is_task else "this Airflow cannot say that it has stored an event"
        refusal = CustodyConfigurationError(
            f"{type(self).__name__}: {why}",
            advice="Use it with an AssetWatcher, on Airflow 3.3 or later. A DAG of an earlier Airflow can run "
            "CustodyReadWebhookCallsOperator on a schedule.",
            code="unexpected",
        )
        if is_task:
            yield error_event(refusal)
            return
        # A trigger that ends is started again, each second.
        while True:
            self.log.error("%s", refusal)
            await asyncio.sleep(max(float(self.poke_interval), 600.0))

    def _watcher(self) -> CallWatcher:
        from airflow_custody.client.webhooks.calls import WATCHER_CURSOR_KEY
        from airflow_custody.triggers._calls import CallWatcher, CursorStore

        return CallWatcher(
            self.custody_conn_id,
            CallFilter(**{name: tuple(getattr(self, name) or ()) for name in _FILTERS}),
            CursorStore(getattr(self, "asset_state_store", None), f"{WATCHER_CURSOR_KEY}:{self.cursor_name}"),
            start=self.start,
            with_payload=self.with_payload,
            log=self.log,
        )

    def _check_arguments(self) -> None:
        try:
            for name in _FILTERS:
                check_names(name, getattr(self, name))
            check_text("custody_conn_id", self.custody_conn_id)
            check_text("cursor_name", self.cursor_name)
            seconds = check_seconds("poke_interval", self.poke_interval)
        except CustodyError as error:
            raise ValueError(error.text) from None
        if "{{" in self.custody_conn_id or "{{" in self.cursor_name:
            raise ValueError("custody_conn_id, cursor_name: no templates are rendered for a watcher")
        if not seconds > 0:
            raise ValueError("poke_interval must be more than zero")
        if not isinstance(self.with_payload, bool):
            raise ValueError(f"with_payload must be True or False, not {describe(self.with_payload)}")
        if self.start not in ("now", "beginning"):
            raise ValueError(f"start must be 'now' or 'beginning', not {describe(self.start)}")


def _names(names: Iterable[str] | None) -> Any:
    return plain_names([names] if isinstance(names, str) else names)
