"""Read webhook calls over several runs of one task, with its asset's events and state store."""

from __future__ import annotations

import importlib
import itertools
import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from airflow.providers.common.compat.sdk import DAG, AirflowSkipException, Asset
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, execute

from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.sandbox import Sandbox

TYPE = "requestStatus.updated"
_numbers = itertools.count()
_FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)


def new_asset() -> Asset:
    """Return an asset that no other test uses."""
    return Asset(uri=f"custody://test/webhook-calls/{next(_numbers)}")


def register_assets(dag: DAG) -> None:
    """
    Register a DAG's assets in Airflow's database, as the scheduler does.

    Not every release of Airflow does this in a test run.
    """
    if AIRFLOW < (3, 0):
        DAG.bulk_write_to_db([dag])  # type: ignore[attr-defined]
    elif AIRFLOW < (3, 1):
        from airflow.models.asset import AssetActive, AssetModel
        from airflow.models.dagbundle import DagBundleModel
        from airflow.utils.session import create_session

        serialized: Any = importlib.import_module("airflow.serialization.serialized_objects").SerializedDAG
        with create_session() as session:
            session.merge(DagBundleModel(name="tests"))
        serialized.bulk_write_to_db("tests", None, [serialized.from_dict(serialized.to_dict(dag))])
        with create_session() as session:
            for asset in session.query(AssetModel).filter(~AssetModel.active.has()):
                session.add(AssetActive.for_asset(asset))


def stored_events(asset: Asset) -> list[Any]:
    """Return the extras of the asset's events in Airflow's database, the oldest first."""
    from airflow.utils.session import create_session

    with create_session() as session:
        return [each.extra for each in _events(session, asset)]


def forget_reads(dag: DAG, *, with_state: bool = True) -> None:
    """Delete the events, and by default all state, that earlier tests left in Airflow's database."""
    from airflow.utils.session import create_session

    with create_session() as session:
        for asset in (each for task in dag.tasks for each in task.outlets):
            for event in _events(session, asset):
                session.delete(event)
        if with_state and AIRFLOW >= (3, 3):
            from airflow.models.asset_state_store import AssetStateStoreModel

            session.query(AssetStateStoreModel).delete()


def _events(session: Any, asset: Asset) -> list[Any]:
    if AIRFLOW >= (3, 0):
        from airflow.models.asset import AssetEvent
    else:
        from airflow.models.dataset import DatasetEvent as AssetEvent  # type: ignore[import-not-found,no-redef]
    return [each for each in session.query(AssetEvent).order_by(AssetEvent.id) if each.uri == asset.uri]


def write_calls(sandbox: Sandbox, webhook_id: str, *numbers: int, **fields: Any) -> None:
    """
    Add calls to the service's journal.

    :param numbers: the calls' ids. A call is created this number of seconds after a fixed time.
    """
    for number in numbers:
        created = (_FIRST + timedelta(seconds=number)).isoformat().replace("+00:00", "Z")
        call = {"id": str(number), "eventId": f"event-{number}", "webhookId": webhook_id, "status": "success"}
        call |= {"payload": json.dumps({"requestId": str(number)}), "attempts": "1"}
        sandbox.control.add_webhook_call(**{**call, "createdAt": created, "updatedAt": created, **fields})


class StateStore:
    """The state store of an asset."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.failure: Exception | None = None

    def get(self, key: str, default: Any = None) -> Any:
        if self.failure:
            raise self.failure
        return json.loads(self.values.get(key, "null")) or default

    def set(self, key: str, value: Any) -> None:
        if self.failure:
            raise self.failure
        self.values[key] = json.dumps(value, allow_nan=False)


class Reader:
    """
    A task that reads calls, over several runs.

    :param store: the asset's state store. None: the asset has no store.
    """

    def __init__(self, store: StateStore | None = None, **arguments: Any) -> None:
        self.asset = new_asset()
        self.events: list[Any] = []
        self.store = store
        self.arguments = arguments
        self.now = datetime.now(timezone.utc) - timedelta(hours=1)

    def add_event(self, extra: Any, task_id: str | None = "task", dag_id: str = "dag") -> None:
        self.now += timedelta(seconds=1)
        extra = json.loads(json.dumps(extra, allow_nan=False))
        source = {"source_dag_id": task_id and dag_id, "source_task_id": task_id}
        self.events.append(SimpleNamespace(id=next(_numbers), extra=extra, timestamp=self.now, **source))

    def run(self, *, emit: bool = True, **changes: Any) -> Any:
        """Run the task, and return its event's extra; None if skipped."""
        outlet = SimpleNamespace(extra={})
        context: dict[str, Any] = {
            "ti": FakeTaskInstance(),
            "inlet_events": {self.asset: self.events},
            "outlet_events": {self.asset: outlet},
        }
        if self.store is not None:
            context["asset_state_store"] = {self.asset: self.store}
        arguments = {"asset": self.asset, **self.arguments, **changes}
        try:
            self.result = execute(lambda: CustodyReadWebhookCallsOperator(task_id="task", **arguments), **context)
        except AirflowSkipException:
            assert outlet.extra == {}
            return None
        assert self.result["count"] == outlet.extra["count"]
        if emit:
            self.add_event(outlet.extra)
        return outlet.extra

    def ids(self, **changes: Any) -> list[str] | None:
        """Run the task, and return its event's call ids; None if skipped."""
        extra = self.run(**changes)
        return None if extra is None else [each["id"] for each in extra["calls"]]
