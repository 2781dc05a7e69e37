"""The operators that sign and reject: what they are given, later tries, and what a run makes of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow_runs import FakeTaskInstance, execute, failing_at_once, new_dag, run_dag
from connections import connection_json
from people import Person
from task_log import TaskLog

from airflow_custody.client import (
    CustodyClient,
    CustodyConflictError,
    CustodyConnectionError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
    CustodyServerError,
    WhitelistRequest,
)
from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist import models
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
    arguments = {"if_exists": "create", **FIELDS, **changes}
    execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments), ti=ti)
    pushed: dict[str, Any] = ti.pushed["request"]
    return pushed


def approve(request_ids: Any, expected: Any, ti: Any = None, **arguments: Any) -> int:
    signatures: int = execute(
        lambda: CustodySignWhitelistRequestsOperator(
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
    assert [request["status"] for request in sandbox.control.whitelist_requests()] == ["APPROVED"]
    log = task_log.text
    assert "signing_key" in log
    assert ann.pem.splitlines()[1] not in log


@pytest.mark.parametrize("by_hand", [FIELDS, {**FIELDS, "currency": "ETH"}, [FIELDS]], ids=str)
def test_one_request_may_be_described_by_hand(ann: Person, by_hand: Any) -> None:
    assert approve(create()["id"], by_hand) == 1


PUSHED = {"id": "3711", **FIELDS}
ODD: list[Any] = [5, 1.5, True, b"x", object(), {1: 2}, [[]], [{}], [b""], {"a"}, "{}", "", "None", {}, [], [None]]
ODD += [{**PUSHED, "linked_wallet_ids": value} for value in (None, "None", "null", [None], ["1", "None"])]
IDS: list[Any] = [None, 1.5, True, "x", -1, "9" * 20, 10**5000, [], {}, "9999"]
ODD += [{**PUSHED, "id": number} for number in IDS]
ODD += [{"id": "9"}, {**FIELDS, "label": "Other"}, {**FIELDS, "signature": "x"}, [PUSHED, PUSHED], [FIELDS, FIELDS]]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_an_odd_description_or_one_of_another_request_signs_nothing(sandbox: Sandbox, ann: Person, odd: Any) -> None:
    with failing_at_once("expected|is missing|not a field|not what was asked for"):
        approve(create()["id"], odd)
    assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []


def test_a_template_that_renders_to_none_does_not_count_as_an_explicit_none(sandbox: Sandbox, ann: Person) -> None:
    number = create()["id"]

    def rendered() -> CustodySignWhitelistRequestsOperator:
        operator = CustodySignWhitelistRequestsOperator(
            task_id="approve",
            request_ids=number,
            expected="{{ nothing }}",  # type: ignore[arg-type] # a template
            signer=ConnectionSigner("signing_key"),
            comment="x",
        )
        operator.expected = None
        return operator

    with failing_at_once("expected was given, and resolved to None"):
        execute(rendered, ti=FakeTaskInstance())
    assert approve(number, None) == 1


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("how", ["expand", "expand_kwargs"])
def test_a_mapped_task_does_not_accept_none(sandbox: Sandbox, ann: Person, how: str) -> None:
    number = create()["id"]
    signer = ConnectionSigner("signing_key")
    with new_dag() as dag:
        if how == "expand":
            CustodySignWhitelistRequestsOperator.partial(task_id="a", signer=signer, request_ids=number).expand(
                expected=[None]
            )
        else:
            CustodySignWhitelistRequestsOperator.partial(task_id="a", signer=signer).expand_kwargs(
                [{"request_ids": number, "expected": None}]
            )
    run = run_dag(dag)
    assert run.states == {("a", 0): "failed"}
    assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []


@pytest.mark.usefixtures("airflow_db")
def test_a_none_that_a_person_wrote_in_partial_is_explicit(sandbox: Sandbox, ann: Person) -> None:
    number = create()["id"]
    signer = ConnectionSigner("signing_key")
    with new_dag() as dag:
        CustodySignWhitelistRequestsOperator.partial(task_id="a", signer=signer, expected=None).expand(
            request_ids=[number]
        )
    assert run_dag(dag).states == {("a", 0): "success"}


def test_expected_is_required() -> None:
    with pytest.raises(Exception, match="expected"):
        CustodySignWhitelistRequestsOperator(task_id="a", request_ids="1", signer=ConnectionSigner("k"))  # type: ignore[call-arg]


def test_a_later_try_accepts_what_an_earlier_try_signed(ann: Person) -> None:
    pushed = create()
    approve(pushed["id"], pushed)
    assert approve(pushed["id"], pushed, ti=FakeTaskInstance(try_number=2)) == 1
    with failing_at_once(r"label \(.*\); it is signed all the same"):
        approve(pushed["id"], {**pushed, "label": "Other"}, ti=FakeTaskInstance(try_number=2))
    with failing_at_once("not pending this user's signature") as caught:
        approve(pushed["id"], None)
    assert isinstance(caught.value.error, CustodyConflictError)


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (None, "connection 'signing_key' is not defined"),
        ({"conn_type": "generic"}, "no extra 'private_key'"),
        ({"conn_type": "generic", "extra": {"private_key": 7}}, "no extra 'private_key'"),
        (
            {"conn_type": "generic", "extra": {"privatekey": "nonsense"}},
            "no extra 'private_key', but 'privatekey': do you mean 'private_key'",
        ),
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


def reject(ids: Any, try_number: int = 1, **arguments: Any) -> list[str]:
    rejected: list[str] = execute(
        lambda: CustodyRejectWhitelistRequestsOperator(
            task_id="reject", request_ids=ids, **{"comment": "not ours", **arguments}
        ),
        ti=FakeTaskInstance(try_number=try_number),
    )
    return rejected


def test_reject(sandbox: Sandbox, ann: Person, task_log: TaskLog) -> None:
    numbers = [create()["id"], create(label="b")["id"]]
    for comment, ids in (("", numbers), ("x", []), ("x", "x"), ("x", [*range(101), 7]), ("x", ["1", 1])):
        with failing_at_once(r"nothing was (signed or )?sent"):
            reject(ids, comment=comment)
    assert reject(numbers) == numbers
    assert {request["status"] for request in sandbox.control.whitelist_requests()} == {"rejected"}
    assert "rejected already" not in task_log.text
    # Whoever has rejected them.
    assert reject(numbers) == numbers
    assert "rejected already, by an earlier try or by somebody else" in task_log.text


TWO_OF_A_GROUP = [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}]
ANOTHER_GROUP = [{"sequential": [{"externalGroupID": "risk", "minimumSignatures": 1}]}]


@pytest.mark.parametrize("try_number", [1, 2, 3])
@pytest.mark.parametrize("approvers", [TWO_OF_A_GROUP, ANOTHER_GROUP], ids=["signed by this user", "another group"])
def test_what_is_not_rejected_at_the_service_is_never_reported_so(
    sandbox: Sandbox, ann: Person, approvers: Any, try_number: int
) -> None:
    rejected = create(label="b")["id"]
    reject(rejected)
    sandbox.control.set_approvers(approvers)
    pushed = create()
    if approvers is TWO_OF_A_GROUP:
        approve(pushed["id"], pushed)
    for ids in (pushed["id"], [rejected, pushed["id"]]):
        with pytest.raises(CustodyFailException):
            reject(ids, try_number)
    assert sandbox.control.whitelist_requests()[1]["status"] == "pending"


@pytest.mark.parametrize("word", ["APPROVED", "removed", "frozen", "odd"])
def test_only_a_word_that_says_so_is_a_rejection(sandbox: Sandbox, ann: Person, word: str) -> None:
    number = create()["id"]
    sandbox.control.set_whitelist_status(number, word)
    with pytest.raises(CustodyFailException):
        reject(number, try_number=2)
    if word != "removed":
        assert reject(number, try_number=2, rejected_statuses=["x", word.upper()]) == [number]


def test_a_gateway_that_refuses_proves_no_rejection(sandbox: Sandbox, ann: Person) -> None:
    number = create()["id"]
    for status in (403, 404, 409):
        sandbox.control.add_fault("html", method="POST", status=status)
        with pytest.raises((CustodyFailException, CustodyResponseError)):
            reject(number, try_number=2)
    assert sandbox.control.whitelist_requests()[0]["status"] == "pending"


@pytest.mark.parametrize("status", [401, 403, 405, 409])
def test_a_rejection_that_a_gateway_refuses_is_looked_into(
    sandbox: Sandbox, ann: Person, status: int, task_log: TaskLog
) -> None:
    number = create()["id"]
    sandbox.control.add_fault("html", method="POST", status=status, work=True)
    assert reject(number) == [number]
    assert sandbox.control.whitelist_requests()[0]["status"] == "rejected"
    number = create()["id"]
    sandbox.control.add_fault("html", method="POST", status=status, work=True)
    # Nobody can tell.
    sandbox.control.add_fault("status", method="GET", status=403, times=None)
    with pytest.raises(CustodyFailException):
        reject(number)
    assert "Whether it was done is not known" in task_log.text


def test_a_refusal_that_cannot_be_looked_into_stays_a_refusal(sandbox: Sandbox, ann: Person) -> None:
    number = create()["id"]
    reject(number)
    for status in (403, 404):
        sandbox.control.add_fault("status", method="GET", status=status)
        with failing_at_once("no longer pending"):
            reject(number)
    sandbox.control.add_fault("status", method="GET", status=503)
    with pytest.raises(CustodyServerError):
        reject(number)


def test_a_rejection_whose_response_was_lost_is_found_by_the_next_try(sandbox: Sandbox, ann: Person) -> None:
    number = create()["id"]
    sandbox.control.add_fault("drop", method="POST", work=True)
    with pytest.raises(CustodyConnectionError):
        reject(number)
    assert reject(number, try_number=2) == [number]


@pytest.mark.parametrize("accepted", [["tnParticipantID", "network"], "tnParticipantID"])
def test_fields_are_accepted_by_name(sandbox: Sandbox, ann: Person, accepted: Any) -> None:
    pushed = create()
    shown = dict.fromkeys(("addressType", "memo", "customerId", "exchangeAccountId", "contractType"), "")
    shown |= {"currency": "ETH", "address": ADDRESS, "label": "Treasury", "tnParticipantID": "p"}
    text = json.dumps({**shown, "linkedInternalAddresses": []})
    hash_ = hashlib.sha256(text.encode()).hexdigest()
    sandbox.control.set_whitelist_metadata(pushed["id"], payloadAsString=text, hash=hash_)
    for none in ((), [], ["memo"]):
        with failing_at_once(r"tnParticipantID \(not asked for\)"):
            approve(pushed["id"], pushed, accept_fields=none)
    for bad in ([""], [None], [7], ""):
        with failing_at_once("accept_fields|not asked for"):
            approve(pushed["id"], pushed, accept_fields=bad)
    assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []
    assert "accept_fields" in CustodySignWhitelistRequestsOperator.template_fields
    assert approve(pushed["id"], pushed, accept_fields=accepted) == 1


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
            task_id="one", label="L {{ run_id }}", address=ADDRESS, blockchain="ETH", if_exists="create"
        )
        many = CustodyCreateWhitelistRequestOperator.partial(
            task_id="many", blockchain="ETH", address=ADDRESS, if_exists="create"
        ).expand(label=["x", "y"])
        one_output: Any = one.output  # an XComArg: a str when the task runs
        first = CustodySignWhitelistRequestsOperator(
            task_id="first", request_ids=one_output, expected=one_output["request"], signer=ann_signer
        )
        second = CustodySignWhitelistRequestsOperator(
            task_id="second",
            request_ids=one_output,
            expected=one_output["request"],
            custody_conn_id="custody_bob",
            signer=bob_signer,
        )
        first >> second
        many_output: Any = many.output
        CustodySignWhitelistRequestsOperator(
            task_id="batch", request_ids=many_output, expected=many_output["request"], signer=ann_signer
        )
    run = run_dag(dag)
    assert run.state == "success", run.states
    assert run.xcom("batch") == 2
    statuses = {request["label"]: request["status"] for request in sandbox.control.whitelist_requests()}
    assert sorted(statuses.values()) == ["APPROVED", "pending", "pending"]
    assert {statuses["x"], statuses["y"]} == {"pending"}


def test_the_repr_of_a_signer_holds_only_its_name(ann: Person) -> None:
    assert repr(ConnectionSigner("signing_key")) == "ConnectionSigner('signing_key')"
    assert repr(PemSigner(lambda: ann.pem, name="n")) == "PemSigner('n')"


# --- any number of them ------------------------------------------------------------------------------------

APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
REJECT = {"method": "POST", "path": "/whitelists/addresses/reject"}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a batch hold two requests."""
    monkeypatch.setattr(models, "MAX_PAGE_SIZE", 2)


def create_many(sandbox: Sandbox, number: int) -> list[dict[str, Any]]:
    """Create requests, and return them as an apply task pushes them."""
    with CustodyClient(sandbox.url, sandbox.token) as client:
        rows: list[dict[str, Any]] = [{**FIELDS, "label": f"L{each}"} for each in range(number)]
        return [{"id": client.create_whitelist_request(WhitelistRequest(**row)), **row} for row in rows]


def statuses(sandbox: Sandbox) -> list[str]:
    return [request["status"] for request in sandbox.control.whitelist_requests()]


def ids_of(made: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in made]


def test_one_that_differs_in_the_last_batch_signs_nothing(sandbox: Sandbox, ann: Person, task_log: TaskLog) -> None:
    made = create_many(sandbox, 101)
    with failing_at_once(f"'expected' does not say what {made[100]['id']} must ask for"):
        approve(ids_of(made), made[:100])
    with failing_at_once(r"is not what was asked for: label \(.*\); nothing was signed"):
        approve(ids_of(made), [*made[:100], {**made[100], "label": "Other"}])
    assert "This was batch 2 of 2: 1 request" in task_log.text
    assert statuses(sandbox) == ["pending"] * 101
    assert approve(ids_of(made), made) == 101
    assert statuses(sandbox) == ["APPROVED"] * 101
    assert [len(call["body"]["ids"]) for call in sandbox.control.request_log(**APPROVE)] == [100, 1]


@pytest.mark.usefixtures("small_batches")
def test_a_later_try_goes_on(sandbox: Sandbox, ann: Person) -> None:
    made = create_many(sandbox, 5)
    sandbox.control.add_fault("drop", **APPROVE, skip=1)
    with pytest.raises(CustodyOutcomeUnknownError, match=r"2 of 5 requests are signed already.*Trying again is safe"):
        approve(ids_of(made), made)
    assert statuses(sandbox) == ["APPROVED"] * 2 + ["pending"] * 3
    with failing_at_once("not pending this user's signature"):
        approve(ids_of(made), None)
    assert approve(ids_of(made), made, FakeTaskInstance(try_number=2)) == 5
    assert statuses(sandbox) == ["APPROVED"] * 5
    assert len(sandbox.control.request_log(**APPROVE)) == 4


@pytest.mark.usefixtures("small_batches")
def test_rejecting_goes_on_too(sandbox: Sandbox, ann: Person) -> None:
    ids = ids_of(create_many(sandbox, 5))
    sandbox.control.add_fault("drop", **REJECT, skip=1, work=True)
    with pytest.raises(CustodyConnectionError, match=r"batch 2 of 3.*2 of 5 requests are rejected already"):
        reject(ids)
    assert statuses(sandbox) == ["rejected"] * 4 + ["pending"]
    assert reject(ids, try_number=2) == ids
    assert statuses(sandbox) == ["rejected"] * 5
    sandbox.control.add_fault("status", **REJECT, status=503)
    with pytest.raises(CustodyServerError, match="0 of 5 requests are rejected already"):
        reject(ids, try_number=3)


@pytest.mark.parametrize("empty", [[], (), set(), iter(())], ids=lambda each: type(each).__name__)
def test_nothing_to_do_fails_or_skips_as_one_says(sandbox: Sandbox, ann: Person, empty: Any) -> None:
    with pytest.raises(AirflowSkipException, match="request_ids is an empty list"):
        approve(empty, [], skip_if_empty=True)
    with pytest.raises(AirflowSkipException, match="request_ids is an empty list"):
        reject(empty, skip_if_empty=True)
    with failing_at_once("request_ids is an empty list: there are no ids") as caught:
        approve(empty, None)
    assert "skip_if_empty=True" in str(caught.value.error)
    with failing_at_once("request_ids is an empty list"):
        reject(empty)
    # What is no list is not empty.
    odd: list[Any] = [None, "", "None", {}, [None]]
    for bad in odd:
        with failing_at_once("request_ids"):
            approve(bad, None, skip_if_empty=True)
    for make in (lambda: approve([], None, skip_if_empty="no"), lambda: reject([], skip_if_empty=None)):
        with pytest.raises(ValueError, match="skip_if_empty must be True or False"):
            make()
    assert sandbox.control.request_log() == []


@pytest.mark.usefixtures("airflow_db", "small_batches")
def test_in_a_run_from_mapped_tasks_and_with_nothing_to_do(sandbox: Sandbox, ann: Person) -> None:
    from airflow.providers.common.compat.sdk import task

    @task
    def nothing() -> list[str]:
        return []

    with new_dag() as dag:
        made: Any = (
            CustodyCreateWhitelistRequestOperator.partial(
                task_id="create", address=FIELDS["address"], blockchain=FIELDS["blockchain"], if_exists="create"
            )
            .expand(label=["a", "b", "c"])
            .output
        )
        signer = ConnectionSigner("signing_key")
        CustodySignWhitelistRequestsOperator(
            task_id="approve", request_ids=made, expected=made["request"], signer=signer
        )
        none: Any = nothing()
        CustodySignWhitelistRequestsOperator(
            task_id="none", request_ids=none, expected=none, signer=signer, skip_if_empty=True
        )
    run = run_dag(dag)
    assert (run.state_of("approve"), run.state_of("none")) == ("success", "skipped")
    assert run.xcom("approve") == 3
    assert len(sandbox.control.request_log(**APPROVE)) == 2


# --- with pinned keys --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("is_shown", [True, False], ids=["rules shown", "rules not shown"])
def test_with_pinned_keys_two_sign_in_a_run_and_nobody_after_a_forged_signature(
    sandbox: Sandbox, ann: Person, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, is_shown: bool
) -> None:
    sandbox.control.configure(rules_on_pending=is_shown)
    bob = Person(sandbox, "bob", "approvers")
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    for person in (ann, bob):
        connection = json.loads(connection_json(sandbox, **sandbox.control.pins())) | {"password": person.token}
        monkeypatch.setenv(f"AIRFLOW_CONN_{person.name.upper()}", json.dumps(connection))

    def operator(person: Person, request_ids: Any, expected: Any) -> CustodySignWhitelistRequestsOperator:
        return CustodySignWhitelistRequestsOperator(
            task_id=person.name,
            request_ids=request_ids,
            expected=expected,
            custody_conn_id=person.name,
            signer=PemSigner(lambda: person.pem, name="key"),
        )

    with new_dag() as dag:
        made: Any = CustodyCreateWhitelistRequestOperator(task_id="create", **FIELDS).output
        operator(ann, made, made["request"]) >> operator(bob, made, made["request"])
    assert run_dag(dag).states == {("create", -1): "success", ("ann", -1): "success", ("bob", -1): "success"}
    assert "Verified signatures that it has: none; " in task_log.text
    assert f"Verified signatures that it has: {ann.external_id}; rules " in task_log.text
    number = create()["id"]
    entry = {"signature": {"userId": bob.external_id, "signature": "A" * 86 + "=="}, "hashes": ["0" * 64]}
    sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": [entry]})
    sandbox.control.clear_request_log()
    with failing_at_once("; nothing was signed") as caught:
        execute(lambda: operator(ann, number, FIELDS), ti=FakeTaskInstance())
    assert isinstance(caught.value.error, CustodyVerificationError)
    assert sandbox.control.request_log(**APPROVE) == []
