"""Text and lists from elsewhere: what they are, and how they become fit for a message or a log line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# Line breaks, terminal escapes, invisible and direction-changing characters: each could forge or hide log text.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    """Tell whether the text is a UUID."""
    return _UUID.fullmatch(text) is not None


def is_decimal(text: str) -> bool:
    """Tell whether the text is a number written in ASCII digits."""
    return text.isascii() and text.isdigit()


def has_unprintable(text: str) -> bool:
    """Tell whether the text holds a control, formatting or otherwise invisible character."""
    return any(unicodedata.category(character) in _UNPRINTABLE for character in text)


def sanitize(text: object, limit: int = 300) -> str:
    """
    Return the text on one line, without unprintable characters and no longer than the limit.

    :param text: anything; it is turned into a string first.
    :param limit: maximum length of the result in characters; an ellipsis marks where it was cut. Default 300.
    :return: the text, white space folded.
    """
    # Far more than can survive the folding; keeps the work bounded on a response of many megabytes.
    head = str(text)[: limit * 8]
    printable = "".join(" " if unicodedata.category(c) in _UNPRINTABLE else c for c in head)
    folded = " ".join(printable.split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 signature``, ``2 signatures``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def as_list(value: str | Iterable[str]) -> list[str]:
    """Return a list of what may be given as one string or as several."""
    return [value] if isinstance(value, str) else list(value)
