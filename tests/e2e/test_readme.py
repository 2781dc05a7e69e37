"""Every snippet of the README is taken from a file that the tests run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"<!-- from (\S+): (\S+) -->\n```(?:python|yaml)\n(.*?)```", README, re.DOTALL)


def test_every_snippet_names_its_source() -> None:
    assert SNIPPETS
    assert README.count("```python") + README.count("```yaml") == len(SNIPPETS)


@pytest.mark.parametrize(("path", "mark", "snippet"), SNIPPETS, ids=[mark for _, mark, _ in SNIPPETS])
def test_a_snippet_is_the_text_of_its_file(path: str, mark: str, snippet: str) -> None:
    text = (ROOT / path).read_text()
    if mark == "all":
        assert snippet.strip() == text.strip()
        return
    found = re.search(rf"# \[START {mark}\]\n(.*?)\n[ ]*# \[END {mark}\]", text, re.DOTALL)
    assert found, f"{path} has no {mark}"
    assert snippet.strip() == textwrap.dedent(found[1]).strip()


def test_the_commands_of_the_readme_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z0-9-]+)", README))
    assert named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_table_of_faults_lists_what_the_suite_runs_and_enforces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "faults"))
    from scenarios import NETWORK_SCENARIOS, SCENARIOS, WORKER_SCENARIOS

    _, _, section = README.partition("## A request is created once")
    rows = re.findall(r"^\| (.*?) \| \d+ \| (\d+) \| (.*?) \|$", section, re.MULTILINE)
    scenarios = [*NETWORK_SCENARIOS, *SCENARIOS, *WORKER_SCENARIOS]
    assert [row[0] for row in rows] == [scenario.fault for scenario in scenarios]
    for (_, requests, result), scenario in zip(rows, scenarios, strict=True):
        assert int(requests) <= scenario.requests
        assert "WRONG" not in result
        assert ("explained" in result) <= (scenario.explained > 0)


def test_the_table_of_event_faults_lists_what_the_suite_runs() -> None:
    text = "".join(path.read_text() for path in (ROOT / "tests" / "faults").glob("event_*.py"))
    rows = re.findall(
        r"^\| (.*?) \| (\d+) \| (\d+).*? \| \d+ \| .* \|$", README.partition("## Metrics")[0], re.MULTILINE
    )
    assert len(rows) > 5
    for fault, _, _ in rows:
        assert f'"{fault}"' in text, fault


def test_the_pictures_of_the_readme_are_there() -> None:
    for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file(), path


def test_version_is_in_the_changelog() -> None:
    from airflow_custody import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
