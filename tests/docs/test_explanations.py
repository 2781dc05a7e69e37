"""What the explanations show is what was printed, and what they count is counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "explanation"


def rows(page: str, columns: int) -> list[list[str]]:
    """Return the rows of a page's last table that has so many columns."""
    pattern = rf"^\|.*\|\n\|(?:---\|){{{columns}}}\n((?:^\|.*\|\n)+)"
    table = re.findall(pattern, (PAGES / page).read_text(), re.MULTILINE)[-1]
    result = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert {len(row) for row in result} == {columns}
    return result


def test_the_table_of_faults_lists_what_the_suite_runs_and_enforces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "faults"))
    from scenarios import NETWORK_SCENARIOS, SCENARIOS, WORKER_SCENARIOS

    found = rows("faults.md", 4)
    scenarios = [*NETWORK_SCENARIOS, *SCENARIOS, *WORKER_SCENARIOS]
    assert [row[0] for row in found] == [scenario.fault for scenario in scenarios]
    for (_, _, requests, result), scenario in zip(found, scenarios, strict=True):
        assert int(requests) <= scenario.requests
        assert "WRONG" not in result
        assert ("explained" in result) <= (scenario.explained > 0)


def test_the_table_of_event_faults_lists_what_the_suite_runs() -> None:
    text = "".join(path.read_text() for path in (ROOT / "tests" / "faults").glob("event_*.py"))
    found = rows("faults.md", 7)
    assert len(found) > 5
    for fault, *_ in found:
        assert f'"{fault}"' in text, fault
