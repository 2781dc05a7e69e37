"""The example in CONTRIBUTING.md, followed step by step in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
    "test_whitelist_attributes or test_sandbox_access or CustodyDeleteWhitelistAttributeOperator or all_parameters "
    "or confirmed_by or checks_what_was_given or every_import_is_declared"
)


def put(file: Path, line: str, code: str) -> None:
    """Put a block above a line, and the imports that it begins with below the file's first import."""
    imports, rest = re.match(r"((?:(?:from|import) [^\n]*\n|\n)*)(.*)", code, re.DOTALL).groups()  # type: ignore[union-attr]
    lines = file.read_text().splitlines(keepends=True)
    (place,) = [number for number, each in enumerate(lines) if each.strip() == line]
    lines.insert(place, rest)
    first = lines.index("from __future__ import annotations\n")
    lines.insert(first + 1, imports)
    file.write_text("".join(lines))


def test_the_example_passes_its_tests(tmp_path: Path) -> None:
    assert len(STEPS) == TEXT.count("```python") > 0
    for folder in ("airflow_custody", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for new, old, line, code in STEPS:
        if new:
            (tmp_path / new).write_text(code)
        else:
            put(tmp_path / old, line, code)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-k", CHOSEN),
            *dict.fromkeys(new or old for new, old, _, _ in STEPS if (new or old).startswith("tests/")),
            "tests/test_architecture.py",
        ],
        cwd=tmp_path,
        # Coverage is measured in the package, not in its copy, which comes before the package that is installed.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
