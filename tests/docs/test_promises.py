"""Each promise has its limits on its page, and tests on the page of tests."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def parts(page: str, level: str) -> dict[str, str]:
    """Return the texts below the headings of a level, by heading."""
    found = re.split(rf"^{level} (.*)$", page, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


PROMISES = parts(parts((DOCS / "promises.md").read_text(), "##")["What is promised"], "###")
TESTS = parts((DOCS / "tests.md").read_text(), "##")


def test_each_promise_has_limits_and_tests() -> None:
    assert len(PROMISES) > 10
    assert [title for title, text in PROMISES.items() if "\n- " not in text] == []
    assert [*TESTS][: len(PROMISES)] == [*PROMISES]
    assert [title for title, text in TESTS.items() if "](../tests/" not in text] == []


def test_what_decides_comes_first() -> None:
    titles = re.findall(r"^## (.*)$", (DOCS / "promises.md").read_text(), re.MULTILINE)
    assert titles == [
        "What decides",
        "What is promised",
        "What is published about the service",
        "What is assumed about the service",
        "Deliberate limits",
        "What was never tested",
    ]
