"""
Networks: each task passes on what it accepts, and one request on another network stops it.

Which names mean the same network is tested in client/whitelist/test_matching.py; how a network is compared before
signing, in client/whitelist/test_review.py.
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
from support.airflow.sensor_runs import wait
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import CREATE, RowsStore, failure_of, somebody_creates
from support.service.people import Person

from airflow_custody.idempotency.apply_plan import ApplyPlan
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

FIELDS: dict[str, Any] = {"label": "Label 1", "address": address(1), "blockchain": "ETH"}
APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
Connect = Callable[[str], None]
DELETE = {"method": "DELETE"}
pytestmark = pytest.mark.usefixtures("waits")


@pytest.fixture(autouse=True, params=[True, False], ids=["in the text", "in the envelope"])
def connect(sandbox: Sandbox, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """
    Let the service have the network in its texts or not, and pin its keys; the user is a signer.

    Return what sets the connection's accepted fields.
    """
    sandbox.control.configure(network_is_hashed=request.param)
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


@pytest.mark.parametrize(("asked", "shown"), [(None, "sepolia"), ("mainnet", "one")])
def test_it_is_not_reused_and_the_advice_is_harmless(sandbox: Sandbox, asked: str | None, shown: str) -> None:
    number = there(sandbox, network=shown)
    given = {"network": asked} if asked else {}
    why = rf"{number} may be for the same destination, and differs in network \(requested .*, shown '{shown}'\)"
    with failing_at_once(why) as caught:
        create(**given)
    text = str(caught.value.error)
    assert "If that request is for another destination, set if_exists='create' to create a new request." in text
    for word in ("ignore", "delete", "replace"):
        assert word not in text
    assert not sandbox.control.request_log(**CREATE)
    # The advice is possible.
    assert create(**given, if_exists="create") != number


def test_two_known_networks_are_two_destinations(sandbox: Sandbox) -> None:
    number = there(sandbox, network="mainnet")
    made = create(network="sepolia")
    assert made != number
    assert create(network="sepolia") == made


BITCOIN: dict[str, Any] = {"blockchain": "BTC", "address": "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"}


@pytest.mark.parametrize(
    ("shown", "more", "accepted"),
    [({"network": "mainnet"}, {}, ""), ({"network": "testnet4", **BITCOIN}, BITCOIN, "network")],
    ids=["the main network", "an accepted one"],
)
def test_the_main_network_and_an_accepted_one_are_reused(
    sandbox: Sandbox, connect: Connect, shown: dict[str, Any], more: dict[str, Any], accepted: str
) -> None:
    number = there(sandbox, **shown)
    connect(accepted)
    assert create(**more) == number
    assert not sandbox.control.request_log(**CREATE)


@pytest.mark.parametrize("network", ["sepolia", "polygon"])
def test_on_eth_another_network_is_not_reused_even_if_the_key_is_accepted(
    sandbox: Sandbox, connect: Connect, network: str
) -> None:
    number = there(sandbox, network=network)
    connect("network")
    with failing_at_once(
        rf"{number} may be for the same destination, and differs in network \(requested nothing, shown '{network}'\)"
    ):
        create()
    assert not sandbox.control.request_log(**CREATE)


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


def test_a_sensor_accepts_it_only_by_name(sandbox: Sandbox, connect: Connect) -> None:
    number = there(sandbox, network="sepolia")
    sandbox.control.sign_whitelist_requests([number])
    given: dict[str, Any] = {"request_id": number, "expected": FIELDS}
    with failing_at_once(rf"request {number} differs from the requested content: network \(not requested"):
        wait(CustodyWhitelistRequestSensor, **given)
    connect("network")
    assert wait(CustodyWhitelistRequestSensor, **given)["verified"] is True


# --- plans -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
def test_a_plan_neither_creates_replaces_nor_deletes_for_it(
    sandbox: Sandbox, tmp_path: Path, task_log: TaskLog
) -> None:
    both: dict[str, Any] = {"prune": True, "replace": True}
    path = write_rows(tmp_path / "whitelist.yaml", [1], contract_type="ERC20")
    number = there(sandbox, network="sepolia")
    sandbox.control.sign_whitelist_requests([number])
    planned = plan(path, **both)
    assert {state: each for state, each in planned["counts"].items() if each} == {"differs": 1}
    assert "add its id to 'ignore'" in task_log.text
    assert "delete the request" not in task_log.text
    sandbox.control.clear_request_log()
    assert ApplyTask(planned, RowsStore()).attempt()["request_ids"] == []
    assert not sandbox.control.request_log(**CREATE)
    assert not sandbox.control.request_log(**DELETE)


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
        # It is the request that this row created. But on ETH, the network may name another chain.
        assert plan(path)["counts"]["differs"] == 1
        assert plan(write_rows(tmp_path / "named.yaml", [1], network="sepolia"))["counts"]["unchanged"] == 1
    else:
        why = "for this row, but it differs in: network"
        assert why in str(failure_of(task.attempt))
