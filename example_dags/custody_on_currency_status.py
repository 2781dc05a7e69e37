"""
Plan the whitelist again when a currency is switched off at the service.

The first DAG reads the service's journal of webhook calls each minute. It needs no webhook receiver, and misses no
calls while Airflow is down. The second DAG runs when there are new calls. It handles each call once, and plans the
whitelist file again if a currency was switched off, or if a call cannot be read. A call is not signed and may arrive
twice, so it is only a reason to look: the plan compares the file with the service, changes nothing, and fails if they
differ.

Airflow may put several events into one run of the second DAG, and starts no runs while the DAG is paused. Therefore the
second DAG itself stores which events it has handled: its task emits an event of its own asset with this position, and
Airflow saves that event together with the task's success.

When you switch the first DAG on, Airflow also starts its most recent scheduled run. That run only stores the position
from which calls are read. The service needs a webhook of the type ``currencyStatus.updated``. The connection's user
needs the role ``Admin`` or ``AdminReadOnly``, and must be able to read whitelisting requests.

What to change: the schedule, the file (now that of ``custody_whitelist_as_code``), and a notification on failure.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG, AirflowSkipException, Asset, task

from airflow_custody.assets import UnhandledEvents, calls_of, webhook_calls_asset
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator

webhook_calls = webhook_calls_asset("custody_default")

with DAG(
    dag_id="custody_read_webhook_calls",
    schedule=timedelta(minutes=1),
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as read_dag:
    CustodyReadWebhookCallsOperator(task_id="read", webhook_types=["currencyStatus.updated"])


def reason_of(call: dict) -> str | None:
    """Return why a call is a reason to plan again, or None if it is not."""
    data = call.get("data")
    if not data:  # the call is no longer listed, or its payload has another form
        return f"call {call['id']} cannot be read"
    status = str(data.get("status"))
    return None if status.lower() == "enabled" else f"{data.get('currency')!r} is {status!r}"


handled = Asset(uri="custody://custody_default/webhook-calls/currencies-handled")

with DAG(
    dag_id="custody_on_currency_status",
    schedule=[webhook_calls],
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:

    @task(inlets=[webhook_calls, handled], outlets=[handled])
    def find_reasons(ti=None, inlet_events=None, outlet_events=None) -> list[str]:
        """Return the reasons to plan again in the new calls."""
        events = UnhandledEvents(inlet_events, webhook_calls, handled, ti=ti)
        before, reasons = events.place, []
        with CustodyHook("custody_default") as hook:
            for event in events:
                if gap := (event.extra or {}).get("gap"):
                    reasons.append(f"calls may be lost: {gap}")
                reasons += filter(None, map(reason_of, calls_of(event, hook.get_conn())))
        if events.place == before:
            raise AirflowSkipException("no new events")
        print(*reasons, sep="\n")
        outlet_events[handled].extra = events.place
        return reasons

    @task.short_circuit
    def has_reasons(reasons: list[str]) -> bool:
        """Skip the plan if there is no reason for it."""
        return bool(reasons)

    plan = CustodyPlanWhitelistOperator(task_id="plan", path="custody_whitelist.yaml", fail_on_changes=True)

    has_reasons(find_reasons()) >> plan
