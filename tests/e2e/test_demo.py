"""The demo, as a user runs it, what it prints, and how the demo with the UI is set up."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from support.airflow.airflow_runs import AIRFLOW, load

from airflow_custody.sandbox import Sandbox

ROOT = Path(__file__).parent.parent.parent
DEMO = ROOT / "demo"


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="somebody approves in it, which an embedded Airflow before 3.3 cannot do")
@pytest.mark.slow
def test_the_main_job_end_to_end() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO / "run.py")], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    # Lines are wrapped.
    output = " ".join(done.stdout.split())
    steps = [
        "wait_until_healthy waits: the component hsm-1 is failing",
        "wait_until_healthy all 9 checks are healthy",
        "plan      fails: the file: 1 fault; nothing is sent",
        "line 28: address: 'bc1qjqy7acnyvuem5vy8uv7cm4js15x433rqr2tvs4' is not a valid BTC address",
        "plan      37 create, 1 replace, 12 unchanged",
        "approve   Airflow asks carol or dave: Apply the whitelist plan: create 37, replace 1, delete 0?",
        "approve   mallory tries to approve it: refused, HTTP status 403",
        "approve   carol approves it",
        "apply     38 created, each once",
        "sign_first all requests match the plan; alice's key signed 38",
        "sign_second all requests match the plan; bob's key signed 38",
        "wait_until_effective all 38 are in effect, 38 verified by signatures",
        "complete  replaced requests: 1 deleted",
        "prove     the service matches the file: 50 unchanged",
        "plan      nothing to do",
        "service   lists request 3762 as in effect",
        "sign      fails: sign whitelisting requests failed: whitelisting request 3762 is not verified",
        "wait_until_effective fails: whitelisting request 3762 is not verified",
        "reconcile fails: the service differs from the file: 1 unverified: request 3762 unverified",
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


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DEMO))
    return load(DEMO / "_output.py")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_word_is_cut_at_any_width(output: Any, width: int) -> None:
    address = "bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3"
    text = f"fails: the file: 1 fault; nothing is sent: {address!r} is not a valid BTC address: wrong checksum"
    style = output.Style(width, colour=False)
    row = ("create", "ETH", address, "Supplier Gdansk", "line 22")
    for lines, words in (
        (style.step(12.3, "plan", text, text), ["12.3", "s", "plan", *text.split(), *text.split()]),
        (style.table(("State", "Chain", "Address", "Label", "Details"), [row])[-3:], " ".join(row).split()),
    ):
        assert " ".join(lines).split()[-len(words) :] == words
        # A word that is longer than a line has its own.
        assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


@pytest.mark.parametrize("name", ["_INSTRUCTIONS", "_LAST"])
@pytest.mark.parametrize("width", [60, 80])
def test_the_instructions_of_the_demo_with_the_ui_fit(output: Any, name: str, width: int) -> None:
    url = "http://127.0.0.1:36365"
    text = getattr(load(DEMO / "ui.py"), name).format(airflow=url, sandbox=url, token="t" * 43, webhook="w" * 36)
    lines = output.Style(width, colour=False).paragraphs(text)
    # Commands are to be copied, so they are not wrapped: they fit into 80 columns.
    assert [line for line in lines if len(line) > (80 if line.startswith("    ") else width)] == []
    assert " ".join(lines).split() == text.split()


def test_the_sandbox_accepts_the_commands_of_the_instructions(output: Any, sandbox: Sandbox) -> None:
    text = load(DEMO / "ui.py")._INSTRUCTIONS.format(airflow="", sandbox=sandbox.url, token="", webhook="")
    sandbox.control.add_webhook(type="currencyStatus.updated")
    sandbox.control.add_webhook(type="transactionExternal.received")
    commands = re.findall(r"^    (curl .*\n(?:      .*\n)+)", text, re.MULTILINE)
    assert len(commands) == text.count("curl ") == 5
    for command in commands:
        url, *options = shlex.split(command)[1:]
        values = dict(itertools.pairwise(options))
        name, _, value = values["-H"].partition(": ")
        response = requests.post(url, data=values["-d"], headers={name: value}, timeout=60)
        assert response.ok, (command, response.text)


def test_the_instructions_name_every_example() -> None:
    text = (DEMO / "ui.py").read_text()
    assert [path.stem for path in (ROOT / "example_dags").glob("*.py") if path.stem not in text] == []


def test_the_environment_of_the_demo_with_the_ui(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DEMO))
    service = SimpleNamespace(control=sandbox.control, connection=sandbox.connection())
    arguments = (tmp_path, service, service, "http://127.0.0.1:8080", [8081, 8082], "a-webhook")
    environment: dict[str, str] = load(DEMO / "ui.py")._environment(*arguments)
    for name in ("FIRST_SIGNER", "FIRST_KEY", "SECOND_SIGNER", "SECOND_KEY"):
        assert f"AIRFLOW_CONN_CUSTODY_{name}" in environment
    # Only the API server gives up soon on a locked database.
    module, _, name = environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS"].partition(".")
    for component, timeout in (("api-server", 1), ("scheduler", 60)):
        command = [sys.executable, "-c", f"import {module}; print({module}.{name})", component]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str({"timeout": timeout})
