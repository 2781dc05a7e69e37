from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import task
from airflow_runs import execute, failing_at_once, new_dag, run_dag
from clocks import SkippingTime
from connections import connection_json
from task_log import TaskLog

from airflow_custody.client import (
    CustodyConnectionError,
    CustodyOutcomeUnknownError,
    CustodyRateLimitError,
    CustodyResponseError,
)
from airflow_custody.client.whitelist.addresses import is_installed
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


def test_returns_the_id_and_logs_a_shortened_address(sandbox: Sandbox, task_log: TaskLog) -> None:
    assert create() == "3711"
    text = task_log.text
    assert "Created whitelisting request 3711" in text
    assert ADDRESS not in text
    (request,) = sandbox.control.whitelist_requests()
    assert request["body"] == {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}


# One character of an address in the case of EIP-55 is another one.
MISTYPED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"
needs_addresses = pytest.mark.skipif(not is_installed(), reason="the extra 'addresses' is not installed")


@needs_addresses
def test_a_mistyped_address_is_refused_before_anything_is_sent(sandbox: Sandbox) -> None:
    with failing_at_once(
        r"nothing was sent: address: 0x5aAeb6…1BeAeD is not a valid ETH address: .*EIP-55.*; "
        r"correct it"
    ) as caught:
        create(address=MISTYPED)
    assert "check_address" not in str(caught.value.error)
    assert sandbox.control.request_log() == []


@needs_addresses
@pytest.mark.usefixtures("airflow_db")
def test_a_mistyped_address_is_not_retried(sandbox: Sandbox) -> None:
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator(
            task_id="create", label="Treasury", address=MISTYPED, blockchain="ETH", retries=2, retry_delay=timedelta(0)
        )
    run = run_dag(dag)
    assert run.states == {("create", -1): "failed"}
    assert run.tries["create", -1] == 1
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    "given",
    [
        {"address": "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx", "blockchain": "BTC"},
        {"address": "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx", "blockchain": "BTC", "network": "testnet"},
    ],
    ids=str,
)
def test_only_what_cannot_be_an_address_is_refused(sandbox: Sandbox, given: dict[str, Any]) -> None:
    assert create(**given) == "3711"
    (request,) = sandbox.control.whitelist_requests()
    assert request["body"]["address"] == given["address"]


@pytest.mark.parametrize("given", [{}, {"check_address": False}], ids=["no extra", "no check"])
def test_what_is_not_checked_here_is_sent(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    if not given:
        monkeypatch.setattr("airflow_custody.client.whitelist.addresses.is_installed", lambda: False)
    create(address=MISTYPED, **given)
    assert [call["body"]["address"] for call in sandbox.control.request_log(method="POST")] == [MISTYPED]


def test_every_field_is_sent_by_its_name(sandbox: Sandbox) -> None:
    create(
        currency="ETH",
        linked_internal_address_ids=[12, "34"],
        network="mainnet",
        memo="42",
        address_type="exchange",
        contract_type="ERC20",
        customer_id="c-1",
        exchange_account_id=7,
        visibility_group_id="v-1",
    )
    (request,) = sandbox.control.whitelist_requests()
    assert request["body"] == {
        "label": "Treasury",
        "address": ADDRESS,
        "blockchain": "ETH",
        "currency": "ETH",
        "linkedInternalAddressIds": ["12", "34"],
        "network": "mainnet",
        "memo": "42",
        "addressType": "exchange",
        "contractType": "ERC20",
        "customerId": "c-1",
        "exchangeAccountId": "7",
        "visibilityGroupID": "v-1",
    }


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"label": ""}, "label"),
        ({"label": "None"}, "label"),
        ({"address": ""}, "address"),
        ({"address": f" {ADDRESS}"}, "address"),
        ({"address": f"{ADDRESS}\n"}, "address"),
        ({"address": f"{ADDRESS}\u200b"}, "address"),
        ({"address": None}, "address"),
        ({"address": "None"}, "address"),
        ({"blockchain": None}, "blockchain"),
        ({"blockchain": ""}, "blockchain"),
        ({"currency": "BTC"}, "currency"),
        ({"memo": ""}, "memo"),
        ({"linked_wallet_ids": []}, "linked_wallet_ids"),
        ({"linked_wallet_ids": "12"}, "linked_wallet_ids"),
        ({"linked_wallet_ids": {"a": 1}}, "linked_wallet_ids"),
        ({"linked_wallet_ids": ["1", ""]}, "linked_wallet_ids"),
    ],
)
def test_bad_input_names_the_field_and_sends_nothing(sandbox: Sandbox, change: dict[str, Any], named: str) -> None:
    with failing_at_once(named):
        create(**change)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "drop"},
        {"kind": "drop", "work": True},
        {"kind": "truncate_body"},
        {"kind": "truncate_headers"},
        {"kind": "empty"},
        {"kind": "html"},
        {"kind": "status", "status": 200, "body": {"result": {}}},
        {"kind": "status", "status": 500, "work": True},
        {"kind": "status", "status": 503, "retry_after": 0},
    ],
)
def test_an_unknown_outcome_fails_without_retry_and_is_sent_once(sandbox: Sandbox, fault: dict[str, Any]) -> None:
    sandbox.control.add_fault("status", method="GET", times=None, status=404)
    sandbox.control.add_fault(times=None, **fault)
    with failing_at_once("it cannot be known whether .*, so it is not sent again") as caught:
        create()
    assert isinstance(caught.value.error, CustodyOutcomeUnknownError)
    assert len(sandbox.control.request_log(method="POST")) == 1


def test_refused_by_the_service_fails_at_once(sandbox: Sandbox) -> None:
    with failing_at_once("must follow"):
        create(address="0x12", check_address=False)
    with failing_at_once("not active"):
        create(blockchain="DOGE", address="D123", check_address=False)


def test_a_long_rate_limit_and_a_refused_connection_are_left_to_retries(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, waits: SkippingTime
) -> None:
    sandbox.control.add_fault("rate_limit", method="POST", retry_after=7)
    skipped = waits.skipped
    assert create() == "3711"
    assert waits.skipped - skipped >= 7
    sandbox.control.add_fault("rate_limit", method="POST", retry_after=61)
    with pytest.raises(CustodyRateLimitError) as caught:
        create(if_exists="create")
    assert caught.value.retry_after == 61
    monkeypatch.setenv(
        "AIRFLOW_CONN_CUSTODY_DEFAULT",
        '{"conn_type": "custody", "host": "http://127.0.0.1:9", "password": "t0ken", "extra": {"max_retries": 0}}',
    )
    with pytest.raises(CustodyConnectionError, match="nothing was sent"):
        create()


def test_the_missing_role_of_a_token_is_named(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    token = sandbox.control.add_token(roles=["TPUser"])
    connection = {"conn_type": "custody", "host": sandbox.url, "password": token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    with failing_at_once("WhitelistedAddressCreator") as caught:
        create()
    assert token not in str(caught.value)


# --- deletion ----------------------------------------------------------------------------------------------


def delete(request_id: Any, comment: Any = "a slip") -> Any:
    return execute(
        lambda: CustodyDeleteWhitelistRequestOperator(task_id="delete", request_id=request_id, comment=comment)
    )


def test_delete_and_delete_again(sandbox: Sandbox, task_log: TaskLog) -> None:
    request_id = create()
    assert delete(request_id) == {"request_id": request_id, "deleted": True}
    assert sandbox.control.whitelist_requests() == []
    assert delete(request_id) == {"request_id": request_id, "deleted": False}
    assert "does not exist" in task_log.text


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "html", "status": 404},
        {"kind": "empty", "status": 404},
        {"kind": "status", "status": 404, "body": {"message": "no Route matched with those values"}},
        {"kind": "status", "status": 200, "body": {"app": "something else"}},
        {"kind": "status", "status": 200, "body": {"result": {"id": "1"}}},
        {"kind": "html"},
    ],
    ids=str,
)
def test_what_a_gateway_says_is_no_deletion(
    sandbox: Sandbox, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]
) -> None:
    request_id = create()
    sandbox.control.add_fault(**fault, work=False)
    # It may be tried again.
    with pytest.raises(CustodyResponseError, match="still there"):
        delete(request_id)
    sandbox.control.add_fault(**fault, work=False)
    sandbox.control.add_fault("html", method="GET", status=404)
    with failing_at_once("reading it back failed too"):
        delete(request_id)
    assert "is deleted" not in task_log.text
    sandbox.control.add_fault(**fault, work=True)
    assert delete(request_id) == {"request_id": request_id, "deleted": True}


# --- in a run ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_templated_mapped_and_chained(sandbox: Sandbox) -> None:
    @task
    def rows() -> list[dict[str, Any]]:
        return [
            {"label": "a {{ run_id }}", "address": ADDRESS},
            {"label": "b", "address": ADDRESS, "linked_wallet_ids": ["1", "2"]},
        ]

    @task
    def address() -> str:
        return ADDRESS

    @task
    def sign(request_id: Any) -> str:
        return f"signed {request_id!r}"

    with new_dag() as dag:
        address_output: Any = address()  # an XComArg: a str when the task runs
        one = CustodyCreateWhitelistRequestOperator(
            task_id="one",
            label="L {{ 1 + 1 }}",
            address=address_output,
            blockchain="{{ 'eth' | upper }}",
            if_exists="create",
        )
        sign(one.output)
        CustodyCreateWhitelistRequestOperator.partial(
            task_id="many", blockchain="ETH", if_exists="create"
        ).expand_kwargs(rows())
        CustodyCreateWhitelistRequestOperator.partial(
            task_id="labels", blockchain="ETH", address=ADDRESS, if_exists="create"
        ).expand(label=["x", "y"])
    run = run_dag(dag)
    assert run.state == "success", run.states
    requests = {request["id"]: request for request in sandbox.control.whitelist_requests()}
    assert len(requests) == 5
    # Tasks get the id as a string; XCom read outside a task makes a number of it.
    request_id = str(run.xcom("one"))
    assert run.xcom("sign") == f"signed '{request_id}'"
    assert requests[request_id]["label"] == "L 2"
    assert requests[request_id]["blockchain"] == "ETH"
    assert requests[str(run.xcom("many", 1))]["linkedWalletIds"] == ["1", "2"]
    assert {requests[str(run.xcom("labels", index))]["label"] for index in (0, 1)} == {"x", "y"}


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_a_request_whose_response_is_lost_is_never_sent_blindly(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("drop", work=True, method="POST")
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator(
            task_id="one",
            label="L",
            address=ADDRESS,
            blockchain="ETH",
            if_exists="create",
            retries=3,
            retry_delay=timedelta(seconds=0),
        )
    run = run_dag(dag)
    assert run.state_of("one") == "success"
    assert str(run.xcom("one")) == "3711"
    sandbox.control.add_fault("drop", work=True, method="POST")
    sandbox.control.add_fault("status", method="GET", skip=1, times=None, status=404)
    run = run_dag(dag)
    assert run.state_of("one") == "failed"
    assert run.tries["one", -1] == 1
    assert len(sandbox.control.request_log(method="POST")) == len(sandbox.control.whitelist_requests()) == 2


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_a_request_that_never_arrived_is_sent_by_the_next_try(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
    # While the service lists another request of this user, the absence of one counts.
    earlier = create(address="0x" + "00" * 20)
    sandbox.control.add_fault("drop", method="POST")
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator(
            task_id="one",
            label="L",
            address=ADDRESS,
            blockchain="ETH",
            lookup_wait=0.5,
            retries=1,
            retry_delay=timedelta(seconds=0),
        )
    run = run_dag(dag)
    assert run.state_of("one") == "success"
    assert run.tries["one", -1] == 2
    assert [request["id"] for request in sandbox.control.whitelist_requests()] == [earlier, str(run.xcom("one"))]
