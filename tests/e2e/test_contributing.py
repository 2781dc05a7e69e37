"""The example in CONTRIBUTING.md, followed step by step in a copy of the package."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from airflow_runs import AIRFLOW

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
# The sentence before a block says where it goes: "New file `path`:", or "In `path`, below `place`:". The place is the
# name of a definition, or a whole line.
STEPS = re.findall(
    r"^(?:New file `([^`\n]+)`|In `([^`\n]+)`, below `([^`\n]+)`):\n\n```python\n(.*?)^```$",
    TEXT,
    re.DOTALL | re.MULTILINE,
)
CHANGED = list(dict.fromkeys(new or old for new, old, _, _ in STEPS))


def put(file: Path, place: str, code: str) -> None:
    """Put a block into a file: its imports below the file's imports, the rest below a place."""
    source = file.read_text()
    lines = source.splitlines(keepends=True)
    imports, rest = split_imports(code)
    below = end_of(source, place)
    lines[below:below] = [rest]
    last_import = max((each.end_lineno or 0 for each in ast.parse(source).body if is_import(each)), default=0)
    lines[last_import:last_import] = [imports]
    file.write_text("".join(lines))


def split_imports(code: str) -> tuple[str, str]:
    """Return the imports that a block begins with, and the rest of it."""
    if code.startswith(" "):
        return "", code
    end = max((each.end_lineno or 0 for each in ast.parse(code).body if is_import(each)), default=0)
    lines = code.splitlines(keepends=True)
    return "".join(lines[:end]), "".join(lines[end:]).lstrip("\n")


def is_import(node: ast.AST) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def end_of(source: str, place: str) -> int:
    """Return the number of the last line of a definition (``Class.method``), or of the line that is a place."""
    if not re.fullmatch(r"[\w.]+", place):
        (number,) = [number for number, line in enumerate(source.splitlines(), 1) if line.strip() == place]
        return number
    body: list[ast.stmt] = ast.parse(source).body
    for name in place.split("."):
        (found,) = [each for each in body if name in names_of(each)]
        body = getattr(found, "body", [])
    assert found.end_lineno is not None
    return found.end_lineno


def names_of(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {node.name} if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else set()


def run(copy: Path, *arguments: str) -> None:
    """Run a Python module in the copy, and expect it to succeed."""
    # Coverage is measured in the package, not in its copy.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=copy,
        env={**environment, "PYTHONPATH": str(copy)},  # before the package that is installed
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]


def require(tool: str) -> None:
    """Skip a test of the text on Airflow 2: it would repeat what Airflow 3's has shown, and without the tools."""
    if AIRFLOW < (3, 0) or importlib.util.find_spec(tool) is None:
        pytest.skip(f"checked beside Airflow 3, with {tool}")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package and its tests, with the example in it."""
    copy = tmp_path_factory.mktemp("example")
    for folder in ("airflow_custody", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / file, copy)
    for new, old, place, code in STEPS:
        if new:
            assert not (copy / new).exists(), new
            (copy / new).write_text(code)
        else:
            put(copy / old, place, code)
    return copy


def test_every_block_says_where_it_goes() -> None:
    assert len(STEPS) == TEXT.count("```python") > 0


def test_the_example_passes_its_tests(copy: Path) -> None:
    tests = [path for path in CHANGED if path.startswith("tests/")]
    operators = re.findall(r"^class (\w+)\(CustodyOperator\)", TEXT, re.MULTILINE)
    assert tests
    assert operators
    # Of what is given to operators, those that are in the package already have their own test.
    chosen = " or ".join(["not test_given", "all_parameters", *operators])
    sweeps = (
        "tests/hooks/test_connection_form.py::test_every_module_is_listed",
        "tests/test_architecture.py::test_an_operation_has_a_method_that_documents_it",
    )
    run(copy, "pytest", *tests, *sweeps, "-k", chosen)


def test_the_example_imports_what_is_declared(copy: Path) -> None:
    require("tomli")
    run(copy, "pytest", "tests/test_dependencies.py")


def test_the_example_is_formatted(copy: Path, tmp_path: Path) -> None:
    require("ruff")
    shutil.copytree(copy, tmp_path / "formatted")
    formatted = tmp_path / "formatted"
    run(formatted, "ruff", "format", "--no-cache", *CHANGED)
    run(formatted, "ruff", "check", "--no-cache", "--fix", "--select", "I", *CHANGED)
    run(formatted, "ruff", "check", "--no-cache", *CHANGED)
    # Formatting changes blank lines and imports, as the text says, and not the code.
    for new, old, _, code in STEPS:
        assert split_imports(code)[1] in (formatted / (new or old)).read_text()


def test_commands_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"^make ([a-z0-9-]+)$|`make ([a-z0-9-]+)`", TEXT, re.MULTILINE))
    assert named
    for target in {"".join(groups) for groups in named}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_files_are_there(copy: Path) -> None:
    named = set(re.findall(r"[`\s]((?:\w+/)*\w+\.py)\b", TEXT)) - {
        "_base.py",
        "models.py",
        "operations.py",
        "routes.py",
    }
    assert named
    for path in named:
        assert (copy / path).exists() or (copy / "airflow_custody" / path).exists(), path
