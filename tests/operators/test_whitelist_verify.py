"""Verifying the whitelist in a DAG, and the file with the evidence."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowSkipException
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, execute, failing_at_once, new_dag, run_dag
from support.airflow.apply_tries import address, effective
from support.airflow.connections import connection_json
from support.airflow.storages import Storage, attach, object_path
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import failure_of, somebody_creates
from support.airflow.webhook_reads import register_assets, stored_events

from airflow_custody.assets import whitelist_asset
from airflow_custody.cli.main import main
from airflow_custody.client import CustodyError, CustodyVerificationError
from airflow_custody.operators.whitelist import CustodyVerifyWhitelistOperator
from airflow_custody.sandbox import Sandbox

NOTHING = {"verified": 0, "unverified": 0, "pending": 0, "rejected": 0, "absent": 0}

pytestmark = [pytest.mark.usefixtures("airflow_db"), pytest.mark.filterwarnings("ignore")]


def pin(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, conn_id: str = "custody_default", **pins: Any) -> None:
    """Define a connection that pins the sandbox's keys, or other keys."""
    pins = {**sandbox.control.pins(), **pins}
    pins["superadmin_keys"] = "".join(pins["superadmin_keys"])
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", connection_json(sandbox, **pins))


@pytest.fixture(autouse=True)
def pinned(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(sandbox, monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in an empty folder."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    return folder / "evidence.json"


@pytest.fixture
def auditor(sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, Any]]:
    """Return a function that verifies a file on another machine, which has the keys, but no connection."""
    keys = tmp_path / "keys.pem"
    keys.write_text("".join(sandbox.control.pins()["superadmin_keys"]))

    def verify(place: str) -> tuple[int, Any]:
        sandbox.control.clear_request_log()
        capsys.readouterr()
        pins = ["--superadmin-keys", str(keys), "--superadmin-minimum", "2"]
        code = main(["whitelist", "verify", "--from", place, *pins, "-o", "json"])
        assert sandbox.control.request_log() == []
        return code, json.loads(capsys.readouterr().out)

    return verify


def signed(sandbox: Sandbox, number: int) -> str:
    made = somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    sandbox.control.sign_whitelist_requests([made])
    return made


def verify(ti: FakeTaskInstance | None = None, **arguments: Any) -> dict[str, Any]:
    """Verify, and return the XCom."""
    operator = CustodyVerifyWhitelistOperator
    result: dict[str, Any] = execute(
        lambda: operator(task_id="verify", **arguments), ti=ti or FakeTaskInstance(), dag_run=None
    )
    return result


def fails(**arguments: Any) -> CustodyError:
    return failure_of(lambda: verify(**arguments))


def nightly(path: Any, conn_id: str = "custody_default", **arguments: Any) -> DAG:
    with new_dag() as dag:
        CustodyVerifyWhitelistOperator(task_id="verify", path=path, custody_conn_id=conn_id, **arguments)
    register_assets(dag)
    return dag


# --- what is found ----------------------------------------------------------------------------------------------


def test_a_night_leaves_evidence_that_another_machine_verifies(
    sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch, auditor: Callable[[str], tuple[int, Any]]
) -> None:
    pin(sandbox, monkeypatch, "nightly")
    ids = [signed(sandbox, 1), signed(sandbox, 1), signed(sandbox, 2)]
    dag = nightly("{{ params.folder }}/{{ run_id }}-{{ ti.try_number }}.json", conn_id="{{ params.conn_id }}")
    dag.params.update({"folder": str(path.parent), "conn_id": "nightly"})
    run = run_dag(dag)
    assert run.state == "success"
    (file,) = path.parent.iterdir()
    assert file.name.endswith("-1.json")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    counts = {**NOTHING, "verified": 3}
    result = {"counts": counts, "path": str(file), "sha256": sha256, "duplicates": [ids[:2]]}
    assert run.xcom("verify") == result
    assert {key: run.xcom("verify", key=key) for key in result} == result
    events = [{"event": "verified", "path": str(file), "sha256": sha256, **counts}]
    assert stored_events(whitelist_asset("nightly")) == (events if AIRFLOW >= (3, 0) else [])
    code, again = auditor(str(file))
    assert code == 0
    assert again["file"] == {"name": str(file), "sha256": sha256}
    assert (again["counts"], again["duplicates"]) == (counts, [ids[:2]])


def test_an_unsigned_request_fails_the_task_after_the_evidence_is_written(
    sandbox: Sandbox, path: Path, auditor: Callable[[str], tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(sandbox, monkeypatch, "forged")
    signed(sandbox, 1)
    forged = effective(sandbox, 2)
    run = run_dag(nightly(str(path), conn_id="forged", retries=2))
    assert (run.state, run.tries["verify", -1]) == ("failed", 1)
    counts = {**NOTHING, "verified": 1, "unverified": 1}
    assert run.pushed("verify", "counts") == counts
    assert run.pushed("verify", "sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
    assert stored_events(whitelist_asset("forged")) == []
    code, again = auditor(str(path))
    assert (code, again["counts"]) == (2, counts)
    error = fails(path=f"{path}.2")
    assert isinstance(error, CustodyVerificationError)
    assert f"1 of 2 requests could not be verified by signatures: request {forged}: UNVERIFIED: " in str(error)
    assert f"The evidence is in {path}.2." in str(error)


def test_findings_can_be_left_to_another_task(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    pin(sandbox, monkeypatch, "lenient")
    effective(sandbox, 2)
    run = run_dag(nightly(str(path), conn_id="lenient", fail_on_unverified=False))
    assert run.state == "success"
    assert run.xcom("verify")["counts"] == {**NOTHING, "unverified": 1}
    # This verification proves nothing, so no event is emitted.
    assert stored_events(whitelist_asset("lenient")) == []


def test_only_the_given_ids_are_verified(sandbox: Sandbox) -> None:
    good, _ = signed(sandbox, 1), effective(sandbox, 2)
    # Without a path, there is no file.
    found: dict[str, Any] = {"counts": {**NOTHING, "verified": 1}, "path": None, "sha256": None, "duplicates": []}
    assert verify(ids=[good, int(good)]) == found
    assert "1 of 2 requests could not be verified by signatures: request 99999: ABSENT" in str(
        fails(ids=[good, "99999"])
    )


def test_an_empty_whitelist_is_neither_a_failure_nor_a_proof(
    sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(sandbox, monkeypatch, "nothing")
    run = run_dag(nightly(str(path), conn_id="nothing"))
    assert run.state == "success"
    assert run.xcom("verify")["counts"] == NOTHING
    assert stored_events(whitelist_asset("nothing")) == []


def test_an_empty_list_of_ids_is_not_all_of_them(sandbox: Sandbox) -> None:
    with failing_at_once("ids is an empty list"):
        verify(ids=[])
    with pytest.raises(AirflowSkipException, match="ids is an empty list"):
        verify(ids=[], skip_if_empty=True)
    assert sandbox.control.request_log() == []


def test_without_pinned_keys_it_refuses(sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
    with failing_at_once("Set superadmin_keys and superadmin_minimum in the Airflow connection"):
        verify(path=str(path))
    assert sandbox.control.request_log() == []
    assert os.listdir(path.parent) == []


# --- the file ---------------------------------------------------------------------------------------------------


def test_a_service_that_goes_away_in_between_leaves_no_file(sandbox: Sandbox, path: Path) -> None:
    signed(sandbox, 1)
    sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", status=503, skip=2, times=None)
    error = fails(path=str(path))
    assert error.retryable
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("existing", ["file", "link", "folder"])
def test_an_existing_file_is_never_replaced(sandbox: Sandbox, path: Path, existing: str) -> None:
    if existing == "file":
        path.write_text("mine")
    elif existing == "link":
        path.symlink_to("elsewhere.json")
    else:
        path.mkdir()
    with failing_at_once(r"it already exists, and is never replaced\. Give each try its own path, .*try_number"):
        verify(path=str(path))
    assert os.listdir(path.parent) == [path.name]
    assert existing != "file" or path.read_text() == "mine"


@pytest.mark.parametrize("place", ["{folder}/no/evidence.json", "/sys/evidence.json"])
def test_a_folder_that_cannot_be_written_is_named(sandbox: Sandbox, path: Path, place: str) -> None:
    place = place.format(folder=path.parent)
    with failing_at_once(f"the evidence was not written: {place}: .*The folder must exist and be writable"):
        verify(path=place)


@pytest.mark.parametrize(
    ("code", "retryable"), [(errno.ENOSPC, True), (errno.EACCES, False)], ids=["disk full", "not allowed"]
)
def test_a_failed_write_leaves_nothing_and_hides_no_finding(
    sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, code: int, retryable: bool
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    forged = effective(sandbox, 1)
    monkeypatch.setattr(os, "fsync", fail)
    error = fails(path=str(path))
    assert error.retryable == retryable
    assert os.listdir(path.parent) == []
    assert f"the evidence was not written: {path}: {os.strerror(code)}" in error.message
    assert f"request {forged}: UNVERIFIED" in task_log.text


def test_evidence_that_could_not_be_read_again_is_not_written(
    sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_custody.client.verification.evidence.MAX_EVIDENCE_BYTES", 100)
    with failing_at_once("the evidence is larger than .*; nothing was written.*Verify fewer requests at once"):
        verify(path=str(path))
    assert os.listdir(path.parent) == []


# --- where it is ------------------------------------------------------------------------------------------------


def verify_in(root: Path, path: str, *, has_bundle: bool) -> dict[str, Any]:
    """Verify in a DAG whose file appears to be in a folder."""
    dag, ti = new_dag(), FakeTaskInstance()
    dag.fileloc = str(root / "dag.py")
    if has_bundle:
        ti.bundle_instance = type("Bundle", (), {"path": root})()  # type: ignore[attr-defined]
    with dag:
        task = CustodyVerifyWhitelistOperator(task_id="verify", path=path)
    result: dict[str, Any] = execute(lambda: task, ti=ti)
    return result


@pytest.mark.parametrize("has_bundle", [True, False])
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("evidence.json", "is relative"),
        ("~/evidence.json", "is relative"),
        ("file://evidence.json", "is relative"),
        ("{root}/evidence.json", "leads into the DAG bundle"),
        ("{root}/link/evidence.json", "leads into the DAG bundle"),
        ("{root}/../other/link/evidence.json", "leads into the DAG bundle"),
        ("file://{root}/link/evidence.json", "leads into the DAG bundle"),
        ("LOCAL://{root}/evidence.json", "leads into the DAG bundle"),
        ("fi\tle://{root}/evidence.json", "not an object storage scheme"),
        ("simplecache::file://{root}/evidence.json", "not an object storage scheme"),
    ],
)
def test_a_bundle_is_not_written(
    sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch, place: str, why: str, has_bundle: bool
) -> None:
    root = path.parent / "bundle"
    root.mkdir()
    (root / "link").symlink_to(path.parent)
    (path.parent / "other").symlink_to(root)
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(root))
    with failing_at_once(why):
        verify_in(root, place.format(root=root), has_bundle=has_bundle)
    assert sandbox.control.request_log() == []
    assert sorted(os.listdir(path.parent)) == ["bundle", "other"]
    assert os.listdir(root) == ["link"]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_outside_of_the_bundle_is_written(sandbox: Sandbox, path: Path, scheme: str) -> None:
    (path.parent / "bundle").mkdir()
    assert verify_in(path.parent / "bundle", f"{scheme}{path}", has_bundle=True)["path"]
    assert path.exists()


def test_evidence_in_an_object_storage_is_verified_from_there(
    sandbox: Sandbox, storage: Storage, auditor: Callable[[str], tuple[int, Any]]
) -> None:
    signed(sandbox, 1)
    url = f"{attach('evidence', storage)}/2025/evidence.json"
    run = run_dag(nightly(object_path(url)))
    assert run.state == "success"
    data = storage.cat("bucket/2025/evidence.json")
    result = run.xcom("verify")
    assert result["path"] == url
    assert result["sha256"] == hashlib.sha256(data).hexdigest()
    code, again = auditor(url)
    assert code == 0
    assert again["file"] == {"name": url, "sha256": result["sha256"]}
    with failing_at_once(f"{url}: it already exists, and is never replaced"):
        verify(path=url)
    assert storage.cat("bucket/2025/evidence.json") == data


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (PermissionError("Access Denied"), "PermissionError: Access Denied", False),
        (ConnectionResetError("reset"), "ConnectionResetError: reset", True),
        # Another writer was faster, and the storage supports conditional writes.
        (FileExistsError(), "it already exists, and is never replaced", False),
    ],
    ids=["access denied", "reset", "another writer"],
)
def test_a_storage_that_fails_is_named_and_retried_if_that_may_help(
    sandbox: Sandbox, storage: Storage, error: Exception, reason: str, retryable: bool
) -> None:
    storage.error = error
    url = f"{attach('evidence', storage)}/evidence.json"
    found = fails(path=url)
    assert found.retryable == retryable
    assert f"the evidence was not written: {url}: {reason}" in found.message
    assert storage.store == {}


def test_a_storage_that_cannot_be_read_is_named(
    storage: Storage, capsys: pytest.CaptureFixture[str], tmp_path: Path, sandbox: Sandbox
) -> None:
    keys = tmp_path / "keys.pem"
    keys.write_text("".join(sandbox.control.pins()["superadmin_keys"]))
    begin = attach("evidence", storage)
    for place, why in (
        (f"{begin}/none.json", f"{begin}/none.json cannot be read: there is no such file"),
        ("s3://key:hunter2@bucket/a.json", "s3://bucket/a.json cannot be read: the part before the @ must be"),
        ("s3 ://key:hunter2@bucket/a.json", "is not an object storage scheme"),
    ):
        pins = ["--superadmin-keys", str(keys), "--superadmin-minimum", "2"]
        assert main(["whitelist", "verify", "--from", place, *pins]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert why in printed.err
        assert "hunter2" not in printed.err
