"""The parts of ``make matrix`` that need no installation."""

from __future__ import annotations

from pathlib import Path

import pytest
from matrix.environments import Result, count_tests, failed_tests, install_reason, last_line
from matrix.pairs import PYTHONS, Interpreter, Release, find_interpreters, newest_patches, requires_python
from matrix.run import choose
from matrix.table import line_of, markdown

RELEASE = Release("3.3.2", ">=3.10,!=3.15")
REPORT = """<testsuites><testsuite tests="4" skipped="1" failures="1" errors="1">
<testcase name="test_good"/><testcase name="test_bad"><failure/></testcase>
<testcase name="test_broken"><error/></testcase><testcase name="test_left"><skipped/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("python", "requires", "excluded"),
    [
        ("3.13.5", "!=3.13,>=3.10", True),
        ("3.13.0", "!=3.13,>=3.10", True),
        ("3.14.1", "<3.14,>=3.10", True),
        ("3.13.9", "<3.14,>=3.10", False),
        ("3.10.0", ">=3.10", False),
        ("3.9.18", ">=3.10", True),
    ],
)
def test_what_airflow_excludes(python: str, requires: str, excluded: bool) -> None:
    assert Release("3.0.6", requires).excludes(Interpreter("/python", python)) is excluded


def test_the_newest_patch_of_each_line() -> None:
    listing = "apache-airflow (3.3.2)\nAvailable versions: 3.3.2, 3.3.0, 3.10.1, 2.11.2, 2.11.10, 2.9.1, 1.10.9-bin\n"
    assert newest_patches(listing) == ["2.11.10", "3.3.2"]


def test_requires_python_is_read() -> None:
    assert requires_python("Name: x\nRequires-Python: >=3.10,!=3.15\n\ntext") == ">=3.10,!=3.15"
    assert requires_python("Name: x\n") == ""


def executable(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_interpreters_are_found_on_the_path_and_where_they_are_said_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path = tmp_path / "bin"
    on_path.mkdir()
    executable(on_path / "python3.12", "printf '/real/python3.12\\n3.12.1\\n'")
    executable(on_path / "python3.11", "printf '/real/python3.11\\n3.11.7\\n'")
    # What a version manager leaves for a Python that is not installed.
    executable(on_path / "python3.13", "exit 127")
    given = executable(tmp_path / "mine", "printf '/given/python\\n3.12.9\\n'")
    monkeypatch.setenv("PATH", str(on_path))
    assert find_interpreters(str(given)) == {
        "3.11": Interpreter("/real/python3.11", "3.11.7"),
        "3.12": Interpreter("/given/python", "3.12.9"),
    }


def test_an_interpreter_that_is_named_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not a Python"):
        find_interpreters(str(tmp_path / "nothing"))


def test_pairs_are_chosen_in_the_order_that_is_asked_for() -> None:
    pairs = [(python, RELEASE) for python in PYTHONS]
    assert choose(pairs, "") == pairs
    assert choose(pairs, "3.14,3.12-3.3,3.1-,3.14") == [("3.14", RELEASE), ("3.12", RELEASE)]


def test_a_report_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert count_tests(report) == (4, 1, 2)
    assert failed_tests(report) == "`test_bad`, `test_broken`"


def test_why_something_cannot_be_installed() -> None:
    built = "  × Failed to build `coincurve==21.0.0`\n  ├─▶ x\n      RuntimeError: no licence\n"
    assert install_reason(built) == "coincurve==21.0.0 cannot be built (RuntimeError: no licence)"
    conflict = "  × No solution found when resolving dependencies:\n  ╰─▶ Because a depends on b\n      we give up.\n"
    assert install_reason(conflict) == "Because a depends on b we give up."
    assert last_line("a\nValueError: b\n\n") == "ValueError: b"


def test_the_table_has_every_pair_and_each_reason_once() -> None:
    versions = {"pydantic": "2.14.3", "requests": "2.34.0"}
    results = {f"{python}-3.3.2": Result("passes", "", (90, 3, 0), versions, "2026-01-02") for python in PYTHONS}
    results["3.13-3.3.2"] = Result("no interpreter", "None here.")
    results["3.14-3.3.2"] = Result("no interpreter", "None here.")
    interpreters = {"3.12": Interpreter("/python", "3.12.1")}
    text = markdown(results, interpreters, [RELEASE], wheel="package 1.0", uv="0.9")
    assert "2026-01-02, package 1.0:" in text
    assert "| | Python 3.10 | Python 3.11 | Python 3.12.1 | Python 3.13 | Python 3.14 |" in text
    assert "| Airflow 3.3.2 | passes | passes | passes | no interpreter (1) | no interpreter (1) |" in text
    assert text.count("None here.") == 1
    assert "sandbox, 87 of them" in text
    assert "| Airflow 3.3.2 |  | 2.14.3 | 2.34.0 |  |" in text


def test_the_line_of_a_pair() -> None:
    result = Result("fails", "`test_bad`", (4, 1, 1))
    line = line_of("3.12", RELEASE, result, 61.2)
    assert line == "Python 3.12  Airflow 3.3.2   fails: 2 tests passed, 1 skipped, 1 failed: `test_bad` (61 s)"
