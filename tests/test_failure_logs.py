"""What a person reads in the log when a task fails."""

from __future__ import annotations

import copy
import logging
import pickle
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from airflow_runs import AIRFLOW, Run, new_dag, run_dag
from connections import connection_json
from request_triggers import end_waits_after
from task_log import TaskLog

from airflow_custody.client import CustodyClient, CustodyPermissionError
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.usefixtures("connection", "airflow_db")


def check() -> Run:
    with new_dag() as dag:
        CustodyHealthCheckOperator(task_id="check", retries=0)
    return run_dag(dag)


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="Airflow 2 writes its log lines in another form")
class TestInARun:
    @pytest.mark.parametrize(
        ("status", "reason", "advice"),
        [
            (403, "status 403", "The user of the Airflow connection 'custody_default' needs the role TPUser."),
            (500, "Internal", ""),
        ],
    )
    def test_one_line_has_the_reason_first_and_then_what_to_do(
        self, sandbox: Sandbox, task_log: TaskLog, status: int, reason: str, advice: str
    ) -> None:
        sandbox.control.add_fault("status", status=status)
        assert check().state == "failed"
        errors = [line for line in task_log.text.splitlines() if "[error " in line]
        ours = [line for line in errors if "airflow_custody" in line]
        assert len(ours) == 1
        (line,) = ours
        assert line.index("list health checks failed") < line.index(reason)
        assert advice in line
        # Fits a screen of 80 columns and some lines.
        assert len(line) < 80 * 5

    def test_the_exception_after_it_is_short_and_has_no_chain(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        sandbox.control.add_fault("status", status=403)
        check()
        log = task_log.text
        assert "During handling of the above exception" not in log
        assert "The above exception was the direct cause" not in log
        assert log.count("needs the role TPUser.") == 1
        assert "CustodyFailException: list health checks failed: " in log
        assert "(not retried)" in log

    @pytest.mark.parametrize("deferrable", [False, True])
    def test_a_time_out_has_a_line_too(
        self, sandbox: Sandbox, task_log: TaskLog, deferrable: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sandbox.control.update_health(group="hsm", status="error")
        timeout = 0.3
        if deferrable:
            end_waits_after(monkeypatch, sandbox, 2)
            timeout = 600
        with new_dag() as dag:
            CustodyHealthSensor(task_id="wait", poke_interval=0.1, timeout=timeout, deferrable=deferrable, retries=0)
        assert run_dag(dag).state == "failed"
        ours = [line for line in task_log.text.splitlines() if "[error " in line and "airflow_custody" in line]
        assert len(ours) == 1
        assert "Last result: the service is not healthy" in ours[0]

    def test_an_unknown_outcome_has_no_chain_either(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        listing = {"method": "GET", "path": "/whitelists/addresses"}
        sandbox.control.add_fault("drop", method="POST")
        sandbox.control.add_fault("status", **listing, skip=1, times=None, status=404)
        with new_dag() as dag:
            CustodyCreateWhitelistRequestOperator(
                task_id="create",
                label="Treasury",
                address="0x" + "ab" * 20,
                blockchain="ETH",
                retries=2,
                retry_delay=timedelta(seconds=0),
            )
        run_dag(dag)
        log = task_log.text
        assert "During handling of the above exception" not in log
        assert log.count("airflow variables set") == 2  # the id, or none: once
        assert log.count("it cannot be known whether") == 2  # the line, and the exception


@pytest.mark.parametrize("deferrable", [None, False, True])
def test_the_log_has_the_code_at_the_end_of_its_line_and_of_the_exception(
    sandbox: Sandbox, task_log: TaskLog, deferrable: bool | None
) -> None:
    """Also on Airflow 2, and after a deferral, which brings the error from another process."""
    sandbox.control.add_fault("status", status=403, times=None, skip=0 if deferrable is None else 1)
    with new_dag() as dag:
        if deferrable is None:
            CustodyHealthCheckOperator(task_id="check", retries=0)
        else:
            sandbox.control.update_health(group="hsm", status="error")
            CustodyHealthSensor(task_id="wait", poke_interval=0.1, timeout=600, deferrable=deferrable, retries=0)
    assert run_dag(dag).state == "failed"
    log = task_log.text
    assert "needs the role TPUser. [custody/role-missing]" in log
    assert "(not retried) [custody/role-missing]" in log
    assert "[custody/role-missing] [custody/" not in log


@pytest.mark.parametrize("soft_fail", [False, True])
def test_a_time_out_has_one_code_whatever_it_saw_last(sandbox: Sandbox, task_log: TaskLog, soft_fail: bool) -> None:
    sandbox.control.add_fault("status", status=503, times=None)
    with new_dag() as dag:
        CustodyHealthSensor(task_id="wait", poke_interval=0.1, timeout=0.3, soft_fail=soft_fail, retries=0)
    assert run_dag(dag).state == ("success" if soft_fail else "failed")
    (line, *_) = [line for line in task_log.text.splitlines() if "Last result: " in line]
    assert re.findall(r"\[custody/([a-z-]+)\]", line.partition("Last result: ")[2]) == ["wait-timed-out"]


def test_retries_within_a_call_are_logged_in_our_own_words(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sandbox.control.add_fault("status", status=503)
    sandbox.control.add_fault("drop")
    with CustodyClient(sandbox.url, sandbox.token, max_retries=2) as client:
        client.list_health_checks()
    assert "list health checks: status 503; retry 1 of 2 now" in caplog.text
    assert "list health checks: 127.0.0.1:" in caplog.text
    assert "retry 2 of 2 in " in caplog.text
    assert "urllib3" not in caplog.text
    assert "Retrying (" not in caplog.text


def test_a_connection_string_never_reaches_the_log(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox).replace(sandbox.url, "http://127.0.0.1:9")
    )
    check()
    assert sandbox.token not in task_log.text


@pytest.mark.parametrize("clone", [copy.copy, lambda exception: pickle.loads(pickle.dumps(exception))])
def test_the_exception_survives_being_copied(clone: Callable[[CustodyFailException], CustodyFailException]) -> None:
    exception = CustodyFailException(CustodyPermissionError("no role", operation="list health checks", status=403))
    again = clone(exception)
    assert str(again) == str(exception)
    assert isinstance(again.error, CustodyPermissionError)
    assert again.error.status == 403
