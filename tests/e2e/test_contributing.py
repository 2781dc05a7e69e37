"""The steps of CONTRIBUTING.md for changes, executed in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
# The sentence before a block says where it goes.
STEPS = re.findall(
    r"^(?:New file `([^`\n]+)`|In `([^`\n]+)`, above `([^`\n]+)`):\n\n```python\n(.*?)^```$",
    TEXT,
    re.DOTALL | re.MULTILINE,
)
#: Of what all operations, operators and routes are put through: what the example has to do with.
CHOSEN = (
    "test_whitelist_attributes or test_sandbox_access or CustodyDeleteWhitelistAttributeOperator or the_table_has "
    "or confirmed_by or every_import_is_declared or test_settings or test_connection_form"
)

NEW_SETTING = """\
    idle_timeout: Annotated[float, Field(ge=0.5, le=90), _Number, FormField("Idle timeout (seconds)")] = 4.0
    \"\"\"Seconds after which an unused connection is closed. Default: 4.\"\"\"
"""
#: A program that uses the new setting: as an argument, from a connection and as an option.
USES_IT = """\
import json, os
from airflow_custody.cli.connection import open_client
from airflow_custody.cli.main import make_parser
from airflow_custody.client import CustodyClient, CustodyConfigurationError
from airflow_custody.hooks.custody import CustodyHook

def from_connection(value):
    connection = {"conn_type": "custody", "host": URL, "password": "t", "extra": {"idle_timeout": value}}
    os.environ["AIRFLOW_CONN_CUSTODY_DEFAULT"] = json.dumps(connection)
    return CustodyHook().get_conn().settings.idle_timeout

URL = os.environ["CUSTODY_TOKEN"] = "https://custody.example.com"
assert CustodyClient(URL, "t").settings.idle_timeout == 4
assert CustodyClient(URL, "t", idle_timeout=3).settings.idle_timeout == 3
assert ":param idle_timeout: seconds after which" in CustodyClient.__doc__
assert from_connection("2.5") == 2.5
try:
    from_connection(91)
except CustodyConfigurationError as error:
    assert "Idle timeout (idle_timeout): must be less than or equal to 90" in str(error), error
else:
    raise AssertionError("not checked")
with open_client(make_parser().parse_args(["check", "--base-url", URL, "--idle-timeout", "7"])) as client:
    assert client.settings.idle_timeout == 7
"""


def put(file: Path, line: str, code: str) -> None:
    """Put a block above a line, and the imports that it begins with below the file's first import."""
    imports, rest = re.match(r"((?:(?:from|import) [^\n]*\n|\n)*)(.*)", code, re.DOTALL).groups()  # type: ignore[union-attr]
    lines = file.read_text().splitlines(keepends=True)
    (place,) = [number for number, each in enumerate(lines) if each.strip() == line]
    lines.insert(place, rest)
    first = lines.index("from __future__ import annotations\n")
    lines.insert(first + 1, imports)
    file.write_text("".join(lines))


def run_python(folder: Path, *arguments: str) -> None:
    """Run Python on a copy, and expect it to succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        # Coverage is measured in the package, not in its copy, which comes before the package that is installed.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]


@pytest.mark.slow
def test_the_example_passes_its_tests_and_a_new_setting_is_one_field(tmp_path: Path) -> None:
    for each in ("airflow_custody", "tests", "tools"):
        shutil.copytree(ROOT / each, tmp_path / each, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert len(STEPS) == TEXT.count("```python") > 0
    for new, old, line, code in STEPS:
        if new:
            (tmp_path / new).write_text(code)
        else:
            put(tmp_path / old, line, code)
    changed = dict.fromkeys(new or old for new, old, _, _ in STEPS)
    tests = [each for each in changed if Path(each).name.startswith("test_")]
    command = "tests/client/test_settings.py"
    assert f"`python {command}`" in TEXT
    put(tmp_path / "airflow_custody/client/settings.py", "user_agent: str | None = None", NEW_SETTING)
    run_python(tmp_path, command)
    run_python(tmp_path, "-c", USES_IT)
    tests += ["tests/test_given.py", "tests/test_architecture.py", command, "tests/hooks/test_connection_form.py"]
    run_python(tmp_path, "-m", "pytest", "-k", CHOSEN, *tests)
