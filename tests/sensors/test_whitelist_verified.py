"""The sensor with pinned keys: in every mode, a request in effect must be verified, and have the expected content."""

from __future__ import annotations

from typing import Any

import pytest
from support.airflow.airflow_runs import Run, failing_at_once
from support.airflow.connections import connection_json
from support.airflow.sensor_runs import MODES
from support.airflow.sensor_runs import run_sensor as run_sensor_in
from support.airflow.sensor_runs import wait as wait_in
from support.airflow.task_log import TaskLog

from airflow_custody.client import CustodyError
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

FIELDS: dict[str, Any] = {"label": "Treasury", "address": "0x" + "a" * 40, "blockchain": "ETH", "memo": "m"}
#: The content of the first request.
EXPECTED = {**FIELDS, "customer_id": "0"}


@pytest.fixture(autouse=True)
def pinned(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define the connection with the sandbox's keys pinned, and expect signatures to be shown within half a second."""
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)
    monkeypatch.setattr(RequestWait, "unverified_after", 0.4)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))


@pytest.fixture
def unpinned(sandbox: Sandbox, pinned: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))


def create(sandbox: Sandbox, number: int) -> list[str]:
    """Create requests that differ in their customer id."""
    rows = [{**FIELDS, "customerId": str(each)} for each in range(number)]
    return sandbox.control.add_whitelist_requests(rows, status="pending")


@pytest.fixture
def signed(sandbox: Sandbox) -> list[str]:
    made = create(sandbox, 3)
    sandbox.control.sign_whitelist_requests(made)
    return made


@pytest.fixture
def forged(sandbox: Sandbox) -> list[str]:
    """Return requests that the service lists as in effect, although they have no signatures."""
    made = create(sandbox, 2)
    for each in made:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    return made


def show_pending_once(sandbox: Sandbox, number: str) -> None:
    """Make the first poll for a request find it pending."""
    for rows in ([], [{"id": number, "status": "pending"}]):
        sandbox.control.add_fault("status", status=200, body={"result": rows, "totalItems": str(len(rows))})


def run_sensor(mode: str, **arguments: Any) -> Run:
    return run_sensor_in(CustodyWhitelistRequestSensor, mode, **arguments)


def wait(request_id: Any, **arguments: Any) -> Any:
    return wait_in(CustodyWhitelistRequestSensor, request_id=request_id, **arguments)


def come_back(request_id: Any, found: dict[str, Any], **arguments: Any) -> Any:
    """Resume the sensor with the event of a trigger that found the request in effect."""
    sensor = CustodyWhitelistRequestSensor(task_id="wait", request_id=request_id, deferrable=True, **arguments)
    return sensor.resume_execution("execute_complete", {"event": {"status": "effective", "result": found}}, {})


def wait_in_both(request_id: Any, **arguments: Any) -> Any:
    """Wait in the worker, and resume from a trigger. Check that both end in the same way."""
    found = wait(request_id, **arguments)
    assert come_back(request_id, found, **arguments) == found
    return found


# --- in a run ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
def test_a_signed_request_is_in_effect(sandbox: Sandbox, signed: list[str], mode: str, task_log: TaskLog) -> None:
    show_pending_once(sandbox, signed[0])
    found = run_sensor(mode, request_id=signed[0]).xcom("wait")
    assert found["verified"] is True
    assert found["fields"] == EXPECTED
    assert found["signed_by"] == ["signer-1@example.test"]
    assert "verified: signed by signer-1@example.test under rules of 20" in task_log.text
    assert run_sensor(mode, request_id=signed).xcom("wait")["verified"] == 3
    assert NOT_PINNED not in task_log.text


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("many", [False, True], ids=["one", "list"])
def test_an_unsigned_request_fails_the_sensor_without_retries(
    sandbox: Sandbox, signed: list[str], forged: list[str], mode: str, many: bool, task_log: TaskLog
) -> None:
    ids = [*signed, *forged] if many else forged[0]
    run = run_sensor(mode, request_id=ids, soft_fail=True, retries=2, timeout=0.1)
    assert run.state_of("wait") == "failed"
    assert run.tries["wait", -1] == 1
    log = task_log.text
    for number in forged if many else forged[:1]:
        assert f"request {number} is not verified: the service reports it as in effect" in log
    assert "no signature covers its text" in log
    assert f"`custody whitelist verify --id {forged[0]}` reports what is verified." in log


@pytest.mark.usefixtures("airflow_db", "unpinned")
@pytest.mark.parametrize("mode", MODES)
def test_without_pinned_keys_the_last_line_says_so_once(
    sandbox: Sandbox, forged: list[str], mode: str, task_log: TaskLog
) -> None:
    show_pending_once(sandbox, forged[0])
    run = run_sensor(mode, request_id=forged[0])
    assert run.state_of("wait") == "success"
    (line,) = [each for each in task_log.text.splitlines() if NOT_PINNED in each]
    assert "in effect" in line


# --- a second poll -------------------------------------------------------------------------------------------------


def test_a_signature_that_is_shown_late_is_waited_for(
    sandbox: Sandbox, forged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*given: Any) -> Snapshot:
        found = read_snapshot(*given)
        sandbox.control.sign_whitelist_requests(forged)
        return found

    monkeypatch.setattr("airflow_custody.client.whitelist.wait.read_snapshot", read)
    assert wait(forged)["verified"] == 2


# --- what is expected ----------------------------------------------------------------------------------------------


def test_all_expected_content_is_compared(sandbox: Sandbox, signed: list[str]) -> None:
    assert wait_in_both(signed[0], expected={**EXPECTED, "id": signed[0]})["verified"] is True
    many = [{**FIELDS, "id": each, "customer_id": str(number)} for number, each in enumerate(signed)]
    assert wait_in_both(signed, expected=many)["verified"] == 3
    with failing_at_once("2 of 3 whitelisting requests are different from the requested content"):
        wait(signed, expected=[{**each, "customer_id": "1"} for each in many])
    for wrong in ({**EXPECTED, "memo": "M"}, FIELDS):
        with failing_at_once(f"{signed[0]} differs from the requested content"):
            wait(signed[0], expected=wrong)


# --- resuming with the trigger's event -----------------------------------------------------------------------------


def test_a_request_that_a_trigger_verified_is_looked_up_again_only_to_compare_it(
    sandbox: Sandbox, signed: list[str]
) -> None:
    found = wait(signed[0])
    sandbox.control.clear_request_log()
    assert come_back(signed[0], found) == found
    assert sandbox.control.request_log() == []
    sandbox.control.add_fault("status", status=503)
    with pytest.raises(CustodyError, match="in effect, but this worker did not") as caught:
        come_back(signed[0], found, expected=EXPECTED)
    assert caught.value.retryable
