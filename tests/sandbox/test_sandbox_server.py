"""The sandbox in this process: start and stop, state and control."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import requests
from support.service.sandbox_api import ETH, PATH, Api, refused

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
    with Sandbox() as sandbox:
        control, api = sandbox.control, Api(sandbox.url, sandbox.token)
        control.add_fault(path="/users", delay=3600)
        control.add_fault(path="/health", delay_after=3600)
        control.add_fault(path="/webhooks", kind="trickle", pieces_every=3600)
        control.add_fault(path="/whitelists", kind="trickle_headers", pieces_every=3600)
        control.add_fault(path="/large", kind="large", size=2**31)
        failures = []

        def hang(path: str) -> None:
            try:
                api.get(path, timeout=3600)
            except requests.RequestException as error:
                failures.append(error)

        paths = ("/users/me", "/health", "/webhooks", PATH)
        threads = [threading.Thread(target=hang, args=(path,)) for path in paths]
        for thread in threads:
            thread.start()
        # One client does not read its response. Another has not sent its whole body.
        stuck = socket.create_connection(("127.0.0.1", sandbox.port))
        stuck.sendall(b"GET /api/rest/v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        unfinished = socket.create_connection(("127.0.0.1", sandbox.port))
        unfinished.sendall(b"POST /api/rest/v1/webhooks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
        while len(control.request_log()) < 5:
            time.sleep(0.01)
        sandbox.stop()
        for thread in threads:
            thread.join(timeout=600)
        stuck.close()
        unfinished.close()
    assert len(failures) == len(paths)
    assert not caplog.records


def test_state_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with Sandbox(state=file) as first:
        jwt = first.control.add_token(roles=["TPUser"], jwt=True)
        hook = first.control.add_webhook()["id"]
        first.control.update_health(check="vault", status="failure")
        first.control.configure(currencies=["ETH", "DOGE"], version="3.15")
        number = Api(first.url, first.token).create("D", blockchain="DOGE")
    with Sandbox(state=str(file)) as second:
        assert second.token == first.token
        api = Api(second.url, second.token)
        checks = api.get("/health", token=jwt).json()["groups"]["hsm"]["healthChecks"]
        assert [check["status"] for check in checks if check["healthCheck"] == "vault"] == ["failure"]
        assert second.control.webhooks()[0]["id"] == hook
        assert second.control.about()["version"] == "3.15"
        assert api.get(f"{PATH}/{number}").status_code == 200
        assert int(api.create("D", blockchain="DOGE")) == int(number) + 1


def test_a_state_is_of_one_sandbox_at_a_time(tmp_path: Path) -> None:
    with Sandbox(state=tmp_path / "state"), pytest.raises(SandboxError, match="another sandbox"):
        Sandbox(state=tmp_path / "state").start()


def test_a_token_that_is_given_replaces_the_one_of_the_state(tmp_path: Path) -> None:
    with Sandbox(state=tmp_path / "state") as first:
        pass
    with Sandbox(state=tmp_path / "state", token="another") as second:
        assert Api(second.url, "another").get("/users/me").status_code == 200
        refused(Api(second.url, first.token).get("/users/me"), 401)


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


def test_request_log(api: Api, sandbox: Sandbox) -> None:
    begin = time.time()
    api.get("/health?tenantId=1&x=a&x=b&y=")
    api.post(PATH, {"a": 1}, token="wrong", headers={"X-Thing": "1"})
    api.call("PATCH", "/webhooks/x", data=b"not json")
    log = sandbox.control.request_log
    first, second, third = log()
    assert first["method"] == "GET"
    assert first["path"] == "/api/rest/v1/health"
    assert first["query"] == {"tenantId": ["1"], "x": ["a", "b"], "y": [""]}
    assert first["raw_query"] == "tenantId=1&x=a&x=b&y="
    assert first["body"] is None
    assert first["fault"] is None
    assert begin <= first["time"] <= second["time"] <= time.time()
    assert second["headers"]["x-thing"] == "1"
    assert second["body"] == {"a": 1}
    assert third["body"] == "not json"
    assert [each["status"] for each in log()] == [200, 401, 400]
    assert log(method="post") == [second]
    assert log(path="/api/rest/v1/webhooks", method="PATCH") == [third]
    assert log(method="DELETE") == []
    sandbox.control.clear_request_log()
    assert log() == []


def test_the_request_log_shows_no_credentials(api: Api, sandbox: Sandbox) -> None:
    api.post("/authentication/token", {"username": "ann", "password": "ann-s-p4ssword", "totp": "987654"})
    api.post("/webhooks", {"type": "t", "url": "https://x", "secret": "wh-s3cret"})
    api.get("/health", headers={"Authorization": "TPV1-HMAC-SHA256 ApiKey=x"})
    first, second, third = sandbox.control.request_log()
    assert first["body"] == {"username": "ann", "password": "***", "totp": "***"}
    assert second["body"] == {"type": "t", "url": "https://x", "secret": "***"}
    assert second["headers"]["authorization"] == f"Bearer {fingerprint(sandbox.token)}"
    assert third["headers"]["authorization"] == f"TPV1-HMAC-SHA256 {fingerprint('ApiKey=x')}"
    assert len(fingerprint("x")) == 8


def test_reset(api: Api, sandbox: Sandbox) -> None:
    control = sandbox.control
    other = control.add_token(roles=["TPUser"])
    control.set_health([])
    control.configure(currencies=["DOGE"], version="3.15")
    control.add_webhook()
    control.add_fault(kind="drop", path="/nothing")
    api.create("D", blockchain="DOGE")
    control.reset()
    assert control.whitelist_requests() == control.webhooks() == control.faults() == control.request_log() == []
    assert control.about() == {"sandbox": True, "version": "3.20"}
    assert set(api.get("/health").json()["groups"]) == {"hsm", "blockchain", "database"}
    assert api.create(ETH) == "3711"
    refused(api.get("/health", token=other), 401)


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("configure", b'{"version": "new"}', 400),
        ("configure", b'{"label_lenght": 3}', 400),
        ("set_whitelist_status", b'{"request_id": "1", "status": "approved"}', 404),
        ("reset", b"[]", 400),
        ("reset", b"{", 400),
        ("nothing", b"", 404),
    ],
)
def test_bad_calls(sandbox: Sandbox, name: str, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    refused(requests.post(f"{sandbox.url}/sandbox/{name}", data=body, headers=headers, timeout=60), status)
