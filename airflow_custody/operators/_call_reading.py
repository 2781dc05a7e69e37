"""
One run of the operator that reads webhook calls.

The operator imports this module only when the task runs, so that parsing a DAG file does not load the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Asset

from airflow_custody.assets import last_event
from airflow_custody.client.arguments import check_names, check_text, describe
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError, CustodyRequestError
from airflow_custody.client.text import as_list, ascii_lower, count, is_uuid, lines, sanitize
from airflow_custody.client.webhooks.call_events import CallFilter, to_event
from airflow_custody.client.webhooks.calls import BEGINNING, OPERATOR_CURSOR_KEY, CallCursor, NewCalls
from airflow_custody.client.webhooks.models import WireWebhook, cooling_until, has_status
from airflow_custody.metrics import calls_read

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient
    from airflow_custody.hooks.custody import CustodyHook

_STARTS = ("now", "beginning")
_ON_GAP = ("fail", "continue")
# Without a state store, only an event holds the cursor. After this time, emit a new event, before Airflow's clean-up
# deletes the old event, or the service no longer lists the newest call that the old cursor knows.
_MAX_EVENT_AGE = timedelta(days=1)
#: Maximum number of webhooks in the log that are disabled or cooling down.
_MAX_REPORTED = 20


@dataclass(frozen=True)
class CallReading:
    """
    One run of ``CustodyReadWebhookCallsOperator``, with the operator's parameters.

    :param custody_conn_id: id of the Airflow connection.
    :param asset: the asset whose events hold the calls.
    :param start: where the first run starts.
    :param filters: the values of the filters, as given, by name; None: no filter.
    :param with_payload: whether the event holds the calls' payloads.
    :param max_calls: maximum number of calls.
    :param on_gap: behaviour if calls may be lost.
    :param log: the task's log.
    """

    custody_conn_id: str
    asset: Asset
    start: object
    filters: Mapping[str, Any]
    with_payload: bool
    max_calls: int
    on_gap: object
    log: Any

    def run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        """Read the calls, emit the event, and return the operator's result."""
        start, on_gap = _choice("start", self.start, _STARTS), _choice("on_gap", self.on_gap, _ON_GAP)
        filters = self._check_filters()
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
        # Store the cursor from before these calls; the event has the cursor after them. If the event can no longer be
        # found, its calls are read again, so no call is lost.
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
        if gap:
            self.log.warning("Webhook calls may be lost: %s.", gap)
        self.log.info("%s.", count(number, "new webhook call") if number else "No new webhook calls")
        if has_more:
            self.log.info("There are more calls. The next run reads them.")
        if is_first:
            self.log.info("Reading starts now. Earlier calls are not read.")

    def _list_webhooks(self, client: CustodyClient, *, required: bool) -> list[WireWebhook]:
        """
        Return the webhooks.

        If they cannot be listed and are not required, return an empty list.
        """
        try:
            return list(client.list_webhooks())
        except CustodyError as error:
            if required:
                raise
            if not error.not_offered:
                self.log.warning("Cannot check whether the webhooks are enabled: %s", error.reason)
            return []

    def _report(self, webhooks: Sequence[WireWebhook]) -> None:
        """Log webhooks that may receive nothing, and filter values without a webhook."""
        found = [each for each in webhooks if not has_status(each, "enabled") or cooling_until(each)]
        for each in found[:_MAX_REPORTED]:
            self._report_disabled(each)
        for name, key in (("webhook_ids", "id"), ("webhook_types", "type")):
            known = {ascii_lower(str(each.get(key))) for each in webhooks}
            for value in as_list(self.filters[name] or ()):
                if ascii_lower(str(value)) not in known:
                    self.log.warning("%s: no webhook has the %s %s.", name, key, sanitize(value, 60))

    def _report_disabled(self, webhook: WireWebhook) -> None:
        """Log a webhook that is not enabled, or is cooling down."""
        until = cooling_until(webhook)
        self.log.warning(
            "Webhook %s (%s) is %s%s: the service may no longer record its calls.",
            sanitize(webhook["id"], 60),
            sanitize(webhook.get("type") or "no type", 60),
            sanitize(webhook.get("status") or "without a status", 60),
            f", cooling down until {until}" if until else "",
        )

    def _check_filters(self) -> dict[str, list[str]]:
        """Return the filters as plain JSON; equal filters give equal JSON."""
        given = {name: check_names(name, value) for name, value in self.filters.items()}
        for each in given["webhook_ids"] or ():
            if not is_uuid(each):
                raise CustodyRequestError(
                    f"webhook_ids must be UUIDs, not {describe(each)}; nothing is sent",
                    setting="webhook_ids",
                    code="parameter-wrong",
                )
        return {name: sorted(set(values)) for name, values in given.items() if values is not None}


class _CallPlace:
    """
    The position in the journal at which the task continues.

    :param context: the task's context.
    :param asset: the asset, an inlet and outlet of the task.
    :param filters: the task's filters, as plain JSON.
    :param log: the task's log.
    :ivar cursor: the cursor; None: this is the first run.
    :ivar gap: why calls may be lost if reading continues at the cursor; empty: no calls are lost.
    :raises CustodyError: if the cursor cannot be read, because calls would be lost without it.
    """

    def __init__(self, context: Context, asset: Asset, filters: Mapping[str, list[str]], log: Any) -> None:
        stores = context.get("asset_state_store")
        self._store: Any = None if stores is None else stores[asset]
        self._log = log
        event, buried = None, None
        try:
            event = last_event(context["inlet_events"], asset, ("cursor", "filters"))
        except CustodyConfigurationError as error:
            # Raise this error later, and only if the state store has no cursor.
            buried = error
        cursor, stored_with = self._load(has_event=event is not None)
        if cursor is None and buried is not None:
            raise buried
        # Use the stored cursor only if it was stored after the last event, with the same filters. It then names the
        # event. Otherwise, use the event's cursor.
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
        """Return the stored cursor, and the facts stored with it."""
        if self._store is None:
            return None, {}
        try:
            return CallCursor.from_stored(self._store.get(OPERATOR_CURSOR_KEY))
        except Exception as error:
            if not has_event:
                raise CustodyError(
                    f"the asset's state store cannot be read ({error!r}), and no event has a cursor, so the place to "
                    "continue is unknown; nothing is sent",
                    code="record-unreadable",
                    retryable=not isinstance(error, CustodyError),
                ) from error
            self._log.warning("The asset's state store cannot be read (%r). Continuing from the last event.", error)
        return None, {}

    def _compare_reader(self, stored_with: Mapping[str, Any], asset: Asset) -> str:
        """
        Log the differences between this task and the task that stored the cursor.

        :return: why calls may be lost; empty: no calls are lost.
        """
        task, has_same_filters = stored_with.get("task"), stored_with.get("filters") == self._facts["filters"]
        if task == self._facts["task"]:
            if not has_same_filters:
                self._log.warning("The filters have changed. Calls that the old filters left out are not read again.")
            return ""
        self._log.warning(
            "%s",
            lines(
                f"The last event of the asset {asset.uri!r} was emitted by task {task}, and this task continues "
                "from there.",
                "If both tasks run, each reads only the calls that the other has not read. Give one of them its own "
                "asset (asset=...).",
            ),
        )
        if has_same_filters:
            return ""
        return (
            f"task {task} reads calls for the same asset with other filters, and the calls that it left out are not "
            "read again"
        )

    def needs_event_after(self, new: NewCalls) -> bool:
        """
        Tell whether an event without calls is needed to keep the cursor.

        If there is a state store, this stores the cursor there, and no event is needed.
        """
        if new.cursor == self.cursor:
            return False
        return not self.keep(new.cursor) and (new.more or self._is_old)

    def keep(self, cursor: CallCursor) -> bool:
        """
        Keep a cursor in the asset's state store (Airflow 3.3).

        Pass only a cursor whose known calls are all in stored events. Calls between these events and a later cursor
        would be lost.

        :return: whether the cursor was kept; if not, the next run begins at the last event's cursor.
        """
        if self._store is None:
            return False
        try:
            self._store.set(OPERATOR_CURSOR_KEY, cursor.to_stored(**self._facts))
        except Exception as error:
            self._log.warning("The cursor cannot be kept in the asset's state store (%s).", type(error).__name__)
            return False
        return True

    def event_extra(self, data: Mapping[str, Any], cursor: CallCursor) -> dict[str, Any]:
        """Return an event's extra: its data and the next run's cursor."""
        return cursor.to_stored(**data, filters=self._facts["filters"], task=self._facts["task"])


def _refuse_mapped_task(context: Context) -> None:
    if context["ti"].map_index not in (None, -1):
        raise CustodyConfigurationError(
            "the task is mapped, and all its instances would share one cursor; nothing is sent",
            setting="asset",
            advice="Instead, create the tasks in a loop in the DAG file, each with its own asset.",
            code="parameter-wrong",
        )


def _calls_missing(gap: str) -> CustodyError:
    return CustodyError(
        f"webhook calls may be lost: {gap}",
        operation="read webhook calls",
        code="calls-missing",
        advice="Find out which calls are missing. Then run the task once with on_gap='continue'.",
    )


def _types_by_id(webhooks: Iterable[WireWebhook]) -> dict[str, str]:
    return {each["id"]: each.get("type") or "" for each in webhooks}


def _choice(name: str, value: object, choices: Sequence[str]) -> str:
    text = check_text(name, value)
    if text not in choices:
        allowed = " or ".join(repr(each) for each in choices)
        raise CustodyRequestError(
            f"{name} must be {allowed}, not {describe(text)}; nothing is sent", setting=name, code="parameter-wrong"
        )
    return text
