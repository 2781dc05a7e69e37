"""The sensor with a list of ids: until all are in effect, the same in every mode."""

from __future__ import annotations

import re
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowSensorTimeout, AirflowSkipException, TaskDeferred
from airflow_runs import Run, execute, failing_at_once, new_dag, run_dag
from task_log import TaskLog

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

pytestmark = pytest.mark.usefixtures("connection")
MODES = ["poke", "reschedule", "deferrable"]
ADDRESS = "0x" + "a" * 40


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request be gone after half a second."""
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)
    monkeypatch.setattr(CustodyWhitelistRequestSensor, "recheck_delay", 0.1)


def create(sandbox: Sandbox, number: int) -> list[str]:
    request = WhitelistRequest(label="L", address=ADDRESS, blockchain="ETH")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        made = [client.create_whitelist_request(request) for _ in range(number)]
    sandbox.control.clear_request_log()
    return made


@pytest.fixture
def numbers(sandbox: Sandbox) -> list[str]:
    return create(sandbox, 3)


def approve(sandbox: Sandbox, numbers: list[str]) -> None:
    for number in numbers:
        sandbox.control.set_whitelist_status(number, "APPROVED")


def wait(request_id: Any, **kwargs: Any) -> Any:
    arguments = {"task_id": "wait", "poke_interval": 0.2, "timeout": 600, "deferrable": False, **kwargs}
    return execute(lambda: CustodyWhitelistRequestSensor(request_id=request_id, **arguments))


def how(mode: str) -> dict[str, Any]:
    return {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}


def run_sensor(mode: str, **kwargs: Any) -> Run:
    with new_dag() as dag:
        CustodyWhitelistRequestSensor(
            **{"task_id": "wait", "poke_interval": 0.2, "timeout": 600, **how(mode), **kwargs}
        )
    return run_dag(dag)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
class TestInARun:
    """The sensor has the same result in every mode, in real Airflow."""

    def test_waits_until_all_are_in_effect(
        self, sandbox: Sandbox, numbers: list[str], mode: str, task_log: TaskLog
    ) -> None:
        approve(sandbox, numbers)
        # One is pending in the first poll, and the second poll fails.
        rows = [{"id": each, "status": "APPROVED"} for each in numbers[:2]]
        sandbox.control.add_fault("status", status=200, body={"result": rows, "totalItems": "2"})
        sandbox.control.add_fault("status", status=200, body={})
        pending = {"result": [{"id": numbers[2], "status": "pending"}], "totalItems": "1"}
        sandbox.control.add_fault("status", status=200, body=pending)
        sandbox.control.add_fault("status", status=503)
        run = run_sensor(mode, request_id=[*numbers, numbers[0]])
        assert run.state_of("wait") == "success"
        assert run.xcom("wait") == {"state": "effective", "count": 3, "statuses": {"APPROVED": 3}, "verified": 0}
        log = task_log.text
        assert f"2 of 3 whitelisting requests are in effect (1 pending approval); not yet: {numbers[2]}" in log
        assert "3 of 3 whitelisting requests are in effect" in log

    @pytest.mark.parametrize("soft_fail", [False, True])
    def test_times_out(self, sandbox: Sandbox, numbers: list[str], mode: str, soft_fail: bool) -> None:
        approve(sandbox, numbers[1:])
        run = run_sensor(mode, request_id=numbers, timeout=0.5, soft_fail=soft_fail)
        assert run.state_of("wait") == ("skipped" if soft_fail else "failed")

    def test_fails_without_retries_and_names_all_that_were_rejected(
        self, sandbox: Sandbox, numbers: list[str], mode: str, task_log: TaskLog
    ) -> None:
        sandbox.control.add_fault("status", status=500)
        for number in numbers[:2]:
            sandbox.control.set_whitelist_status(number, "rejected")
        run = run_sensor(mode, request_id=numbers, soft_fail=True, retries=2)
        assert run.state_of("wait") == "failed"
        assert run.tries["wait", -1] == 1
        log = task_log.text
        assert (
            f"2 of 3 whitelisting requests are not going to take effect: whitelisting request {numbers[0]} was rejected"
            in log
        )
        assert f"; whitelisting request {numbers[1]} was rejected" in log

    def test_one_that_is_gone_fails_it(
        self, sandbox: Sandbox, numbers: list[str], mode: str, task_log: TaskLog
    ) -> None:
        approve(sandbox, numbers[:1])
        sandbox.control.set_whitelist_status(numbers[2], "removed")
        assert run_sensor(mode, request_id=numbers, retries=2).state_of("wait") == "failed"
        log = task_log.text
        assert (
            f"1 of 3 whitelisting requests is not going to take effect: whitelisting request {numbers[2]} does no"
            in log
        )
        assert "1 of 3 whitelisting requests is in effect (1 pending approval, 1 not listed)" in log
        assert re.search(rf"not yet: {numbers[1]}, {numbers[2]}; it is the turn of '\w+' for 1", log)

    @pytest.mark.parametrize("skips", [False, True])
    def test_an_empty_list(self, sandbox: Sandbox, mode: str, skips: bool, task_log: TaskLog) -> None:
        run = run_sensor(mode, request_id=[], retries=2, skip_if_empty=skips)
        assert run.state_of("wait") == ("skipped" if skips else "failed")
        assert run.tries["wait", -1] == 1
        assert sandbox.control.request_log() == []
        assert ("skip_if_empty is set" if skips else "set skip_if_empty=True") in task_log.text

    def test_ids_from_upstream(self, sandbox: Sandbox, mode: str) -> None:
        from airflow.providers.common.compat.sdk import task

        @task
        def approve_all() -> list[Any]:
            found = sandbox.control.whitelist_requests()
            approve(sandbox, [str(each["id"]) for each in found])
            return [int(each["id"]) if index else str(each["id"]) for index, each in enumerate(found)]

        with DAG(f"upstream_{mode}", schedule=None, render_template_as_native_obj=True) as dag:
            # An address that is no number to a native template.
            made = CustodyCreateWhitelistRequestOperator.partial(
                task_id="create", address="rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh", blockchain="XRP", if_exists="create"
            ).expand(label=["a", "b", "c"])
            mapped: Any = made.output
            ids: Any = approve_all()
            arguments: dict[str, Any] = {"poke_interval": 0.2, "timeout": 600, **how(mode)}
            template: Any = "{{ ti.xcom_pull(task_ids='approve_all') }}"
            mapped >> ids
            ids >> CustodyWhitelistRequestSensor(task_id="lazy", request_id=mapped, **arguments)
            ids >> CustodyWhitelistRequestSensor(task_id="native", request_id=template, **arguments)
        run = run_dag(dag)
        result = {"state": "effective", "count": 3, "statuses": {"APPROVED": 3}, "verified": 0}
        assert run.xcom("lazy") == run.xcom("native") == result


def test_a_list_of_one_is_a_list(sandbox: Sandbox, numbers: list[str]) -> None:
    approve(sandbox, numbers)
    assert wait(numbers[:1])["count"] == wait(tuple(numbers[:1]))["count"] == wait({numbers[0]})["count"] == 1
    assert wait(iter(numbers))["count"] == 3
    assert wait(int(numbers[0]))["id"] == numbers[0]


@pytest.mark.parametrize("bad", [[None], ["1", None], [[1]], ["x"], [1.5], [True], "['1', '2']", "1,2"], ids=str)
def test_an_odd_id_in_a_list_is_refused(sandbox: Sandbox, bad: Any) -> None:
    with failing_at_once(r"request_id(\[\d\])? (must be a whole number|was given, and resolved to None)"):
        wait(bad)
    assert sandbox.control.request_log() == []


def test_at_one_poll_all_are_in_effect(sandbox: Sandbox, numbers: list[str]) -> None:
    # The first leaves while the others come.
    approve(sandbox, numbers[:1])
    sensor = CustodyWhitelistRequestSensor(task_id="wait", request_id=numbers, deferrable=False, timeout=0.3)
    context: Any = {}
    assert sensor.poke(context) is False
    sandbox.control.set_whitelist_status(numbers[0], "removed")
    approve(sandbox, numbers[1:])
    assert sensor.poke(context) is False
    approve(sandbox, numbers)
    assert sensor.poke(context)


def test_polls_once_before_it_defers_and_hands_on_the_ids(sandbox: Sandbox, numbers: list[str]) -> None:
    with pytest.raises(TaskDeferred) as caught:
        wait([*reversed(numbers), int(numbers[0])], deferrable=True)
    assert caught.value.trigger.serialize()[1]["request_id"] == numbers
    approve(sandbox, numbers)
    assert wait(numbers, deferrable=True)["count"] == 3


def test_a_time_out_reports_the_last_result(numbers: list[str]) -> None:
    with pytest.raises(AirflowSkipException, match="0 of 3 whitelisting requests are in effect"):
        wait(numbers, timeout=0.1, soft_fail=True)


def test_an_unknown_status_is_named(sandbox: Sandbox, numbers: list[str], task_log: TaskLog) -> None:
    for number in numbers:
        sandbox.control.set_whitelist_status(number, "archived")
    with pytest.raises(AirflowSensorTimeout, match="3 with a status that is not known"):
        wait(numbers, timeout=0.5)
    assert "status 'archived' is neither" in task_log.text


def test_skip_if_empty_is_a_flag() -> None:
    with pytest.raises(ValueError, match="skip_if_empty must be True or False"):
        CustodyWhitelistRequestSensor(task_id="wait", request_id=[], skip_if_empty="yes")  # type: ignore[arg-type]
