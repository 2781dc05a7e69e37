"""Text that came from elsewhere: what it is, and how it becomes fit for a message or a log line."""

from __future__ import annotations

import re
import unicodedata

# Line breaks, terminal escapes, invisible and direction-changing characters: each could forge or hide log text.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    """Tell whether the text is a UUID."""
    return _UUID.fullmatch(text) is not None


def has_unprintable(text: str) -> bool:
    """Tell whether the text holds a control, formatting or otherwise invisible character."""
    return any(unicodedata.category(character) in _UNPRINTABLE for character in text)


def readable(text: object, limit: int = 300) -> str:
    """
    Return the text on one line, without unprintable characters and not longer than asked for.

    :param text: anything; it is turned into a string first.
    :param limit: greatest length of the answer in characters; what is cut off is marked by an ellipsis.
    :return: the text, white space folded.
    """
    # Far more than can survive the folding; keeps the work bounded on an answer of many megabytes.
    head = str(text)[: limit * 8]
    shown = "".join(" " if unicodedata.category(c) in _UNPRINTABLE else c for c in head)
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
