"""The operators that create and delete a whitelisting request."""

from __future__ import annotations

from typing import Any

import pytest
from support.airflow.airflow_runs import execute, failing_at_once, new_dag, run_dag
from support.airflow.task_log import TaskLog

from airflow_custody.client import (
    WhitelistRequest,
)
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
)
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")
ADDRESS = "0x" + "ab" * 20


def create(**kwargs: Any) -> Any:
    arguments = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", **kwargs}
    return execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments))


# A character of an EIP-55 address in another case makes a different address.
MISTYPED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"


def test_a_mistyped_address_is_refused_before_anything_is_sent_unless_it_is_not_checked(sandbox: Sandbox) -> None:
    with failing_at_once("nothing is sent: address: 0x5aAeb6…1BeAeD is not a valid ETH address: .*EIP-55"):
        create(address=MISTYPED)
    assert sandbox.control.request_log() == []
    create(address=MISTYPED, check_address=False)
    assert [call["body"]["address"] for call in sandbox.control.request_log(method="POST")] == [MISTYPED]


def test_every_field_is_sent_by_its_name(sandbox: Sandbox) -> None:
    given: dict[str, Any] = {
        "label": "Treasury",
        "address": ADDRESS,
        "blockchain": "ETH",
        "currency": "ETH",
        "linked_internal_address_ids": [12, "34"],
        "linked_wallet_ids": ["3"],
        "network": "mainnet",
        "memo": "42",
        "address_type": "exchange",
        "contract_type": "ERC20",
        "customer_id": "c-1",
        "exchange_account_id": 7,
        "visibility_group_id": "v-1",
    }
    create(**given)
    (request,) = sandbox.control.whitelist_requests()
    sent = {**given, "linked_internal_address_ids": ["12", "34"], "exchange_account_id": "7"}
    assert request["body"] == {field.alias: sent[name] for name, field in WhitelistRequest.model_fields.items()}


# --- deletion ----------------------------------------------------------------------------------------------


def test_delete_and_delete_again(sandbox: Sandbox, task_log: TaskLog) -> None:
    def delete() -> Any:
        operator = CustodyDeleteWhitelistRequestOperator
        return execute(lambda: operator(task_id="delete", request_id=request_id, comment="a slip"))

    request_id = create()
    assert delete() == {"request_id": request_id, "deleted": True}
    assert sandbox.control.whitelist_requests() == []
    assert delete() == {"request_id": request_id, "deleted": False}
    assert "does not exist" in task_log.text


@pytest.mark.parametrize("only_if", [False, "False"])
def test_only_what_was_created_is_deleted(sandbox: Sandbox, task_log: TaskLog, only_if: object) -> None:
    request_id = create()
    operator = CustodyDeleteWhitelistRequestOperator
    found = execute(lambda: operator(task_id="delete", request_id=request_id, comment="end", only_if=only_if))  # type: ignore[arg-type]
    assert found == {"request_id": request_id, "deleted": False}
    assert f"Whitelisting request {request_id} is not deleted, because only_if is False." in task_log.text
    assert len(sandbox.control.whitelist_requests()) == 1


@pytest.mark.parametrize("only_if", ["None", "", 1])
def test_a_condition_that_is_not_a_bool_deletes_nothing(sandbox: Sandbox, only_if: Any) -> None:
    with failing_at_once("only_if (is|must be)"):
        execute(
            lambda: CustodyDeleteWhitelistRequestOperator(
                task_id="delete", request_id="1", comment="end", only_if=only_if
            )
        )
    assert sandbox.control.request_log() == []


# --- in a run ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("exists", [False, True])
def test_a_teardown_keeps_what_its_setup_has_reused(sandbox: Sandbox, exists: bool) -> None:
    earlier = create() if exists else None
    with new_dag() as dag:
        setup: Any = CustodyCreateWhitelistRequestOperator(
            task_id="setup", label="Treasury", address=ADDRESS, blockchain="ETH"
        )
        teardown: Any = CustodyDeleteWhitelistRequestOperator(
            task_id="teardown", request_id=setup.output, comment="end", only_if=setup.output["created"]
        )
        setup.as_setup() >> teardown.as_teardown(setups=setup)
    run = run_dag(dag)
    assert run.state == "success", run.states
    assert run.xcom("teardown")["deleted"] is not exists
    assert [each["id"] for each in sandbox.control.whitelist_requests()] == ([earlier] if exists else [])
