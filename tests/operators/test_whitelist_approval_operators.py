from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow_runs import FakeTaskInstance, execute, redacted, run_tasks
from conftest import connection_json
from cryptography.hazmat.primitives.asymmetric import ec
from people import Person, pem_of

from airflow_custody.client import CustodyConflictError, CustodyOutcomeUnknownError
from airflow_custody.client.signers import PemSigner
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_approval import (
    CustodyApproveWhitelistRequestsOperator,
    CustodyDeleteWhitelistRequestOperator,
    CustodyRejectWhitelistRequestsOperator,
)
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

ADDRESS = "0x" + "ab" * 20
FIELDS = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}


@pytest.fixture
def ann(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Person:
    """The user of the default connection, whose key is in another."""
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
    return ti.pushed["request"]


def approve(request_ids: Any, expected: Any, ti: Any = None, **arguments: Any) -> int:
    return execute(
        lambda: CustodyApproveWhitelistRequestsOperator(
            task_id="approve",
            request_ids=request_ids,
            expected=expected,
            signer=arguments.pop("signer", ConnectionSigner("signing_key")),
            **{"comment": "checked", "lookup_wait": 0.2, **arguments},
        ),
        ti=ti or FakeTaskInstance(),
    )


def test_the_create_task_describes_its_request(ann: Person):
    pushed = create(linked_wallet_ids=[1, "2"], memo="7")
    assert pushed == {"id": "3711", **FIELDS, "linked_wallet_ids": ["1", "2"], "memo": "7"}
    assert json.loads(json.dumps(pushed)) == pushed


def test_approves_one_by_the_description_of_its_task(sandbox: Sandbox, ann: Person, task_log):
    pushed = create()
    assert approve(pushed["id"], pushed) == 1
    assert [request["status"] for request in sandbox.control.whitelist_requests()] == ["active"]
    log = task_log.text
    assert "signing_key" in log
    assert ann.pem.splitlines()[1] not in log


def test_approves_many(ann: Person):
    pushed = [create(), create(label="b")]
    assert approve([each["id"] for each in pushed], pushed) == 2


@pytest.mark.parametrize("by_hand", [FIELDS, {**FIELDS, "currency": "ETH"}, [FIELDS]], ids=str)
def test_one_request_may_be_described_by_hand(ann: Person, by_hand):
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
def test_what_does_not_describe_the_request_signs_nothing(sandbox: Sandbox, ann: Person, expected):
    with pytest.raises(AirflowFailException):
        approve(create()["id"], expected)
    assert sandbox.control.received(path="/whitelists/addresses/approve") == []


def test_a_template_that_comes_to_nothing_is_not_none_that_somebody_wrote(sandbox: Sandbox, ann: Person):
    number = create()["id"]

    def rendered() -> CustodyApproveWhitelistRequestsOperator:
        operator = CustodyApproveWhitelistRequestsOperator(
            task_id="approve",
            request_ids=number,
            expected="{{ nothing }}",
            signer=ConnectionSigner("signing_key"),
            comment="x",
        )
        operator.expected = None
        return operator

    with pytest.raises(AirflowFailException, match="came to nothing"):
        execute(rendered, ti=FakeTaskInstance())
    assert approve(number, None) == 1


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("how", ["expected=None).expand(request_ids=[{0!r}])", ").expand_kwargs([{1}])"])
def test_a_mapped_task_takes_none_for_nothing(sandbox: Sandbox, ann: Person, how: str):
    number = create()["id"]
    mapped = how.format(number, {"request_ids": number, "expected": None})
    run = run_tasks(
        f"""
from airflow_custody.signers import ConnectionSigner
CustodyApproveWhitelistRequestsOperator.partial(task_id="a", signer=ConnectionSigner("signing_key"), {mapped}
"""
    )
    assert run.states == {("a", 0): "failed"}
    assert sandbox.control.received(path="/whitelists/addresses/approve") == []


def test_what_is_expected_must_be_said():
    with pytest.raises(Exception, match="expected"):
        CustodyApproveWhitelistRequestsOperator(task_id="a", request_ids="1", signer=ConnectionSigner("k"))


def test_a_later_try_takes_what_an_earlier_one_has_signed(ann: Person):
    pushed = create()
    approve(pushed["id"], pushed)
    assert approve(pushed["id"], pushed, ti=FakeTaskInstance(try_number=2)) == 1
    with pytest.raises(AirflowFailException, match="label; it was signed before all the same"):
        approve(pushed["id"], {**pushed, "label": "Other"}, ti=FakeTaskInstance(try_number=2))
    with pytest.raises(AirflowFailException, match="not waiting for this user") as caught:
        approve(pushed["id"], pushed)
    assert isinstance(caught.value.__cause__, CustodyConflictError)


def test_a_lost_approval_that_was_not_done_is_left_to_retries(sandbox: Sandbox, ann: Person):
    pushed = create()
    sandbox.control.order_fault("drop", method="POST")
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe"):
        approve(pushed["id"], pushed)


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (None, "no such Airflow connection"),
        ({"conn_type": "generic"}, "no extra 'private_key'"),
        ({"conn_type": "generic", "extra": {"private_key": 7}}, "no extra 'private_key'"),
        ({"conn_type": "generic", "extra": {"private_key": "nonsense"}}, "no private key in PEM"),
    ],
)
def test_a_connection_without_a_usable_key_fails_before_anything_is_sent(
    sandbox: Sandbox, ann: Person, monkeypatch, connection, said
):
    pushed = create()
    sandbox.control.clear_received()
    monkeypatch.delenv("AIRFLOW_CONN_SIGNING_KEY")
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(connection))
    with pytest.raises(AirflowFailException, match=said):
        approve(pushed["id"], pushed)
    assert sandbox.control.received() == []


def test_reject(sandbox: Sandbox, ann: Person):
    numbers = [create()["id"], create(label="b")["id"]]

    def reject(try_number: int = 1, comment: str = "not ours", ids: Any = numbers) -> list[str]:
        return execute(
            lambda: CustodyRejectWhitelistRequestsOperator(task_id="reject", request_ids=ids, comment=comment),
            ti=FakeTaskInstance(try_number=try_number),
        )

    for comment, ids in (("", numbers), ("x", []), ("x", "x"), ("x", range(101)), ("x", ["1", 1])):
        with pytest.raises(AirflowFailException, match=r"nothing was (signed or )?sent"):
            reject(comment=comment, ids=ids)
    assert reject() == numbers
    assert {request["status"] for request in sandbox.control.whitelist_requests()} == {"rejected"}
    with pytest.raises(AirflowFailException):
        reject()
    assert reject(try_number=2) == numbers
    waiting = create(label="d")["id"]
    with pytest.raises(AirflowFailException):
        reject(try_number=2, ids=[*numbers, waiting])
    approved = create(label="c")
    approve(approved["id"], approved)
    with pytest.raises(AirflowFailException):
        reject(try_number=2, ids=approved["id"])


def test_delete(sandbox: Sandbox, ann: Person):
    number = create()["id"]

    def delete() -> dict[str, Any]:
        return execute(
            lambda: CustodyDeleteWhitelistRequestOperator(task_id="delete", request_id=number, comment="a slip")
        )

    assert delete() == {"request_id": number, "deleted": True}
    assert sandbox.control.whitelist_requests() == []
    assert delete() == {"request_id": number, "deleted": False}
    sandbox.control.order_fault("html", status=404)
    with pytest.raises(AirflowFailException):
        delete()


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_created_and_approved_by_two_people(sandbox: Sandbox, ann: Person, monkeypatch, tmp_path: Path):
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
    run = run_tasks(
        f"""
from airflow_custody.client.signers import PemSigner
from airflow_custody.signers import ConnectionSigner
one = CustodyCreateWhitelistRequestOperator(
    task_id="one", label="L {{{{ run_id }}}}", address={ADDRESS!r}, blockchain="ETH")
many = CustodyCreateWhitelistRequestOperator.partial(
    task_id="many", blockchain="ETH", address={ADDRESS!r}).expand(label=["x", "y"])
first = CustodyApproveWhitelistRequestsOperator(
    task_id="first", request_ids=one.output, expected=one.output["request"], signer=ConnectionSigner("signing_key"))
second = CustodyApproveWhitelistRequestsOperator(
    task_id="second", request_ids=one.output, expected=one.output["request"], custody_conn_id="custody_bob",
    signer=PemSigner.from_file({str(tmp_path / "bob.pem")!r}))
first >> second
CustodyApproveWhitelistRequestsOperator(
    task_id="batch", request_ids=many.output, expected=many.output["request"], signer=ConnectionSigner("signing_key"))
"""
    )
    assert run.state == "success", run.states
    assert run.xcom("batch") == 2
    statuses = {request["label"]: request["status"] for request in sandbox.control.whitelist_requests()}
    assert sorted(statuses.values()) == ["active", "waiting", "waiting"]
    assert {statuses["x"], statuses["y"]} == {"waiting"}


def test_a_signer_is_shown_by_its_name_only(ann: Person):
    assert repr(ConnectionSigner("signing_key")) == "ConnectionSigner('signing_key')"
    assert repr(PemSigner(lambda: ann.pem, name="n")) == "PemSigner('n')"


def test_a_key_from_a_connection_is_masked_line_by_line(ann: Person, monkeypatch):
    words = "correct-horse"
    pem = pem_of(ec.generate_private_key(ec.SECP256R1()), words)
    key = {"conn_type": "generic", "password": words, "extra": {"private_key": pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    assert len(ConnectionSigner("signing_key").sign(b"message")) == 64
    for secret in [words, *pem.splitlines()[1:-1]]:
        assert redacted(f"it is {secret}!") == "it is ***!"
