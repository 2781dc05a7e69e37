"""The operator that reads the journal of webhook calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Asset

from airflow_custody._base import NOT_GIVEN
from airflow_custody.assets import last_event, webhook_calls_asset
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.errors import CustodyError
    from airflow_custody.client.webhooks.calls import CallCursor, NewCalls
    from airflow_custody.client.webhooks.models import WireWebhook

_STARTS = ("now", "beginning")
_ON_GAP = ("fail", "continue")
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
        from airflow_custody.client.webhooks.call_events import CallFilter, to_event
        from airflow_custody.client.webhooks.calls import BEGINNING
        from airflow_custody.metrics import calls_read

        start, on_gap = _choice("start", self.start, _STARTS), _choice("on_gap", self.on_gap, _ON_GAP)
        filters = self._filters()
        _refuse_mapped_task(context)
        place = _CallPlace(context, self.asset, filters, self.log)
        client = hook.get_conn()
        new = client.read_webhook_calls(place.cursor, start=start, limit=self.max_calls)  # type: ignore[arg-type]
        gap = "; ".join(filter(None, [place.gap, new.gap]))
        if gap and on_gap == "fail":
            raise _calls_missing(gap)
        # Read the webhooks after the calls, because a webhook always exists before its first call.
        webhooks = self._list_webhooks(client, required="webhook_types" in filters)
        selected = CallFilter(**filters).select(new.calls, _types_by_id(webhooks))
        is_first = place.cursor is None and start == "now"
        has_news = bool(selected or gap or is_first)
        if not has_news and not place.needs_event_after(new):
            raise AirflowSkipException("No new webhook calls.")
        # If the event is deleted or buried one day, its calls are read again, and none is lost.
        first_cursor = new.cursor if is_first else BEGINNING
        place.keep(place.cursor or first_cursor)
        data = to_event(selected, late=new.late, gap=gap, more=new.more, with_payload=self.with_payload)
        context["outlet_events"][self.asset].extra = place.event_extra(data, new.cursor)
        calls_read(self.custody_conn_id, len(selected))
        self._log_reading(len(selected), gap, has_more=new.more, is_first=is_first)
        self._report(webhooks)
        return {"count": len(selected)}

    def _log_reading(self, number: int, gap: str, *, has_more: bool, is_first: bool) -> None:
        """Log what was read."""
        from airflow_custody.client.text import count

        if gap:
            self.log.warning("Webhook calls may be lost: %s.", gap)
        self.log.info("%s.", count(number, "new webhook call") if number else "No new webhook calls")
        if has_more:
            self.log.info("There are more: the next run goes on.")
        if is_first:
            self.log.info("From now on, calls are read; those from before are not.")

    def _list_webhooks(self, client: CustodyClient, *, required: bool) -> list[WireWebhook]:
        """Return the webhooks; none if they cannot be listed and are not required."""
        from airflow_custody.client.errors import CustodyError

        try:
            return list(client.list_webhooks())
        except CustodyError as error:
            if required:
                raise
            if not error.not_offered:
                self.log.warning("Which webhooks are enabled is not known: %s", error.reason)
            return []

    def _report(self, webhooks: Sequence[WireWebhook]) -> None:
        """Log the webhooks that are not enabled or cool down, and filters that match none."""
        from airflow_custody.client.text import as_list, ascii_lower, sanitize
        from airflow_custody.client.webhooks.models import cooling_until, has_status

        found = [each for each in webhooks if not has_status(each, "enabled") or cooling_until(each)]
        for each in found[:_MAX_REPORTED]:
            self._report_disabled(each)
        for name, key in (("webhook_ids", "id"), ("webhook_types", "type")):
            known = {ascii_lower(str(each.get(key))) for each in webhooks}
            for value in as_list(getattr(self, name) or ()):
                if ascii_lower(str(value)) not in known:
                    self.log.warning("%s: there is no webhook with the %s %s now.", name, key, sanitize(value, 60))

    def _report_disabled(self, webhook: WireWebhook) -> None:
        """Log a webhook that is not enabled or cools down."""
        from airflow_custody.client.text import sanitize

        until = webhook.get("timeoutUntil")
        self.log.warning(
            "Webhook %s (%s) is %s%s: it is not known whether the service still writes down its calls.",
            sanitize(webhook["id"], 60),
            sanitize(webhook.get("type") or "no type", 60),
            sanitize(webhook.get("status") or "without a status", 60),
            f" until {sanitize(until, 40)}" if until else "",
        )

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
    :raises CustodyError: if the cursor cannot be read: going on from now would lose calls.
    """

    def __init__(self, context: Context, asset: Asset, filters: Mapping[str, list[str]], log: Any) -> None:
        from airflow_custody.client.errors import CustodyConfigurationError
        from airflow_custody.client.webhooks.calls import CallCursor

        stores = context.get("asset_state_store")
        self._store: Any = None if stores is None else stores[asset]
        self._log = log
        event, buried = None, None
        try:
            event = last_event(context["inlet_events"], asset, ("cursor", "filters"))
        except CustodyConfigurationError as error:
            # The state store may have a cursor.
            buried = error
        cursor, stored_with = self._load(has_event=event is not None)
        if cursor is None and buried is not None:
            raise buried
        # A cursor that was stored after the last event names that event.
        if event is not None and (stored_with.get("event"), stored_with.get("filters")) != (event.id, filters):
            cursor, stored_with = CallCursor.from_stored(event.extra)
        self._facts: dict[str, Any] = {
            "filters": filters,
            "task": [context["ti"].dag_id, context["ti"].task_id],
            "event": None if event is None else event.id,
        }
        self.cursor: CallCursor | None = cursor
        self._is_old = event is not None and datetime.now(timezone.utc) - event.timestamp >= _MAX_EVENT_AGE
        self.gap = "" if cursor is None else self._compare_reader(stored_with, asset)

    def _load(self, *, has_event: bool) -> tuple[CallCursor | None, Mapping[str, Any]]:
        """Return the cursor in the state store, and what was stored with it. An unreadable one needs an event."""
        from airflow_custody.client.errors import CustodyError
        from airflow_custody.client.webhooks.calls import OPERATOR_CURSOR_KEY, CallCursor

        if self._store is None:
            return None, {}
        try:
            return CallCursor.from_stored(self._store.get(OPERATOR_CURSOR_KEY))
        except Exception as error:
            if not has_event:
                raise CustodyError(
                    f"the asset's state store cannot be read ({error!r}), and no event has a cursor, so where to go on "
                    "is not known; nothing was sent",
                    code="record-unreadable",
                    retryable=not isinstance(error, CustodyError),
                ) from error
            self._log.warning("The asset's state store cannot be read (%r): its last event will do.", error)
        return None, {}

    def _compare_reader(self, stored_with: Mapping[str, Any], asset: Asset) -> str:
        """
        Log how this task differs from the one that stored the cursor.

        :return: in words, why calls may be lost; empty: none are.
        """
        from airflow_custody.client.text import lines

        task, has_same_filters = stored_with.get("task"), stored_with.get("filters") == self._facts["filters"]
        if task == self._facts["task"]:
            if not has_same_filters:
                self._log.warning(
                    "The filters were changed. Calls that the old ones left out before are not read again."
                )
            return ""
        self._log.warning(
            "%s",
            lines(
                f"The last event of the asset {asset.uri!r} was emitted by task {task}, and this task goes on from "
                "there.",
                "If both run, each reads only what the other has not: give one of them an asset of its own "
                "(asset=...).",
            ),
        )
        if has_same_filters:
            return ""
        return (
            f"task {task} reads calls for the same asset with other filters, and what those left out is not read again"
        )

    def needs_event_after(self, new: NewCalls) -> bool:
        """
        Tell whether an event is needed to store the cursor although nothing is new.

        The state store keeps the cursor if there is one.
        """
        if new.cursor == self.cursor:
            return False
        return not self.keep(new.cursor) and (new.more or self._is_old)

    def keep(self, cursor: CallCursor) -> bool:
        """
        Keep a cursor in the asset's state store (Airflow 3.3).

        Only for a cursor that knows no call whose event is not stored yet.

        :return: whether it is kept; if not, the next reading begins at the last event's cursor.
        """
        from airflow_custody.client.webhooks.calls import OPERATOR_CURSOR_KEY

        if self._store is None:
            return False
        try:
            self._store.set(OPERATOR_CURSOR_KEY, cursor.to_stored(**self._facts))
        except Exception as error:
            self._log.warning("The asset's state store keeps nothing (%s).", type(error).__name__)
            return False
        return True

    def event_extra(self, data: Mapping[str, Any], cursor: CallCursor) -> dict[str, Any]:
        """Return the extra of an event: its data, and what the next reading needs."""
        return cursor.to_stored(**data, filters=self._facts["filters"], task=self._facts["task"])


def _refuse_mapped_task(context: Context) -> None:
    from airflow_custody.client.errors import CustodyConfigurationError

    if context["ti"].map_index not in (None, -1):
        raise CustodyConfigurationError(
            "the task is mapped, and all its instances would share one cursor; nothing was sent",
            setting="asset",
            advice="Create one task for each in a loop of the DAG file, each with an asset of its own.",
            code="parameter-wrong",
        )


def _calls_missing(gap: str) -> CustodyError:
    from airflow_custody.client.errors import CustodyError

    return CustodyError(
        f"webhook calls may be lost: {gap}",
        operation="read webhook calls",
        code="calls-missing",
        advice="Find out what is missing. Then run the task once with on_gap='continue'.",
    )


def _types_by_id(webhooks: Iterable[WireWebhook]) -> dict[str, str]:
    return {each["id"]: each.get("type") or "" for each in webhooks}


def _with(asset: Asset, given: Any) -> list[Any]:
    """Return the inlets or outlets that were given, one or several, with the asset."""
    if not isinstance(given, (list, tuple)):
        given = [given] if given else []
    return list(given) if asset in given else [*given, asset]


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
