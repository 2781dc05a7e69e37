"""Events of the custody service as Airflow assets (Airflow 2: datasets)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import Asset, AssetAlias

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.timestamps import parse_timestamp

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

__all__ = ["UnhandledEvents", "calls_of", "last_event", "latest_events", "webhook_calls_asset", "whitelist_asset"]

#: How many of an asset's last events to fetch: first one, then more, until an event of the wanted task is among them.
_EVENTS = (1, 25, 500)
#: An event that appears after a newer event is still found if it appears at most this much later. Events may appear out
#: of order, because an event has the time of its creation, but can only be read after the commit to the database.
_EVENT_OVERLAP = timedelta(minutes=1)


def webhook_calls_asset(custody_conn_id: str = "custody_default") -> Asset:
    """
    Return the asset for a service's webhook calls.

    This asset is the default of :class:`~airflow_custody.operators.webhook.CustodyReadWebhookCallsOperator`. A DAG that
    is scheduled on this asset runs when that operator has found new calls.

    :param custody_conn_id: id of the Airflow connection. It cannot be a template, because Airflow must know its assets
        before any task runs.
    :return: the asset ``custody://<connection id>/webhook-calls``.
    :raises ValueError: if the id is a template, empty, or not text.
    """
    return _asset(custody_conn_id, "webhook-calls")


def whitelist_asset(custody_conn_id: str = "custody_default") -> Asset:
    """
    Return the asset for changes and verifications of a service's whitelist.

    These operators emit an event if their task succeeds:

    - :class:`~airflow_custody.operators.whitelist_plan.CustodyApplyWhitelistPlanOperator`, if it has created or deleted
      requests: ``applied``.
    - :class:`~airflow_custody.operators.whitelist_plan_completion.CustodyCompleteWhitelistPlanOperator`, if it has
      deleted requests: ``applied``.
    - :class:`~airflow_custody.operators.whitelist_plan.CustodyPlanWhitelistOperator`, if pinned keys prove that every
      row of the file is in effect: ``verified``.
    - :class:`~airflow_custody.operators.whitelist.CustodyVerifyWhitelistOperator`, if it has verified at least one
      request, and no request has failed the verification: ``verified``.

    The event's ``extra`` is ``{"event", "plan_hash", ...}``: the word ``applied`` or ``verified``, the plan's hash, and
    the counts in the task's XCom. An event of ``CustodyVerifyWhitelistOperator`` has the ``path`` and ``sha256`` of the
    evidence file instead of ``plan_hash``. A skipped task emits no event. If a task is cleared, its next success emits
    the event again. On Airflow 2, these events are not emitted.

    :param custody_conn_id: id of the Airflow connection. It cannot be a template, because Airflow must know its assets
        before any task runs.
    :return: the asset ``custody://<connection id>/whitelist``.
    :raises ValueError: if the id is a template, empty, or not text.
    """
    return _asset(custody_conn_id, "whitelist")


#: The outlet of the tasks that emit events of a whitelist. It is an alias and not an asset, because for an asset,
#: Airflow would emit an event at each success of the task. None on Airflow 2, because ``dag.test`` of Airflow 2 cannot
#: finish a task that has emitted an event.
WHITELIST_EVENTS = None if airflow_version.startswith("2.") else AssetAlias("custody whitelists")


def _asset(custody_conn_id: str, name: str) -> Asset:
    if not is_plain_conn_id(custody_conn_id):
        raise ValueError("custody_conn_id must be the id of a connection, and not a template")
    return Asset(uri=f"custody://{quote(custody_conn_id, safe='')}/{name}")


def normalize_uri(uri: SplitResult) -> SplitResult:
    """
    Check and return the URI of an asset with the scheme ``custody``.

    Airflow calls this for each asset. The path may continue after ``whitelist`` or ``webhook-calls``, so that a task
    can have its own asset.

    :param uri: the URI.
    :raises ValueError: if the URI is not for a whitelist or webhook calls. A DAG scheduled on such a URI would never
        run.
    """
    if not uri.netloc or uri.path.split("/")[1:2] not in (["webhook-calls"], ["whitelist"]):
        raise ValueError("a custody asset must be custody://<connection id>/whitelist or .../webhook-calls")
    return uri


def is_plain_conn_id(custody_conn_id: object) -> bool:
    """Tell whether a connection's id is plain text and not a template, so that it is known before a task runs."""
    is_text = isinstance(custody_conn_id, str) and bool(custody_conn_id.strip())
    return is_text and "{{" not in str(custody_conn_id) and "{%" not in str(custody_conn_id)


def latest_events(inlet_events: Mapping[Any, Any], asset: Asset, limit: int) -> list[Any]:
    """
    Return the last events of an inlet, the newest first.

    Only these events are fetched. On Airflow 3, ``inlet_events[asset][-1]`` would fetch all events of the asset.

    :param inlet_events: ``inlet_events`` of the task's context.
    :param asset: one of the task's inlets.
    :param limit: maximum number of events.
    """
    events = inlet_events[asset]
    if hasattr(events, "ascending"):
        return list(events.ascending(False).limit(limit))
    return list(reversed(events[-limit:]))


def task_source(ti: Any) -> str:
    """Return a task's name as the source of events, ``<dag_id>/<task_id>``, from an instance of the task."""
    return f"{ti.dag_id}/{ti.task_id}"


def source_of(event: Any) -> str:
    """
    Return the task that emitted an event, as ``<dag_id>/<task_id>``; empty if no task did.

    The source can be trusted, because Airflow itself records it for each event. The ``extra`` cannot be trusted,
    because the task that emits the event decides what is in it.
    """
    return f"{event.source_dag_id}/{event.source_task_id}" if event.source_task_id else ""


def sources_of(inlet_events: Mapping[Any, Any], asset: Asset, keys: Collection[str]) -> set[str]:
    """Return the tasks that emitted the last 500 events of an inlet whose ``extra`` has the given keys."""
    return set(_last_by_source(latest_events(inlet_events, asset, _EVENTS[-1]), keys))


def _last_by_source(events: Iterable[Any], keys: Collection[str]) -> dict[str, Any]:
    """
    Return each task's last event whose ``extra`` has the given keys.

    :param events: the events, the newest first.
    :param keys: the keys.
    """
    found: dict[str, Any] = {}
    for event in events:
        source = source_of(event)
        if source and isinstance(event.extra, Mapping) and event.extra.keys() >= set(keys):
            found.setdefault(source, event)
    return found


def last_event(
    inlet_events: Mapping[Any, Any],
    asset: Asset,
    keys: Collection[str],
    source: str,
    continue_from: str | None = None,
) -> Any:
    """
    Return the last event of an inlet that a certain task emitted, and whose ``extra`` has the given keys.

    All other events are ignored, whatever their ``extra`` claims.

    :param inlet_events: ``inlet_events`` of the task's context.
    :param asset: one of the task's inlets.
    :param keys: the keys that the event's ``extra`` must have.
    :param source: the task that emitted the event, as ``<dag_id>/<task_id>``.
    :param continue_from: the task, as ``<dag_id>/<task_id>``, whose last event is returned if ``source`` has no event
        among the last 500. Default None: no other task.
    :return: the event; None if there is no such event.
    :raises CustodyConfigurationError: if none of the last 500 events is such an event, and there may be older events.
    """
    for limit in _EVENTS:
        events = latest_events(inlet_events, asset, limit)
        found = _last_by_source(events, keys)
        if source in found:
            return found[source]
        if len(events) < limit:
            break
    if continue_from in found:
        return found[continue_from]
    if len(events) < limit:
        return None
    raise CustodyConfigurationError(
        f"none of the last {_EVENTS[-1]} events of the asset {asset.uri!r} stores a position of the task {source}, so "
        "the place to continue is unknown; nothing is sent",
        setting="asset",
        advice="The asset has events from other sources. Give this task its own asset. If the task was renamed, name "
        "the old task in continue_from.",
        code="parameter-wrong",
    )


class UnhandledEvents:
    """
    The events of an inlet that a task has not handled yet.

    Iterate over this object to get the events, the oldest first. A DAG that is scheduled on an asset may get several
    events in one run, and does not get the events from the time during which it was paused. Therefore the task itself
    records which events it has handled. The record is an event of the task's own asset, ``handled``, which Airflow
    stores together with the task's success. This asset must be an outlet and an inlet of this task, and of no other
    task. Emit its event with :attr:`place` as ``extra``.

    Each event is handled at least once, even if it appears up to a minute after a later event, or has the same time as
    another event. Events are fetched in portions, so any number of events can be handled.

    :param inlet_events: ``inlet_events`` of the task's context.
    :param asset: the asset with the events to handle.
    :param handled: the task's own asset. Only events that this task emitted are read from it. If there are none yet,
        all events of ``asset`` are returned.
    :param ti: ``ti`` of the task's context. It names this task.
    :param continue_from: the task, as ``<dag_id>/<task_id>``, whose record is used if this task has no record yet, for
        example this task under its old name. Default None: no other task.
    :param portion: number of events to fetch at once. Default 100.
    :raises CustodyConfigurationError: if none of the last 500 events of ``handled`` stores the task's position, and
        there may be older events.
    """

    def __init__(
        self,
        inlet_events: Mapping[Any, Any],
        asset: Asset,
        handled: Asset,
        *,
        ti: Any,
        continue_from: str | None = None,
        portion: int = 100,
    ) -> None:
        self._inlet_events = inlet_events
        self._asset = asset
        self._portion = portion
        self._until: datetime | None = None
        # The times of the last handled events, by the events' ids.
        self._recent: dict[int, datetime] = {}
        last = last_event(inlet_events, handled, ("until", "recent"), task_source(ti), continue_from)
        if last is not None:
            self._until = parse_timestamp(str(last.extra["until"]))
        if last is not None and self._until is not None:
            self._recent = dict.fromkeys(_listed(last.extra["recent"]), self._until)

    def __iter__(self) -> Iterator[Any]:
        start = None if self._until is None else self._until - _EVENT_OVERLAP
        for event in _events_from(self._inlet_events, self._asset, start, self._portion):
            if event.id in self._recent:
                continue
            yield event
            self._recent[event.id] = event.timestamp
            self._until = event.timestamp if self._until is None else max(self._until, event.timestamp)

    @property
    def place(self) -> dict[str, object]:
        """The position after the events that were returned so far. Emit the task's event with it as ``extra``."""
        if self._until is None:
            return {}
        first = self._until - _EVENT_OVERLAP
        recent = sorted(number for number, at in self._recent.items() if at >= first)
        return {"until": self._until.isoformat(), "recent": recent}


def calls_of(event: Any, client: CustodyClient) -> list[dict[str, object]]:
    """
    Return the webhook calls of an asset event.

    If the event has only the ids of its calls, the calls are read from the service.

    :param event: an event of :class:`~airflow_custody.operators.webhook.CustodyReadWebhookCallsOperator` or of a
        watcher. An event that was emitted by hand may have no calls.
    :param client: the client to read the calls with.
    :return: the calls, in the form of :meth:`WebhookCall.to_json`. A call that the service no longer lists has only an
        ``id``.
    :raises CustodyError: if the calls cannot be read.
    """
    extra = event.extra if isinstance(event.extra, Mapping) else {}
    payload = extra.get("payload")
    data = payload if isinstance(payload, Mapping) else extra
    call_ids = [str(each) for each in _listed(data.get("call_ids"))]
    if call_ids:
        found = _find_calls(client, set(call_ids), str(data.get("since")))
        return [found.get(each, {"id": each}) for each in call_ids]
    return [dict(each) for each in _listed(data.get("calls")) if isinstance(each, Mapping) and each.get("id")]


def _find_calls(client: CustodyClient, wanted: set[str], since: str) -> dict[str, dict[str, object]]:
    """
    Return the calls with the given ids that the service still lists.

    :param client: the client to read the calls with.
    :param wanted: the ids.
    :param since: timestamp of the oldest of these calls, so that no older calls are read. If it is not a timestamp, all
        calls are read.
    """
    from airflow_custody.client.webhooks.calls import BEGINNING, CallCursor

    start = parse_timestamp(since)
    cursor = CallCursor(start) if start else BEGINNING
    found: dict[str, dict[str, object]] = {}
    more = True
    while more and len(found) < len(wanted):
        new = client.read_webhook_calls(cursor)
        found.update({call.id: call.to_json() for call in new.calls if call.id in wanted})
        cursor, more = new.cursor, new.more
    return found


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _events_from(inlet_events: Mapping[Any, Any], asset: Asset, start: datetime | None, portion: int) -> Iterator[Any]:
    """
    Yield the events from a time on, the oldest first. An event may be yielded more than once.
    """
    events = inlet_events[asset]
    if not hasattr(events, "after"):
        # Before Airflow 3.1, the events are a sequence, which fetches only the requested items from the database.
        first = 0 if start is None else bisect_left(events, start, key=lambda each: each.timestamp)
        while page := list(events[first : first + portion]):
            yield from page
            first += len(page)
        return
    size = portion
    while True:
        events = inlet_events[asset].ascending(True).limit(size)
        page = list(events if start is None else events.after(start.isoformat()))
        yield from page
        if len(page) < size:
            return
        # The next page begins at the time of this page's last event, and includes it, because more events may have the
        # same time. If all events of this page have that time, fetch a larger page.
        size = portion if start is None or page[-1].timestamp > start else 2 * size
        start = page[-1].timestamp
