"""What the guide to the sandbox shows: a test of a DAG of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import airflow_runs
import pytest
from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox

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
@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection())
        yield sandbox


def test_a_lost_response_makes_no_second_request(sandbox: Sandbox) -> None:
    # The request is created, and the response is lost.
    sandbox.control.add_fault("drop", method="POST", path="/whitelists/addresses", work=True)
    # The DAG of your file.
    assert dag.test().state == "success"
    assert len(sandbox.control.whitelist_requests()) == 1


# [END howto_sandbox_in_a_test]
