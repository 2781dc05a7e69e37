from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import FakeTaskInstance, execute, failing_at_once, new_dag, redacted, run_dag
from conftest import TaskLog, connection_json
from cryptography.hazmat.primitives.asymmetric import ec
from people import Person, pem_of

from airflow_custody.client import CustodyConflictError, CustodyOutcomeUnknownError
from airflow_custody.client.signers import PemSigner
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
)
from airflow_custody.operators.whitelist_approval import (
    CustodyApproveWhitelistRequestsOperator,
    CustodyRejectWhitelistRequestsOperator,
)
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

ADDRESS = "0x" + "ab" * 20
FIELDS = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}


@pytest.fixture
def ann(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Define the user of the default connection, whose key is in another connection."""
    person = Person(sandbox, "ann", "approvers")
    connection = json.loads(connection_json(sandbox)) | {"password": person.token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    return person


def create(**changes: Any) -> dict[str, Any]:
    """Create a request, and return what its task pushed."""
    ti = FakeTaskInstance()
    execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **{**FIELDS, **changes}), ti=ti)
    pushed: dict[str, Any] = ti.pushed["request"]
    return pushed


def approve(request_ids: Any, expected: Any, ti: Any = None, **arguments: Any) -> int:
    signatures: int = execute(
        lambda: CustodyApproveWhitelistRequestsOperator(
            task_id="approve",
            request_ids=request_ids,
            expected=expected,
            signer=arguments.pop("signer", ConnectionSigner("signing_key")),
            **{"comment": "checked", "lookup_wait": 0.2, **arguments},
        ),
        ti=ti or FakeTaskInstance(),
    )
    return signatures


def test_the_create_task_describes_its_request(ann: Person) -> None:
    pushed = create(linked_wallet_ids=[1, "2"], memo="7")
    assert pushed == {"id": "3711", **FIELDS, "linked_wallet_ids": ["1", "2"], "memo": "7"}
    assert json.loads(json.dumps(pushed)) == pushed


def test_approves_one_by_the_description_of_its_task(sandbox: Sandbox, ann: Person, task_log: TaskLog) -> None:
    pushed = create()
    assert approve(pushed["id"], pushed) == 1
    assert [request["status"] for request in sandbox.control.whitelist_requests()] == ["active"]
    log = task_log.text
    assert "signing_key" in log
    assert ann.pem.splitlines()[1] not in log


def test_approves_many(ann: Person) -> None:
    pushed = [create(), create(label="b")]
    assert approve([each["id"] for each in pushed], pushed) == 2


@pytest.mark.parametrize("by_hand", [FIELDS, {**FIELDS, "currency": "ETH"}, [FIELDS]], ids=str)
def test_one_request_may_be_described_by_hand(ann: Person, by_hand: Any) -> None:
    assert approve(create()["id"], by_hand) == 1


@pytest.mark.parametrize(
    "expected",
    [
        {},
        [],
        "",
        "None",
        [None],
        {"id": "9"},
        {**FIELDS, "label": "Other"},
        {**FIELDS, "signature": "x"},
        [{"id": "3711", **FIELDS}, {"id": "3711", **FIELDS}],
        {"id": "9999", **FIELDS},
    ],
    ids=str,
)
def test_a_description_of_another_request_signs_nothing(sandbox: Sandbox, ann: Person, expected: Any) -> None:
    with pytest.raises(CustodyFailException):
        approve(create()["id"], expected)
    assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []


def test_a_template_that_renders_to_none_does_not_count_as_an_explicit_none(sandbox: Sandbox, ann: Person) -> None:
    number = create()["id"]

    def rendered() -> CustodyApproveWhitelistRequestsOperator:
        operator = CustodyApproveWhitelistRequestsOperator(
            task_id="approve",
            request_ids=number,
            expected="{{ nothing }}",  # type: ignore[arg-type] # a template
            signer=ConnectionSigner("signing_key"),
            comment="x",
        )
        operator.expected = None
        return operator

    with failing_at_once("does not say what"):
        execute(rendered, ti=FakeTaskInstance())
    assert approve(number, None) == 1


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("how", ["expand", "expand_kwargs"])
def test_a_mapped_task_does_not_accept_none(sandbox: Sandbox, ann: Person, how: str) -> None:
    number = create()["id"]
    signer = ConnectionSigner("signing_key")
    with new_dag() as dag:
        if how == "expand":
            CustodyApproveWhitelistRequestsOperator.partial(task_id="a", signer=signer, expected=None).expand(
                request_ids=[number]
            )
        else:
            CustodyApproveWhitelistRequestsOperator.partial(task_id="a", signer=signer).expand_kwargs(
                [{"request_ids": number, "expected": None}]
            )
    run = run_dag(dag)
    assert run.states == {("a", 0): "failed"}
    assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []


def test_expected_is_required() -> None:
    with pytest.raises(Exception, match="expected"):
        CustodyApproveWhitelistRequestsOperator(task_id="a", request_ids="1", signer=ConnectionSigner("k"))  # type: ignore[call-arg]


def test_a_later_try_accepts_what_an_earlier_try_signed(ann: Person) -> None:
    pushed = create()
    approve(pushed["id"], pushed)
    assert approve(pushed["id"], pushed, ti=FakeTaskInstance(try_number=2)) == 1
    with failing_at_once("label; it was signed before all the same"):
        approve(pushed["id"], {**pushed, "label": "Other"}, ti=FakeTaskInstance(try_number=2))
    with failing_at_once("not pending this user's approval") as caught:
        approve(pushed["id"], pushed)
    assert isinstance(caught.value.error, CustodyConflictError)


def test_a_lost_approval_that_was_not_carried_out_is_left_to_retries(sandbox: Sandbox, ann: Person) -> None:
    pushed = create()
    sandbox.control.add_fault("drop", method="POST")
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe"):
        approve(pushed["id"], pushed)


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (None, "no such Airflow connection"),
        ({"conn_type": "generic"}, "no extra 'private_key'"),
        ({"conn_type": "generic", "extra": {"private_key": 7}}, "no extra 'private_key'"),
        ({"conn_type": "generic", "extra": {"private_key": "nonsense"}}, "not a private key in PEM"),
    ],
)
def test_a_connection_without_a_usable_key_fails_before_anything_is_sent(
    sandbox: Sandbox, ann: Person, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any] | None, message: str
) -> None:
    pushed = create()
    sandbox.control.clear_request_log()
    monkeypatch.delenv("AIRFLOW_CONN_SIGNING_KEY")
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(connection))
    with failing_at_once(message):
        approve(pushed["id"], pushed)
    assert sandbox.control.request_log() == []


def test_reject(sandbox: Sandbox, ann: Person) -> None:
    numbers = [create()["id"], create(label="b")["id"]]

    def reject(try_number: int = 1, comment: str = "not ours", ids: Any = numbers) -> list[str]:
        rejected: list[str] = execute(
            lambda: CustodyRejectWhitelistRequestsOperator(task_id="reject", request_ids=ids, comment=comment),
            ti=FakeTaskInstance(try_number=try_number),
        )
        return rejected

    for comment, ids in (("", numbers), ("x", []), ("x", "x"), ("x", range(101)), ("x", ["1", 1])):
        with failing_at_once(r"nothing was (signed or )?sent"):
            reject(comment=comment, ids=ids)
    assert reject() == numbers
    assert {request["status"] for request in sandbox.control.whitelist_requests()} == {"rejected"}
    with pytest.raises(CustodyFailException):
        reject()
    assert reject(try_number=2) == numbers
    pending = create(label="d")["id"]
    with pytest.raises(CustodyFailException):
        reject(try_number=2, ids=[*numbers, pending])
    approved = create(label="c")
    approve(approved["id"], approved)
    with pytest.raises(CustodyFailException):
        reject(try_number=2, ids=approved["id"])


def test_delete(sandbox: Sandbox, ann: Person) -> None:
    number = create()["id"]

    def delete() -> dict[str, Any]:
        result: dict[str, Any] = execute(
            lambda: CustodyDeleteWhitelistRequestOperator(task_id="delete", request_id=number, comment="a slip")
        )
        return result

    assert delete() == {"request_id": number, "deleted": True}
    assert sandbox.control.whitelist_requests() == []
    assert delete() == {"request_id": number, "deleted": False}
    sandbox.control.add_fault("html", status=404)
    with pytest.raises(CustodyFailException):
        delete()


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_created_and_approved_by_two_people(
    sandbox: Sandbox, ann: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bob = Person(sandbox, "bob", "risk")
    connection = json.loads(connection_json(sandbox)) | {"password": bob.token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_BOB", json.dumps(connection))
    (tmp_path / "bob.pem").write_text(bob.pem)
    sandbox.control.set_approvers(
        [
            {
                "sequential": [
                    {"externalGroupID": "approvers", "minimumSignatures": 1},
                    {"externalGroupID": "risk", "minimumSignatures": 1},
                ]
            }
        ]
    )
    ann_signer = ConnectionSigner("signing_key")
    bob_signer = PemSigner.from_file(tmp_path / "bob.pem")
    with new_dag() as dag:
        one = CustodyCreateWhitelistRequestOperator(
            task_id="one", label="L {{ run_id }}", address=ADDRESS, blockchain="ETH"
        )
        many = CustodyCreateWhitelistRequestOperator.partial(task_id="many", blockchain="ETH", address=ADDRESS).expand(
            label=["x", "y"]
        )
        one_output: Any = one.output  # an XComArg: a str when the task runs
        first = CustodyApproveWhitelistRequestsOperator(
            task_id="first", request_ids=one_output, expected=one_output["request"], signer=ann_signer
        )
        second = CustodyApproveWhitelistRequestsOperator(
            task_id="second",
            request_ids=one_output,
            expected=one_output["request"],
            custody_conn_id="custody_bob",
            signer=bob_signer,
        )
        first >> second
        many_output: Any = many.output
        CustodyApproveWhitelistRequestsOperator(
            task_id="batch", request_ids=many_output, expected=many_output["request"], signer=ann_signer
        )
    run = run_dag(dag)
    assert run.state == "success", run.states
    assert run.xcom("batch") == 2
    statuses = {request["label"]: request["status"] for request in sandbox.control.whitelist_requests()}
    assert sorted(statuses.values()) == ["active", "pending", "pending"]
    assert {statuses["x"], statuses["y"]} == {"pending"}


def test_the_repr_of_a_signer_holds_only_its_name(ann: Person) -> None:
    assert repr(ConnectionSigner("signing_key")) == "ConnectionSigner('signing_key')"
    assert repr(PemSigner(lambda: ann.pem, name="n")) == "PemSigner('n')"


def test_a_key_from_a_connection_is_masked_line_by_line(ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    password = "correct-horse"
    # Airflow 2.11.0 also masks single letters, and one that another test has registered would be found first.
    pem = next(
        pem
        for pem in (pem_of(ec.generate_private_key(ec.SECP256R1()), password) for _ in range(100))
        if all(redacted(line)[:1] != "*" for line in pem.splitlines())
    )
    key = {"conn_type": "generic", "password": password, "extra": {"private_key": pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    assert len(ConnectionSigner("signing_key").sign(b"message")) == 64
    for secret in [password, *pem.splitlines()[1:-1]]:
        assert redacted(f"it is {secret}!") == "it is ***!"
