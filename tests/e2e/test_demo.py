"""The demo, as a user runs it, and the commands that it shows."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

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
        "sign_custody_first_signer all requests match the plan; alice's key signed 38",
        "sign_custody_second_signer all requests match the plan; bob's key signed 38",
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
    assert "demo: ok" in done.stdout


def test_the_sandbox_accepts_the_commands_of_the_instructions(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DEMO))
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
