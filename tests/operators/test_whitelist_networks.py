"""
Networks: each task passes on what it accepts, and one request on another network stops it.

Which names mean the same network is tested in client/whitelist/test_matching.py; how a network is compared before
signing, in client/whitelist/test_comparison.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import FakeTaskInstance, execute, failing_at_once
from support.airflow.apply_tries import ApplyTask, address, before, plan, write_rows
from support.airflow.connections import connection_json
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import CREATE, RowsStore, failure_of, somebody_creates
from support.service.people import Person

from airflow_custody.idempotency.apply_plan import ApplyPlan
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

FIELDS: dict[str, Any] = {"label": "Label 1", "address": address(1), "blockchain": "ETH"}
APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
Connect = Callable[[str], None]
DELETE = {"method": "DELETE"}
pytestmark = pytest.mark.usefixtures("waits")


@pytest.fixture(autouse=True)
def connect(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Return what sets the accepted fields of the connection, which is a signer's and pins the service's keys."""
    person = Person(sandbox, "ann", "approvers")

    def connect(accept_fields: str) -> None:
        connection = json.loads(connection_json(sandbox, **sandbox.control.pins(), accept_fields=accept_fields))
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection | {"password": person.token}))

    connect("")
    key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    return connect


def create(**changes: Any) -> str:
    arguments = {**FIELDS, "lookup_wait": 0.3, **changes}
    made: str = execute(
        lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments), ti=FakeTaskInstance()
    )
    return made


def sign(request_id: str, **arguments: Any) -> int:
    given = {"expected": FIELDS, "comment": "checked", "lookup_wait": 0.2, **arguments}
    signed: int = execute(
        lambda: CustodySignWhitelistRequestsOperator(
            task_id="sign", request_ids=request_id, signer=ConnectionSigner("signing_key"), **given
        ),
        ti=FakeTaskInstance(),
    )
    return signed


def there(sandbox: Sandbox, **fields: str) -> str:
    made = somebody_creates(sandbox, **{**FIELDS, **fields})
    sandbox.control.clear_request_log()
    return made


# --- one request -------------------------------------------------------------------------------------------


def test_it_is_not_reused_unless_a_new_request_is_asked_for(sandbox: Sandbox) -> None:
    number = there(sandbox, network="sepolia")
    why = rf"{number} may be for the same destination, and differs in network \(requested nothing, shown 'sepolia'\)"
    with failing_at_once(why):
        create()
    assert not sandbox.control.request_log(**CREATE)
    # Set the network as the advice says.
    assert create(if_exists="create") != number


# --- signing, and waiting ----------------------------------------------------------------------------------


def test_it_is_signed_only_if_the_network_is_accepted(sandbox: Sandbox, connect: Connect, task_log: TaskLog) -> None:
    number = there(sandbox, network="sepolia")
    with failing_at_once(
        rf"request {number} differs from the requested content: network \(not requested.*nothing was signed"
    ):
        sign(number)
    assert not sandbox.control.request_log(**APPROVE)
    connect("network")
    assert sign(number) == 1
    assert "Filled in by the service: network" in task_log.text


# --- plans -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("accepted", ["network", ""])
def test_a_plan_accepts_it_only_by_name(
    sandbox: Sandbox, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: str
) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", [1])
    connect(accepted)
    task = ApplyTask(plan(path), RowsStore())

    def fill_in() -> None:
        for each in sandbox.control.whitelist_requests():
            sandbox.control.set_whitelist_envelope(each["id"], network="sepolia")

    before(monkeypatch, ApplyPlan, "_check_created", fill_in)
    if accepted:
        (made,) = task.attempt()["request_ids"]
        sandbox.control.sign_whitelist_requests([made])
        # This row has created the request. But on ETH, the network may name another chain.
        assert plan(path)["counts"]["differs"] == 1
        assert plan(write_rows(tmp_path / "named.yaml", [1], network="sepolia"))["counts"]["unchanged"] == 1
    else:
        why = "for this row, but it differs in: network"
        assert why in str(failure_of(task.attempt))
