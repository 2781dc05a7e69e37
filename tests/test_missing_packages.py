"""What a user reads where a package of an extra is not installed: the command that installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_custody.client.whitelist.addresses import MISSING_LIBRARY

_BLOCKED = """
import sys
for name in {names}:
    sys.modules[name] = None
{code}
"""
VALIDATE = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *args: None if name == "bip_utils" else find_spec(name, *args)
from airflow_custody.cli.main import main
sys.exit(main(["whitelist", "validate", sys.argv[1]]))
"""


def run(code: str, *arguments: str, without: str) -> str:
    """Run code in a process that has no such package, and return what it printed."""
    text = _BLOCKED.format(names=(without, f"{without}.exceptions"), code=code)
    done = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_checking_addresses(tmp_path: Path) -> None:
    file = tmp_path / "whitelist.csv"
    file.write_text("label,address,blockchain\na,0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAef,ETH\n")
    printed = run(VALIDATE, str(file), without="bip_utils")
    assert f"addresses were not checked: {MISSING_LIBRARY}" in printed


@pytest.mark.parametrize("package", ["uvicorn", "fastapi"])
def test_the_sandbox(package: str) -> None:
    code = "from airflow_custody.sandbox.__main__ import main\nsys.exit(main([]))"
    printed = run(code, without=package)
    assert (
        printed
        == f"Sandbox needs {package}: pip install 'airflow-provider-custody[sandbox]' [custody/package-missing]\n"
    )
