"""The operators that sign and reject: their arguments, and later tries. The client's tests cover what is signed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from support.airflow.airflow_runs import FakeTaskInstance, execute, failing_at_once, new_dag, run_dag
from support.airflow.connections import connection_json
from support.airflow.task_log import TaskLog
from support.clocks import SkippingTime
from support.service.people import Person

from airflow_custody.client import CustodyConflictError, CustodyConnectionError, CustodyServerError
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist import ids as ids_module
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

ADDRESS = "0x" + "ab" * 20
FIELDS: dict[str, Any] = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}
APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
REJECT = {"method": "POST", "path": "/whitelists/addresses/reject"}


@pytest.fixture(autouse=True)
def ann(sandbox: Sandbox, waits: SkippingTime, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Define the user of the default connection, whose key is in another connection."""
    person = Person(sandbox, "ann", "approvers")
    connect(sandbox, person, monkeypatch)
    key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    return person


def connect(sandbox: Sandbox, person: Person, monkeypatch: pytest.MonkeyPatch, **extra: object) -> None:
    """Define the default connection, with a user and settings."""
    connection = json.loads(connection_json(sandbox, **extra)) | {"password": person.token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))


def create(**changes: Any) -> dict[str, Any]:
    """Create a request, and return what its task pushed."""
    ti = FakeTaskInstance()
    arguments = {"if_exists": "create", **FIELDS, **changes}
    execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments), ti=ti)
    pushed: dict[str, Any] = ti.pushed["request"]
    return pushed


def approve(request_ids: Any, expected: Any, try_number: int = 1, **arguments: Any) -> int:
    given = {"signer": ConnectionSigner("signing_key"), "comment": "checked", "lookup_wait": 0.2, **arguments}
    signed: int = execute(
        lambda: CustodySignWhitelistRequestsOperator(
            task_id="approve", request_ids=request_ids, expected=expected, **given
        ),
        ti=FakeTaskInstance(try_number),
    )
    return signed


def reject(ids: Any, try_number: int = 1, **arguments: Any) -> list[str]:
    given = {"comment": "not ours", **arguments}
    rejected: list[str] = execute(
        lambda: CustodyRejectWhitelistRequestsOperator(task_id="reject", request_ids=ids, **given),
        ti=FakeTaskInstance(try_number),
    )
    return rejected


def statuses(sandbox: Sandbox) -> list[str]:
    return [request["status"] for request in sandbox.control.whitelist_requests()]


# --- signing -----------------------------------------------------------------------------------------------


def test_the_create_task_describes_its_request(sandbox: Sandbox, ann: Person, task_log: TaskLog) -> None:
    pushed = create(linked_wallet_ids=[1, "2"], memo="7")
    assert json.loads(json.dumps(pushed)) == pushed
    assert pushed == {"id": "3711", **FIELDS, "linked_wallet_ids": ["1", "2"], "memo": "7"}
    assert approve(pushed["id"], pushed) == 1
    assert statuses(sandbox) == ["APPROVED"]
    log = task_log.text
    assert "signing_key" in log
    assert ann.pem.splitlines()[1] not in log


@pytest.mark.parametrize(
    "by_hand", [{**FIELDS, "currency": "ETH"}, [FIELDS], None], ids=["its fields", "a list of one", "anything"]
)
def test_one_request_may_be_described_by_hand(by_hand: Any) -> None:
    assert approve(create()["id"], by_hand) == 1


PUSHED = {"id": "3711", **FIELDS}
ODD: dict[str, Any] = {
    "a number": 5,
    "text": "None",
    "empty": {},
    "no fields": {"id": "9"},
    "a field without a value": {**PUSHED, "linked_wallet_ids": ["1", "None"]},
    "an odd id": {**PUSHED, "id": True},
    "the id of another request": {**PUSHED, "id": "9999"},
    "another label": {**FIELDS, "label": "Other"},
    "an unknown field": {**FIELDS, "signature": "x"},
    "described twice": [PUSHED, PUSHED],
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_expected_content_in_another_form_or_of_another_request_is_refused(sandbox: Sandbox, odd: Any) -> None:
    with failing_at_once("expected|is missing|not a field|differs from the requested content"):
        approve(create()["id"], odd)
    assert sandbox.control.request_log(**APPROVE) == []


@pytest.mark.usefixtures("airflow_db")
def test_only_a_written_none_signs_any_content(sandbox: Sandbox) -> None:
    numbers = [create()["id"] for _ in range(2)]
    signer = ConnectionSigner("signing_key")
    partial = CustodySignWhitelistRequestsOperator.partial
    with new_dag() as dag:
        partial(task_id="mapped", signer=signer, request_ids=numbers[0]).expand(expected=[None])
        partial(task_id="row", signer=signer).expand_kwargs([{"request_ids": numbers[0], "expected": None}])
        partial(task_id="written", signer=signer, expected=None).expand(request_ids=[numbers[1]])
    assert run_dag(dag).states == {("mapped", 0): "failed", ("row", 0): "failed", ("written", 0): "success"}
    assert statuses(sandbox) == ["pending", "APPROVED"]


def test_a_later_try_accepts_a_signature_of_an_earlier_try() -> None:
    pushed = create()
    approve(pushed["id"], pushed)
    assert approve(pushed["id"], pushed, try_number=2) == 1
    with failing_at_once(r"label \(.*\); this user has already signed the request"):
        approve(pushed["id"], {**pushed, "label": "Other"}, try_number=2)
    with failing_at_once("not pending this user's signature") as caught:
        approve(pushed["id"], None)
    assert isinstance(caught.value.error, CustodyConflictError)


@pytest.mark.parametrize(
    ("text", "named"), [("custody_first_key", "'custody_first_key'"), ("k3y" * 20, "CONNECTION_ID"), ("a b", "CONN")]
)
def test_text_instead_of_a_signer_is_refused_with_advice(text: Any, named: str) -> None:
    with pytest.raises(ValueError, match=rf"^signer is text: use ConnectionSigner\({named}") as caught:
        CustodySignWhitelistRequestsOperator(task_id="sign", request_ids="1", expected=None, signer=text)
    assert "k3yk3y" not in str(caught.value)


def test_the_repr_of_a_signer_holds_only_its_name(ann: Person) -> None:
    assert repr(ConnectionSigner("signing_key")) == "ConnectionSigner('signing_key')"
    assert repr(PemSigner(lambda: ann.pem, name="n")) == "PemSigner('n')"


# --- rejecting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "ids"),
    [("", ["3711"]), ("x", "x"), ("x", ["1", 1])],
    ids=["no comment", "no number", "an id twice"],
)
def test_wrong_arguments_reject_nothing(sandbox: Sandbox, comment: str, ids: Any) -> None:
    with failing_at_once(r"nothing is (signed or )?sent"):
        reject(ids, comment=comment)
    assert sandbox.control.request_log() == []


def test_rejecting_a_rejected_request_succeeds(sandbox: Sandbox, task_log: TaskLog) -> None:
    numbers = [create()["id"], create(label="b")["id"]]
    assert reject(numbers) == numbers
    assert statuses(sandbox) == ["rejected"] * 2
    assert reject(numbers) == numbers
    assert "it is already done, by an earlier try or by another client" in task_log.text


def test_a_refusal_stays_one_if_the_request_cannot_be_read(sandbox: Sandbox) -> None:
    number = create()["id"]
    reject(number)
    sandbox.control.add_fault("status", method="GET", status=404)
    with failing_at_once("no longer pending"):
        reject(number)
    sandbox.control.add_fault("status", method="GET", status=503)
    with pytest.raises(CustodyServerError):
        reject(number)


@pytest.mark.parametrize("group", ["approvers", "risk"], ids=["signed by this user", "another group"])
def test_a_request_that_is_not_rejected_is_never_reported_as_rejected(sandbox: Sandbox, group: str) -> None:
    rejected = create(label="b")["id"]
    reject(rejected)
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": group, "minimumSignatures": 2}]}])
    pushed = create()
    if group == "approvers":
        approve(pushed["id"], pushed)
    for ids in (pushed["id"], [rejected, pushed["id"]]):
        with pytest.raises(CustodyFailException):
            reject(ids, try_number=2)
    assert statuses(sandbox) == ["rejected", "pending"]


@pytest.mark.parametrize("word", ["APPROVED", "removed", "odd"])
def test_only_a_rejected_status_is_a_rejection(sandbox: Sandbox, word: str) -> None:
    number = create()["id"]
    sandbox.control.set_whitelist_status(number, word)
    with pytest.raises(CustodyFailException):
        reject(number, try_number=2)


def test_rejecting_continues_where_an_earlier_try_ended(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "MAX_PAGE_SIZE", 2)
    ids = [create(label=f"L{each}")["id"] for each in range(5)]
    sandbox.control.add_fault("drop", **REJECT, skip=1, work=True)
    with pytest.raises(CustodyConnectionError, match=r"batch 2 of 3.*2 of 5 requests are already rejected"):
        reject(ids)
    assert statuses(sandbox) == ["rejected"] * 4 + ["pending"]
    assert reject(ids, try_number=2) == ids
    assert statuses(sandbox) == ["rejected"] * 5


# --- nothing to do -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [lambda ids, **how: approve(ids, [], **how), reject], ids=["sign", "reject"])
def test_an_empty_list_fails_or_skips_the_task(sandbox: Sandbox, task: Any) -> None:
    with pytest.raises(AirflowSkipException, match="request_ids is an empty list"):
        task([], skip_if_empty=True)
    with failing_at_once(r"request_ids is an empty list; nothing is sent.*skip_if_empty=True"):
        task([])
    # A value that is not a list does not count as empty.
    odd: list[Any] = ["", {}, [None]]
    for bad in odd:
        with failing_at_once("request_ids"):
            task(bad, skip_if_empty=True)
    assert sandbox.control.request_log() == []
