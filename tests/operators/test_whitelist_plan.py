"""Planning a whitelist that is kept as a file, and where that file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowSkipException
from airflow_runs import FakeTaskInstance, execute, failing_at_once, new_dag, run_dag
from apply_tries import ApplyTask, address, check_exactly, write_rows
from task_log import TaskLog
from task_tries import RowsStore, somebody_creates

from airflow_custody.client import CustodyConflictError, CustodyError, CustodyRequestError, CustodyServerError
from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.client.whitelist.plan import STATES
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

ROWS = range(1, 5)


pytestmark = pytest.mark.usefixtures("connection", "airflow_db")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_rows(tmp_path / "whitelist.yaml", ROWS)


class PlanTask:
    """A task instance that plans."""

    def __init__(self, path: str, **arguments: Any) -> None:
        self.ti = FakeTaskInstance()
        self.arguments = {"path": path, **arguments}

    def run(self) -> dict[str, Any]:
        result: dict[str, Any] = execute(
            lambda: CustodyPlanWhitelistOperator(task_id="plan", **self.arguments), ti=self.ti
        )
        return result

    def fails(self) -> CustodyError:
        with pytest.raises((CustodyError, CustodyFailException)) as caught:
            self.run()
        error = getattr(caught.value, "error", caught.value)
        assert isinstance(error, CustodyError)
        return error


def approve(sandbox: Sandbox, number: int, **changes: Any) -> str:
    request_id = somebody_creates(sandbox, **{"label": f"Label {number}", "address": address(number), **changes})
    sandbox.control.set_whitelist_status(request_id, "APPROVED")
    return request_id


# --- what is planned -------------------------------------------------------------------------------------------


def test_the_xcom_of_a_plan(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    approve(sandbox, 1)
    somebody_creates(sandbox, label="Label 2", address=address(2))
    task = PlanTask(path)
    result = task.run()
    assert list(result) == ["plan_hash", "counts", "report"]
    assert len(result["plan_hash"]) == 64
    assert result["counts"] == {**dict.fromkeys(STATES, 0), "create": 2, "pending": 1, "unchanged": 1}
    assert result["plan_hash"] in result["report"]
    assert "line 6" in task_log.text
    # What is merely observed does not change the hash; what is to be done does.
    sandbox.control.set_whitelist_status(approve(sandbox, 77), "pending")
    assert PlanTask(path).run()["plan_hash"] == result["plan_hash"]
    approve(sandbox, 3)
    assert PlanTask(path).run()["plan_hash"] != result["plan_hash"]


@pytest.mark.parametrize("installed", [True, False])
def test_addresses_that_could_not_be_checked_are_in_the_log(
    tmp_path: Path, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    level, text = "info", "addresses: 1 of 1 could not be checked (XYZ)"
    if installed:
        pytest.importorskip("bip_utils")
    else:
        level, text = "warning", "addresses were not checked: the extra 'addresses' is not installed: pip install"
        monkeypatch.setattr("airflow_custody.client.whitelist.addresses.is_installed", lambda: False)
    path = tmp_path / "list.csv"
    path.write_text("label,address,blockchain\na,abc,XYZ\n")
    PlanTask(str(path), check_address=False).run()
    assert text not in task_log.text
    PlanTask(str(path)).run()
    lines = [each for each in task_log.text.splitlines() if f"{path}: {text}" in each]
    assert [level in each.lower() for each in lines] == [True]


def test_planning_changes_nothing(sandbox: Sandbox, path: str) -> None:
    PlanTask(path, prune=True).run()
    assert {each["method"] for each in sandbox.control.request_log()} == {"GET"}


def test_what_cannot_be_read_is_ignored_by_planning_and_applying(sandbox: Sandbox, path: str) -> None:
    broken = approve(sandbox, 77)
    sandbox.control.set_whitelist_metadata(broken, payloadAsString=None)
    task = PlanTask(path, ignore=[int(broken)])
    assert PlanTask(path).run()["counts"]["unreadable"] == len(ROWS) + 1
    result = task.run()
    assert (result["counts"]["create"], result["counts"]["unreadable"]) == (len(ROWS), 1)
    assert f"Ignored, although each may be a row's: `{broken}`" in result["report"]
    apply = ApplyTask(path, result["plan_hash"], RowsStore())
    assert "not the one that was approved" in str(apply.fails())
    assert apply.attempt(ignore=broken)["counts"]["created"] == len(ROWS)


def differ(sandbox: Sandbox) -> None:
    approve(sandbox, 1, label="Another")


def reject(sandbox: Sandbox) -> None:
    sandbox.control.set_whitelist_status(approve(sandbox, 1), "REJECTED")


def hide(sandbox: Sandbox) -> None:
    sandbox.control.set_whitelist_metadata(approve(sandbox, 1), hash="00")


def add(sandbox: Sandbox) -> None:
    approve(sandbox, 1)
    approve(sandbox, 77)


def forget(sandbox: Sandbox) -> None:
    """Leave the first row out."""


@pytest.mark.parametrize(
    ("change", "state"),
    [(differ, "differs"), (reject, "rejected"), (hide, "unreadable"), (add, "undeclared"), (forget, "create")],
)
def test_a_reconciliation_fails_on_each_change(sandbox: Sandbox, path: str, change: Any, state: str) -> None:
    change(sandbox)
    for number in ROWS[1:]:
        approve(sandbox, number)
    task = PlanTask(path, fail_on_changes=True)
    error = task.fails()
    assert isinstance(error, CustodyConflictError)
    assert not error.retryable
    # A row that may be the request that cannot be read is not created.
    number = 2 if state == "unreadable" else 1
    assert f"{number} {state}" in str(error)
    assert task.ti.pushed["return_value"]["counts"][state] == number
    assert task.ti.pushed["return_value"]["report"]


def test_a_reconciliation_takes_what_is_pending_for_no_change(sandbox: Sandbox, path: str) -> None:
    for number in ROWS:
        somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    sandbox.control.set_whitelist_status(sandbox.control.whitelist_requests()[0]["id"], "APPROVED")
    result = PlanTask(path, fail_on_changes=True).run()
    assert result["counts"] == {**dict.fromkeys(STATES, 0), "pending": 3, "unchanged": 1}


def test_a_plan_that_does_nothing_can_be_skipped(sandbox: Sandbox, path: str) -> None:
    assert PlanTask(path, skip_if_nothing_to_do=True).run()["counts"]["create"] == 4
    for number in ROWS:
        approve(sandbox, number)
    assert PlanTask(path).run()["counts"]["unchanged"] == 4
    task = PlanTask(path, skip_if_nothing_to_do=True)
    with pytest.raises(AirflowSkipException, match="nothing to do"):
        task.run()
    assert task.ti.pushed["return_value"]["counts"]["unchanged"] == 4


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_creates": 3}, "it creates 4, and max_creates is 3"),
        ({"max_create_percent": 99.5}, "it creates 4 of the 4 rows of the file, and max_create_percent is 99.5"),
        ({"prune": True, "max_deletes": 1}, "it deletes 2, and max_deletes is 1"),
        ({"must_keep": ["Label 9"]}, "must_keep names 'Label 9', which the file does not have"),
    ],
    ids=str,
)
def test_a_plan_over_a_limit_is_shown_in_full_and_fails(
    sandbox: Sandbox, path: str, limits: dict[str, Any], reason: str, task_log: TaskLog
) -> None:
    for number in (77, 78):
        approve(sandbox, number)
    task = PlanTask(path, **limits)
    error = task.fails()
    assert isinstance(error, CustodyRequestError)
    assert reason in str(error)
    assert "nothing was sent" in str(error)
    assert task.ti.pushed["return_value"]["counts"]["create"] == 4
    text = task_log.text
    assert all(address(number) in text for number in ROWS)


@pytest.mark.parametrize("limits", [{"max_creates": -1}, {"max_creates": 1.5}, {"max_delete_percent": True}], ids=str)
def test_a_limit_must_be_a_number(path: str, limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be a (whole )?number from 0"):
        CustodyPlanWhitelistOperator(task_id="plan", path=path, **limits)


def test_nothing_is_done_for_a_chain_that_is_only_tried(sandbox: Sandbox, path: str) -> None:
    result = PlanTask(path, dry_run_chains=["eth"]).run()
    assert result["counts"]["create"] == 4
    apply = {"task_id": "apply", "path": path, "plan_hash": result["plan_hash"], "lookup_wait": 0.2}
    ti = FakeTaskInstance()
    done = execute(lambda: CustodyApplyWhitelistPlanOperator(dry_run_chains=["ETH"], **apply), ti=ti)
    assert done["request_ids"] == []
    # It is not what was approved without it.
    with failing_at_once("not the one that was approved"):
        execute(lambda: CustodyApplyWhitelistPlanOperator(**apply), ti=ti)
    check_exactly(sandbox, [])


def test_a_listing_of_which_a_page_cannot_be_read_plans_nothing(sandbox: Sandbox, path: str) -> None:
    sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", status=500, times=None)
    task = PlanTask(path)
    error = task.fails()
    assert isinstance(error, CustodyServerError)
    assert error.retryable
    assert task.ti.pushed == {}


# --- the file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "version: 1\naddresses: []\n", "addresses: [", "version: 1\naddresses: [{a: 1}]\n"]
)
def test_a_file_with_faults_is_the_authors_and_not_retried(sandbox: Sandbox, tmp_path: Path, text: str) -> None:
    path = tmp_path / "whitelist.yaml"
    path.write_text(text)
    for make in (CustodyPlanWhitelistOperator, CustodyApplyWhitelistPlanOperator):
        more = {"plan_hash": "00" * 32} if make is CustodyApplyWhitelistPlanOperator else {}
        with failing_at_once("nothing was sent") as caught:
            execute(lambda make=make, more=more: make(task_id="task", path=str(path), **more))  # type: ignore[misc]
        assert isinstance(caught.value.error, WhitelistFileError)
    assert sandbox.control.request_log() == []


def test_a_file_that_is_missing_is_not_retried(sandbox: Sandbox, tmp_path: Path) -> None:
    for name in ("missing.yaml", ".", "missing/rows.csv"):
        error = PlanTask(str(tmp_path / name)).fails()
        assert not error.retryable
        assert str(tmp_path) in str(error)
    assert sandbox.control.request_log() == []


def dag_in(folder: Path) -> DAG:
    """Return a DAG whose file is said to be in a folder."""
    dag = new_dag()
    dag.fileloc = str(folder / "dag.py")
    return dag


def test_a_relative_path_begins_at_the_dags_file(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    write_rows(tmp_path / "lists" / "rows.yaml", ROWS)
    with dag_in(tmp_path):
        task = CustodyPlanWhitelistOperator(task_id="plan", path="lists/rows.yaml")
    assert execute(lambda: task)["counts"]["create"] == 4


@pytest.mark.parametrize("bundle", [True, False])
@pytest.mark.parametrize("kind", ["parent", "link", "linked folder", "URL"])
def test_a_path_that_leads_out_of_the_bundle_is_refused(
    sandbox: Sandbox, tmp_path: Path, kind: str, bundle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "bundle", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    write_rows(outside / "rows.yaml", ROWS)
    (root / "link.yaml").symlink_to(outside / "rows.yaml")
    (root / "linked").symlink_to(outside)
    path = {"parent": "../outside/rows.yaml", "link": "link.yaml", "linked folder": "linked/rows.yaml"}.get(
        kind, f"file://{root}/link.yaml"
    )
    ti: Any = FakeTaskInstance()
    if bundle:
        ti.bundle_instance = type("Bundle", (), {"path": root})()
    else:
        monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(root))
    with dag_in(root):
        task = CustodyPlanWhitelistOperator(task_id="plan", path=path)
    with failing_at_once("leads out of the DAG's bundle"):
        execute(lambda: task, ti=ti)
    assert sandbox.control.request_log() == []
    # Whoever wants that says so.
    for path in (f"{outside}/rows.yaml", f"file://{outside}/rows.yaml"):
        with dag_in(root):
            task = CustodyPlanWhitelistOperator(task_id="plan", path=path)
        assert execute(lambda task=task: task, ti=ti)["counts"]["create"] == 4  # type: ignore[misc]


def test_a_link_within_the_bundle_is_followed(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    write_rows(tmp_path / "lists" / "rows.yaml", ROWS)
    os.symlink("lists/rows.yaml", tmp_path / "rows.yaml")
    with dag_in(tmp_path):
        task = CustodyPlanWhitelistOperator(task_id="plan", path="rows.yaml")
    assert execute(lambda: task)["counts"]["create"] == 4


def test_a_request_that_cannot_be_read_is_ignored_by_name_in_planning_and_applying(sandbox: Sandbox, path: str) -> None:
    broken = somebody_creates(sandbox, label="Other", address=address(50))
    sandbox.control.set_whitelist_metadata(broken, payloadAsString="{")
    assert PlanTask(path).run()["counts"]["create"] == 0
    planned = PlanTask(path, ignore=[broken]).run()
    assert planned["counts"]["create"] == 4
    arguments = {"path": path, "plan_hash": planned["plan_hash"], "lookup_wait": 0.2}
    with failing_at_once("not the one that was approved"):
        execute(lambda: CustodyApplyWhitelistPlanOperator(task_id="apply", **arguments))
    assert (
        execute(lambda: CustodyApplyWhitelistPlanOperator(task_id="apply", ignore=broken, **arguments))["counts"][
            "created"
        ]
        == 4
    )


# --- in a DAG run ------------------------------------------------------------------------------------------------


def test_mapped_tasks_with_native_templates(sandbox: Sandbox, airflow_db: None, tmp_path: Path) -> None:
    paths = [write_rows(tmp_path / f"{number}.yaml", range(number, number + 2)) for number in (1, 11)]
    dag = new_dag()
    dag.render_template_as_native_obj = True
    with dag:
        plans = [CustodyPlanWhitelistOperator(task_id=f"plan_{index}", path=path) for index, path in enumerate(paths)]
        apply = CustodyApplyWhitelistPlanOperator.partial(task_id="apply", lookup_wait=0.2).expand_kwargs(
            [
                {"path": path, "plan_hash": f"{{{{ ti.xcom_pull('plan_{index}')['plan_hash'] }}}}"}
                for index, path in enumerate(paths)
            ]
        )
        plans >> apply
    run = run_dag(dag)
    assert run.state == "success"
    assert len(run.xcom("apply", 0)["request_ids"]) == len(run.xcom("apply", 1)["request_ids"]) == 2
    check_exactly(sandbox, [1, 2, 11, 12])


def test_what_has_changed_since_the_approval_is_named(
    sandbox: Sandbox, airflow_db: None, path: str, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []

    class Explaining(CustodyApplyWhitelistPlanOperator):
        def _run(self, context: Any, hook: Any) -> Any:
            somebody_creates(sandbox, label="Label 3", address=address(3))
            write_rows(Path(path), [1, 3, 4, 99])
            try:
                return super()._run(context, hook)
            except CustodyError as error:
                messages.append(str(error))
                raise

    with new_dag() as dag:
        plan = CustodyPlanWhitelistOperator(task_id="plan", path=path)
        Explaining(task_id="apply", path=path, plan_hash=plan.output["plan_hash"])  # type: ignore[index]
    assert run_dag(dag).state == "failed"
    (message,) = messages
    assert "Now it has 3 create: line 3 create; line 5 create; line 6 create" in message
    assert "start a new run, which plans again and has the new plan approved" in message
    check_exactly(sandbox, [3])
