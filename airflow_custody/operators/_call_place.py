"""Where a task goes on reading webhook calls: at the cursor of the asset's last event, or a later one of its store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow_custody._call_cursors import CursorStore, from_stored, to_stored
from airflow_custody.assets import last_event
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Asset, Context

    from airflow_custody.client.webhooks.calls import CallCursor

#: The key in the asset's state store.
STORE_KEY = "custody_read_webhook_calls"
# Without a state store an event is the only place for a cursor. Airflow's clean-up deletes old events, and the newest
# call that an old one knows may not be listed any more.
_MAX_EVENT_AGE = timedelta(days=1)


class CallPlace:
    """
    The place in the journal up to which an asset's events tell of its calls.

    :param context: the task's context.
    :param asset: the asset, an inlet and outlet of the task.
    :param filters: which calls the task selects, as plain JSON.
    :param log: the task's log.
    :ivar cursor: the cursor; None: this is the first time.
    :ivar gap: in words, why calls may be lost by going on from here; empty: none are.
    :ivar is_old: whether the cursor needs a new event where there is no store to keep it.
    :raises CustodyError: if the cursor cannot be had: going on from now would lose calls.
    """

    def __init__(self, context: Context, asset: Asset, filters: Mapping[str, list[str]], log: Any) -> None:
        stores = context.get("asset_state_store")
        self._store = CursorStore(None if stores is None else stores[asset], STORE_KEY)
        self._log = log
        task = [context["ti"].dag_id, context["ti"].task_id]
        self._facts: dict[str, Any] = {"filters": filters, "task": task}
        event, buried = None, None
        try:
            event = last_event(context["inlet_events"], asset, ("cursor", "filters"))
        except CustodyConfigurationError as error:
            # The state store may have one.
            buried = error
        cursor, facts = self._load(required=event is None)
        if cursor is None and buried is not None:
            raise buried
        # One that was stored since the event was emitted names it.
        if event is not None and (facts.get("event"), facts.get("filters")) != (event.id, filters):
            cursor, facts = from_stored(event.extra)
        self._facts["event"] = None if event is None else event.id
        self.cursor: CallCursor | None = cursor
        self.is_old = event is not None and datetime.now(timezone.utc) - event.timestamp >= _MAX_EVENT_AGE
        self.gap = ""
        if cursor is None:
            return
        if facts.get("task") != task:
            log.warning(
                "The last event of the asset %r was emitted by task %s, and this task goes on from there. If both run, "
                "each reads only what the other has not: give one of them an asset of its own (asset=...).",
                asset.uri,
                facts.get("task"),
            )
            if facts.get("filters") != filters:
                self.gap = (
                    f"task {facts.get('task')} reads calls for the same asset with other filters, and what those left "
                    "out is not read again"
                )
        elif facts.get("filters") != filters:
            log.warning("The filters were changed. Calls that the old ones left out before are not read again.")

    def keep(self, cursor: CallCursor) -> bool:
        """
        Keep a cursor in the asset's state store (Airflow 3.3): one that knows no call whose event is not stored yet.

        :return: whether it is kept; if not, the next reading begins at the last event's cursor.
        """
        if not self._store.is_there:
            return False
        try:
            self._store.save(cursor, **self._facts)
        except Exception as error:
            self._log.warning("The asset's state store keeps nothing (%s).", type(error).__name__)
            return False
        return True

    def event_extra(self, data: Mapping[str, Any], cursor: CallCursor) -> dict[str, Any]:
        """Return the extra of an event: its data, and what the next reading needs."""
        return to_stored(cursor, **data, filters=self._facts["filters"], task=self._facts["task"])

    def _load(self, *, required: bool) -> tuple[CallCursor | None, Mapping[str, Any]]:
        try:
            return self._store.load() if self._store.is_there else (None, {})
        except Exception as error:
            if required:
                raise CustodyError(
                    f"the asset's state store cannot be read ({error!r}), and no event has a cursor, so where to go on "
                    "is not known; nothing was sent",
                    code="record-unreadable",
                    retryable=not isinstance(error, CustodyError),
                ) from error
            self._log.warning("The asset's state store cannot be read (%r): its last event will do.", error)
            return None, {}
