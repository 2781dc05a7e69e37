from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from sandbox_api import OpenClient

from airflow_custody.sandbox import Sandbox, SandboxControl

ROOT = Path(__file__).parents[2]
ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}


class Process:
    """The command as a process that is ready for calls."""

    def __init__(self, *arguments: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "airflow_custody.sandbox", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.lines: list[str] = []
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("export "):
                break
        export = shlex.split(self.lines[-1])[1] if self.lines else "{}"
        self.connection = json.loads(export.partition("=")[2] or "{}")
        self.url_and_token = self.connection.get("host", ""), self.connection.get("password", "")

    def stop(self, number: int) -> tuple[int, str]:
        self.popen.send_signal(number)
        _, errors = self.popen.communicate(timeout=10)
        return self.popen.returncode, errors


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airflow_custody.sandbox", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_prints_what_it_is_and_exits_cleanly(client_of: OpenClient, number: signal.Signals) -> None:
    process = Process("--token", "it's mine")
    assert "sandbox" in process.lines[0]
    assert "not the real service" in process.lines[0]
    host = process.connection["host"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", host)
    assert process.connection == {"conn_type": "custody", "host": host, "password": "it's mine"}
    assert process.lines[-1].startswith("export AIRFLOW_CONN_CUSTODY_DEFAULT='{")
    assert any(host + "/sandbox" in line for line in process.lines)
    api = client_of(*process.url_and_token)
    assert api.get("/users/me").status_code == 200
    assert api.session.get(host + "/sandbox").json()["result"]["sandbox"] is True
    assert process.stop(number) == (0, "")


def test_a_kill_loses_nothing(client_of: OpenClient, tmp_path: Path) -> None:
    file = str(tmp_path / "state")
    first = Process("--state", file)
    api = client_of(*first.url_and_token)
    number = api.post("/whitelists/addresses", ADDRESS).json()["result"]["id"]
    hook = api.post("/webhooks", {"type": "requestStatus.updated", "url": "https://example.com"}).json()["webhook"]
    port = first.connection["host"].rpartition(":")[2]
    first.stop(signal.SIGKILL)
    second = Process("--state", file, "--port", port)
    assert second.connection == first.connection
    api = client_of(*second.url_and_token)
    assert api.get(f"/whitelists/addresses/{number}").status_code == 200
    assert api.get("/webhooks").json()["webhooks"] == [hook]
    assert second.stop(signal.SIGTERM)[0] == 0


def test_warns_when_it_listens_on_more_than_loopback() -> None:
    process = Process("--host", "0.0.0.0")
    code, errors = process.stop(signal.SIGINT)
    assert code == 0
    assert "warning" in errors
    assert "no authentication" in errors


def test_port_taken(sandbox: Sandbox) -> None:
    done = run("--port", str(sandbox.port))
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"error: cannot listen on .*\n", done.stderr)


def test_bad_state_file(tmp_path: Path) -> None:
    for file in (tmp_path / "missing" / "state", tmp_path):
        done = run("--state", str(file))
        assert done.returncode == 1
        assert re.fullmatch(r"error: cannot use the state file .*\n", done.stderr)


def test_bad_arguments() -> None:
    done = run("--port", "x")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_missing_extra() -> None:
    code = (
        "import runpy, sys; sys.modules['uvicorn'] = None; sys.argv = ['sandbox'];"
        "runpy.run_module('airflow_custody.sandbox', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'airflow-provider-custody[sandbox]'" in done.stderr


def test_control_from_another_process(client_of: OpenClient) -> None:
    process = Process()
    control = SandboxControl(process.connection["host"])
    control.add_fault(kind="drop")
    with pytest.raises(requests.ConnectionError):
        client_of(*process.url_and_token).get("/users/me")
    assert control.request_log()[0]["fault"] == "drop"
    control.close()
    process.stop(signal.SIGTERM)
