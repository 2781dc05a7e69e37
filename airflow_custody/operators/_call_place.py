"""The place in the journal: the cursor of the asset's last event, or a later one of its state store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_custody.assets import last_event
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Asset, Context

    from airflow_custody.client.webhooks.journal import CallCursor

#: The key in the asset's state store. It is in users' databases.
STORE_KEY = "custody_read_webhook_calls"
#: Without a state store an event is the only place for the cursor, and each reading begins at the last event's. An
#: event without calls keeps it from growing old: what is older than the journal's retention cannot be told from a gap,
#: and Airflow's clean-up deletes old events.
MAX_EVENT_AGE = timedelta(days=1)


class Place(NamedTuple):
    """
    A place in the journal.

    :param cursor: the cursor; None: this is the first time.
    :param gap: in words, why calls may be lost by going on from here; empty: none are.
    :param emitted_at: time of the last event with a cursor; None: there is none.
    :param base_url_changed: whether the cursor is of a journal that had another base URL.
    """

    cursor: CallCursor | None
    gap: str
    emitted_at: datetime | None
    base_url_changed: bool = False

    @property
    def must_be_emitted(self) -> bool:
        """Whether the cursor needs a new event where there is no store to keep it."""
        from airflow_custody.client.webhooks.gaps import MIN_KEPT_SECONDS

        if self.emitted_at is None:
            return False
        maximum = MAX_EVENT_AGE
        if self.cursor is not None and self.cursor.gap_reported:
            # So that it is not one again, as long as the task runs often.
            maximum = min(maximum, timedelta(seconds=max(self.cursor.kept_for, MIN_KEPT_SECONDS) / 2))
        return datetime.now(timezone.utc) - self.emitted_at >= maximum


class CallPlace:
    """
    The place in the journal up to which an asset's events tell of its calls.

    :param context: the task's context.
    :param asset: the asset, an inlet and outlet of the task.
    :param conn_id: id of the connection that the task reads with.
    :param base_url: the service's base URL.
    :param filters: which calls the task selects, as plain JSON.
    :param log: the task's log.
    """

    def __init__(
        self, context: Context, asset: Asset, conn_id: str, base_url: str, filters: Mapping[str, list[str]], log: Any
    ) -> None:
        from airflow_custody.client.webhooks.base_url_change import name_service

        self._context = context
        self._asset = asset
        self._source: dict[str, Any] = {
            "service": name_service(base_url),
            "conn_id": conn_id,
            "filters": dict(filters),
        }
        self._log = log
        # Names the asset's last event.
        self._event = ""

    def find(self) -> Place:
        """
        Return where reading goes on.

        :raises CustodyError: if that cannot be known: going on from now would lose calls.
        """
        from airflow_custody.client.webhooks.journal import CallCursor

        buried: CustodyError | None = None
        try:
            event = last_event(self._context["inlet_events"], self._asset, ("cursor", "service"))
        except CustodyConfigurationError as error:
            event, buried = None, error
        kept, kept_source = self._kept(required=event is None)
        if event is None:
            if kept is None and buried is not None:
                raise buried
            self._event = str(kept_source.get("event") or "")
            # Airflow's clean-up deleted the event, or other events have buried it.
            return self._place(kept, kept_source, "" if kept is None else self._kept_gap(kept_source), None)
        self._warn_of_another_task(event)
        cursor, source = CallCursor.from_json(event.extra["cursor"]), event.extra
        self._event = _name_event(event.extra)
        # A cursor that was kept since the event was emitted names it. Its times are no sign: the service's clock may
        # have been set back since.
        is_later = kept is not None and kept_source.get("event") == self._event
        if kept is not None and is_later and kept_source.get("filters") == self._source["filters"]:
            cursor, source = kept, kept_source
        return self._place(cursor, source, self._filter_gap(event), event.timestamp)

    def _place(
        self, cursor: CallCursor | None, source: Mapping[str, Any], gap: str, emitted_at: datetime | None
    ) -> Place:
        base_url_changed = cursor is not None and source.get("service") != self._source["service"]
        return Place(cursor, gap, emitted_at, base_url_changed)

    def keep(self, cursor: CallCursor) -> bool:
        """
        Keep a cursor in the asset's state store (Airflow 3.3): of a reading that found nothing to emit, or the one that
        a reading began with, as long as its own event is not stored. It never knows a call that is not emitted, and
        names the last event: to a later one it is none to go on from.

        :return: whether it is kept; if not, the next reading begins at the last event's cursor.
        """
        try:
            stores = self._context.get("asset_state_store")
            if stores is None:
                return False
            stores[self._asset].set(STORE_KEY, {**self._source, "event": self._event, "cursor": cursor.to_json()})
        except Exception as error:
            self._log.warning("The asset's state store keeps nothing (%s).", type(error).__name__)
            return False
        return True

    def event_extra(self, data: Mapping[str, Any], cursor: CallCursor) -> dict[str, Any]:
        """Return the extra of an event: its data, and what the next reading needs."""
        return {**data, **self._source, "cursor": cursor.to_json()}

    def _kept(self, *, required: bool) -> tuple[CallCursor | None, Mapping[str, Any]]:
        """Return the cursor in the state store, and which service and filters it is of."""
        from airflow_custody.client.webhooks.journal import CallCursor

        failure = ""
        try:
            stores = self._context.get("asset_state_store")
            value = None if stores is None else stores[self._asset].get(STORE_KEY)
            if isinstance(value, Mapping):
                return CallCursor.from_json(value.get("cursor")), value
        except Exception as error:
            failure = type(error).__name__
        if failure and required:
            raise CustodyError(
                f"the asset's state store cannot be read ({failure}), and no event has a cursor, so where to go on is "
                "not known; nothing was sent",
                code="record-unreadable",
                retryable=True,
            )
        if failure:
            self._log.warning("The asset's state store cannot be read (%s): its last event will do.", failure)
        return None, {}

    def _kept_gap(self, source: Mapping[str, Any]) -> str:
        """Return in words what other filters may have left out, where no event is left."""
        if source.get("filters") == self._source["filters"]:
            return ""
        return (
            "no event of the asset has a cursor, but its state store has one of other filters, and what those left out "
            "is not read again: if they are another task's, give each task an asset of its own (asset=...)"
        )

    def _warn_of_another_task(self, event: Any) -> None:
        """Warn if the last event is another task's, and that task may still run."""
        if self._is_own(event):
            return
        dag = self._context.get("dag")
        if dag is not None and event.source_dag_id == dag.dag_id and not dag.has_task(event.source_task_id):
            # It was renamed, or removed.
            return
        self._log.warning(
            "The last event of the asset %r was emitted by task %r of DAG %r, and this task goes on from there. If "
            "both run, each reads only what the other has not: give one of them an asset of its own (asset=...).",
            self._asset.uri,
            event.source_task_id,
            event.source_dag_id,
        )

    def _is_own(self, event: Any) -> bool:
        instance = self._context["ti"]
        return bool((event.source_dag_id, event.source_task_id) == (instance.dag_id, instance.task_id))

    def _filter_gap(self, event: Any) -> str:
        """Return in words what the filters of the last event's task may have left out; empty: nothing."""
        if event.extra.get("filters") == self._source["filters"]:
            return ""
        if self._is_own(event):
            self._log.warning("The filters were changed. Calls that the old ones left out before are not read again.")
            return ""
        return (
            f"task {event.source_task_id!r} of DAG {event.source_dag_id!r} emits events of the same asset with other "
            "filters, and what those left out is not read again"
        )


def _name_event(extra: Mapping[str, Any]) -> str:
    """Return what names an event: the place that it holds."""
    text = json.dumps([extra["cursor"], extra["service"]], sort_keys=True)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
