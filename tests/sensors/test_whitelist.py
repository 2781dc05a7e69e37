"""The sensor for one or several whitelisting requests ends in the same way in every mode, in real Airflow."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSensorTimeout, TaskDeferred
from support.airflow.sensor_runs import MODES, run_sensor
from support.airflow.sensor_runs import wait as wait_in
from support.airflow.task_log import TaskLog
from support.whitelist.whitelist_plans import PENDING, listed

from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request count as gone after half a second."""
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)
    monkeypatch.setattr(CustodyWhitelistRequestSensor, "recheck_delay", 0.1)


@pytest.fixture
def numbers(sandbox: Sandbox) -> list[str]:
    """Return the ids of three pending requests."""
    row = {"label": "L", "address": "0x" + "a" * 40, "blockchain": "ETH"}
    return sandbox.control.add_whitelist_requests([row] * 3, status="pending")


def decide(sandbox: Sandbox, numbers: list[str], *statuses: str) -> None:
    for number, status in zip(numbers, statuses, strict=False):
        sandbox.control.set_whitelist_status(number, status)


def wait(request_id: Any, **arguments: Any) -> Any:
    return wait_in(CustodyWhitelistRequestSensor, request_id=request_id, **arguments)


def run(mode: str, **arguments: Any) -> Any:
    return run_sensor(CustodyWhitelistRequestSensor, mode, **arguments)


# --- in a run ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("many", [False, True], ids=["one", "list"])
def test_waits_until_all_are_in_effect(sandbox: Sandbox, numbers: list[str], mode: str, many: bool) -> None:
    decide(sandbox, numbers, *["APPROVED"] * 3)
    ids = numbers if many else numbers[2:]
    # The last request is pending in the first poll; the second poll fails; in the third poll, the request is in effect.
    settled = [listed(int(each)).wire for each in ids[:-1]]
    for rows in (settled, [*settled, listed(int(ids[-1]), wire=PENDING).wire], []):
        sandbox.control.add_fault("status", status=200, body={"result": rows, "totalItems": str(len(rows))})
    sandbox.control.add_fault("status", status=503)
    ran = run(mode, request_id=[*ids, ids[0]] if many else ids[0])
    assert ran.state_of("wait") == "success"
    one = {"id": ids[0], "state": "effective", "status": "APPROVED", "signatures": 0, "verified": False}
    several = {"state": "effective", "count": 3, "statuses": {"APPROVED": 3}, "verified": 0}
    assert ran.xcom("wait") == (several if many else one)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("statuses", "says"),
    [
        (["removed"], ["whitelisting request {0} does not exist"]),
        (["rejected", "rejected", "pending"], ["2 of 3 whitelisting requests are not going", "{0} was", "{1} was"]),
    ],
    ids=["one is gone", "two are rejected"],
)
def test_fails_without_retries_when_it_was_rejected_or_is_gone(
    sandbox: Sandbox, numbers: list[str], mode: str, statuses: list[str], says: list[str], task_log: TaskLog
) -> None:
    decide(sandbox, numbers, *statuses)
    sandbox.control.add_fault("status", status=500)
    ids = numbers[: len(statuses)]
    ran = run(mode, request_id=ids if len(ids) > 1 else ids[0], soft_fail=True, retries=2)
    assert ran.state_of("wait") == "failed"
    assert ran.tries["wait", -1] == 1
    log = task_log.text
    for each in says:
        assert each.format(*numbers) in log


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_within_a_poke_it_is_looked_for_until_it_counts_as_gone(
    sandbox: Sandbox, numbers: list[str], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestWait, "gone_after", 600.0)
    decide(sandbox, numbers, "APPROVED")
    # Three listings each for the first two look-ups.
    sandbox.control.add_fault("status", status=200, body={}, times=6)
    # This is long before the next poke.
    ran = run(mode, request_id=numbers[0], poke_interval=3600, timeout=7200)
    assert ran.state_of("wait") == "success"
    assert len(sandbox.control.request_log()) == 9


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("skips", [False, True])
def test_an_empty_list_fails_or_skips_without_a_call(sandbox: Sandbox, skips: bool, task_log: TaskLog) -> None:
    ran = run("deferrable", request_id=[], retries=2, skip_if_empty=skips)
    assert ran.state_of("wait") == ("skipped" if skips else "failed")
    assert ran.tries["wait", -1] == 1
    assert sandbox.control.request_log() == []
    assert ("skip_if_empty is set" if skips else "set skip_if_empty=True") in task_log.text


# --- without a run -------------------------------------------------------------------------------------------------


def test_a_sensor_does_not_look_longer_than_its_time_out(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestWait, "gone_after", 600.0)
    with pytest.raises(AirflowSensorTimeout, match=r"9999 is not listed"):
        wait("9999", timeout=0.6)
    # Deferrable, its trigger looks again: this is one look-up.
    sandbox.control.clear_request_log()
    with pytest.raises(TaskDeferred):
        wait("9999", deferrable=True)
    assert len(sandbox.control.request_log()) == 3


def test_polls_once_before_it_defers_and_hands_on_the_ids(sandbox: Sandbox, numbers: list[str]) -> None:
    with pytest.raises(TaskDeferred) as caught:
        wait([*reversed(numbers), int(numbers[0])], deferrable=True)
    path, arguments = caught.value.trigger.serialize()
    assert path == "airflow_custody.triggers.whitelist.CustodyWhitelistRequestTrigger"
    assert arguments["request_id"] == numbers
    assert sandbox.token not in repr(arguments)
    decide(sandbox, numbers, *["APPROVED"] * 3)
    assert wait(numbers, deferrable=True)["count"] == 3


def test_a_list_of_one_is_a_list(sandbox: Sandbox, numbers: list[str]) -> None:
    decide(sandbox, numbers, *["APPROVED"] * 3)
    assert wait(numbers[:1])["count"] == wait({numbers[0]})["count"] == 1
    assert wait(int(numbers[0]))["id"] == numbers[0]
