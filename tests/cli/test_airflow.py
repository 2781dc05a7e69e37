"""The commands inside Airflow: ``airflow custody`` from Airflow 3.2 on, and no effect on earlier versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.airflow.airflow_runs import AIRFLOW

from airflow_custody.sandbox import Sandbox

takes_commands = pytest.mark.skipif(AIRFLOW < (3, 2), reason="this Airflow takes no commands from providers")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False)


@takes_commands
def test_airflow_has_the_commands_with_their_exit_codes(connection: str, sandbox: Sandbox) -> None:
    sandbox.control.update_health(status="failed", group="hsm")
    ran = run(str(Path(sys.executable).with_name("airflow")), "custody", "health")
    assert ran.returncode == 2, ran.stderr
    # The output must be nothing but the data, although Airflow logs to standard output.
    assert json.loads(ran.stdout)["unhealthy"] == 3
    assert sandbox.token not in ran.stdout + ran.stderr


@takes_commands
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("health --unknown", 1),
        ("--version", 0),
        ("whitelist plan --help", 0),
    ],
)
def test_usage_is_that_of_the_console_script(arguments: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    # Use the parser that Airflow's main function uses.
    from airflow.cli.cli_parser import get_parser

    with pytest.raises(SystemExit) as caught:
        get_parser().parse_args(["custody", *arguments.split()])
    assert (caught.value.code or 0) == code
    printed = capsys.readouterr()
    assert "airflow custody" in printed.err if code else "custody" in printed.out


@takes_commands
@pytest.mark.parametrize(
    ("line", "expected"),
    [("airflow custody ", {"check", "whitelist"}), ("airflow custody whitelist plan --rep", {"--replace"})],
    ids=["commands", "options"],
)
def test_a_shell_completes_the_commands(line: str, expected: set[str], tmp_path: Path) -> None:
    # Do what bash does: it names a line, and reads the completions from file descriptor 8.
    request = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    airflow, found = Path(sys.executable).with_name("airflow"), tmp_path / "completions"
    subprocess.run(
        ["sh", "-c", f"{airflow} 8>{found} 9>/dev/null"],
        env={**os.environ, **request},
        capture_output=True,
        check=False,
    )
    assert expected <= {*found.read_text().split()}


def test_a_service_that_is_down_is_reported_by_the_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = {"conn_type": "custody", "host": "http://127.0.0.1:9", "password": "t0ken", "extra": {"max_retries": 1}}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(dead))
    ran = run(sys.executable, "-m", "airflow_custody.cli", "check")
    assert ran.returncode == 1
    (failed,) = [each for each in json.loads(ran.stdout)["checks"] if each["state"] == "failed"]
    assert failed["check"] == "reachable"
    assert failed["code"] == "unreachable"
    assert "list health checks" not in ran.stderr
    assert "t0ken" not in ran.stdout + ran.stderr
