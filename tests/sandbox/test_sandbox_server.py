"""The sandbox in this process: start and stop, state and control."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from support.service.sandbox_api import PATH, Api, refused

from airflow_custody.sandbox import Sandbox, SandboxError, fingerprint


def test_start_and_stop() -> None:
    before = set(threading.enumerate())
    sandbox = Sandbox(token="my-own")
    with pytest.raises(SandboxError, match="not running"):
        _ = sandbox.control
    sandbox.stop()
    assert sandbox.start() is sandbox
    with pytest.raises(SandboxError, match="already"):
        sandbox.start()
    assert json.loads(sandbox.connection()) == {"conn_type": "custody", "host": sandbox.url, "password": "my-own"}
    api = Api(sandbox.url, "my-own")
    assert api.get("/users/me").status_code == 200
    sandbox.stop()
    sandbox.stop()
    assert set(threading.enumerate()) == before
    with pytest.raises(requests.ConnectionError):
        api.get("/users/me")


def test_it_stops_at_once_with_calls_in_progress(caplog: pytest.LogCaptureFixture) -> None:
    with Sandbox() as sandbox, ThreadPoolExecutor() as pool:
        control, api = sandbox.control, Api(sandbox.url, sandbox.token)
        control.add_fault(path="/users", delay=3600)
        control.add_fault(path="/webhooks", kind="trickle", pieces_every=3600)
        calls = [pool.submit(api.get, path, timeout=3600) for path in ("/users/me", "/webhooks")]
        while len(control.request_log()) < len(calls):
            time.sleep(0.01)
        sandbox.stop()
        for each in calls:
            with pytest.raises(requests.RequestException):
                each.result()
    assert not caplog.records


def test_state_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with Sandbox(state=file) as first:
        jwt = first.control.add_token(roles=["TPUser"], jwt=True)
        hook = first.control.add_webhook()["id"]
        first.control.configure(currencies=["ETH", "DOGE"], version="3.15")
        number = Api(first.url, first.token).create("D", blockchain="DOGE")
    with Sandbox(state=str(file)) as second:
        assert second.token == first.token
        api = Api(second.url, second.token)
        assert api.get("/health", token=jwt).status_code == 200
        assert second.control.webhooks()[0]["id"] == hook
        assert second.control.about()["version"] == "3.15"
        assert api.get(f"{PATH}/{number}").status_code == 200
        assert int(api.create("D", blockchain="DOGE")) == int(number) + 1


def test_a_state_is_of_one_sandbox_at_a_time(tmp_path: Path) -> None:
    with Sandbox(state=tmp_path / "state"), pytest.raises(SandboxError, match="another sandbox"):
        Sandbox(state=tmp_path / "state").start()


def test_others_cannot_read_a_new_state(tmp_path: Path) -> None:
    with Sandbox(state=tmp_path / "state") as sandbox:
        sandbox.control.add_webhook()
        assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("journal_mode", ["DELETE", "WAL"])
def test_a_file_that_existed_becomes_private_before_anything_is_written(tmp_path: Path, journal_mode: str) -> None:
    file = tmp_path / "state"
    file.touch(mode=0o644)
    for _ in range(2):
        with Sandbox(state=file) as sandbox:
            sandbox.control.add_webhook()
            files = list(tmp_path.iterdir())
            assert {each.stat().st_mode & 0o777 for each in files} == {0o600}, files
        with sqlite3.connect(file) as connection:
            connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        connection.close()
        file.chmod(0o644)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("my notes, which are long enough to be read" * 20)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for file in (text, database):
        before = file.read_bytes()
        with pytest.raises(SandboxError, match="cannot use the state file"):
            Sandbox(state=file).start()
        assert file.read_bytes() == before


def test_importing_is_cheap_and_names_the_missing_extra() -> None:
    code = (
        "import sys, airflow_custody.sandbox as package\n"
        "assert not {'fastapi', 'uvicorn', 'requests', 'pydantic'} & set(sys.modules)\n"
        "for name in ('fastapi', 'uvicorn'): sys.modules[name] = None\n"
        "package.health_entry, package.SandboxError\n"
        "try: package.Sandbox\n"
        "except ModuleNotFoundError as error: print(error)\n"
        "try: package.nothing\n"
        "except AttributeError as error: print(error)\n"
        "import runpy; runpy.run_module('airflow_custody.sandbox', run_name='__main__')"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=600)
    hint = "pip install "
    assert done.returncode == 1, done.stderr
    assert hint in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert hint in done.stdout
    assert "no attribute 'nothing'" in done.stdout


# --- control -------------------------------------------------------------------------------------------------


def test_the_request_log_and_a_reset(api: Api, sandbox: Sandbox) -> None:
    control, log = sandbox.control, sandbox.control.request_log
    api.get("/health?tenantId=1&x=a&x=b&y=")
    api.post(PATH, {"a": 1}, token="wrong", headers={"X-Thing": "1"})
    api.call("PATCH", "/webhooks/x", data=b"not json")
    first, second, third = log()
    assert (first["method"], first["path"], first["body"]) == ("GET", "/api/rest/v1/health", None)
    assert first["query"] == {"tenantId": ["1"], "x": ["a", "b"], "y": [""]}
    assert second["headers"]["x-thing"] == "1"
    assert second["body"] == {"a": 1}
    assert third["body"] == "not json"
    assert [each["status"] for each in log()] == [200, 401, 400]
    assert log(method="post") == [second]
    assert log(path="/api/rest/v1/webhooks", method="PATCH") == [third]
    api.create()
    control.add_webhook()
    control.add_fault(kind="drop", path="/nothing")
    control.reset()
    assert control.whitelist_requests() == control.webhooks() == control.faults() == log() == []


def test_the_request_log_shows_no_credentials(api: Api, sandbox: Sandbox) -> None:
    api.post("/authentication/token", {"username": "ann", "password": "ann-s-p4ssword"})
    api.post("/webhooks", {"type": "t", "url": "https://x", "secret": "wh-s3cret"})
    api.get("/health", headers={"Authorization": "TPV1-HMAC-SHA256 ApiKey=x"})
    first, second, third = sandbox.control.request_log()
    assert first["body"] == {"username": "ann", "password": "***"}
    assert second["body"] == {"type": "t", "url": "https://x", "secret": "***"}
    assert second["headers"]["authorization"] == f"Bearer {fingerprint(sandbox.token)}"
    assert third["headers"]["authorization"] == f"TPV1-HMAC-SHA256 {fingerprint('ApiKey=x')}"
    assert len(fingerprint("x")) == 8


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("configure", b'{"label_lenght": 3}', 400),
        ("reset", b"[]", 400),
        ("nothing", b"", 404),
    ],
)
def test_bad_calls(sandbox: Sandbox, name: str, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    refused(requests.post(f"{sandbox.url}/sandbox/{name}", data=body, headers=headers, timeout=60), status)
