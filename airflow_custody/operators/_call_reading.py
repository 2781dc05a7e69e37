"""
The work of the operator that reads webhook calls.

The operator imports this module only when its task runs, so that parsing a DAG file does not load the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Asset

from airflow_custody.assets import last_event, source_of, sources_of, task_source
from airflow_custody.client.arguments import check_text, describe
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError, CustodyRequestError
from airflow_custody.client.text import count, name_some, sanitize
from airflow_custody.client.webhooks.call_events import FILTERS, CallFilter, to_event
from airflow_custody.client.webhooks.calls import CallCursor
from airflow_custody.client.webhooks.models import WireWebhook, cooling_until, has_status
from airflow_custody.metrics import calls_read

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient
    from airflow_custody.hooks.custody import CustodyHook

_STARTS = ("now", "beginning")
_ON_GAP = ("fail", "continue")
#: The keys that the ``extra`` of an event has if the event stores a task's position in the journal.
_POSITION = ("cursor", "filters")
#: The position is stored only in events. If the last event is older than this, emit a new event, before Airflow's
#: clean-up deletes the last event, or the service stops listing the newest call that this event knows.
_MAX_EVENT_AGE = timedelta(days=1)
#: If a run reads this many calls, and the filters leave out all of them, emit an event without calls. Its cursor keeps
#: the next run from reading these calls again.
_MAX_REPEATED = 1000
#: The beginning of a key in the asset's state store (Airflow 3.3), followed by the name of a task. The key records that
#: this task has emitted an event with a position. Any task of the asset can write the key, so it is only used to stop a
#: task whose event is gone, never to find the position.
_HAS_POSITION = "custody_read_webhook_calls:"
#: Maximum number of webhooks that are logged as disabled or cooling down.
_MAX_REPORTED = 20


def read_calls(task: Any, context: Context, hook: CustodyHook) -> dict[str, Any]:
    """
    Read the calls, emit the event, and return the operator's result.

    :param task: the :class:`CustodyReadWebhookCallsOperator`, with rendered fields.
    :param context: the task's context.
    :param hook: the hook.
    """
    start, on_gap = _choice("start", task.start, _STARTS), _choice("on_gap", task.on_gap, _ON_GAP)
    call_filter = CallFilter.of({name: getattr(task, name) for name in FILTERS})
    former = None if task.continue_from is None else check_text("continue_from", task.continue_from)
    if context["ti"].map_index not in (None, -1):
        raise CustodyConfigurationError(
            "the task is mapped, and all its instances would share one cursor; nothing is sent",
            setting="asset",
            advice="Instead, create the tasks in a loop in the DAG file, each with its own asset.",
            code="parameter-wrong",
        )
    position = _find_position(context, task.asset, former, task.log)
    client = hook.get_conn()
    new = client.read_webhook_calls(position.cursor, start=start, limit=task.max_calls)  # type: ignore[arg-type]
    gap = _accepted_gap(position.gap, new.gap, on_gap)
    # Read the webhooks after the calls, because a webhook always exists before its first call.
    webhooks = _read_webhooks(client, task.log, are_needed=bool(call_filter.webhook_types))
    selected = call_filter.select(new.calls, webhooks or ())
    is_due = position.is_old or new.more or len(new.calls) >= _MAX_REPEATED
    if not (selected or gap or is_due):
        raise AirflowSkipException("No new webhook calls.")
    data = to_event(selected, late=new.late, gap=gap, more=new.more, with_payload=task.with_payload)
    extra = {**data, "filters": call_filter.to_json(), "cursor": new.cursor.to_json()}
    context["outlet_events"][task.asset].extra = extra
    calls_read(task.custody_conn_id, len(selected))
    if gap:
        task.log.warning("Webhook calls may be lost: %s.", gap)
    if position.filters not in (None, extra["filters"]):
        task.log.warning("The filters have changed. Calls that the old filters left out are not read again.")
    task.log.info("%s.", count(len(selected), "new webhook call") if selected else "No new webhook calls")
    if new.more:
        task.log.info("There are more calls. The next run reads them.")
    if position.cursor is None and start == "now":
        task.log.info("Reading starts now. Earlier calls are not read.")
    _report(webhooks, call_filter, task.log)
    return {"count": len(selected)}


@dataclass(frozen=True)
class _Position:
    """
    The place in the journal at which a task continues.

    :param cursor: the cursor; None: the task has none.
    :param gap: why calls may be lost if reading continues at this place; empty: no calls are lost.
    :param filters: the filters that the task had when it stored the cursor; None: no filters were stored.
    :param is_old: whether the task should store its position again, even if there is nothing new.
    """

    cursor: CallCursor | None = None
    gap: str = ""
    filters: Any = None
    is_old: bool = True


def _find_position(context: Context, asset: Asset, former: str | None, log: Any) -> _Position:
    """
    Return the position in the last event of this task, or else of the task from which it continues.

    Anyone who writes a DAG can emit an event with any cursor, so an event counts only if Airflow has recorded that this
    task emitted it.

    :param context: the task's context.
    :param asset: the asset, an inlet and outlet of the task.
    :param former: the task, as ``<dag_id>/<task_id>``, whose position is used if this task has no position yet; None:
        no other task.
    :param log: the task's log.
    :raises CustodyError: if it cannot be known whether the task has a position.
    """
    own, events = task_source(context["ti"]), context["inlet_events"]
    event = last_event(events, asset, _POSITION, own, former)
    stores: Any = context.get("asset_state_store")
    store = None if stores is None else stores[asset]
    if event is not None:
        is_own = source_of(event) == own
        if is_own and store is not None:
            try:
                store.set(f"{_HAS_POSITION}{own}", True)
            except Exception as error:
                log.warning("The asset's state store cannot be written (%s).", type(error).__name__)
        is_old = not is_own or datetime.now(timezone.utc) - event.timestamp >= _MAX_EVENT_AGE
        return _Position(CallCursor.from_json(event.extra["cursor"]), filters=event.extra["filters"], is_old=is_old)
    try:
        has_position = store is not None and store.get(f"{_HAS_POSITION}{own}")
    except Exception as error:
        raise CustodyError(
            f"the asset's state store cannot be read ({error!r}), and no event has a cursor, so the place to continue "
            "is unknown; nothing is sent",
            code="record-unreadable",
            retryable=True,
        ) from error
    others = name_some(sorted(sources_of(events, asset, _POSITION)))
    if has_position:
        gap = f"the last event of this task, {own}, is no longer in Airflow's database"
    elif former:
        gap = f"continue_from names the task {sanitize(former, 200)}, but the asset has no event with its position"
        gap += f", only from {others}" if others else ""
    elif others:
        gap = f"this task, {own}, has no position, but the asset has events with the positions of {others}"
    else:
        gap = ""
    return _Position(gap=gap)


def _accepted_gap(of_position: str, of_journal: str, on_gap: str) -> str:
    """
    Return why calls may be lost; empty if no calls are lost.

    :param of_position: why calls may be lost if reading continues at the task's position; may be empty.
    :param of_journal: why the journal may lack calls; may be empty.
    :param on_gap: with ``fail``, an error is raised if calls may be lost.
    """
    gap = "; ".join(filter(None, [of_position, of_journal]))
    if gap and on_gap == "fail":
        raise CustodyError(
            f"webhook calls may be lost: {gap}",
            operation="read webhook calls",
            code="calls-missing",
            advice="Find out which calls are missing. Then run the task once with on_gap='continue'."
            + (" If the task was renamed, name the old task in continue_from instead." if of_position else ""),
        )
    return gap


def _read_webhooks(client: CustodyClient, log: Any, *, are_needed: bool) -> list[WireWebhook] | None:
    """
    Return the webhooks; None if they cannot be read.

    :param client: the client.
    :param log: the task's log.
    :param are_needed: whether the calls cannot be selected without the webhooks. If so, an error is raised instead of
        returning None.
    """
    try:
        return list(client.list_webhooks())
    except CustodyError as error:
        if are_needed:
            raise
        if not error.not_offered:
            log.warning("Cannot check whether the webhooks are enabled: %s", error.reason)
        return None


def _report(webhooks: Sequence[WireWebhook] | None, call_filter: CallFilter, log: Any) -> None:
    """Log the webhooks that may receive nothing, and the filter values that no webhook has. None: they are unknown."""
    if webhooks is None:
        return
    found = [each for each in webhooks if not has_status(each, "enabled") or cooling_until(each)]
    for webhook in found[:_MAX_REPORTED]:
        until = cooling_until(webhook)
        log.warning(
            "Webhook %s (%s) is %s%s: the service may no longer record its calls.",
            sanitize(webhook["id"], 60),
            sanitize(webhook.get("type") or "no type", 60),
            sanitize(webhook.get("status") or "without a status", 60),
            f", cooling down until {until}" if until else "",
        )
    for each in call_filter.unknown(webhooks):
        log.warning("%s", each)


def _choice(name: str, value: object, choices: Sequence[str]) -> str:
    text = check_text(name, value)
    if text not in choices:
        allowed = " or ".join(repr(each) for each in choices)
        raise CustodyRequestError(
            f"{name} must be {allowed}, not {describe(text)}; nothing is sent", setting=name, code="parameter-wrong"
        )
    return text
