"""The sensor with pinned keys: in effect means verified, the same in every mode; and what is expected is compared."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import AirflowSensorTimeout, TaskDeferred
from airflow_runs import Run, execute, failing_at_once, new_dag, run_dag
from connections import connection_json
from task_log import TaskLog

from airflow_custody.client import CustodyClient, CustodyError, CustodyRequestError, CustodyVerificationError
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist import progress
from airflow_custody.client.whitelist.progress import ListedRequest
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

MODES = ["poke", "reschedule", "deferrable"]
FIELDS: dict[str, Any] = {"label": "Treasury", "address": "0x" + "a" * 40, "blockchain": "ETH", "memo": "m"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let signatures be shown within half a second."""
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)
    monkeypatch.setattr(RequestWait, "unverified_after", 0.4)


def pin(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    """Define the connection with the pinned keys of the sandbox."""
    text = connection_json(sandbox, **{**sandbox.control.pins(), **extra})
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", text)


@pytest.fixture(autouse=True)
def pinned(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(sandbox, monkeypatch)


def create(sandbox: Sandbox, number: int, **changes: Any) -> list[str]:
    """Create requests that differ in their customer id."""
    rows = [{**FIELDS, "customerId": str(each), **changes} for each in range(number)]
    return sandbox.control.add_whitelist_requests(rows, status="pending")


@pytest.fixture
def signed(sandbox: Sandbox) -> list[str]:
    made = create(sandbox, 3)
    sandbox.control.sign_whitelist_requests(made)
    return made


@pytest.fixture
def forged(sandbox: Sandbox) -> list[str]:
    """Return requests that the service shows as in effect, and that nobody has signed."""
    made = create(sandbox, 2)
    for each in made:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    return made


def how(mode: str) -> dict[str, Any]:
    return {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}


def run_sensor(mode: str, **kwargs: Any) -> Run:
    with new_dag() as dag:
        CustodyWhitelistRequestSensor(
            **{"task_id": "wait", "poke_interval": 0.2, "timeout": 600, **how(mode), **kwargs}
        )
    return run_dag(dag)


def wait(request_id: Any, **kwargs: Any) -> Any:
    arguments = {"task_id": "wait", "poke_interval": 0.2, "timeout": 600, "deferrable": False, **kwargs}
    return execute(lambda: CustodyWhitelistRequestSensor(request_id=request_id, **arguments))


def wait_in_both(request_id: Any, **kwargs: Any) -> Any:
    """Wait in the worker; and come back from a trigger that found it in effect. Both must end the same way."""
    found = wait(request_id, **kwargs)
    sensor = CustodyWhitelistRequestSensor(task_id="wait", request_id=request_id, deferrable=True, **kwargs)
    assert come_back(sensor, result=found) == found
    return found


def come_back(sensor: CustodyWhitelistRequestSensor, result: dict[str, Any]) -> Any:
    event = {"status": "effective", "result": result}
    return sensor.resume_execution("execute_complete", {"event": event}, {})


def serve_another(sandbox: Sandbox, number: str, other: str) -> None:
    """Show, under one id, the envelope of another request."""
    with CustodyClient(sandbox.url, sandbox.token) as client:
        wire = client.get_whitelist_request(other).wire
    body = {"result": [{**wire, "id": number}], "totalItems": "1"}
    # What only the listing asks for, and not that of what is to be approved.
    query = {"rulesContainerNormalized": "true"}
    sandbox.control.add_fault("status", status=200, body=body, query=query, times=None)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
class TestInARun:
    """The sensor has the same result in every mode, in real Airflow."""

    def test_what_is_signed_is_in_effect(self, sandbox: Sandbox, mode: str, task_log: TaskLog) -> None:
        (number,) = create(sandbox, 1)
        threading.Timer(1.0, sandbox.control.sign_whitelist_requests, [[number]]).start()
        run = run_sensor(mode, request_id=number)
        assert run.state_of("wait") == "success"
        found = run.xcom("wait")
        assert found.pop("rules_date").endswith("+00:00")
        assert found == {
            "id": number,
            "state": "effective",
            "status": "APPROVED",
            "signatures": 1,
            "verified": True,
            "fields": {**FIELDS, "customer_id": "0"},
            "signed_by": ["signer-1@example.test"],
        }
        assert "verified: signed by signer-1@example.test under rules of 20" in task_log.text
        assert NOT_PINNED not in task_log.text

    def test_what_nobody_signed_fails_it_and_is_not_retried(
        self, sandbox: Sandbox, forged: list[str], mode: str, task_log: TaskLog
    ) -> None:
        run = run_sensor(mode, request_id=forged[0], soft_fail=True, retries=2, timeout=0.1)
        assert run.state_of("wait") == "failed"
        assert run.tries["wait", -1] == 1
        log = task_log.text
        assert f"whitelisting request {forged[0]} is not verified: the service says that it is in effect" in log
        assert "no signature covers its text" in log
        assert f"who put it there; `custody whitelist verify --id {forged[0]}` shows what is proved." in log

    def test_of_a_list_all_that_are_not_verified_are_named(
        self, sandbox: Sandbox, signed: list[str], forged: list[str], mode: str, task_log: TaskLog
    ) -> None:
        run = run_sensor(mode, request_id=[*signed, *forged], soft_fail=True, retries=2)
        assert run.state_of("wait") == "failed"
        assert run.tries["wait", -1] == 1
        log = task_log.text
        assert "2 of 5 whitelisting requests are not verified: whitelisting request " in log
        for number in forged:
            assert f"request {number} is not verified: the service says that it is in effect" in log
        assert f"who put them there; `custody whitelist verify --id {forged[0]}` shows what is proved." in log

    def test_of_a_list_all_are_verified(
        self, sandbox: Sandbox, signed: list[str], mode: str, task_log: TaskLog
    ) -> None:
        (last,) = create(sandbox, 1, label="last")
        threading.Timer(1.0, sandbox.control.sign_whitelist_requests, [[last]]).start()
        run = run_sensor(mode, request_id=[*signed, last])
        result = {"state": "effective", "count": 4, "statuses": {"APPROVED": 4}, "verified": 4}
        assert run.xcom("wait") == result
        assert "4 of 4 whitelisting requests are in effect, 4 verified" in task_log.text

    @pytest.mark.parametrize("many", [False, True])
    def test_without_pinned_keys_the_last_line_says_so_once(
        self, sandbox: Sandbox, mode: str, many: bool, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
        (number,) = create(sandbox, 1)
        threading.Timer(0.6, sandbox.control.set_whitelist_status, [number, "APPROVED"]).start()
        run = run_sensor(mode, request_id=[number] if many else number)
        assert run.state_of("wait") == "success"
        (line,) = [each for each in task_log.text.splitlines() if NOT_PINNED in each]
        assert "in effect" in line

    def test_what_was_created_is_compared_with_what_is_signed(self, sandbox: Sandbox, mode: str) -> None:
        with new_dag() as dag:
            output = cast(Any, CustodyCreateWhitelistRequestOperator(task_id="create", **FIELDS).output)
            arguments: dict[str, Any] = {"poke_interval": 0.2, "timeout": 600, **how(mode)}
            CustodyWhitelistRequestSensor(task_id="wait", request_id=output, expected=output["request"], **arguments)
        sandbox.control.configure(fill={"tnParticipantID": "p"} if mode == "poke" else {})
        signer = threading.Timer(0.0, sign_when_created, [sandbox])
        signer.start()
        run = run_dag(dag)
        signer.join()
        # A key that nobody asked for, and nobody accepted.
        assert run.state_of("wait") == ("failed" if mode == "poke" else "success")

    def test_another_request_under_the_same_id_fails_it(
        self, sandbox: Sandbox, signed: list[str], mode: str, task_log: TaskLog
    ) -> None:
        serve_another(sandbox, signed[0], signed[1])
        run = run_sensor(mode, request_id=signed[0], expected={**FIELDS, "customer_id": "0"}, retries=2)
        assert run.state_of("wait") == "failed"
        assert run.tries["wait", -1] == 1
        assert f"whitelisting request {signed[0]} is not what was asked for: customer_id" in task_log.text
        # Without that, it cannot be known.
        assert run_sensor(mode, request_id=signed[0]).xcom("wait")["fields"]["customer_id"] == "1"


def sign_when_created(sandbox: Sandbox) -> None:
    # The first run in a process takes long to begin.
    while not (found := sandbox.control.whitelist_requests()):
        time.sleep(0.1)
    time.sleep(0.5)
    sandbox.control.sign_whitelist_requests([str(each["id"]) for each in found])


# --- a second poll -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [False, True])
def test_a_signature_that_is_shown_late_is_waited_for(
    sandbox: Sandbox, forged: list[str], many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = progress.find_listed

    def find_listed(client: CustodyClient, ids: Iterable[str], **how: Any) -> dict[str, ListedRequest]:
        found = looked_up(client, ids, **how)
        sandbox.control.sign_whitelist_requests(forged)
        return found

    monkeypatch.setattr("airflow_custody.client.whitelist.wait.find_listed", find_listed)
    found = wait(forged if many else forged[0])
    assert found["verified"] == (2 if many else True)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_forged_row_fails_within_seconds_in_the_first_poll(forged: list[str], deferrable: bool) -> None:
    started = time.monotonic()
    with failing_at_once("is not verified") as caught:
        wait(forged[0], poke_interval=3600, timeout=7200, deferrable=deferrable)
    assert isinstance(caught.value.error, CustodyVerificationError)
    assert 0.4 <= time.monotonic() - started < 1800


def test_what_is_pending_or_rejected_is_not_a_matter_of_signatures(sandbox: Sandbox, forged: list[str]) -> None:
    sandbox.control.set_whitelist_status(forged[0], "rejected")
    with failing_at_once("was rejected"):
        wait(forged[0])
    (number,) = create(sandbox, 1)
    with pytest.raises(AirflowSensorTimeout, match="is pending approval"):
        wait(number, timeout=0.1)
    sandbox.control.set_whitelist_status(number, "archived")
    with pytest.raises(AirflowSensorTimeout, match="'archived' is neither"):
        wait(number, timeout=0.1)
    with failing_at_once("is not verified"):
        wait(number, effective_statuses=None)


def test_rules_that_others_signed_count_for_nothing(
    sandbox: Sandbox, signed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pinned_keys import pinned as pins_of

    pin(sandbox, monkeypatch, **pins_of(1, 2))
    with failing_at_once("its rules are signed by 0 of the 2 pinned keys"):
        wait(signed[0])
    assert "3 of 3 whitelisting requests are not verified" in str(failure_of(signed))


def failure_of(ids: Any, **kwargs: Any) -> CustodyError:
    with failing_at_once() as caught:
        wait(ids, **kwargs)
    return caught.value.error


def test_a_text_that_was_changed_is_not_verified(sandbox: Sandbox, signed: list[str]) -> None:
    sandbox.control.change_whitelist_request(signed[0], memo="other")
    assert "no signature covers its text" in str(failure_of(signed[0]))
    sandbox.control.set_whitelist_metadata(signed[1], payloadAsString="{}")
    assert "does not have the hash" in str(failure_of(signed[1]))


def test_many_unverified_ones_are_named_up_to_ten(sandbox: Sandbox) -> None:
    made = create(sandbox, 12)
    for each in made:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    error = failure_of(made)
    assert isinstance(error, CustodyVerificationError)
    assert error.message.startswith("12 of 12 whitelisting requests are not verified: whitelisting request ")
    assert error.message.endswith("; and 2 more")
    assert error.message.count("is not verified: ") == 10


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.usefixtures("airflow_db")
def test_two_requests_with_one_text_are_named(sandbox: Sandbox, task_log: TaskLog, deferrable: bool) -> None:
    made = create(sandbox, 2, customerId="same")
    sandbox.control.sign_whitelist_requests(made[:1])
    threading.Timer(0.6, sandbox.control.sign_whitelist_requests, [made]).start()
    assert run_sensor("deferrable" if deferrable else "poke", request_id=made).state_of("wait") == "success"
    assert f"whitelisting requests {made[0]}, {made[1]} have the same signed text" in task_log.text


# --- what is expected ----------------------------------------------------------------------------------------------


def test_what_is_expected_is_compared_with_all_of_it(sandbox: Sandbox, signed: list[str]) -> None:
    expected = {**FIELDS, "customer_id": "0"}
    assert wait_in_both(signed[0], expected=expected)["verified"] is True
    assert wait_in_both(signed[0], expected={**expected, "id": signed[0]})["verified"] is True
    many = [{**FIELDS, "id": each, "customer_id": str(number)} for number, each in enumerate(signed)]
    assert wait_in_both(signed, expected=many)["verified"] == 3
    for wrong, name in (
        ({**expected, "memo": "M"}, r"memo"),
        ({**expected, "address": "0x" + "b" * 40}, r"address"),
        ({**expected, "contract_type": "ERC20"}, r"contract_type"),
        (FIELDS, r"customerId \(not asked for\).*accept_fields=\['customerId'\]"),
    ):
        with failing_at_once(f"{signed[0]} is not what was asked for: {name}"):
            wait(signed[0], expected=wrong)
    assert wait_in_both(signed[0], expected=FIELDS, accept_fields="customerId")["verified"] is True


def test_of_a_list_all_that_are_something_else_are_named(sandbox: Sandbox, signed: list[str]) -> None:
    many = [{**FIELDS, "id": each, "customer_id": "1"} for each in signed]
    error = failure_of(signed, expected=many)
    assert isinstance(error, CustodyRequestError)
    assert error.message == (
        "2 of 3 whitelisting requests are not what was asked for: "
        f"whitelisting request {signed[0]} is not what was asked for: customer_id (asked for '1', shown '0'); "
        f"whitelisting request {signed[2]} is not what was asked for: customer_id (asked for '1', shown '2')"
    )


def test_without_pinned_keys_it_is_compared_with_the_payload(
    sandbox: Sandbox, forged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
    expected = {**FIELDS, "customer_id": "0"}
    assert wait_in_both(forged[0], expected=expected) == {
        "id": forged[0],
        "state": "effective",
        "status": "APPROVED",
        "signatures": 0,
        "verified": False,
    }
    with failing_at_once("is not what was asked for: memo"):
        wait(forged[0], expected={**expected, "memo": "other"})
    sandbox.control.set_whitelist_metadata(forged[0], payloadAsString="{}")
    with failing_at_once("cannot be verified"):
        wait(forged[0], expected=expected)


def test_an_envelope_that_contradicts_what_is_expected(sandbox: Sandbox, signed: list[str]) -> None:
    sandbox.control.set_whitelist_envelope(signed[0], action="delete")
    with failing_at_once("action 'delete' does not say that an address is created"):
        wait(signed[0], expected={**FIELDS, "customer_id": "0"})


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({}, "does not say what the requests must ask for"),
        ([], "does not say what the requests must ask for"),
        ("x", "does not say what the requests must ask for"),
        (7, "must be what the create task pushed"),
        ([["a"]], "must hold what the create task pushed"),
        ({"label": "L"}, "'expected' of 7: "),
        ({**FIELDS, "memo": None}, "was given, and resolved to None"),
        ({**FIELDS, "id": "8"}, "'expected' does not say what 7 must ask for"),
        ([{**FIELDS, "id": "7"}, {**FIELDS, "id": "7"}], "names an id twice"),
        ([FIELDS, FIELDS], "does not say which request it is for; nothing was sent"),
    ],
)
@pytest.mark.parametrize("deferrable", [False, True])
def test_odd_expectations_are_refused_before_anything_is_sent(
    sandbox: Sandbox, expected: Any, words: str, deferrable: bool
) -> None:
    sandbox.control.clear_request_log()
    with failing_at_once(words):
        wait("7", expected=expected, deferrable=deferrable)
    assert sandbox.control.request_log() == []


# --- coming back from the trigger ----------------------------------------------------------------------------------


def test_the_trigger_does_not_know_what_is_expected(sandbox: Sandbox) -> None:
    (number,) = create(sandbox, 1)
    with pytest.raises(TaskDeferred) as caught:
        wait(number, deferrable=True, expected={**FIELDS, "customer_id": "0"})
    assert FIELDS["address"] not in json.dumps(caught.value.trigger.serialize())


def test_what_a_trigger_verified_is_not_looked_up_again(sandbox: Sandbox, signed: list[str]) -> None:
    for ids in (signed, signed[0]):
        found = wait(ids)
        sandbox.control.clear_request_log()
        sensor = CustodyWhitelistRequestSensor(task_id="wait", request_id=ids, deferrable=True)
        assert come_back(sensor, result=found) == found
        assert sandbox.control.request_log() == []


def test_a_last_poll_that_fails_is_retried(sandbox: Sandbox, signed: list[str]) -> None:
    expected = {**FIELDS, "customer_id": "0"}
    found = wait(signed[0])
    sandbox.control.add_fault("status", status=503)
    sensor = CustodyWhitelistRequestSensor(task_id="wait", request_id=signed[0], deferrable=True, expected=expected)
    with pytest.raises(CustodyError, match="in effect, and this worker does not") as caught:
        come_back(sensor, result=found)
    assert caught.value.retryable
