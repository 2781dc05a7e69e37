from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.service.sandbox_api import PATH, Api

from airflow_custody.sandbox import Sandbox, SandboxControl, SandboxError
from airflow_custody.sandbox import __main__ as command

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "airflow_custody.sandbox"]


class Process:
    """The command as a process that is ready for calls."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.popen = subprocess.Popen(
            [*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.lines: list[str] = []
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("export "):
                break
        export = next(shlex.split(line)[1] for line in self.lines if line.startswith("export "))
        self.connection = json.loads(export.partition("=")[2])
        self.host = self.connection["host"]
        self.port = self.host.rpartition(":")[2]
        self.api = Api(self.host, self.connection["password"])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.popen.send_signal(number)
        _, errors = self.popen.communicate(timeout=600)
        return self.popen.returncode, errors


@contextmanager
def running(*arguments: str) -> Iterator[Process]:
    process = Process(*arguments)
    try:
        yield process
    finally:
        process.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_output_names_the_sandbox_and_a_signal_ends_it(number: signal.Signals) -> None:
    process = Process("--token", "it's mine")
    assert "not the real service" in process.lines[0]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", process.host)
    assert process.connection == {"conn_type": "custody", "host": process.host, "password": "it's mine"}
    assert process.stop(number) == (0, "")


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"))
    first = Process(*state)
    number = first.api.create()
    hook = first.api.post("/webhooks", {"type": "requestStatus.updated", "url": "https://example.com"}).json()[
        "webhook"
    ]
    first.stop(signal.SIGKILL)
    with running(*state, "--port", first.port) as second:
        assert second.connection == first.connection
        assert second.api.get(f"{PATH}/{number}").status_code == 200
        assert second.api.get("/webhooks").json()["webhooks"] == [hook]


def test_a_port_that_is_taken(sandbox: Sandbox) -> None:
    done = run("--port", str(sandbox.port))
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"error: cannot listen on .*\n", done.stderr)


def test_the_output_for_a_shell_is_data(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Names come from the state, which another user may have written."""
    evil = f"first; touch {tmp_path}/PWNED\ntouch {tmp_path}/PWNED #"
    add_signers = SandboxControl.add_signers

    def add(control: SandboxControl, names: Sequence[str]) -> list[dict[str, str]]:
        return [each | changes for each in add_signers(control, names)]

    monkeypatch.setattr(SandboxControl, "add_signers", add)
    options = command.make_parser().parse_args(["--with-signers"])
    changes = {"name": evil, "external_id": evil, "token": evil, "private_key": evil}
    command._print_instructions(sandbox, options)
    subprocess.run(["bash", "-euc", capsys.readouterr().out], check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    changes = {"group": evil}
    with pytest.raises(SandboxError, match="cannot print the variable"):
        command._print_instructions(sandbox, options)
