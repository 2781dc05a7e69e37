"""Check text from outside, and prepare it for messages and logs."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable

# Line breaks, terminal escapes, invisible and direction-changing characters could forge or hide log text.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Characters that are invisible although Unicode classifies them as letters, marks or symbols, or has not assigned them
# yet. They include all characters with Unicode's property Default_Ignorable_Code_Point (DerivedCoreProperties.txt of
# Unicode 14), and other characters that are named as a blank, a filler, a joiner, a selector, a note without a head, or
# an object.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u2d7f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\ufffc\U0001107f\U00013440-\U00013442\U00016fe4\U0001bc9d"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Maximum number of code points of a difference that are shown, because a difference may extend to the end of the text.
_MAX_POINTS = 4
#: The table for :meth:`str.translate` with which :func:`ascii_lower` converts a text.
ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_pem(text: str) -> bool:
    """
    Tell whether a text may be a key or certificate in PEM. Where a path is expected, do not quote such a text.
    """
    return "-----BEGIN" in text or "\n" in text


def pem_text(pem: str | bytes) -> str:
    """
    Return a text in PEM with real line ends.

    Files of environment variables, and JSON that was escaped twice, contain line ends as two characters, ``\\n``.

    :param pem: the text as it was given.
    :raises TypeError: if it is neither text nor bytes.
    """
    # Invalid UTF-8 can be replaced, because PEM is ASCII, except for comments.
    text = pem if isinstance(pem, str) else str(pem, "utf-8", "replace")
    return text.replace("\\r", "").replace("\\n", "\n")


def is_uuid(text: str) -> bool:
    """Tell whether the text is a UUID."""
    return _UUID.fullmatch(text) is not None


def is_decimal(text: str) -> bool:
    """Tell whether the text is a number written in ASCII digits."""
    return text.isascii() and text.isdigit()


def read_number(text: str, maximum: int) -> int | None:
    """
    Parse a whole number in ASCII digits; None if the text is not such a number, or the number is too large.

    Use this function for all text from outside, because ``int`` itself raises an error for thousands of digits.

    :param text: the text.
    :param maximum: the largest accepted number.
    """
    if not is_decimal(text) or len(text) > len(str(maximum)):
        return None
    number = int(text)
    return number if number <= maximum else None


def has_unprintable(text: str) -> bool:
    """Tell whether the text holds a control, formatting or otherwise invisible character."""
    # Fast path for nearly every text.
    return not (text.isascii() and text.isprintable()) and any(map(_is_unprintable, text))


#: The character that software writes for a character that it could not read.
_LOST = "\N{REPLACEMENT CHARACTER}"


def lost_fault(text: str) -> str | None:
    """Explain that a text has lost a character; None if it has not."""
    if _LOST not in text:
        return None
    return "contains U+FFFD, which software writes for a character that it could not read: correct it at its source"


def character_fault(text: str) -> str | None:
    """Explain that a text has a lost or an invisible character, which no value may have; None if it has not."""
    fault = lost_fault(text)
    return fault or ("contains a control or invisible character" if has_unprintable(text) else None)


def without_emoji_style(text: str) -> str:
    """
    Return a text without the variation selectors that keyboards write after emoji.
    """
    if text.isascii():
        return text
    pairs = zip(f" {text}", text, strict=False)
    return "".join(each for before, each in pairs if each != "\ufe0f" or not _may_be_emoji(before))


def _may_be_emoji(character: str) -> bool:
    return character in "©®" or (ord(character) > 0xFF and unicodedata.category(character) in ("So", "Sm"))


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in _UNPRINTABLE or _INVISIBLE.match(character) is not None


def sanitize(text: object, limit: int = 300) -> str:
    """
    Return a text on one line, shortened, and with blanks instead of unprintable characters.

    :param text: any value; it is converted to a string first.
    :param limit: maximum length of the result in characters; an ellipsis marks where it was cut. Default 300.
    :return: the text, white space folded.
    """
    # Cut the text before the slower steps, to limit the work, because a response may have many megabytes.
    line = str(text).lstrip()[: limit * 8]
    if not (line.isascii() and line.isprintable()):
        line = line.translate(_SHOWN)
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class _Shown(dict[int, int]):
    """
    A table for ``str.translate`` that replaces each invisible character, and all white space, by a blank.
    """

    def __missing__(self, code: int) -> int:
        character = chr(code)
        return ord(" ") if character.isspace() or _is_unprintable(character) else code


_SHOWN = _Shown()


def escape(text: str) -> str:
    """
    Return the whole text on one line, with unprintable characters in the form of :func:`escaped`.
    """
    # Fast path for nearly every text.
    if text.isascii() and text.isprintable():
        return text
    return "".join(escaped(each) if _is_unprintable(each) else each for each in text)


def escaped(character: str) -> str:
    """
    Return a character as ``\\uXXXX`` or ``\\UXXXXXXXX``.

    The number of digits is fixed, so that the next character of the text does not seem to be one of them.
    """
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def hidden_difference(first: str, second: str, shown: int) -> str:
    """
    Describe where two texts differ, if they may look the same.

    Two texts may look the same if they differ in letters that look alike, or only after the displayed characters.

    :param first: the first text.
    :param second: the second text.
    :param shown: number of characters of each text that are displayed.
    :return: the place and its code points, such as ``at character 4: U+0065 U+0301 and U+00E9``; empty if the
        difference is visible: in displayed ASCII characters, or because one of the texts is empty.
    """
    start = _common_length(first, second)
    rest = first[start:], second[start:]
    end = _common_length(rest[0][::-1], rest[1][::-1])
    parts = [each[: len(each) - end] for each in rest]
    if not (first and second and any(parts)) or (start < shown and "".join(parts).isascii()):
        return ""
    return f"at character {start + 1}: {' and '.join(map(_code_points, parts))}"


def _common_length(first: str, second: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))


def _code_points(text: str) -> str:
    points = [f"U+{ord(each):04X}" for each in text[:_MAX_POINTS]]
    return " ".join([*points, "..."] if text[_MAX_POINTS:] else points) or "nothing"


#: Maximum number of names in a message.
MAX_NAMED = 10


def name_some(names: Iterable[str], limit: int | None = None) -> str:
    """
    Return at most ten names, and the number of further names.

    :param names: the names.
    :param limit: maximum length of each name, which is then sanitized. Default None: the names are already sanitized.
    """
    names = list(names)
    shown = names[:MAX_NAMED]
    if limit is not None:
        shown = [sanitize(each, limit) for each in shown]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(shown) + more


def sentences(*texts: str | None) -> str:
    """
    Join texts as sentences, so that each text but the last ends with exactly one full stop or with a question mark.

    :param texts: the texts; those that are None or empty are left out.
    """
    *first, last = [each for each in texts if each] or [""]
    return " ".join([*(each if each.endswith("?") else f"{each.rstrip('.')}." for each in first), last])


def lines(*texts: str | None) -> str:
    """
    Join texts to a message of several lines.

    Use it for errors and log entries, because Airflow's log viewer does not wrap long lines.

    :param texts: the lines; those that are None or empty are left out. Text from outside must be sanitized first.
    """
    return "\n".join(each for each in texts if each)


def ascii_lower(text: str) -> str:
    """
    Return the text with the letters A to Z in lower case.

    Use it to compare the service's words in upper and lower case. ``str.lower`` and ``str.casefold`` would also convert
    other letters, such as the Kelvin sign to a ``k``.
    """
    return text.lower() if text.isascii() else text.translate(ASCII_LOWER)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 signature``, ``2 signatures``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def count_of(number: int, total: int, noun: str, plural: str | None = None) -> str:
    """
    Return a number of a total, with noun and verb, such as ``1 of 3 checks is`` or ``0 of 3 checks are``.
    """
    return f"{number} of {count(total, noun, plural)} {'is' if 1 in (number, total) else 'are'}"


def as_name(value: object) -> str | None:
    """
    Return a text or a whole number as text.

    The service may send a number where text is expected.

    :param value: the value that the service sent.
    :return: the text; None for any other value, or a number of more than 64 bits.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return value if isinstance(value, str) else None


def as_list(value: str | Iterable[str]) -> list[str]:
    """Return a list of strings from one string or several strings."""
    return [value] if isinstance(value, str) else list(value)
