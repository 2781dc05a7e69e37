"""Events of the custody service as Airflow assets (Airflow 2: datasets)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
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

#: Numbers of an asset's last events to fetch, one try after the other, to find a task's last one.
_EVENTS = (1, 25, 500)
#: Maximum delay of an event behind one with a later time: the time is that of its creation, not of the commit.
_EVENT_OVERLAP = timedelta(minutes=1)


def webhook_calls_asset(custody_conn_id: str = "custody_default") -> Asset:
    """
    Return the asset whose events are a service's webhook calls.

    It is the default of :class:`~airflow_custody.operators.webhook.CustodyReadWebhookCallsOperator`; a DAG that is
    scheduled on it runs when that operator has found new calls.

    :param custody_conn_id: id of the Airflow connection; no template, since assets are known before any task runs.
    :return: the asset ``custody://<connection id>/webhook-calls``.
    :raises ValueError: if the id is a template, or no text.
    """
    return _asset(custody_conn_id, "webhook-calls")


def whitelist_asset(custody_conn_id: str = "custody_default") -> Asset:
    """
    Return the asset whose events say that a service's whitelist was changed, or proved.

    :class:`~airflow_custody.operators.whitelist_plan.CustodyApplyWhitelistPlanOperator` emits one if it succeeds and
    has created or deleted something, :class:`~airflow_custody.operators.whitelist_plan.CustodyPlanWhitelistOperator`
    if it succeeds, and pinned keys prove that every row of the file is in effect, and
    :class:`~airflow_custody.operators.whitelist.CustodyVerifyWhitelistOperator` if it has verified a request, and
    nothing is unverified. A task that is skipped emits none; one that is cleared repeats its event. The event's
    ``extra`` is ``{"event", "plan_hash", ...}``: ``event`` is ``applied`` or ``verified``, and the rest are the counts
    of the task's XCom. An event of ``CustodyVerifyWhitelistOperator`` has ``path`` and ``sha256`` of the evidence in
    place of ``plan_hash``. Airflow 2 gets no events.

    :param custody_conn_id: id of the Airflow connection; no template, since assets are known before any task runs.
    :return: the asset ``custody://<connection id>/whitelist``.
    :raises ValueError: if the id is a template, or no text.
    """
    return _asset(custody_conn_id, "whitelist")


#: The outlet of the tasks that emit events of a whitelist: an outlet that is an asset has an event at each success.
#: None on Airflow 2: where no scheduler knows the DAG (``dag.test``), a task that has emitted one cannot end.
WHITELIST_EVENTS = None if airflow_version.startswith("2.") else AssetAlias("custody whitelists")


def _asset(custody_conn_id: str, name: str) -> Asset:
    if not is_plain_conn_id(custody_conn_id):
        raise ValueError("custody_conn_id must be the id of a connection, as text that is no template")
    return Asset(uri=f"custody://{quote(custody_conn_id, safe='')}/{name}")


def normalize_uri(uri: SplitResult) -> SplitResult:
    """
    Return the URI of an asset with the scheme ``custody``. Airflow calls it for each.

    :param uri: the URI.
    :raises ValueError: if it is neither a whitelist nor webhook calls, nor below them, where a task's own asset may be:
        a DAG that is scheduled on it would never run.
    """
    if not uri.netloc or uri.path.split("/")[1:2] not in (["webhook-calls"], ["whitelist"]):
        raise ValueError("an asset of custody is custody://<connection id>/whitelist or .../webhook-calls")
    return uri


def is_plain_conn_id(custody_conn_id: object) -> bool:
    """Tell whether the id of a connection is known before a task runs."""
    is_text = isinstance(custody_conn_id, str) and bool(custody_conn_id.strip())
    return is_text and "{{" not in str(custody_conn_id) and "{%" not in str(custody_conn_id)


def latest_events(inlet_events: Mapping[Any, Any], asset: Asset, limit: int) -> list[Any]:
    """
    Return the last events of an inlet, the newest first, on every version of Airflow.

    ``inlet_events[asset]`` alone fetches all events that the asset ever had on Airflow 3, even for the last one.

    :param inlet_events: ``inlet_events`` of the task's context.
    :param asset: one of the task's inlets.
    :param limit: maximum number of events.
    """
    events = inlet_events[asset]
    if hasattr(events, "ascending"):
        return list(events.ascending(False).limit(limit))
    return list(reversed(events[-limit:]))


def last_event(inlet_events: Mapping[Any, Any], asset: Asset, keys: Collection[str]) -> Any:
    """
    Return a task's last event of an inlet; None: there is none.

    Only an event whose extra has the keys counts. Events emitted by hand, or by a watcher, come from no task.

    :param inlet_events: ``inlet_events`` of the task's context.
    :param asset: one of the task's inlets.
    :param keys: the keys.
    :raises CustodyConfigurationError: if it is buried under many other events.
    """
    for limit in _EVENTS:
        events = latest_events(inlet_events, asset, limit)
        for event in events:
            has_keys = isinstance(event.extra, Mapping) and event.extra.keys() >= set(keys)
            if has_keys and event.source_task_id:
                return event
        if len(events) < limit:
            return None
    raise CustodyConfigurationError(
        f"none of the last {_EVENTS[-1]} events of the asset {asset.uri!r} tells how far a task has come; nothing was "
        "sent",
        setting="asset",
        advice="Something else emits events of this asset. Give this task an asset of its own.",
        code="parameter-wrong",
    )


class UnhandledEvents:
    """
    The events of an inlet that a task has not handled yet, the oldest first: iterate over it.

    A DAG that is scheduled on an asset may get several events in one run, and none of those that came while it was
    paused. So it keeps its place in an event of an asset of its own, which Airflow stores together with the task's
    success: an outlet and inlet of the task, of no other task, with :attr:`place` as extra. Each event is handled at
    least once, also one that appears within a minute after a later one, or has the same time.

    Events are fetched in portions, so it does not matter how many there are.

    :param inlet_events: ``inlet_events`` of the task's context.
    :param asset: the asset whose events to handle.
    :param handled: the task's own asset. Without an event of it, all events that ``asset`` ever had are to be handled.
    :param portion: number of events to fetch at once. Default 100.
    :raises CustodyConfigurationError: if the place is buried under other events of ``handled``.
    """

    def __init__(self, inlet_events: Mapping[Any, Any], asset: Asset, handled: Asset, *, portion: int = 100) -> None:
        self._inlet_events = inlet_events
        self._asset = asset
        self._portion = portion
        self._until: datetime | None = None
        # When the last events were emitted that were handled, by their ids.
        self._recent: dict[int, datetime] = {}
        last = last_event(inlet_events, handled, ("until", "recent"))
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
    def place(self) -> dict[str, Any]:
        """The task's place, as the extra of its own event: after all events that were iterated over."""
        if self._until is None:
            return {}
        first = self._until - _EVENT_OVERLAP
        recent = sorted(number for number, at in self._recent.items() if at >= first)
        return {"until": self._until.isoformat(), "recent": recent}


def calls_of(event: Any, client: CustodyClient) -> list[dict[str, Any]]:
    """
    Return the webhook calls of an asset event, as :meth:`WebhookCall.to_json` does.

    An event holds the calls, or only their ids.

    :param event: an event of :class:`~airflow_custody.operators.webhook.CustodyReadWebhookCallsOperator` or of a
        watcher. An event emitted by hand may have no calls.
    :param client: reads the calls of which the event has only the ids.
    :return: the calls. If the service no longer lists a call, it has an ``id``, and nothing else.
    :raises CustodyError: if they cannot be read.
    """
    extra = event.extra if isinstance(event.extra, Mapping) else {}
    payload = extra.get("payload")
    data = payload if isinstance(payload, Mapping) else extra
    call_ids = [str(each) for each in _listed(data.get("call_ids"))]
    if call_ids:
        found = _find_calls(client, set(call_ids), str(data.get("since")))
        return [found.get(each, {"id": each}) for each in call_ids]
    return [dict(each) for each in _listed(data.get("calls")) if isinstance(each, Mapping) and each.get("id")]


def _find_calls(client: CustodyClient, wanted: set[str], since: str) -> dict[str, dict[str, Any]]:
    """
    Return the calls with these ids that the service still lists.

    :param client: reads the calls.
    :param wanted: the ids.
    :param since: time stamp of the oldest of these calls, so that no older calls are read; all are read without it.
    """
    from airflow_custody.client.webhooks.calls import BEGINNING, CallCursor

    start = parse_timestamp(since)
    cursor = CallCursor(start) if start else BEGINNING
    found: dict[str, dict[str, Any]] = {}
    more = True
    while more and len(found) < len(wanted):
        new = client.read_webhook_calls(cursor)
        found.update({call.id: call.to_json() for call in new.calls if call.id in wanted})
        cursor, more = new.cursor, new.more
    return found


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _events_from(inlet_events: Mapping[Any, Any], asset: Asset, start: datetime | None, portion: int) -> Iterator[Any]:
    """Yield the events from a time on, the oldest first, some of them more than once."""
    events = inlet_events[asset]
    if not hasattr(events, "after"):
        # Airflow before 3.1: a sequence that fetches only the requested items.
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
        # From there on again, which includes the time itself; more, if all of them have one time.
        size = portion if start is None or page[-1].timestamp > start else 2 * size
        start = page[-1].timestamp
