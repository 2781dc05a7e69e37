"""The asset events of a whitelist: when it was changed, and when it was proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from airflow.providers.common.compat.sdk import DAG, Asset
from support.airflow.airflow_runs import AIRFLOW, new_dag, run_dag
from support.airflow.apply_tries import write_rows
from support.airflow.connections import connection_json
from support.airflow.webhook_reads import register_assets, stored_events

from airflow_custody.assets import normalize_uri, webhook_calls_asset, whitelist_asset
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

pytestmark = [pytest.mark.usefixtures("airflow_db"), pytest.mark.filterwarnings("ignore")]


def daily(conn_id: str, path: str) -> DAG:
    with new_dag() as dag:
        plan = CustodyPlanWhitelistOperator(task_id="plan", path=path, custody_conn_id="{{ params.conn_id }}")
        made: Any = plan.output
        plan_hash: Any = made["plan_hash"]
        CustodyApplyWhitelistPlanOperator(
            task_id="apply", plan=made, plan_hash=plan_hash, custody_conn_id="{{ params.conn_id }}"
        )
    dag.params["conn_id"] = conn_id
    register_assets(dag)
    return dag


@pytest.mark.parametrize("pinned", [False, True])
def test_a_change_and_a_proof_are_events_and_nothing_else(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    conn_id = f"events_{pinned}".lower()
    pins = sandbox.control.pins() if pinned else {"superadmin_keys": []}
    pins = {**pins, "superadmin_keys": "".join(pins["superadmin_keys"]) or None}
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", connection_json(sandbox, **pins))
    dag = daily(conn_id, write_rows(tmp_path / "whitelist.yaml", range(1, 4)))
    first = run_dag(dag)
    # The request is pending: nothing has changed, and nothing is proved.
    run_dag(dag)
    sandbox.control.sign_whitelist_requests(first.xcom("apply")["request_ids"])
    last = run_dag(dag)
    assert last.state == "success"
    events = stored_events(whitelist_asset(conn_id))
    applied = {
        "event": "applied",
        "plan_hash": first.xcom("plan")["plan_hash"],
        **first.xcom("apply")["counts"],
    }
    proved = {"event": "verified", "plan_hash": last.xcom("plan")["plan_hash"], **last.xcom("plan")["counts"]}
    if AIRFLOW < (3, 0):
        assert events == []
    else:
        assert events == [applied, *([proved] if pinned else [])]
    assert applied["created"] == 3
    assert proved["unchanged"] == 3


@pytest.mark.parametrize(
    ("make", "uri"),
    [(whitelist_asset, "custody://A%2Fb%20c/whitelist"), (webhook_calls_asset, "custody://A%2Fb%20c/webhook-calls")],
)
def test_the_uri_names_the_connection_first(make: Callable[[str], Asset], uri: str) -> None:
    assert make("A/b c").uri == uri
    assert normalize_uri(urlsplit(uri)) == urlsplit(uri)
    with pytest.raises(ValueError, match="not a template"):
        make("{{ params.conn_id }}")


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="Airflow 2 has datasets, and asks no provider about their URIs")
@pytest.mark.parametrize(
    "uri", ["custody://whitelist/custody_default", "custody://custody_default", "custody:///whitelist"]
)
def test_a_uri_that_nothing_emits_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="custody://<connection id>/whitelist"):
        Asset(uri=uri)
