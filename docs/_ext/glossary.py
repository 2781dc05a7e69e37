"""
Links to the glossary, at the first use of each term of a page.

A link is ordinary Markdown, so that it also works on a Git host. ``python docs/_ext/glossary.py`` adds the missing
links; a test fails while one is missing. The pages of the reference get theirs when they are made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
GLOSSARY = DOCS / "glossary.md"
COMMAND = "python docs/_ext/glossary.py"
#: Pages without links: the glossary; a page that defines its own terms; pages that include another text.
_WITHOUT_LINKS = ("glossary.md", "at-most-once.md", "changelog.md", "security.md")
#: Words before a noun, where the same word may also be a verb.
_ARTICLES = ("a ", "A ", "the ", "The ", "approved ")
_ORDINALS = ("a ", "A ", "each ", "Each ", "first ", "later ", "next ", "earlier ", "another ")
#: The forms of terms whose form is not their heading, with or without a final "s". None: the word also has its everyday
#: meaning on most pages, so it is not linked.
_FORMS: dict[str, str | None] = {
    "Approve": None,
    "Batch": "batch(?:es)?",
    "Chain and network": None,
    "Contract operation": "contract operations?|undocumented",
    "Cursor": "cursors?|positions?",
    "Delivery": "delivery|deliveries",
    "Group and threshold": "thresholds?",
    "Hidden rows": "hidden (?:rows|requests?)",
    "Legacy signature": "legacy (?:signatures?|forms?)",
    "Part of a plan": "parts? of (?:a|the|this) plan",
    "Pinned key": "pinned keys?|pinned|pins",
    "Plan": "|".join(f"(?<={each})plan" for each in _ARTICLES),
    "Record": "|".join(f"(?<={each})record" for each in _ARTICLES),
    "Sign": None,
    "Signed content": "signed (?:content|texts?)",
    "Try": "|".join(f"(?<={each})try" for each in _ORDINALS),
}
# What is not prose: blocks of code, comments, headings, quoted messages, links with their text, code in a line.
_NOT_PROSE = re.compile(
    r"^ *```.*?^ *```$|<!--.*?-->|^#.*?$|^>.*?$|!?\[[^\]]*\]\([^)]*\)|`[^`\n]+`|\"[^\"\n]+\"", re.DOTALL | re.MULTILINE
)


def headings() -> list[str]:
    """Return the terms of the glossary."""
    return re.findall(r"^## (.*)$", GLOSSARY.read_text(), re.MULTILINE)


def terms() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the anchor of each linked term, and the pattern of its forms; longer terms first."""
    for heading in sorted(headings(), key=len, reverse=True):
        form = _FORMS.get(heading, f"{re.escape(heading)}s?")
        if form is not None:
            yield heading.lower().replace(" ", "-"), re.compile(rf"\b(?:{form})\b", re.IGNORECASE)


def pages() -> list[Path]:
    """Return the pages that link their terms."""
    found = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [each for each in found if each.name not in _WITHOUT_LINKS and each.parent != DOCS / "reference"]


def with_links(text: str, folder: Path) -> str:
    """
    Return a text in which the first use of each term has a link to the glossary.

    :param text: the text of a page, in Markdown.
    :param folder: the folder of the page.
    """
    glossary = os.path.relpath(GLOSSARY, folder)
    for anchor, pattern in terms():
        target = f"{glossary}#{anchor}"
        if f"]({target})" not in text and (found := _first_use(text, pattern)):
            text = f"{text[: found.start()]}[{found[0]}]({target}){text[found.end() :]}"
    return text


def _first_use(text: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
    # With other text of the same length in place of what is not prose, positions stay the same.
    prose = _NOT_PROSE.sub(lambda each: re.sub(r"[^\n]", "\0", each[0]), text)
    return pattern.search(prose)


if __name__ == "__main__":
    for path in pages():
        path.write_text(with_links(path.read_text(), path.parent))
