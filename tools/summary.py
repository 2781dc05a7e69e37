"""
Summarize suites from their reports, which pytest writes with ``--junit-xml``.

``summary.py REPORT`` prints one line about a suite. ``summary.py --total REPORT ...`` prints, for each reason, how many
tests no suite ran, and then the totals.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree


@dataclass(frozen=True)
class Suite:
    """
    The contents of a report.

    :param name: the suite's name.
    :param failed: number of tests that failed.
    :param passed: names of the tests that passed.
    :param skipped: reasons for skipping, by the name of the test or, if it was skipped as a whole, of the module.
    """

    name: str
    failed: int
    passed: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)


def read(path: str) -> Suite:
    """Read a report."""
    (element,) = ElementTree.parse(path).getroot().iter("testsuite")
    suite = Suite(element.get("name", ""), int(element.get("failures", "0")) + int(element.get("errors", "0")))
    for case in element.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".removeprefix(".")
        skip = case.find("skipped")
        if skip is not None:
            # For a whole module, the text is a tuple that ends with the reason.
            reason = (skip.text or "").rpartition("Skipped: ")[2].rstrip("')\"")
            suite.skipped[name] = reason if skip.get("message") == "collection skipped" else skip.get("message", "")
        elif case.find("failure") is None and case.find("error") is None:
            suite.passed.add(name)
    return suite


def never_run(suites: Sequence[Suite]) -> dict[str, str]:
    """Return the tests and modules that no suite ran, with the reasons."""
    passed = set[str]().union(*(suite.passed for suite in suites))
    modules = {name.partition("[")[0].rpartition(".")[0] for name in passed}
    skipped = {name: reason for suite in suites for name, reason in suite.skipped.items()}
    return {name: reason for name, reason in skipped.items() if name not in passed | modules}


def main() -> None:
    """Print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--total", action="store_true")
    options = parser.parse_args()
    suites = [read(path) for path in options.reports]
    if not options.total:
        for suite in suites:
            print(f"{suite.name}: {len(suite.passed)} passed, {suite.failed} failed, {len(suite.skipped)} skipped")
        return
    skipped = never_run(suites)
    for reason, number in Counter(skipped.values()).most_common():
        print(f"{number} skipped: {reason}")
    passed, failed = sum(len(suite.passed) for suite in suites), sum(suite.failed for suite in suites)
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")


if __name__ == "__main__":
    main()
