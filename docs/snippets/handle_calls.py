"""A DAG that handles each webhook call once. Tests run it."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, Asset, task

from airflow_custody.assets import UnhandledEvents, calls_of, webhook_calls_asset
from airflow_custody.hooks.custody import CustodyHook

webhook_calls = webhook_calls_asset("custody_default")
handled = Asset(uri="custody://custody_default/webhook-calls/handled")

with DAG(dag_id="custody_handle_calls", schedule=[webhook_calls], max_active_runs=1) as dag:

    @task(inlets=[webhook_calls, handled], outlets=[handled])
    def handle(ti=None, inlet_events=None, outlet_events=None):
        events = UnhandledEvents(inlet_events, webhook_calls, handled, ti=ti)
        with CustodyHook("custody_default") as hook:
            for event in events:
                if gap := (event.extra or {}).get("gap"):
                    print(f"calls may be lost, check at the service: {gap}")
                for call in calls_of(event, hook.get_conn()):
                    print(call["id"], call.get("type"), call.get("data"))
        outlet_events[handled].extra = events.place

    handle()
