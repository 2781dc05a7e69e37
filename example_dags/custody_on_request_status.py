"""
Start a DAG when a webhook call reports a changed request, and look the request up at the service.

The first DAG reads the service's journal of webhook calls each minute. It needs no webhook receiver, and misses no
calls while Airflow is down. The second DAG runs when there are new calls. It looks up each request at the service,
because a call is not signed and may arrive twice.

Airflow may put several events into one run of the second DAG, and starts no runs while the DAG is paused. So this DAG
stores its position in an event of its own asset. Airflow saves that event together with the task's success.

When you switch the first DAG on, Airflow also starts its most recent scheduled run. That run only stores the position
from which calls are read. The service needs a webhook of the type ``requestStatus.updated``. The connection's user
needs the role ``Admin`` or ``AdminReadOnly``, and must be able to read whitelisting requests.

What to replace:

- ``request_id_of``, because the format of the payload is not published.
- ``state_of``. The sample looks up whitelisting requests, but ``requestStatus.updated`` reports other requests, whose
  ids may be the same numbers. Look up the kind of request that your webhook reports.
- The schedule.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG, AirflowSkipException, Asset, task

from airflow_custody.assets import UnhandledEvents, calls_of, webhook_calls_asset
from airflow_custody.client.errors import CustodyNotFoundError, CustodyRequestError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator

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
    CustodyReadWebhookCallsOperator(task_id="read", webhook_types=["requestStatus.updated"])


def request_id_of(call: dict) -> str | None:
    """Return the id of the request that a call is about, or None if the call has no id."""
    payload = call.get("payload")
    found = payload.get("requestId") if isinstance(payload, dict) else None
    return None if found is None else str(found)


def state_of(request_id: str, client) -> str:
    """Return the current state of a request at the service."""
    try:
        return client.get_whitelist_request(request_id).status or "without a status"
    except CustodyNotFoundError as error:
        if not error.from_service:  # a gateway's 404 does not mean that the request is missing
            raise
        return "not found"
    except CustodyRequestError as error:
        if error.status is not None:  # the service rejected the call
            raise
        return "not a valid request id"


handled = Asset(uri="custody://custody_default/webhook-calls/requests-checked")

with DAG(
    dag_id="custody_on_request_status",
    schedule=[webhook_calls],
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:

    @task(inlets=[webhook_calls, handled], outlets=[handled])
    def check(inlet_events=None, outlet_events=None) -> list[str]:
        """Return the current state of each request in the new calls."""
        events = UnhandledEvents(inlet_events, webhook_calls, handled)
        before, states = events.place, {}
        with CustodyHook("custody_default") as hook:
            client = hook.get_conn()
            for event in events:
                if gap := (event.extra or {}).get("gap"):
                    print(f"calls may be lost, check at the service: {gap}")
                for call in calls_of(event, client):
                    request_id = request_id_of(call)
                    if "payload" not in call:
                        states[f"call {call['id']}"] = "no longer listed, check at the service"
                    elif request_id is None:
                        states[f"call {call['id']}"] = "without a request id, check at the service"
                    elif request_id not in states:
                        states[request_id] = state_of(request_id, client)
        if events.place == before:
            raise AirflowSkipException("no new events")
        # As a list of texts, because Airflow does not allow some words as keys in an XCom.
        checked = [f"{name!r}: {state}" for name, state in states.items()]
        print(*checked, sep="\n")
        outlet_events[handled].extra = events.place
        return checked

    check()
