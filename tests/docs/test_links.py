"""The documentation in the repository, without the site: what a link leads to is there, and has something to read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
#: What ``make docs`` writes. A page links it by the role ``doc``, which nobody takes for a link outside of the site.
GENERATED = (ROOT / "docs" / "reference", ROOT / "docs" / "examples")
_CODE = re.compile(r"^ *(```|~~~).*?^ *\1", re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[Path]:
    """Return the files that the links of a page lead to."""
    text = _CODE.sub("", page.read_text())
    found = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    return [(page.parent / each).resolve() for each in found if not re.match(r"[a-z]+:", each)]


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_each_link_leads_to_a_file_of_the_repository(page: Path) -> None:
    for target in links(page):
        assert target.exists(), f"{target} is not there"
        assert not any(folder in target.parents for folder in GENERATED), f"{target} is made by 'make docs'"
    text = re.sub(r"`[^`\n]*`", "", _CODE.sub("", page.read_text()))
    assert "{{" not in text, "a substitution is text outside of the site"


def test_each_guide_is_linked_by_its_title() -> None:
    text = (ROOT / "docs" / "how-to.md").read_text()
    for guide in (ROOT / "docs" / "how-to").glob("*.md"):
        title = guide.read_text().removeprefix("# ").partition("\n")[0]
        assert f"- [{title}](how-to/{guide.name})" in text


def test_each_example_is_listed_with_what_it_does() -> None:
    text = (ROOT / "docs" / "examples.md").read_text()
    files = sorted((ROOT / "example_dags").glob("*.py"))
    rows = [(each.name, each.read_text().split('"""')[1].strip().partition("\n")[0]) for each in files]
    assert re.findall(r"^\| \[`(\w+\.py)`\].* \| (.*) \|$", text, re.MULTILINE) == rows
