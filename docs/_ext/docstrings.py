"""Docstrings as Markdown: their text, and what they say of parameters, results and errors."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Returns the link to a name of the package, or the name as code.
Link = Callable[[str], str]
_FIELD = re.compile(r"^:(param|return|raises)(?: (\w+))?: ?")
_ROLE = re.compile(r":(?:class|func|meth|attr|exc|data|mod):`~?([\w.]+)`")
_LITERAL = re.compile(r"^(.*?):?:\n\n((?: {4}.*\n|\n)+)", re.MULTILINE)
_CODE = re.compile(r"(`[^`]+`)")


@dataclass
class Docstring:
    """
    The parts of a docstring, as reStructuredText.

    :param text: the text before the fields.
    :param parameters: the text of each parameter, by name.
    :param returned: the text of the result; empty if there is none.
    :param raised: the errors' names and texts.
    """

    text: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returned: str = ""
    raised: list[tuple[str, str]] = field(default_factory=list)


def read_docstring(obj: Any) -> Docstring:
    """Return the parts of an object's own docstring."""
    return parse((inspect.getdoc(obj) if not isinstance(obj, str) else obj) or "")


def parse(text: str) -> Docstring:
    """Return the parts of a docstring."""
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if _FIELD.match(line)), len(lines))
    result = Docstring("\n".join(lines[:first]).strip())
    for each in re.split(r"\n(?=:\w)", "\n".join(lines[first:])):
        if found := _FIELD.match(each):
            _add(result, found[1], found[2], " ".join(each[found.end() :].split()))
    return result


def _add(result: Docstring, kind: str, name: str, text: str) -> None:
    if kind == "param":
        result.parameters[name] = text
    elif kind == "return":
        result.returned = text
    else:
        result.raised.append((name, text))


def to_markdown(text: str, link: Link) -> str:
    """Return a docstring's text as Markdown."""
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
    text = _LITERAL.sub(_fence, f"{text}\n")
    parts = _CODE.split(_ROLE.sub(lambda found: link(found[1]), text))
    # What looks like a tag is no text on a Git host.
    return "".join(part if part.startswith("`") else re.sub(r"<(?=[a-z/])", r"\<", part) for part in parts).strip()


def _fence(found: re.Match[str]) -> str:
    before = f"{found[1]}:\n\n" if found[1] else ""
    return f"{before}```text\n{textwrap.dedent(found[2]).rstrip()}\n```\n\n"


def cell(text: str, link: Link) -> str:
    """Return a docstring's text as a cell of a table."""
    return " ".join(to_markdown(text, link).split()).replace("|", "\\|")
