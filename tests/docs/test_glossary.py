"""The glossary is short, its terms are used, and each page links the first use of each term."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from glossary import _FORMS, COMMAND, DOCS, GLOSSARY, headings, pages, terms, with_links

#: Words of the code that are neither explained nor used for users.
_OF_THE_CODE = re.compile(r"\b(?:fences?|snapshots?|row keys?|scraps?|manual overrides?)\b", re.IGNORECASE)
_CODE = re.compile(r"```.*?```|`[^`\n]+`|\]\([^)]*\)", re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else page.name


@pytest.mark.parametrize("page", pages(), ids=map(name, pages()))
def test_the_first_use_of_each_term_is_a_link(page: Path) -> None:
    text = page.read_text()
    assert with_links(text, page.parent) == text, f"to add the links, run: {COMMAND}"


def test_terms_are_in_alphabetical_order_and_explained_in_two_sentences() -> None:
    found = re.split(r"^## (.*)$", GLOSSARY.read_text(), flags=re.MULTILINE)[1:]
    assert found[::2] == sorted(found[::2], key=str.lower)
    long = [term for term, text in zip(found[::2], found[1::2], strict=True) if len(re.findall(r"\.(?=\s)", text)) > 2]
    assert long == []


def test_each_term_is_used() -> None:
    assert _FORMS.keys() <= {*headings()}
    files = [*pages(), *(DOCS / "reference").glob("*.md"), *(DOCS.parent / "airflow_custody").rglob("*.py")]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(each.read_text() for each in files))
    assert {anchor for anchor, pattern in terms() if not pattern.search(text)} == set()


def test_words_of_the_code_are_not_used_for_users() -> None:
    others = [page for page in [*pages(), *(DOCS / "reference").glob("*.md")] if page.name != "at-most-once.md"]
    found = {name(page): _OF_THE_CODE.findall(_CODE.sub("", page.read_text())) for page in others}
    assert {page: words for page, words in found.items() if words} == {}
    for path in (DOCS.parent / "airflow_custody").rglob("*.py"):
        assert [text for text in messages(path) if _OF_THE_CODE.search(text)] == [], path


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of a module that may be a part of a message: all with a space, except for docstrings."""
    tree = ast.parse(path.read_text())
    statements = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements:
            yield from [node.value] if " " in node.value else []
