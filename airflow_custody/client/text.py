"""Text and lists from elsewhere: recognizing them, and making them fit for a message or a log line."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable

# Line breaks, terminal escapes, invisible and direction-changing characters: each could forge or hide log text.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Characters that show nothing although they count as letters, marks or symbols, or are not assigned yet: all with
# Unicode's property Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode 14); and those without it that
# are by their names a blank, a filler, a joiner, a selector, a note without a head, or stand for an object.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u2d7f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\ufffc\U0001107f\U00013440-\U00013442\U00016fe4\U0001bc9d"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# The variation selector that keyboards write after an emoji, even one that is never shown as text: a character with the
# property Emoji, and not Emoji_Component, as digits, skin tones and the letters of flags have (emoji-data.txt of
# Unicode 14).
_EMOJI_STYLE = re.compile(
    "(?<=[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23f3"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2604\u260e\u2611\u2614\u2615\u2618\u261d\u2620"
    "\u2622\u2623\u2626\u262a\u262e\u262f\u2638-\u263a\u2640\u2642\u2648-\u2653\u265f\u2660\u2663\u2665\u2666\u2668"
    "\u267b\u267e\u267f\u2692-\u2697\u2699\u269b\u269c\u26a0\u26a1\u26a7\u26aa\u26ab\u26b0\u26b1\u26bd\u26be"
    "\u26c4\u26c5\u26c8\u26ce\u26cf\u26d1\u26d3\u26d4\u26e9\u26ea\u26f0-\u26f5\u26f7-\u26fa\u26fd\u2702\u2705"
    "\u2708-\u270d\u270f\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757"
    "\u2763\u2764\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297"
    "\u3299\U0001f004\U0001f0cf\U0001f170\U0001f171\U0001f17e\U0001f17f\U0001f18e\U0001f191-\U0001f19a"
    "\U0001f201\U0001f202\U0001f21a\U0001f22f\U0001f232-\U0001f23a\U0001f250\U0001f251\U0001f300-\U0001f321"
    "\U0001f324-\U0001f393\U0001f396\U0001f397\U0001f399-\U0001f39b\U0001f39e-\U0001f3f0\U0001f3f3-\U0001f3f5"
    "\U0001f3f7-\U0001f3fa\U0001f400-\U0001f4fd\U0001f4ff-\U0001f53d\U0001f549-\U0001f54e\U0001f550-\U0001f567"
    "\U0001f56f\U0001f570\U0001f573-\U0001f57a\U0001f587\U0001f58a-\U0001f58d\U0001f590\U0001f595\U0001f596"
    "\U0001f5a4\U0001f5a5\U0001f5a8\U0001f5b1\U0001f5b2\U0001f5bc\U0001f5c2-\U0001f5c4\U0001f5d1-\U0001f5d3"
    "\U0001f5dc-\U0001f5de\U0001f5e1\U0001f5e3\U0001f5e8\U0001f5ef\U0001f5f3\U0001f5fa-\U0001f64f"
    "\U0001f680-\U0001f6c5\U0001f6cb-\U0001f6d2\U0001f6d5-\U0001f6d7\U0001f6dd-\U0001f6e5\U0001f6e9"
    "\U0001f6eb\U0001f6ec\U0001f6f0\U0001f6f3-\U0001f6fc\U0001f7e0-\U0001f7eb\U0001f7f0\U0001f90c-\U0001f93a"
    "\U0001f93c-\U0001f945\U0001f947-\U0001f9af\U0001f9b4-\U0001f9ff\U0001fa70-\U0001fa74\U0001fa78-\U0001fa7c"
    "\U0001fa80-\U0001fa86\U0001fa90-\U0001faac\U0001fab0-\U0001faba\U0001fac0-\U0001fac5\U0001fad0-\U0001fad9"
    "\U0001fae0-\U0001fae7\U0001faf0-\U0001faf6])\ufe0f"
)
_TO_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    """Tell whether the text is a UUID."""
    return _UUID.fullmatch(text) is not None


def is_decimal(text: str) -> bool:
    """Tell whether the text is a number written in ASCII digits."""
    return text.isascii() and text.isdigit()


def read_number(text: str, maximum: int) -> int | None:
    """
    Parse a whole number in ASCII digits; None if the text is not one, or it is larger.

    Use it for all text from elsewhere: ``int`` itself fails on a text of thousands of digits.

    :param text: the text.
    :param maximum: the largest number that there may be.
    """
    if not is_decimal(text) or len(text) > len(str(maximum)):
        return None
    number = int(text)
    return number if number <= maximum else None


def has_unprintable(text: str) -> bool:
    """Tell whether the text holds a control, formatting or otherwise invisible character."""
    # Fast path for nearly every text.
    return not (text.isascii() and text.isprintable()) and any(map(_is_unprintable, text))


def without_emoji_style(text: str) -> str:
    """Return the text without emoji variation selectors. The emoji itself is shown as its number all the same."""
    return _EMOJI_STYLE.sub("", text)


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in _UNPRINTABLE or _INVISIBLE.match(character) is not None


def sanitize(text: object, limit: int = 300) -> str:
    """
    Return the text on one line, without unprintable characters and no longer than the limit.

    :param text: anything; it is turned into a string first.
    :param limit: maximum length of the result in characters; an ellipsis marks where it was cut. Default 300.
    :return: the text, white space folded.
    """
    # Far more than can survive the folding; this bounds the work on a response of many megabytes.
    line = str(text)[: limit * 8]
    if not (line.isascii() and line.isprintable()):
        line = line.translate(_SHOWN)
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class _Shown(dict[int, int]):
    """A table for ``str.translate``: visible characters stay, invisible ones and white space become a blank."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        return ord(" ") if character.isspace() or _is_unprintable(character) else code


_SHOWN = _Shown()


def escape(text: str) -> str:
    """Return all of the text on one line, its unprintable characters written as ``\\uXXXX``."""
    # Fast path for nearly every text.
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"\\u{ord(each):04x}" if _is_unprintable(each) else each for each in text)


def ascii_lower(text: str) -> str:
    """
    Return the text with the letters A to Z in lower case.

    Used to compare words of the service without case. ``str.lower`` and ``str.casefold`` also make a Kelvin sign a "k".
    """
    return text.lower() if text.isascii() else text.translate(_TO_ASCII_LOWER)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 signature``, ``2 signatures``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def count_of(number: int, total: int, noun: str, plural: str | None = None) -> str:
    """Return a number of a total, with noun and verb: ``1 of 3 checks is``, ``0 of 3 checks are``."""
    return f"{number} of {count(total, noun, plural)} {'is' if 1 in (number, total) else 'are'}"


def as_name(value: object) -> str | None:
    """
    Return a text of the service, which may write a whole number where a text is expected.

    :param value: the value it sent.
    :return: the text; None: it is neither, or a number of more than 64 bits, which is not a name.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return value if isinstance(value, str) else None


def as_list(value: str | Iterable[str]) -> list[str]:
    """Return a list from one string or several."""
    return [value] if isinstance(value, str) else list(value)
