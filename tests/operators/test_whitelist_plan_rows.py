"""Planning and applying a whitelist that comes as rows, or from an object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, task
from support.airflow.airflow_runs import Run, failing_at_once, new_dag, run_dag
from support.airflow.apply_tries import address, check_exactly, plan, write_rows
from support.airflow.storages import Storage, attach, object_path
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import failure_of

from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection", "airflow_db")

ROWS: list[dict[str, Any]] = [
    {"label": f"Label {each}", "address": address(each), "blockchain": "ETH"} for each in (1, 2, 3)
]


def plan_and_apply(dag: DAG, after: Any = (), **arguments: Any) -> Run:
    """Run two tasks, one after the other, that plan and apply the same whitelist."""
    with dag:
        planned = CustodyPlanWhitelistOperator(task_id="plan", **arguments)
        planned.set_upstream(after)
        plan_hash: Any = planned.output["plan_hash"]
        rows = {"rows": arguments["rows"]} if "rows" in arguments else {}
        made: Any = planned.output
        CustodyApplyWhitelistPlanOperator(task_id="apply", plan=made, plan_hash=plan_hash, lookup_wait=0.2, **rows)
    return run_dag(dag)


def upstream(dag: DAG, rows: Any) -> Any:
    @task
    def fetch_rows() -> Any:
        return rows

    with dag:
        return fetch_rows()


# --- rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "native"), [("output", False), ("template", False), ("template", True), ("mapped", False)]
)
def test_rows_of_an_upstream_task_are_planned_and_applied(
    sandbox: Sandbox, tmp_path: Path, task_log: TaskLog, form: str, native: bool
) -> None:
    # A file with the same rows has the same plan.
    same = plan(path=write_rows(tmp_path / "rows.yaml", (1, 2, 3)))["plan_hash"]
    dag = new_dag()
    dag.render_template_as_native_obj = native
    rows = first = upstream(dag, ROWS)
    if form == "template":
        rows = "{{ ti.xcom_pull('fetch_rows') }}" if native else "{{ ti.xcom_pull('fetch_rows') | tojson }}"
    elif form == "mapped":

        @task
        def keep(row: Any) -> Any:
            return row

        with dag:
            rows = keep.expand(row=rows)
    run = plan_and_apply(dag, first, rows=rows)
    assert run.state == "success"
    check_exactly(sandbox, [1, 2, 3])
    assert run.xcom("plan")["plan_hash"] == run.xcom("apply")["plan_hash"] == same
    assert "Read 3 rows from rows (SHA-256 " in task_log.text


def test_contradictory_arguments_are_refused_when_the_dag_file_is_parsed() -> None:
    contradictions: list[tuple[dict[str, Any], str]] = [
        ({}, "give either path or rows"),
        ({"path": "a.yaml", "rows": ROWS}, "give either path or rows"),
        ({"path": "a.yaml", "omit_if_none": "memo"}, "omit_if_none applies only to rows"),
        ({"rows": ROWS, "omit_if_none": "address"}, "omit_if_none contains 'address', which cannot be left out"),
    ]
    for arguments, fault in contradictions:
        with pytest.raises(ValueError, match=fault):
            CustodyPlanWhitelistOperator(task_id="task", **arguments)


# --- an object storage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [str, object_path])
def test_a_file_in_an_object_storage_is_planned_and_applied(
    sandbox: Sandbox, tmp_path: Path, storage: Storage, task_log: TaskLog, form: Any
) -> None:
    storage.pipe("bucket/rows.yaml", Path(write_rows(tmp_path / "rows.yaml", (1, 2, 3))).read_bytes())
    url = f"{attach('rows', storage)}/rows.yaml"
    run = plan_and_apply(new_dag(), path=form(url))
    assert run.state == "success"
    check_exactly(sandbox, [1, 2, 3])
    assert f"Read 3 rows from {url} (SHA-256 " in task_log.text


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (None, "there is no such file", False),
        (PermissionError("Access Denied"), "PermissionError: Access Denied", False),
        (ImportError("install s3fs"), "ImportError: install s3fs", False),
        (RuntimeError("HTTP 503"), "RuntimeError: HTTP 503", True),
    ],
    ids=["no file", "access denied", "no library", "another failure"],
)
def test_a_failed_read_is_named_and_retried_if_that_may_help(
    sandbox: Sandbox, storage: Storage, error: Exception | None, reason: str, retryable: bool
) -> None:
    storage.error = error
    url = f"{attach('rows', storage)}/rows.yaml"
    found = failure_of(lambda: plan(path=url))
    assert isinstance(found, WhitelistFileError)
    assert found.retryable == retryable
    assert str(found).startswith(f"{url}: 1 fault; nothing is sent: {reason}")


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("nowhere://bucket/rows.yaml", "^nowhere://bucket/rows.yaml: 1 fault; .*"),
        (
            "s3://key:hunter2@bucket/rows.yaml",
            "^s3://bucket/rows.yaml: .*an Airflow connection id, never a pass",
        ),
        (
            "s3://conn@bucket/rows.yaml?X-Sig=hunter2@x",
            "^s3://bucket/rows.yaml: 1 fault; .*use the plain URL ",
        ),
        ("s3://key:a?hunter2@bucket/rows.yaml", "^s3://: 1 fault; .*use the plain URL "),
    ],
)
def test_a_url_that_cannot_be_read_fails_at_once(sandbox: Sandbox, path: str, fault: str) -> None:
    with failing_at_once(fault) as caught:
        plan(path=path)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_too_large_is_refused(
    sandbox: Sandbox, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_custody.client.whitelist.files.reading.MAX_FILE_BYTES", 100)
    storage.pipe("bucket/rows.json", b'{"version": 1, "addresses": []}' + b" " * 100)
    with failing_at_once("larger than 100 bytes"):
        plan(path=f"{attach('rows', storage)}/rows.json")
