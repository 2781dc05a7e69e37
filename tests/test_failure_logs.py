"""What a person reads in the log when a task fails."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from airflow_runs import AIRFLOW, new_dag, run_dag
from request_triggers import end_waits_after
from task_log import TaskLog

from airflow_custody.client import CustodyPermissionError
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.usefixtures("connection", "airflow_db")
CHAINS = ("During handling of the above exception", "The above exception was the direct cause")


def check_log(log: str, line_has: str) -> None:
    """Check that one line of ours, the only one, has the reason, and that the exception after it has no chain."""
    assert not [each for each in CHAINS if each in log]
    # Airflow 2 writes its log lines in another form.
    if AIRFLOW >= (3, 0):
        (line,) = [each for each in log.splitlines() if "[error " in each and "airflow_custody" in each]
        assert line_has in line
        # Fits a screen of 80 columns and some lines.
        assert len(line) < 80 * 5


@pytest.mark.parametrize("deferrable", [None, False, True])
def test_one_line_has_the_reason_what_to_do_and_the_code(
    sandbox: Sandbox, task_log: TaskLog, deferrable: bool | None
) -> None:
    """After a deferral, too, which brings the error from another process."""
    sandbox.control.add_fault("status", status=403, times=None, skip=0 if deferrable is None else 1)
    with new_dag() as dag:
        if deferrable is None:
            CustodyHealthCheckOperator(task_id="check", retries=0)
        else:
            sandbox.control.update_health(group="hsm", status="error")
            CustodyHealthSensor(task_id="wait", poke_interval=0.1, timeout=600, deferrable=deferrable, retries=0)
    assert run_dag(dag).state == "failed"
    log = task_log.text
    reason = "list health checks failed: .*status 403"
    advice = "The user of the Airflow connection 'custody_default' needs the role TPUser."
    assert re.search(rf"{reason}.*{re.escape(advice)} \[custody/role-missing\]", log)
    assert re.search(rf"CustodyFailException: {reason}.*\(not retried\) \[custody/role-missing\]", log)
    assert "[custody/role-missing] [custody/" not in log
    assert sandbox.token not in log
    check_log(log, advice)
    assert log.count(advice) == 1 or AIRFLOW < (3, 0)


@pytest.mark.parametrize(("deferrable", "soft_fail"), [(False, False), (False, True), (True, False)])
def test_a_time_out_has_one_line_and_one_code_whatever_it_saw_last(
    sandbox: Sandbox, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch, deferrable: bool, soft_fail: bool
) -> None:
    sandbox.control.add_fault("status", status=503, times=None)
    if deferrable:
        end_waits_after(monkeypatch, sandbox, 2)
    timeout = 600 if deferrable else 0.3
    with new_dag() as dag:
        CustodyHealthSensor(
            task_id="wait", poke_interval=0.1, timeout=timeout, deferrable=deferrable, soft_fail=soft_fail, retries=0
        )
    assert run_dag(dag).state == ("success" if soft_fail else "failed")
    log = task_log.text
    (line, *_) = [line for line in log.splitlines() if "Last result: " in line]
    assert re.findall(r"\[custody/([a-z-]+)\]", line.partition("Last result: ")[2]) == ["wait-timed-out"]
    if not soft_fail:
        check_log(log, "Last result: ")


def test_the_exception_survives_being_copied() -> None:
    exception = CustodyFailException(CustodyPermissionError("no role", operation="list health checks", status=403))
    for again in (copy.copy(exception), pickle.loads(pickle.dumps(exception))):
        assert str(again) == str(exception)
        assert isinstance(again.error, CustodyPermissionError)
        assert again.error.status == 403
