"""
Start a DAG when the custody service says that a request changed, and check the fact instead of believing the message.

The first DAG reads the service's journal of webhook calls each minute. It needs no webhook receiver, and loses nothing
while Airflow is down. The second DAG runs when there are new calls. It looks up each request at the service: a message
says that something changed, the service says what is true now. So it does no harm that a call may come twice.

The second DAG does not count on one run for each event: a run may get several, and a paused DAG gets none. It
keeps its place in an event of an asset of its own, which Airflow stores together with the task's success.

When you switch the first DAG on, Airflow also starts its most recent scheduled run. That run only stores the place from
which calls are read. The service needs a webhook of the type ``requestStatus.updated``; the connection's user needs the
role ``Admin`` or ``AdminReadOnly``, and may read whitelisting requests.

**What to replace:** ``request_id_of``, because the form of a message is not published; and ``state_of``. It looks up
whitelisting requests, as those are the requests that this package can look up. But no type of webhook is published for
whitelisting: ``requestStatus.updated`` is about other requests, whose ids may be the same numbers. Let ``state_of``
look up what your messages are about. Then change the schedule.
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
    """Return the id of the request that a call is about; None: it names none."""
    payload = call.get("payload")
    found = payload.get("requestId") if isinstance(payload, dict) else None
    return None if found is None else str(found)


def state_of(request_id: str, client) -> str:
    """Return what is true of a request now, as the service itself says."""
    try:
        return client.get_whitelist_request(request_id).status or "without a status"
    except CustodyNotFoundError as error:
        if not error.from_service:  # a gateway's page says nothing of the request
            raise
        return "not found"
    except CustodyRequestError as error:
        if error.status is not None:  # it was sent, so it is not the id that was refused here
            raise
        return "it cannot be the id of a request"


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
        """Return the state of each request that was named, as the service says it is now."""
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
                        states[f"call {call['id']}"] = "the service no longer lists it, check at the service"
                    elif request_id is None:
                        states[f"call {call['id']}"] = "it names no request, check at the service"
                    elif request_id not in states:
                        states[request_id] = state_of(request_id, client)
        if events.place == before:
            raise AirflowSkipException("no event is new")
        # As text: Airflow refuses some words as keys of an XCom, and the names are other people's.
        checked = [f"{name!r}: {state}" for name, state in states.items()]
        print(*checked, sep="\n")
        outlet_events[handled].extra = events.place
        return checked

    check()
