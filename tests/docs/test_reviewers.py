"""The map for reviewers has each file of the trust-critical part, and its commands name tests that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_custody"
PAGE = (ROOT / "docs" / "reviewers.md").read_text()
FOLDERS = ("client/verification", "client/whitelist/signing", "client/signers", "client/http")
FILES = ("client/whitelist/comparison.py", "client/auth.py", "client/secrets.py", "signers.py")
CRITICAL = [*(PACKAGE / each for each in FILES), *(path for each in FOLDERS for path in (PACKAGE / each).rglob("*.py"))]


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_each_file_of_the_trust_critical_part_is_on_the_page() -> None:
    linked = {
        (ROOT / "docs" / each).resolve() for each in re.findall(r"\]\((\S+?\.py)\)", section("The trust-critical part"))
    }
    missing = [path.relative_to(PACKAGE).as_posix() for path in CRITICAL if path not in linked]
    assert missing == [], "docs/reviewers.md needs a row for each: what it guarantees, what it does not, its tests"


def test_each_row_names_a_file_and_tests() -> None:
    for title in ("Questions", "The trust-critical part"):
        rows = [line.split(" | ") for line in section(title).splitlines() if line.startswith("| ") and ".py" in line]
        assert all("](../tests/" in row[-1] for row in rows)
    assert len(re.findall(r"^\| .*\? \|", section("Questions"), re.MULTILINE)) >= 10


def test_its_size_is_about_the_stated_one() -> None:
    files, lines = re.findall(r"(\d+) files with ([\d,]+) lines, about a fifth", PAGE)[0]
    assert int(files) == len(CRITICAL)
    count = sum(len(path.read_text().splitlines()) for path in CRITICAL)
    assert abs(int(lines.replace(",", "")) - count) < count / 20
    whole = sum(len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py"))
    assert 0.16 < count / whole < 0.24


def test_its_commands_run_tests_that_exist() -> None:
    commands = [shlex.split(each) for each in re.findall(r"^\.venv/bin/python -m pytest (.*)$", PAGE, re.MULTILINE)]
    assert commands
    for each in (word for words in commands for word in words if word.startswith("tests/")):
        assert [*ROOT.glob(each)], each
