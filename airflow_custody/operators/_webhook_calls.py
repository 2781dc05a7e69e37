"""The operator that reads the journal of webhook calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Asset

from airflow_custody._base import NOT_GIVEN
from airflow_custody._call_cursors import from_stored, to_stored
from airflow_custody.assets import last_event, webhook_calls_asset
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.webhooks.calls import CallCursor
    from airflow_custody.client.webhooks.models import WireWebhook

_STARTS = ("now", "beginning")
_ON_GAP = ("fail", "continue")
#: The key in the asset's state store.
STORE_KEY = "custody_read_webhook_calls"
# Without a state store an event is the only place for a cursor. Airflow's clean-up deletes old events, and the newest
# call that an old one knows may not be listed any more.
_MAX_EVENT_AGE = timedelta(days=1)
#: Maximum number of webhooks that are not enabled in the log.
_MAX_REPORTED = 20


class CustodyReadWebhookCallsOperator(CustodyOperator):
    """
    Read the webhook calls that are new since the last run, and emit one asset event that holds them.

    The service writes each call down before it posts it. This task reads that journal: it needs no open port and no
    webhook receiver, and also finds what was written while Airflow was down. Needs the role ``Admin`` or
    ``AdminReadOnly``. The operation is undocumented.

    The event's ``extra`` is ``{"count", "calls", "late_ids", "gap", "more", "filters", "task", "cursor"}``; above 64
    KiB it has ``call_ids`` instead of ``calls``, and ``since``, when the oldest of them was created. A consumer gets
    the calls of either from :func:`airflow_custody.assets.calls_of`. The next run goes on from the ``cursor`` of the
    asset's last event that a task has emitted, whoever else emits events of the asset. Airflow stores the event
    together with the task's success. So a task that is killed before emits nothing, and its next try reads the same
    calls: each call is emitted at least once, and its id tells repetitions apart. A call that appears more than five
    minutes behind one that was created later is not found; ``late_ids`` are those that came a little late.

    Where nothing is new, the task is skipped, and so is what depends on it in its DAG; there is no event. An event
    without calls (``count`` 0) is emitted by the first run with ``start="now"``, to store the place; after a gap;
    and, where there is no asset state store (Airflow before 3.3), if only calls were read that the filters leave out,
    and they are more than ``max_calls``, or the last event is a day old.

    **One asset has one cursor.** Two tasks with the same asset share it, also tasks of two DAGs: what one of them has
    read, the other does not read again, and the log warns of that. If their filters differ, that is a gap. Give each
    its own asset, then. To begin anew, take a new asset, too. One instance of the task runs at a time; it cannot be
    mapped. Airflow's clean-up (``airflow db clean``) may delete its last event when it is switched off for long: then
    it goes on from the asset's state store, and the last event's calls come again. Airflow before 3.3 has none, and it
    begins as if for the first time.

    :param asset: the asset whose events hold the calls, an inlet and outlet of the task. None (default):
        ``webhook_calls_asset(custody_conn_id)``, so it must be given where ``custody_conn_id`` is a template.
    :param start: start of the first run: ``now`` (default) or ``beginning``, with the oldest call that the service
        still lists. It is ignored once the asset has a cursor, whichever task that is of. (templated)
    :param webhook_ids: only calls to these webhooks; default: to all, and so for those below. (templated)
    :param webhook_types: only calls to webhooks of these types, such as ``requestStatus.updated``. A call does not say
        its type: the listing of webhooks does. (templated)
    :param event_ids: only calls of these events. (templated)
    :param statuses: only calls whose delivery has one of these statuses when they are read. (templated)
    :param with_payload: whether the event holds what the calls tell. Default True.
    :param max_calls: maximum number of calls per reading; the next run goes on. Default 10000.
    :param on_gap: behaviour if calls may be lost, because the newest known call is not listed any more, the service's
        clock was set back, or the asset's cursor is another task's with other filters: ``fail`` (default), or
        ``continue``: log a warning, and say so in the event. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"count": ...}``: how many calls the event holds.
    :raises AirflowSkipException: if nothing is new.
    :raises AirflowFailException: if an argument is wrong, or calls may be lost and ``on_gap`` is ``fail``.
    """

    template_fields: Sequence[str] = (
        "start",
        "webhook_ids",
        "webhook_types",
        "event_ids",
        "statuses",
        "on_gap",
        "custody_conn_id",
    )
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        asset: Asset | None = None,
        start: str = "now",
        webhook_ids: Iterable[str] | None = NOT_GIVEN,
        webhook_types: Iterable[str] | None = NOT_GIVEN,
        event_ids: Iterable[str] | None = NOT_GIVEN,
        statuses: Iterable[str] | None = NOT_GIVEN,
        with_payload: bool = True,
        max_calls: int = 10_000,
        on_gap: str = "fail",
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_flags(with_payload=with_payload)
        self._check_numbers({"max_calls": max_calls}, 1, whole=True)
        if asset is not None and not isinstance(asset, Asset):
            self._refuse(f"asset must be an Asset, not {asset!r}")
            asset = None
        self.asset = webhook_calls_asset(custody_conn_id) if asset is None else asset
        self.inlets = _with(self.asset, self.inlets)
        self.outlets = _with(self.asset, self.outlets)
        if self.max_active_tis_per_dag is None:
            # Two at the same time would read the same calls.
            self.max_active_tis_per_dag = 1
        self.start = start
        self.webhook_ids = webhook_ids
        self.webhook_types = webhook_types
        self.event_ids = event_ids
        self.statuses = statuses
        self.with_payload = with_payload
        self.max_calls = max_calls
        self.on_gap = on_gap
        self._note_given()

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
        from airflow_custody.client.text import count
        from airflow_custody.client.webhooks.call_events import CallFilter, to_event
        from airflow_custody.client.webhooks.calls import BEGINNING
        from airflow_custody.metrics import calls_read

        start, on_gap = _choice("start", self.start, _STARTS), _choice("on_gap", self.on_gap, _ON_GAP)
        filters = self._filters()
        asset = self.asset
        if context["ti"].map_index not in (None, -1):
            raise CustodyConfigurationError(
                "the task is mapped, and all its instances would share one cursor; nothing was sent",
                setting="asset",
                advice="Create one task for each in a loop of the DAG file, each with an asset of its own.",
                code="parameter-wrong",
            )
        place = _CallPlace(context, asset, filters, self.log)
        client = hook.get_conn()
        new = client.read_webhook_calls(place.cursor, start=start, limit=self.max_calls)  # type: ignore[arg-type]
        gap = "; ".join(filter(None, [place.gap, new.gap]))
        if gap and on_gap == "fail":
            raise CustodyError(
                f"webhook calls may be lost: {gap}",
                operation="read webhook calls",
                code="calls-missing",
                advice="Find out what is missing. Then run the task once with on_gap='continue'.",
            )
        # After the calls: a webhook that is younger than its first call does not exist.
        webhooks = self._list_webhooks(client, required="webhook_types" in filters)
        types = {each["id"]: each.get("type") or "" for each in webhooks or ()}
        selected = CallFilter(**filters).select(new.calls, types)
        is_first = place.cursor is None and start == "now"
        if not selected and not gap and not is_first:
            is_stored = new.cursor == place.cursor or place.keep(new.cursor)
            if is_stored or not (new.more or place.is_old):
                raise AirflowSkipException("No new webhook calls.")
        # If the event is deleted or buried one day, its calls come again, and none is lost.
        place.keep(place.cursor or (new.cursor if is_first else BEGINNING))
        data = to_event(selected, late=new.late, gap=gap, more=new.more, with_payload=self.with_payload)
        context["outlet_events"][asset].extra = place.event_extra(data, new.cursor)
        calls_read(self.custody_conn_id, len(selected))
        if gap:
            self.log.warning("Webhook calls may be lost: %s.", gap)
        self.log.info("%s.", count(len(selected), "new webhook call") if selected else "No new webhook calls")
        if new.more:
            self.log.info("There are more: the next run goes on.")
        if is_first:
            self.log.info("From now on, calls are read; those from before are not.")
        self._report(webhooks or ())
        return {"count": len(selected)}

    def _list_webhooks(self, client: CustodyClient, *, required: bool) -> list[WireWebhook] | None:
        from airflow_custody.client.errors import CustodyError

        try:
            return list(client.list_webhooks())
        except CustodyError as error:
            if required:
                raise
            if not error.not_offered:
                self.log.warning("Which webhooks are enabled is not known: %s", error.reason)
            return None

    def _report(self, webhooks: Sequence[WireWebhook]) -> None:
        """Log the webhooks that are not enabled or cool down, and filters that match none."""
        from airflow_custody.client.text import as_list, ascii_lower, sanitize
        from airflow_custody.client.webhooks.models import cooling_until, has_status

        found = [each for each in webhooks if not has_status(each, "enabled") or cooling_until(each)]
        for each in found[:_MAX_REPORTED]:
            self.log.warning(
                "Webhook %s (%s) is %s%s: it is not known whether the service still writes down its calls.",
                sanitize(each["id"], 60),
                sanitize(each.get("type") or "no type", 60),
                sanitize(each.get("status") or "without a status", 60),
                f" until {sanitize(each['timeoutUntil'], 40)}" if each.get("timeoutUntil") else "",
            )
        for name, key in (("webhook_ids", "id"), ("webhook_types", "type")):
            known = {ascii_lower(str(each.get(key))) for each in webhooks}
            for value in as_list(getattr(self, name) or ()):
                if ascii_lower(str(value)) not in known:
                    self.log.warning("%s: there is no webhook with the %s %s now.", name, key, sanitize(value, 60))

    def _filters(self) -> dict[str, list[str]]:
        """Return the filters that were given, as plain JSON that is the same for the same filters."""
        from airflow_custody.client.arguments import check_names, describe
        from airflow_custody.client.errors import CustodyRequestError
        from airflow_custody.client.text import is_uuid

        given = {
            name: check_names(name, getattr(self, name))
            for name in ("webhook_ids", "webhook_types", "event_ids", "statuses")
        }
        for each in given["webhook_ids"] or ():
            if not is_uuid(each):
                raise CustodyRequestError(
                    f"webhook_ids must be UUIDs, not {describe(each)}; nothing was sent",
                    setting="webhook_ids",
                    code="parameter-wrong",
                )
        return {name: sorted(set(values)) for name, values in given.items() if values is not None}


class _CallPlace:
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
        from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
        from airflow_custody.client.text import lines

        stores = context.get("asset_state_store")
        self._store: Any = None if stores is None else stores[asset]
        self._log = log
        task = [context["ti"].dag_id, context["ti"].task_id]
        self._facts: dict[str, Any] = {"filters": filters, "task": task}
        event, buried = None, None
        try:
            event = last_event(context["inlet_events"], asset, ("cursor", "filters"))
        except CustodyConfigurationError as error:
            # The state store may have one.
            buried = error
        cursor, facts = from_stored(None)
        try:
            if self._store is not None:
                cursor, facts = from_stored(self._store.get(STORE_KEY))
        except Exception as error:
            if event is None:
                raise CustodyError(
                    f"the asset's state store cannot be read ({error!r}), and no event has a cursor, so where to go on "
                    "is not known; nothing was sent",
                    code="record-unreadable",
                    retryable=not isinstance(error, CustodyError),
                ) from error
            log.warning("The asset's state store cannot be read (%r): its last event will do.", error)
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
                "%s",
                lines(
                    f"The last event of the asset {asset.uri!r} was emitted by task {facts.get('task')}, and this task "
                    "goes on from there.",
                    "If both run, each reads only what the other has not: give one of them an asset of its own "
                    "(asset=...).",
                ),
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
        if self._store is None:
            return False
        try:
            self._store.set(STORE_KEY, to_stored(cursor, **self._facts))
        except Exception as error:
            self._log.warning("The asset's state store keeps nothing (%s).", type(error).__name__)
            return False
        return True

    def event_extra(self, data: Mapping[str, Any], cursor: CallCursor) -> dict[str, Any]:
        """Return the extra of an event: its data, and what the next reading needs."""
        return to_stored(cursor, **data, filters=self._facts["filters"], task=self._facts["task"])


def _with(asset: Asset, given: Any) -> list[Any]:
    listed = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
    return listed if asset in listed else [*listed, asset]


def _choice(name: str, value: object, choices: Sequence[str]) -> str:
    from airflow_custody.client.arguments import check_text, describe
    from airflow_custody.client.errors import CustodyRequestError

    text = check_text(name, value)
    if text not in choices:
        allowed = " or ".join(repr(each) for each in choices)
        raise CustodyRequestError(
            f"{name} must be {allowed}, not {describe(text)}; nothing was sent", setting=name, code="parameter-wrong"
        )
    return text
