"""The texts that are visible on the pictures of the docs. They show when a picture is out of date."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

#: The pictures of the docs, and the file with their texts.
FOLDER = Path(__file__).parents[3] / "docs" / "images"
WORDS = FOLDER / "words.json"
#: What differs each time, in this order, and what stands for it in the recorded texts.
_CHANGING = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"\b127\.0\.0\.1:\d+", "HOST"),
    (r"\b\d{4}-\d\d-\d\d[ T,]+\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"\b(manual|scheduled)__\S+", "RUN"),
    (r"\b\d\d:\d\d:\d\d(\.\d+)?", "DURATION"),
    (r"\b\d+ (d|h|min|s)( \d+ (h|min|s))?( ago)?\b|\bjust now\b", "AGE"),
)


def steady(text: str) -> str:
    """Return a text on one line, with names for times, ages, ports and generated ids, which differ each time."""
    text = " ".join(text.split())
    for pattern, name in _CHANGING:
        text = re.sub(pattern, name, text)
    return text


def read_words() -> dict[str, Any]:
    """Return the record of each picture: the digest of its file, and its texts by their origin."""
    found: dict[str, Any] = json.loads(WORDS.read_text()) if WORDS.exists() else {}
    return found


def digest(name: str) -> str:
    """Return the digest of a picture's file."""
    return hashlib.sha256((FOLDER / f"{name}.png").read_bytes()).hexdigest()


def record(name: str, texts: dict[str, list[str]]) -> None:
    """
    Record the texts of a new picture.

    :param name: the picture's file name, without the ending.
    :param texts: the texts that are visible on it, by their origin: ``custody`` for the page, ``airflow`` for the rest.
    """
    words = read_words() | {name: {"sha256": digest(name), **texts}}
    WORDS.write_text(json.dumps(dict(sorted(words.items())), indent=1, ensure_ascii=False) + "\n")


def find_outdated(name: str, origin: str, texts: list[str]) -> list[str]:
    """
    Return the texts on a picture of the docs that are no longer on the page.

    :param name: the picture's file name, without the ending.
    :param origin: ``custody`` or ``airflow``.
    :param texts: the texts of the page: each is a recorded text, or contains several.
    """
    page = steady(" ".join(texts))
    return [text for text in read_words()[name][origin] if text not in page]
