"""The table of all pairs: on the screen, and as a part of a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping

from matrix.environments import BOUNDS, NOTED, UNTESTED, Result
from matrix.pairs import PYTHONS, Interpreter, Release

# Results by names such as 3.13-3.3.2.
Results = Mapping[str, Result]


def markdown(
    results: Results, interpreters: Mapping[str, Interpreter], releases: list[Release], *, wheel: str, uv: str
) -> str:
    """Return the table with its notes."""
    notes: list[str] = []
    names = [f"Python {interpreters[each].version if each in interpreters else each}" for each in PYTHONS]
    lines = [
        "<!-- Written by `make matrix`. -->",
        "",
        f"{dates(results)}, {wheel}:",
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for release in releases:
        cells = [cell(results[f"{each}-{release.version}"], notes) for each in PYTHONS]
        lines.append(f"| Airflow {release.version} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, start=1))]
    if notes:
        lines.append("")
    return "\n".join([*lines, *_explanation(results, releases, uv)]) + "\n"


def dates(results: Results) -> str:
    """Return when the pairs were tried."""
    days = sorted({each.date for each in results.values() if each.date})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "Not tried"


def cell(result: Result, notes: list[str]) -> str:
    """Return the text of one cell, and add its note, if it has one and no other has the same."""
    text = "not possible" if result.outcome == "excluded" else result.outcome
    if result.reason:
        if result.reason not in notes:
            notes.append(result.reason)
        text += f" ({notes.index(result.reason) + 1})"
    return text


def _explanation(results: Results, releases: list[Release], uv: str) -> list[str]:
    """Say what a cell means, and with which versions."""
    passed = [each.tests[0] - each.tests[1] for each in results.values() if each.outcome == "passes"]
    numbers = " to ".join(str(each) for each in dict.fromkeys((min(passed), max(passed)))) if passed else "no"
    lines = [
        f"**passes**: the wheel was installed into an empty environment by uv {uv}, with the newest versions that its",
        "resolver found and no constraints file. Every module of the package was imported. Tests passed against the",
        f"sandbox, {numbers} of them, which run every example, and operators and a sensor in DAGs. What a release of",
        "Airflow lacks is skipped on it. `make test` runs more: on Airflow 3.3 all tests and the fault experiments; on",
        "2.11 all tests but those of client and sandbox; with the oldest versions that the package allows, all but the",
        "end-to-end tests. No fault experiment runs on 2.11.",
        "",
        *_untested(results),
        "What was installed beside it, on the newest Python of each row:",
        "",
        f"| | {' | '.join(name.removeprefix('apache-airflow-providers-') for name in NOTED)} |",
        f"|---|{'---|' * len(NOTED)}",
    ]
    for release in releases:
        found = [
            results[f"{each}-{release.version}"].versions
            for each in PYTHONS
            if results[f"{each}-{release.version}"].versions
        ]
        if found:
            lines.append(f"| Airflow {release.version} | {' | '.join(found[-1].get(name, '') for name in NOTED)} |")
    for line, bounds in BOUNDS.items():
        texts = " and ".join(f"`{each}`" for each in bounds)
        lines += ["", f"Airflow {line} cannot run a task with newer releases of what it needs: here it had {texts}."]
    return lines


def _untested(results: Results) -> list[str]:
    """Say what else a cell means, if there is such a cell."""
    if not any(each.outcome == UNTESTED for each in results.values()):
        return []
    return [f"**{UNTESTED}**: the same, but the tests were not run on this pair.", ""]


def line_of(python: str, release: Release, result: Result, seconds: float) -> str:
    """Return what the screen shows of one pair."""
    text = f"Python {python}  Airflow {release.version:<7} {result.outcome}"
    if result.tests[0]:
        total, skipped, failed = result.tests
        text += f": {total - skipped - failed} tests passed, {skipped} skipped, {failed} failed"
    if result.reason:
        text += f": {result.reason}"
    return f"{text} ({seconds:.0f} s)" if seconds >= 1 else text
