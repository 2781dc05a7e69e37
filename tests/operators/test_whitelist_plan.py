"""Planning a whitelist that is kept as a file, and the place of that file. The client's tests cover the plan itself."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from support.airflow.airflow_runs import FakeTaskInstance, execute, failing_at_once, new_dag
from support.airflow.apply_tries import ApplyTask, address, check_exactly, effective, plan, write_rows
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import RowsStore, failure_of, somebody_creates

from airflow_custody.client import CustodyConflictError, CustodyError, CustodyRequestError, CustodyServerError
from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.client.whitelist.plans.plan import ROW_STATES
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

ROWS = range(1, 5)
NOTHING = dict.fromkeys(ROW_STATES, 0)

pytestmark = pytest.mark.usefixtures("connection", "airflow_db", "waits")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_rows(tmp_path / "whitelist.yaml", ROWS)


class PlanTask:
    """A task instance that plans."""

    def __init__(self, path: str, **arguments: Any) -> None:
        self.ti = FakeTaskInstance()
        self.arguments = {"path": path, **arguments}

    def run(self) -> dict[str, Any]:
        return plan(ti=self.ti, **self.arguments)

    def fails(self) -> CustodyError:
        return failure_of(self.run)


# --- what is planned -------------------------------------------------------------------------------------------


def test_the_xcom_of_a_plan(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    effective(sandbox, 1)
    somebody_creates(sandbox, label="Label 2", address=address(2))
    result = PlanTask(path).run()
    assert list(result) == ["plan_hash", "counts", "report", "question", "parts", "source"]
    assert len(result["plan_hash"]) == 64
    assert result["counts"] == {**NOTHING, "create": 2, "pending": 1, "unchanged": 1}
    assert result["plan_hash"] in result["report"]
    assert "line 6" in task_log.text
    # Facts that are only observed do not change the hash; operations do.
    sandbox.control.set_whitelist_status(effective(sandbox, 77), "pending")
    assert PlanTask(path).run()["plan_hash"] == result["plan_hash"]
    effective(sandbox, 3)
    assert PlanTask(path).run()["plan_hash"] != result["plan_hash"]


def test_a_plan_with_hidden_requests_creates_and_says_so_first(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    before = PlanTask(path).run()
    sandbox.control.configure(listings={"whitelist": {"dropped": [effective(sandbox, 1), effective(sandbox, 77)]}})
    result = PlanTask(path).run()
    # The hidden requests are not used, so the operations and the hash are the same.
    assert (result["plan_hash"], result["counts"]) == (before["plan_hash"], before["counts"])
    text = "The service counts 2 requests that it does not return."
    assert result["report"].splitlines()[0].startswith(f"**{text}")
    assert result["question"].endswith("? 2 requests are hidden.")
    assert text in task_log.text


def test_planning_changes_nothing(sandbox: Sandbox, path: str) -> None:
    PlanTask(path, prune=True).run()
    assert {each["method"] for each in sandbox.control.request_log()} == {"GET"}


def test_addresses_that_could_not_be_checked_are_in_the_log(path: str, task_log: TaskLog) -> None:
    text = f"{path}: addresses: 1 of 4 could not be checked (XYZ)."
    Path(path).write_text(Path(path).read_text().replace("ETH", "XYZ", 1))
    PlanTask(path, check_address=False).run()
    assert text not in task_log.text
    PlanTask(path).run()
    assert task_log.text.count(text) == 1


def test_a_reconciliation_fails_on_changes_and_names_them(sandbox: Sandbox, path: str) -> None:
    effective(sandbox, 1, label="Another")
    sandbox.control.set_whitelist_status(effective(sandbox, 2), "REJECTED")
    for each in (3, 77):
        effective(sandbox, each)
    task = PlanTask(path, fail_on_changes=True)
    error = task.fails()
    assert isinstance(error, CustodyConflictError)
    assert not error.retryable
    changes = {"create": 1, "differs": 1, "rejected": 1, "undeclared": 1}
    for state, number in changes.items():
        assert f"{number} {state}" in str(error)
    pushed = task.ti.pushed["return_value"]
    assert {state: number for state, number in pushed["counts"].items() if number} == {**changes, "unchanged": 1}
    assert pushed["report"]


def test_a_pending_row_is_no_change_and_a_plan_without_operations_can_be_skipped(sandbox: Sandbox, path: str) -> None:
    assert PlanTask(path, skip_if_nothing_to_do=True).run()["counts"]["create"] == 4
    effective(sandbox, 1)
    for number in ROWS[1:]:
        somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    counts = {**NOTHING, "pending": 3, "unchanged": 1}
    assert PlanTask(path, fail_on_changes=True).run()["counts"] == counts
    task = PlanTask(path, skip_if_nothing_to_do=True)
    with pytest.raises(AirflowSkipException, match="nothing to do"):
        task.run()
    assert task.ti.pushed["return_value"]["counts"] == counts


def test_a_plan_over_a_limit_is_shown_in_full_and_fails(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    task = PlanTask(path, max_creates=3)
    error = task.fails()
    assert isinstance(error, CustodyRequestError)
    assert "it creates 4 requests, but max_creates is 3" in str(error)
    assert "nothing is sent" in str(error)
    assert task.ti.pushed["return_value"]["counts"]["create"] == 4
    assert all(address(number) in task_log.text for number in ROWS)


@pytest.mark.parametrize(
    ("operator", "given"),
    [
        *((CustodyPlanWhitelistOperator, {"path": "list.yaml", "max_creates": wrong}) for wrong in (-1, True)),
        *((CustodyPlanWhitelistOperator, {"path": "list.yaml", "at_most": wrong}) for wrong in (0, True, "5")),
        *(
            (CustodyApplyWhitelistPlanOperator, {"plan": {}, "plan_hash": "0", "max_parallel": wrong})
            for wrong in (0, 33)
        ),
    ],
    ids=str,
)
def test_a_limit_must_be_a_number(operator: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be a (whole )?number from [01]"):
        operator(task_id="task", **given)


def test_an_unreadable_request_can_be_ignored_by_planning_and_applying(sandbox: Sandbox, path: str) -> None:
    broken = effective(sandbox, 77)
    sandbox.control.set_whitelist_metadata(broken, payloadAsString=None)
    assert PlanTask(path).run()["counts"]["unreadable"] == len(ROWS) + 1
    result = PlanTask(path, ignore=[int(broken)]).run()
    assert result["counts"]["create"] == len(ROWS)
    assert result["counts"]["unreadable"] == 1
    assert f"Ignored requests, which may be for rows of the file: `{broken}`" in result["report"]
    apply = ApplyTask(result, RowsStore())
    assert "not the approved plan" in str(apply.fails(source={"ignore": []}))
    assert apply.attempt()["counts"]["created"] == len(ROWS)


def test_a_listing_of_which_a_page_cannot_be_read_plans_nothing(sandbox: Sandbox, path: str) -> None:
    sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", status=500, times=None)
    task = PlanTask(path)
    error = task.fails()
    assert isinstance(error, CustodyServerError)
    assert error.retryable
    assert task.ti.pushed == {}


def test_the_changes_since_the_approval_are_named(sandbox: Sandbox, path: str) -> None:
    approved = PlanTask(path).run()
    apply = ApplyTask(approved, RowsStore())
    somebody_creates(sandbox, label="Label 3", address=address(3))
    write_rows(Path(path), [1, 3, 4, 99])
    message = str(apply.fails())
    text = "Approved: create 4, delete 0. Now: create 3, delete 0. new: create line 6; no longer planned: "
    assert f"{text}create line 4, create line 5 (now pending)\n" in message
    assert "Compare the current plan" not in message
    assert "start a new run, which plans again and waits for a new approval" in message
    check_exactly(sandbox, [3])


@pytest.mark.parametrize(
    "given",
    [{"parts": {}}, {"plan_hash": "0" * 64, "parts": {"0": "create line 1"}}],
    ids=["a large plan", "a later plan"],
)
def test_without_the_approved_parts_the_current_operations_are_named(
    sandbox: Sandbox, path: str, given: dict[str, Any]
) -> None:
    approved = PlanTask(path).run()
    apply = ApplyTask(approved, RowsStore())
    somebody_creates(sandbox, label="Label 3", address=address(3))
    write_rows(Path(path), [1, 3, 4, 99])
    message = str(apply.fails(plan={**approved, **given}))
    current = "create 3, delete 0 (create line 3, create line 5, create line 6); already pending: 1 row"
    assert f"The current plan: {current}" in message
    assert "Compare the current plan in the log" in message
    check_exactly(sandbox, [3])


def test_an_edited_plan_gains_nothing(sandbox: Sandbox, path: str, tmp_path: Path) -> None:
    """Airflow's users can edit the XCom of the plan task."""
    approved = PlanTask(path).run()
    assert approved["source"] == {
        "path": path,
        "prune": False,
        "replace": False,
        "only": {},
        "ignore": [],
        "check_address": True,
        "omit_if_none": [],
        "at_most": None,
    }
    apply = ApplyTask(approved, RowsStore())
    other = write_rows(tmp_path / "other.yaml", [99])
    effective(sandbox, 98)
    edits: list[dict[str, Any]] = [{"path": other}, {"prune": True}, {"only": {"customer_id": ["c"]}}]
    for source in edits:
        assert apply.fails(source=source).code in ("plan-changed", "file-wrong"), source
    assert apply.fails(plan=PlanTask(other).run()).code == "plan-changed"
    check_exactly(sandbox, [98])
    # Only the operations matter.
    assert apply.attempt(source={"check_address": False, "replace": True})["counts"]["created"] == len(ROWS)


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        (None, "plan"),
        ("approved", "plan must be the result of a plan task"),
        ({"source": None}, "its source is malformed"),
        ({"source": {"prune": "yes"}}, "its source.path is malformed"),
        ({"path": 7}, "its source.path is malformed"),
        ({"path": "a\0b"}, "has a NUL"),
        ({"path": "../../whitelist.yaml"}, "leads out of the DAG bundle"),
        ({"prune": 1}, "its source.prune is malformed"),
        ({"ignore": [1]}, "its source.ignore.0 is malformed"),
        ({"only": {"label": ["x"]}}, "only must have values"),
        ({"more": 1}, "its source.more is malformed"),
        ({"path": None}, "the plan has rows, so this task needs rows="),
    ],
    ids=str,
)
def test_a_malformed_plan_is_refused(sandbox: Sandbox, path: str, edited: Any, why: str) -> None:
    approved = PlanTask(path).run()
    apply = ApplyTask(approved, RowsStore())
    plan: Any = edited
    if isinstance(edited, dict):
        plan = {**approved, **(edited if "source" in edited else {"source": {**approved["source"], **edited}})}
    sandbox.control.clear_request_log()
    assert why in str(apply.fails(plan=plan))
    assert sandbox.control.request_log() == []


def test_a_plan_of_another_version_is_refused(sandbox: Sandbox, path: str) -> None:
    approved = PlanTask(path).run()
    apply = ApplyTask(approved, RowsStore())
    error = apply.fails(plan={name: value for name, value in approved.items() if name != "source"})
    assert error.code == "parameter-wrong"
    assert "another version of airflow-provider-custody made it" in str(error)


def test_a_file_that_is_no_longer_a_whitelist_is_not_quoted(sandbox: Sandbox, path: str) -> None:
    """Airflow's users can name another file in the XCom of the plan task."""
    apply = ApplyTask(PlanTask(path).run(), RowsStore())
    Path(path).write_text("password: secret\n")
    message = str(apply.fails())
    assert f"{path} is no longer a readable whitelist" in message
    assert "secret" not in message
    assert "password" not in message


# --- the file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["addresses: [", None], ids=["broken", "missing"])
def test_a_file_with_faults_is_the_authors_and_not_retried(sandbox: Sandbox, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "whitelist.yaml"
    if text is not None:
        path.write_text(text)
    error = PlanTask(str(path)).fails()
    assert isinstance(error, WhitelistFileError)
    assert not error.retryable
    assert f"{path}: 1 fault; nothing is sent" in str(error)
    assert sandbox.control.request_log() == []


def plan_in(folder: Path, path: str, **context: Any) -> dict[str, Any]:
    """Plan in a DAG whose file appears to be in a folder."""
    dag = new_dag()
    dag.fileloc = str(folder / "dag.py")
    with dag:
        task = CustodyPlanWhitelistOperator(task_id="plan", path=path)
    result: dict[str, Any] = execute(lambda: task, **context)
    return result


def test_a_relative_path_begins_at_the_dags_file(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    write_rows(tmp_path / "lists" / "rows.yaml", ROWS)
    # A link within the bundle is followed.
    os.symlink("lists/rows.yaml", tmp_path / "link.yaml")
    for path in ("lists/rows.yaml", "link.yaml"):
        assert plan_in(tmp_path, path)["counts"]["create"] == 4


@pytest.mark.parametrize(
    ("path", "why"), [("a.yaml", "Too many levels of symbolic links"), ("a\0.yaml", "has a NUL")], ids=["loop", "NUL"]
)
def test_a_path_that_cannot_be_opened_is_one_fault(sandbox: Sandbox, tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    with failing_at_once(why) as caught:
        plan_in(tmp_path, path)
    assert caught.value.error.code == "file-wrong"
    assert sandbox.control.request_log() == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A bundle with links that lead out of it, to a file and a folder beside it."""
    root, outside = tmp_path / "bundle", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    write_rows(outside / "rows.yaml", ROWS)
    (root / "link.yaml").symlink_to(outside / "rows.yaml")
    (root / "linked").symlink_to(outside)
    (tmp_path / "other").symlink_to(root)
    return root


def in_bundle(root: Path) -> FakeTaskInstance:
    ti: Any = FakeTaskInstance()
    ti.bundle_instance = type("Bundle", (), {"path": root})()
    instance: FakeTaskInstance = ti
    return instance


# All of them name link.yaml or linked/rows.yaml in the bundle; on some lines of Airflow, its own reader finds them.
LEADING_OUT = [
    "../outside/rows.yaml",
    "link.yaml",
    "./link.yaml",
    "linked/rows.yaml",
    "linked/../link.yaml",
    "{root}/link.yaml",
    "/{root}/link.yaml",
    "//{root}/link.yaml",
    "{root}/../bundle/link.yaml",
    "{root}/../other/link.yaml",
    "{root}/../other/linked/rows.yaml",
    "/proc/self/root{root}/link.yaml",
    "file://{root}/link.yaml",
    "FILE://{root}/link.yaml",
    "File://{root}/link.yaml",
    "file:///{root}/link.yaml",
    "file://link.yaml",
    "local://{root}/link.yaml",
    "LOCAL://{root}/link.yaml",
    "LOCAL://{root}/linked/rows.yaml",
]


@pytest.mark.parametrize("bundle", [True, False])
@pytest.mark.parametrize("path", LEADING_OUT)
def test_a_path_that_leads_out_of_the_bundle_is_refused(
    sandbox: Sandbox, root: Path, path: str, bundle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(root))
    with failing_at_once("leads out of the DAG bundle"):
        plan_in(root, path.format(root=root), ti=in_bundle(root) if bundle else FakeTaskInstance())
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("scheme", ["", "file://", "FILE://"])
def test_an_absolute_path_may_be_outside_of_the_bundle(sandbox: Sandbox, root: Path, scheme: str) -> None:
    path = f"{scheme}{root.parent}/outside/rows.yaml"
    assert plan_in(root, path, ti=in_bundle(root))["counts"]["create"] == 4


@pytest.mark.parametrize(
    "path",
    [
        " file://{root}/link.yaml",
        "fi\tle://{root}/link.yaml",
        "\nfile://{root}/link.yaml",
        "\x00file://{root}/link.yaml",
        "file ://{root}/link.yaml",
        "://{root}/link.yaml",
        "file::file://{root}/link.yaml",
        "simplecache::FILE://{root}/link.yaml",
        "FILE+x://{root}/link.yaml",
        "file:{root}/link.yaml",
        "FILE:{root}/link.yaml",
        "%66ile://{root}/link.yaml",
        "memory://{root}/link.yaml",
        "~/link.yaml",
    ],
)
def test_no_other_spelling_reads_what_a_link_leads_to(sandbox: Sandbox, root: Path, path: str) -> None:
    with failing_at_once("1 fault; nothing is sent|has a NUL"):
        plan_in(root, path.format(root=root), ti=in_bundle(root))
    assert sandbox.control.request_log() == []


def test_a_relative_path_of_a_dag_in_an_archive_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    archive, rows = tmp_path / "dags.zip", write_rows(tmp_path / "rows.yaml", ROWS)
    with zipfile.ZipFile(archive, "w") as file:
        file.write(rows, "rows.yaml")
    for folder in (archive, archive / "folder"):
        with failing_at_once("'rows.yaml' is relative, and the DAG file is in the archive .*dags.zip; .*absolute path"):
            plan_in(folder, "rows.yaml", ti=in_bundle(tmp_path))
        assert plan_in(folder, rows, ti=in_bundle(tmp_path))["counts"]["create"] == 4
