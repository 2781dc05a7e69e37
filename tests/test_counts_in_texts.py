"""What is counted in a message has its noun in the right number: the helpers of ``client.text`` write it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_custody

PACKAGE = Path(airflow_custody.__file__).parent
#: A length, or a number in a log's format, before a plural: it would say "1 rows".
WRONG = re.compile(r"(\{(?:len|sum)\(.*?\)\}|%d|%i)( of (the )?(\{.*?\}|%d|%i))? ([a-z-]+ ){0,2}[a-z]{2,}s\b(?!')")


def texts(source: str) -> Iterator[str]:
    """Yield the strings of a module, what is filled in as code in braces."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                f"{{{ast.unparse(each.value)}{':' if each.format_spec else ''}}}"
                if isinstance(each, ast.FormattedValue)
                else str(ast.literal_eval(each))
                for each in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("text", ["{len(x)} rows", "{len(x)} of {len(y)} pinned keys must", "%d of %d rows done"])
def test_what_is_wrong_is_found(text: str) -> None:
    assert WRONG.search(text)


def test_no_message_has_one_of_many() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {text[:100]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "sandbox" not in path.parts
        for text in texts(path.read_text())
        if WRONG.search(text)
    }
    assert found == set()
