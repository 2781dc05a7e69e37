"""What the guide to the sandbox shows: a test of a DAG of one's own."""

from __future__ import annotations

from pathlib import Path

import airflow_runs
import pytest
from airflow.providers.common.compat.sdk import DAG
from airflow_runs import load, run_dag

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox

EXAMPLES = Path(__file__).parent.parent.parent / "example_dags"

with DAG("whitelist_one", schedule=None) as dag:
    CustodyCreateWhitelistRequestOperator(
        task_id="create",
        label="Treasury",
        address="0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        blockchain="ETH",
    )

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _dag_is_found(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_runs, "dag_under_test", dag)


# [START howto_sandbox_in_a_test]
def test_a_lost_response_makes_no_second_request(custody_sandbox: Sandbox) -> None:
    # The request is created, and the response is lost.
    custody_sandbox.control.add_fault("drop", method="POST", path="/whitelists/addresses", work=True)
    # The DAG of your file.
    assert dag.test().state == "success"
    assert len(custody_sandbox.control.whitelist_requests()) == 1


# [END howto_sandbox_in_a_test]


def test_the_connections_of_the_examples_are_there(custody_sandbox: Sandbox) -> None:
    example = load(EXAMPLES / "custody_whitelist_mapping.py").dag
    run = run_dag(example)
    assert run.state == "success", run.states
    assert {each["status"] for each in custody_sandbox.control.whitelist_requests()} == {"APPROVED"}
    # The next test has a sandbox of its own.
    custody_sandbox.control.reset()
    assert custody_sandbox.control.whitelist_requests() == []
