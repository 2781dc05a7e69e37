"""The demo, as a user runs it, and how the demo with the UI is set up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow_runs import AIRFLOW, load

from airflow_custody.sandbox import Sandbox

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="somebody approves in it, which an embedded Airflow before 3.3 cannot do")
def test_the_main_job_end_to_end() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "run.py")], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    # Lines are wrapped.
    output = " ".join(done.stdout.split())
    steps = [
        "wait_until_healthy waits: the component hsm-1 is failing",
        "wait_until_healthy all 9 checks are healthy",
        "plan      fails: the file: 1 fault; nothing was sent",
        "line 28: address: 'bc1qjqy7acnyvuem5vy8uv7cm4js15x433rqr2tvs4' is not a valid BTC address",
        "plan      37 create, 1 pending, 11 unchanged, 1 differs",
        "approve   Airflow asks carol or dave: Apply the whitelist plan: create 37, delete 0?",
        "approve   mallory tries to approve it: refused, HTTP status 403",
        "approve   carol approves it",
        "apply     37 created, each once",
        "sign_first all are what was planned; alice's key has signed 37",
        "sign_second all are what was planned; bob's key has signed 37",
        "wait_until_effective all 37 have taken effect, 37 verified by signatures",
        "prove     fails: the service does not have what the file says: 1 differs, 1 pending: line 14 differs (label)",
        "plan      nothing to do",
        "prove     the service has what the file says: 50 unchanged",
        "service   shows as in effect, as request 3761",
        "sign      fails: sign whitelisting requests failed: whitelisting request 3761 is not verified",
        "wait_until_effective fails: whitelisting request 3761 is not verified",
        "reconcile fails: the service does not have what the file says: 1 unverified: request 3761 unverified",
    ]
    steps = [" ".join(step.split()) for step in steps]
    assert [step for step in steps if step not in output] == []
    assert [output.index(step) for step in steps] == sorted(output.index(step) for step in steps)
    *_, ok, following = done.stdout.rpartition("demo: ok")
    assert ok
    commands = [line.strip() for line in following.splitlines() if line.startswith("  ") and line[2] != " "]
    assert [command.rpartition("/")[2] for command in commands] == [
        "make demo-ui",
        "custody examples --to my-dags",
        "make docs",
    ]
    # Not a terminal: no colours.
    assert "\x1b" not in done.stdout


class TestUi:
    @pytest.fixture
    def environment(self, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """Return the environment of the Airflow in the demo with the UI."""
        monkeypatch.syspath_prepend(str(ROOT / "demo"))
        service = SimpleNamespace(control=sandbox.control, connection=sandbox.connection())
        environment: dict[str, str] = load(ROOT / "demo" / "ui.py")._environment(
            tmp_path, service, service, "http://127.0.0.1:8080", [8081, 8082], "a-webhook"
        )
        return environment

    @pytest.mark.parametrize(("component", "timeout"), [("api-server", 1), ("scheduler", 60)])
    def test_only_the_api_server_gives_up_soon_on_a_locked_database(
        self, environment: dict[str, str], component: str, timeout: int
    ) -> None:
        module, _, name = environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS"].partition(".")
        script = f"import {module}; print({module}.{name})"
        done = subprocess.run(
            [sys.executable, "-c", script, component], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str({"timeout": timeout})

    def test_the_approvers_of_the_examples_are_connected(self, environment: dict[str, str]) -> None:
        for name in ("FIRST_SIGNER", "FIRST_KEY", "SECOND_SIGNER", "SECOND_KEY"):
            assert f"AIRFLOW_CONN_CUSTODY_{name}" in environment

    def test_its_instructions_name_every_example(self) -> None:
        text = (ROOT / "demo" / "ui.py").read_text()
        assert [path.stem for path in (ROOT / "example_dags").glob("*.py") if path.stem not in text] == []
