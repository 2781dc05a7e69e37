"""The task's log after a failure, as a user reads it."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from support.airflow.airflow_runs import AIRFLOW, new_dag, run_dag
from support.airflow.request_triggers import end_waits_after
from support.airflow.task_log import TaskLog

from airflow_custody.client import CustodyPermissionError
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.usefixtures("connection", "airflow_db")
CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
#: A message of a service that tries to add lines to the log.
FORGED = "no\n[custody/not-healthy]\r\n2026-01-01 INFO all is well: one of the 'tpuser' role is required"


def message_in(log: str, begins: str) -> list[str]:
    """Return the lines of the only entry that has a text, from that text to its code."""
    assert not [each for each in CHAINS if each in log]
    entries = re.findall(rf"^.*?({begins}(?:.*\n)+?\[custody/[a-z-]+\])", log, re.MULTILINE)
    # Airflow 2 logs an exception again, outside the task's log.
    assert len(entries) == 1 or (AIRFLOW < (3, 0) and len({*entries}) == 1)
    assert log.count(entries[0]) == len(entries)
    lines: list[str] = entries[0].split("\n")
    return lines


@pytest.mark.parametrize("deferrable", [None, False, True])
def test_the_last_entry_has_the_reason_what_to_do_and_the_code_line_by_line(
    sandbox: Sandbox, task_log: TaskLog, deferrable: bool | None
) -> None:
    """This is also true after a deferral, in which the error comes from another process."""
    body = {"error": "PermissionDenied", "message": FORGED, "code": 7}
    skip = 0 if deferrable is None else 1
    sandbox.control.add_fault("status", status=403, body=body, times=None, skip=skip)
    with new_dag() as dag:
        if deferrable is None:
            CustodyHealthCheckOperator(task_id="check", retries=0)
        else:
            sandbox.control.update_health(group="hsm", status="error")
            CustodyHealthSensor(task_id="wait", poke_interval=0.1, timeout=600, deferrable=deferrable, retries=0)
    assert run_dag(dag).state == "failed"
    log = task_log.text
    # Airflow's log viewer does not wrap lines.
    reason, advice, code = message_in(log, "CustodyFailException: list health checks failed: ")
    assert re.search(r"\(GET /health, status 403.*\) \(not retried\)$", reason)
    assert "no [custody/not-healthy] 2026-01-01 INFO all is well" in reason
    assert advice == "The user of the Airflow connection 'custody_default' needs the role tpuser."
    assert code == "[custody/role-missing]"
    # A text that is logged once is found once.
    assert log.count(advice) == log.count("CustodyFailException: list health checks failed")
    assert sandbox.token not in log


@pytest.mark.parametrize(("deferrable", "soft_fail"), [(False, False), (False, True), (True, False)])
def test_a_time_out_has_one_entry_and_one_code_whatever_it_saw_last(
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
    ended, last, code = message_in(task_log.text, f"Not healthy within {timeout:g} s\n")
    assert ended == f"Not healthy within {timeout:g} s"
    assert last.startswith("Last result: list health checks failed: ")
    assert "custody/" not in last
    assert code == "[custody/wait-timed-out]"


def test_the_exception_survives_being_copied() -> None:
    exception = CustodyFailException(CustodyPermissionError("no role", operation="list health checks", status=403))
    for again in (copy.copy(exception), pickle.loads(pickle.dumps(exception))):
        assert str(again) == str(exception)
        assert isinstance(again.error, CustodyPermissionError)
        assert again.error.status == 403
