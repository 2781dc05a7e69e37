"""
Networks: a request on a network that was not asked for is neither reused, signed nor awaited, and never replaced or
deleted for that, whether the signed text has the network or only the envelope around it.
"""

from __future__ import annotations

import json
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

from airflow_custody.client import CustodyRequestError
from airflow_custody.idempotency.apply_plan import ApplyPlan
from airflow_custody.idempotency.send import Sender
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

FIELDS: dict[str, Any] = {"label": "Label 1", "address": address(1), "blockchain": "ETH"}
ACCEPTED = {"accept_fields": ["network"]}
APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
DELETE = {"method": "DELETE"}


@pytest.fixture(autouse=True, params=[True, False], ids=["in the text", "in the envelope"])
def in_text(sandbox: Sandbox, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the service have the network in its texts or not, and pin its keys; the user is a signer."""
    sandbox.control.configure(network_is_hashed=request.param)
    person = Person(sandbox, "ann", "approvers")
    connection = json.loads(connection_json(sandbox, **sandbox.control.pins())) | {"password": person.token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    return bool(request.param)


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


def there(sandbox: Sandbox, **network: str) -> str:
    made = somebody_creates(sandbox, **FIELDS, **network)
    sandbox.control.clear_request_log()
    return made


# --- one request -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, "sepolia"),
        ({}, "one"),
        # An unknown name may be another one for the same network, on either side.
        ({"network": "mainnet"}, "one"),
        ({"network": "one"}, "mainnet"),
        ({"network": "one"}, "sepolia"),
        ({"network": "sepolia"}, "testnet"),
    ],
)
@pytest.mark.parametrize("if_exists", ["reuse", "fail"])
def test_it_is_not_reused_and_the_advice_is_harmless(
    sandbox: Sandbox, asked: dict[str, str], shown: str, if_exists: str
) -> None:
    number = there(sandbox, network=shown)
    why = rf"{number} may be for the same destination, and differs in network \(shown '{shown}'\)"
    with failing_at_once(why) as caught:
        create(**asked, if_exists=if_exists)
    text = str(caught.value.error)
    assert "If that request is for another destination, if_exists='create' requests this one." in text
    for word in ("ignore", "delete", "replace"):
        assert word not in text
    assert not sandbox.control.request_log(**CREATE)
    # The advice is possible.
    assert create(**asked, if_exists="create") != number


@pytest.mark.parametrize(
    ("asked", "shown"),
    [("mainnet", "sepolia"), ("sepolia", "mainnet"), ("sepolia", "hoodi"), ("main", "ethereum-testnet")],
)
def test_two_known_networks_are_two_destinations(sandbox: Sandbox, asked: str, shown: str) -> None:
    number = there(sandbox, network=shown)
    made = create(network=asked)
    assert made != number
    assert create(network=asked) == made


@pytest.mark.parametrize(
    ("asked", "shown", "more"),
    [({}, "mainnet", {}), ({"network": "main"}, "Mainnet", {}), ({}, "sepolia", ACCEPTED)],
    ids=str,
)
def test_the_main_network_and_an_accepted_one_are_reused(
    sandbox: Sandbox, asked: dict[str, str], shown: str, more: dict[str, Any]
) -> None:
    number = there(sandbox, network=shown)
    assert create(**asked, **more) == number
    assert not sandbox.control.request_log(**CREATE)


# --- signing, and waiting ----------------------------------------------------------------------------------


def test_it_is_signed_only_if_the_network_is_accepted(sandbox: Sandbox, task_log: TaskLog) -> None:
    number = there(sandbox, network="sepolia")
    with failing_at_once(rf"request {number} is not what was requested: network \(not requested.*nothing was signed"):
        sign(number)
    with failing_at_once(r"network \(requested 'mainnet', shown 'sepolia'\)"):
        sign(number, expected={**FIELDS, "network": "mainnet"}, **ACCEPTED)
    assert not sandbox.control.request_log(**APPROVE)
    assert sign(number, **ACCEPTED) == 1
    assert "Filled in by the service: network" in task_log.text


def test_the_main_network_is_signed_unless_the_text_has_it(sandbox: Sandbox, in_text: bool) -> None:
    number = there(sandbox, network="mainnet")
    if in_text:
        # What is signed is accounted for.
        with failing_at_once(r"network \(not requested\)"):
            sign(number)
    assert sign(number, **(ACCEPTED if in_text else {})) == 1


def test_a_sensor_compares_it(sandbox: Sandbox) -> None:
    number = there(sandbox, network="sepolia")
    sandbox.control.sign_whitelist_requests([number])

    def waited(**arguments: Any) -> Any:
        return wait(CustodyWhitelistRequestSensor, request_id=number, **arguments)

    with failing_at_once(rf"request {number} is not what was requested: network \(not requested") as caught:
        waited(expected=FIELDS)
    assert isinstance(caught.value.error, CustodyRequestError)
    with failing_at_once(r"network \(requested 'mainnet', shown 'sepolia'\)"):
        waited(expected={**FIELDS, "network": "mainnet"}, **ACCEPTED)
    for arguments in ({"expected": FIELDS, **ACCEPTED}, {"expected": {**FIELDS, "network": "sepolia"}}):
        assert waited(**arguments)["verified"] is True


# --- plans -------------------------------------------------------------------------------------------------


BOTH = {"prune": True, "replace": True}


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(("asked", "shown"), [("", "sepolia"), ("mainnet", "one"), ("one", "mainnet"), ("one", "two")])
def test_a_plan_neither_creates_replaces_nor_deletes_for_it(
    sandbox: Sandbox, tmp_path: Path, task_log: TaskLog, asked: str, shown: str
) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", [1], contract_type="ERC20", **({"network": asked} if asked else {}))
    number = there(sandbox, network=shown)
    sandbox.control.sign_whitelist_requests([number])
    planned = plan(path, **BOTH)
    assert {state: each for state, each in planned["counts"].items() if each} == {"differs": 1}
    assert "put its id into 'ignore'" in task_log.text
    assert "delete the request" not in task_log.text
    sandbox.control.clear_request_log()
    task = ApplyTask(path, planned["plan_hash"], RowsStore(), **BOTH)
    assert task.attempt()["request_ids"] == []
    assert not sandbox.control.request_log(**CREATE)
    assert not sandbox.control.request_log(**DELETE)
    # What a person has looked at stops nothing, and is not deleted.
    ignoring: dict[str, Any] = {**BOTH, "ignore": [number]}
    task = ApplyTask(path, plan(path, **ignoring)["plan_hash"], RowsStore(), **ignoring)
    (made,) = task.attempt()["request_ids"]
    assert {each["id"] for each in sandbox.control.whitelist_requests()} == {number, made}


@pytest.mark.usefixtures("airflow_db")
def test_a_plan_accepts_a_network_by_name(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", [1])
    sandbox.control.sign_whitelist_requests([there(sandbox, network="sepolia")])
    assert plan(path)["counts"]["differs"] == 1
    assert plan(path, **ACCEPTED)["counts"]["unchanged"] == 1
    # It accepts no other network than the one that the row names.
    named = write_rows(tmp_path / "named.yaml", [1], network="sepolia")
    assert plan(named)["counts"]["unchanged"] == 1
    other = write_rows(tmp_path / "other.yaml", [1], network="one")
    assert plan(other, **ACCEPTED)["counts"]["differs"] == 1


@pytest.mark.usefixtures("airflow_db")
def test_what_somebody_requests_on_another_network_meanwhile_is_no_rows(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", [1])
    task = ApplyTask(path, plan(path)["plan_hash"], RowsStore())
    before(monkeypatch, Sender, "send", lambda: there(sandbox, network="sepolia"))
    assert "it differs in: network" in str(task.fails())
    assert not sandbox.control.request_log(**CREATE)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("accepted", [True, False])
def test_what_the_service_makes_of_a_row_is_checked_once_it_is_created(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", [1])
    given: dict[str, Any] = ACCEPTED if accepted else {}
    task = ApplyTask(path, plan(path, **given)["plan_hash"], RowsStore(), **given)

    def fill_in() -> None:
        for each in sandbox.control.whitelist_requests():
            sandbox.control.set_whitelist_envelope(each["id"], network="sepolia")

    before(monkeypatch, ApplyPlan, "_check_created", fill_in)
    if accepted:
        assert len(task.attempt()["request_ids"]) == 1
    else:
        assert "lists another request under it (network)" in str(failure_of(task.attempt))
