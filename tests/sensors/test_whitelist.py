from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_runs import Run, execute, failing_at_once, new_dag, run_dag

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

pytestmark = pytest.mark.usefixtures("connection")
MODES = ["poke", "reschedule", "deferrable"]


class QuickSensor(CustodyWhitelistRequestSensor):
    """The sensor with a delay so short that no test has to wait for it."""

    recheck_delay = 0.2


@pytest.fixture
def number(sandbox: Sandbox) -> str:
    with CustodyClient(sandbox.url, sandbox.token) as client:
        made = client.create_whitelist_request(WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH"))
    sandbox.control.clear_request_log()
    return made


def wait(number: str, **kwargs: Any) -> Any:
    arguments = {"task_id": "wait", "poke_interval": 0.2, "timeout": 5, "deferrable": False, **kwargs}
    return execute(lambda: QuickSensor(request_id=number, **arguments))


def run_sensor(mode: str, **kwargs: Any) -> Run:
    how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
    with new_dag() as dag:
        QuickSensor(**{"task_id": "wait", "poke_interval": 0.2, "timeout": 8, **how, **kwargs})
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
        sandbox.control.set_whitelist_status(number, "active")
        run = run_sensor(mode, request_id=number)
        assert run.state_of("wait") == "success"
        assert run.xcom("wait") == {"id": number, "state": "effective", "status": "active", "signatures": 0}
        assert len(sandbox.control.request_log()) == 5

    def test_times_out(self, number: str, mode: str) -> None:
        assert run_sensor(mode, request_id=number, timeout=0.5).state_of("wait") == "failed"

    def test_a_time_out_is_skipped_with_soft_fail(self, number: str, mode: str) -> None:
        run = run_sensor(mode, request_id=number, timeout=0.5, soft_fail=True)
        assert run.state_of("wait") == "skipped"

    @pytest.mark.parametrize("status", ["rejected", "removed"])
    def test_fails_at_once_when_it_was_rejected_or_is_gone(
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


def test_status_words_can_be_chosen(sandbox: Sandbox, number: str) -> None:
    sandbox.control.set_whitelist_status(number, "Signed")
    assert wait(number, effective_statuses=["SIGNED"])["status"] == "Signed"
    with pytest.raises(AirflowSensorTimeout, match="is pending approval"):
        wait(number, effective_statuses=["active"], timeout=0.1)
    with failing_at_once("was rejected"):
        wait(number, rejected_statuses="signed")


def test_a_time_out_reports_the_last_result(number: str) -> None:
    with pytest.raises(AirflowSkipException, match=f"{number} is pending approval"):
        wait(number, timeout=0.1, soft_fail=True)


def test_a_request_that_is_listed_late_is_not_gone(sandbox: Sandbox, number: str) -> None:
    sandbox.control.set_whitelist_status(number, "active")
    sandbox.control.add_fault("status", status=200, body={}, times=2)
    assert wait(number)["state"] == "effective"


@pytest.mark.parametrize("bad", ["", "None", "1/2", "x", None])
def test_a_malformed_id_is_refused(sandbox: Sandbox, bad: Any) -> None:
    with failing_at_once("must be a whole number"):
        wait(bad)
    assert sandbox.control.request_log() == []


def test_polls_once_before_it_defers(sandbox: Sandbox, number: str) -> None:
    with pytest.raises(TaskDeferred) as caught:
        wait(number, deferrable=True)
    path, arguments = caught.value.trigger.serialize()
    assert path == "airflow_custody.triggers.whitelist.CustodyWhitelistRequestTrigger"
    assert sandbox.token not in repr(arguments)
    sandbox.control.set_whitelist_status(number, "active")
    assert wait(number, deferrable=True)["state"] == "effective"


def test_a_setting_that_hides_errors_is_refused() -> None:
    with pytest.raises(ValueError, match="never_fail"):
        CustodyWhitelistRequestSensor(task_id="wait", request_id="1", never_fail=True)
