from __future__ import annotations

import time
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_runs import Run, execute, failing_at_once, new_dag, run_dag
from task_log import TaskLog

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")
MODES = ["poke", "reschedule", "deferrable"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request be gone after half a second."""
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)
    monkeypatch.setattr(CustodyWhitelistRequestSensor, "recheck_delay", 0.1)


@pytest.fixture
def number(sandbox: Sandbox) -> str:
    return pending(sandbox)


def pending(sandbox: Sandbox) -> str:
    with CustodyClient(sandbox.url, sandbox.token) as client:
        made = client.create_whitelist_request(WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH"))
    sandbox.control.clear_request_log()
    return made


def wait(number: str, **kwargs: Any) -> Any:
    arguments = {"task_id": "wait", "poke_interval": 0.2, "timeout": 600, "deferrable": False, **kwargs}
    return execute(lambda: CustodyWhitelistRequestSensor(request_id=number, **arguments))


def run_sensor(mode: str, **kwargs: Any) -> Run:
    how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
    with new_dag() as dag:
        CustodyWhitelistRequestSensor(**{"task_id": "wait", "poke_interval": 0.2, "timeout": 600, **how, **kwargs})
    return run_dag(dag)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
class TestInARun:
    """The sensor has the same result in every mode, in real Airflow."""

    def test_waits_until_it_has_taken_effect(self, sandbox: Sandbox, number: str, mode: str) -> None:
        # It is pending in the first poll, the second poll fails, and then it has taken effect.
        sandbox.control.add_fault("status", status=200, body={})
        sandbox.control.add_fault(
            "status",
            status=200,
            body={"result": [{"id": number, "status": "pending"}], "totalItems": "1"},
        )
        sandbox.control.add_fault("status", status=503)
        sandbox.control.set_whitelist_status(number, "APPROVED")
        run = run_sensor(mode, request_id=number)
        assert run.state_of("wait") == "success"
        assert run.xcom("wait") == {
            "id": number,
            "state": "effective",
            "status": "APPROVED",
            "signatures": 0,
            "verified": False,
        }
        assert len(sandbox.control.request_log()) == 5

    def test_a_time_out_says_what_is_pending_whose_turn_it_is_and_what_to_do(
        self, sandbox: Sandbox, mode: str, task_log: TaskLog
    ) -> None:
        groups = [{"externalGroupID": name, "minimumSignatures": 1} for name in ("treasury", "risk")]
        sandbox.control.set_approvers([{"sequential": groups}])
        number = pending(sandbox)
        assert run_sensor(mode, request_id=number, timeout=0.5).state_of("wait") == "failed"
        assert (
            f"Not effective within 0.5 s. Last result: whitelisting request {number} is pending approval (status "
            f"pending, 0 signatures); it is the turn of the group 'treasury'. `custody whitelist show {number}` shows "
            "who has signed. If approvals take longer, raise 'timeout'. [custody/wait-timed-out]"
        ) in task_log.text

    def test_a_time_out_is_skipped_with_soft_fail(self, number: str, mode: str) -> None:
        run = run_sensor(mode, request_id=number, timeout=0.5, soft_fail=True)
        assert run.state_of("wait") == "skipped"

    @pytest.mark.parametrize("status", ["rejected", "removed"])
    def test_fails_without_retries_when_it_was_rejected_or_is_gone(
        self, sandbox: Sandbox, number: str, mode: str, status: str
    ) -> None:
        sandbox.control.add_fault("status", status=500)
        sandbox.control.set_whitelist_status(number, status)
        run = run_sensor(mode, request_id=number, soft_fail=True, retries=2)
        assert run.state_of("wait") == "failed"
        assert run.tries["wait", -1] == 1

    def test_a_service_without_the_lookup_fails_at_once(self, sandbox: Sandbox, number: str, mode: str) -> None:
        sandbox.control.add_fault("status", status=500)
        sandbox.control.add_fault("status", status=404, times=None)
        assert run_sensor(mode, request_id=number, soft_fail=True).state_of("wait") == "failed"


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", ["poke", "deferrable"])
def test_a_status_that_is_not_known_is_waited_out_with_one_warning(
    sandbox: Sandbox, number: str, mode: str, task_log: TaskLog
) -> None:
    sandbox.control.set_whitelist_status(number, "archived")
    run = run_sensor(mode, request_id=number, timeout=1.5, soft_fail=True)
    assert run.state_of("wait") == "skipped"
    lines = [line for line in task_log.text.splitlines() if "status 'archived' is neither" in line]
    warnings = [line for line in lines if "warning" in line.lower()]
    # Deferrable, the sensor polls once, and then its trigger, if there is time left.
    assert len(warnings) in ((1, 2) if mode == "deferrable" else (1,)), warnings
    assert any("Last result" in line for line in lines)
    for line in warnings:
        assert "effective_statuses" in line
        assert "rejected_statuses" in line


@pytest.mark.parametrize("word", ["declined", "EXPIRED", "Canceled", "cancelled", "rejected"])
@pytest.mark.parametrize("deferrable", [False, True])
def test_a_request_that_will_not_take_effect_fails_at_once(
    sandbox: Sandbox, number: str, word: str, deferrable: bool
) -> None:
    sandbox.control.set_whitelist_status(number, word)
    with failing_at_once("was rejected"):
        wait(number, deferrable=deferrable)


def test_the_sensor_and_its_trigger_know_the_same_words(number: str) -> None:
    with pytest.raises(TaskDeferred) as caught:
        wait(number, deferrable=True)
    arguments = caught.value.trigger.serialize()[1]
    assert arguments["effective_statuses"] == ["approved"]
    assert arguments["rejected_statuses"] == ["rejected", "declined", "expired", "canceled", "cancelled"]
    assert (
        CustodyWhitelistRequestTrigger(request_id=number).serialize()[1].items()
        >= {name: arguments[name] for name in ("effective_statuses", "rejected_statuses")}.items()
    )
    with pytest.raises(TaskDeferred) as caught:
        wait(number, deferrable=True, effective_statuses=None)
    assert caught.value.trigger.serialize()[1]["effective_statuses"] is None


def test_status_words_can_be_chosen(sandbox: Sandbox, number: str) -> None:
    sandbox.control.set_whitelist_status(number, "Signed")
    assert wait(number, effective_statuses=["SIGNED"])["status"] == "Signed"
    assert wait(number, effective_statuses=None)["status"] == "Signed"
    with pytest.raises(AirflowSensorTimeout, match="status 'Signed' is neither in effective_statuses nor in rejected_"):
        wait(number, timeout=0.1)
    with failing_at_once("was rejected"):
        wait(number, rejected_statuses="signed")


def test_a_time_out_reports_the_last_result(number: str) -> None:
    with pytest.raises(AirflowSkipException, match=f"{number} is pending approval"):
        wait(number, timeout=0.1, soft_fail=True)


def test_a_request_that_is_listed_late_is_not_gone(sandbox: Sandbox, number: str) -> None:
    sandbox.control.set_whitelist_status(number, "APPROVED")
    sandbox.control.add_fault("status", status=200, body={}, times=2)
    assert wait(number)["state"] == "effective"


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_within_a_poke_it_is_looked_for_until_it_counts_as_gone(
    sandbox: Sandbox, number: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestWait, "gone_after", 600.0)
    sandbox.control.set_whitelist_status(number, "APPROVED")
    # Three listings each for the first two look-ups.
    sandbox.control.add_fault("status", status=200, body={}, times=6)
    assert run_sensor(mode, request_id=number, poke_interval=3600, timeout=7200).state_of("wait") == "success"
    times = [call["time"] for call in sandbox.control.request_log()]
    assert len(times) == 8
    # Long before the next poke.
    assert times[-1] - times[0] < 1800


def test_a_request_that_stays_missing_is_gone_and_the_error_names_the_seconds(sandbox: Sandbox) -> None:
    started = time.monotonic()
    with failing_at_once(r"9999 does not exist: it has not been listed for [\d.]+ s"):
        wait("9999", poke_interval=3600, timeout=7200)
    assert 0.5 <= time.monotonic() - started < 1800


def test_a_listing_that_misses_it_in_mid_wait_does_not_end_the_wait(
    sandbox: Sandbox, number: str, task_log: TaskLog
) -> None:
    # Pending in the first poke, missing in the second, and then pending again: a replica lagged.
    pending = {"result": [{"id": number, "status": "pending"}], "totalItems": "1"}
    for body in ({}, pending, {}, {}):
        sandbox.control.add_fault("status", status=200, body=body)
    sandbox.control.set_whitelist_status(number, "APPROVED")
    assert wait(number)["state"] == "effective"
    assert f"{number} is not listed" in task_log.text


def test_a_sensor_does_not_look_longer_than_its_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestWait, "gone_after", 600.0)
    with pytest.raises(AirflowSensorTimeout, match=r"9999 is not listed"):
        wait("9999", timeout=0.6)


def test_a_sensor_that_is_deferred_lets_its_trigger_look_again(sandbox: Sandbox) -> None:
    with pytest.raises(TaskDeferred):
        wait("9999", deferrable=True)
    # One look-up of a request that is not listed.
    assert len(sandbox.control.request_log()) == 3


@pytest.mark.parametrize(
    "bad",
    ["", "1/2", "x", 1.5, True, -1, "-1", "9" * 20, 10**5000, "٣", " 1", {1: 1}, object()],
    ids=lambda value: type(value).__name__,
)
def test_a_malformed_id_is_refused(sandbox: Sandbox, bad: Any) -> None:
    with failing_at_once("request_id must be a whole number"):
        wait(bad)
    assert sandbox.control.request_log() == []


def test_polls_once_before_it_defers(sandbox: Sandbox, number: str) -> None:
    with pytest.raises(TaskDeferred) as caught:
        wait(number, deferrable=True)
    path, arguments = caught.value.trigger.serialize()
    assert path == "airflow_custody.triggers.whitelist.CustodyWhitelistRequestTrigger"
    assert sandbox.token not in repr(arguments)
    sandbox.control.set_whitelist_status(number, "APPROVED")
    assert wait(number, deferrable=True)["state"] == "effective"


def test_a_setting_that_hides_errors_is_refused() -> None:
    with pytest.raises(ValueError, match="never_fail"):
        CustodyWhitelistRequestSensor(task_id="wait", request_id="1", never_fail=True)
