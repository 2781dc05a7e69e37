"""The README's demo, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from airflow_runs import AIRFLOW

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="somebody approves in it, which an embedded Airflow before 3.3 cannot do")
def test_the_main_job_end_to_end() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "run.py")], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    output = done.stdout
    steps = [
        "is not healthy",
        "gate      open",
        "request   created: id 3711",
        "answers: Approve",
        "bob's key has signed",
        "carol's key has signed",
        "effect    the whitelisting has taken effect",
        "notice    Request 3711 has taken effect; decided by alice",
    ]
    assert [step for step in steps if step not in output] == []
    assert [output.index(step) for step in steps] == sorted(output.index(step) for step in steps)
    assert output.rstrip().splitlines()[-1].startswith("demo: ok")
