"""The operators that create and delete a whitelisting request."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import task
from support.airflow.airflow_runs import execute, failing_at_once, new_dag, run_dag
from support.airflow.task_log import TaskLog
from support.clocks import SkippingTime

from airflow_custody.client import (
    CustodyRateLimitError,
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


# One character of an address in the case of EIP-55 is another one.
MISTYPED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"


def test_a_mistyped_address_is_refused_before_anything_is_sent(sandbox: Sandbox) -> None:
    with failing_at_once(
        r"nothing is sent: address: 0x5aAeb6…1BeAeD is not a valid ETH address: .*EIP-55.*; "
        r"correct it"
    ) as caught:
        create(address=MISTYPED)
    assert "check_address" not in str(caught.value.error)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("given", [{"blockchain": "NEAR"}, {"check_address": False}], ids=["no rules", "no check"])
def test_what_is_not_checked_here_is_sent(sandbox: Sandbox, given: dict[str, Any]) -> None:
    sandbox.control.configure(currencies=["ETH", "NEAR"])
    create(address=MISTYPED, **given)
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


@pytest.mark.parametrize(
    ("field", "value"),
    [("label", ""), ("address", f"{ADDRESS}\u200b"), ("blockchain", None), ("linked_wallet_ids", ["1", ""])],
    ids=["empty", "an invisible character", "None", "an empty one in a list"],
)
def test_bad_input_names_the_field_and_sends_nothing(sandbox: Sandbox, field: str, value: Any) -> None:
    with failing_at_once(field):
        create(**{field: value})
    assert sandbox.control.request_log() == []


def test_a_rate_limit_is_waited_out(sandbox: Sandbox, waits: SkippingTime) -> None:
    sandbox.control.add_fault("rate_limit", method="POST", retry_after=7)
    skipped = waits.skipped
    assert create() == "3711"
    assert waits.skipped - skipped >= 7


def test_a_long_rate_limit_is_left_to_retries(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("rate_limit", method="POST", retry_after=61)
    with pytest.raises(CustodyRateLimitError) as caught:
        create()
    assert caught.value.retry_after == 61


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


@pytest.mark.parametrize("only_if", [False, "False", "false"])
def test_only_what_was_created_is_deleted(sandbox: Sandbox, task_log: TaskLog, only_if: object) -> None:
    request_id = create()
    operator = CustodyDeleteWhitelistRequestOperator
    found = execute(lambda: operator(task_id="delete", request_id=request_id, comment="end", only_if=only_if))  # type: ignore[arg-type]
    assert found == {"request_id": request_id, "deleted": False}
    assert f"Whitelisting request {request_id} is not deleted, because only_if is False." in task_log.text
    assert len(sandbox.control.whitelist_requests()) == 1


@pytest.mark.parametrize("only_if", [None, "None", "", "yes", 1, 0, ["True"]])
@pytest.mark.parametrize("more", [{}, {"omit_if_none": ("comment",)}])
def test_a_condition_that_is_not_a_bool_deletes_nothing(sandbox: Sandbox, only_if: Any, more: dict[str, Any]) -> None:
    operator = CustodyDeleteWhitelistRequestOperator
    if more:
        # None of its parameters can be left out.
        with pytest.raises(ValueError, match="omit_if_none contains 'comment', which cannot be left out"):
            operator(task_id="delete", request_id="1", comment="end", only_if=only_if, **more)
        return
    with failing_at_once("only_if (is|must be)"):
        execute(lambda: operator(task_id="delete", request_id="1", comment="end", only_if=only_if))
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


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_templated_mapped_and_chained(sandbox: Sandbox) -> None:
    @task
    def rows() -> list[dict[str, Any]]:
        return [{"label": "a {{ run_id }}"}, {"label": "b", "linked_wallet_ids": ["1", "2"]}]

    @task
    def sign(request_id: Any) -> str:
        return f"signed {request_id!r}"

    given: dict[str, Any] = {"address": ADDRESS, "if_exists": "create"}
    with new_dag() as dag:
        one = CustodyCreateWhitelistRequestOperator(
            task_id="one", label="L {{ 1 + 1 }}", blockchain="{{ 'eth' | upper }}", **given
        )
        sign(one.output)
        CustodyCreateWhitelistRequestOperator.partial(task_id="many", blockchain="ETH", **given).expand_kwargs(rows())
    run = run_dag(dag)
    assert run.state == "success", run.states
    requests = {request["id"]: request for request in sandbox.control.whitelist_requests()}
    assert len(requests) == 3
    # Tasks get the id as a string; XCom read outside a task makes a number of it.
    request_id = str(run.xcom("one"))
    assert run.xcom("sign") == f"signed '{request_id}'"
    assert requests[request_id]["label"] == "L 2"
    assert requests[request_id]["blockchain"] == "ETH"
    # A row's text is data.
    assert requests[str(run.xcom("many", 0))]["label"] == "a {{ run_id }}"
    assert requests[str(run.xcom("many", 1))]["linkedWalletIds"] == ["1", "2"]
