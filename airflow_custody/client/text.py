"""Text and lists from elsewhere: what they are, and how they become fit for a message or a log line."""

from __future__ import annotations

import base64
import html
import json
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from urllib.parse import unquote_to_bytes

# Line breaks, terminal escapes, invisible and direction-changing characters: each could forge or hide log text.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# What shows nothing although it counts as a letter, a mark or a symbol, or is not assigned yet: all with Unicode's
# property Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode 14); and what has no such property, but by
# its name is a blank, a filler, a joiner, a selector, a note without a head, or stands for an object.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u2d7f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\ufffc\U0001107f\U00013440-\U00013442\U00016fe4\U0001bc9d"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# How an emoji says that it is one, as keyboards write it, also after what is never shown as text: what has the property
# Emoji, and not Emoji_Component, as digits, skin tones and the letters of flags have (emoji-data.txt of Unicode 14).
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
_BLANKS = re.compile(" +")
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
    Return the whole number that a text is, in ASCII digits; None if it is none, or is larger.

    What is from elsewhere is read by this alone: ``int`` itself fails on a text of thousands of digits.

    :param text: the text.
    :param maximum: the largest number that there may be.
    """
    if not is_decimal(text) or len(text) > len(str(maximum)):
        return None
    number = int(text)
    return number if number <= maximum else None


def has_unprintable(text: str) -> bool:
    """Tell whether the text holds a control, formatting or otherwise invisible character."""
    return any(map(_is_unprintable, text))


def without_emoji_style(text: str) -> str:
    """Return the text without what says of an emoji that it is one. It is shown as its number all the same."""
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
    # Far more than can survive the folding; keeps the work bounded on a response of many megabytes.
    folded = _folded(str(text)[: limit * 8])
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


class _Shown(dict[int, int]):
    """What is seen of each character; a blank for what is not seen, or only as room between words."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        return ord(" ") if character.isspace() or _is_unprintable(character) else code


_SHOWN = _Shown()


def _folded(text: str) -> str:
    return " ".join(text.translate(_SHOWN).split())


def escape(text: str) -> str:
    """Return all of the text on one line, its unprintable characters written as ``\\uXXXX``."""
    return "".join(f"\\u{ord(each):04x}" if _is_unprintable(each) else each for each in text)


def ascii_lower(text: str) -> str:
    """
    Return the text with the letters A to Z in lower case.

    Compares words of the service without case. ``str.lower`` and ``str.casefold`` also make a Kelvin sign a "k".
    """
    return text.translate(_TO_ASCII_LOWER)


# --- secrets -----------------------------------------------------------------------------------------------

#: What stands in the place of a secret.
REDACTED = "***"
#: Shorter secrets turn up by chance in any text.
MIN_SECRET_LENGTH = 4

_JSON_ESCAPE = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[\"'\\/bfnrt]"
)
_HTML_ESCAPE = r"&#[xX][0-9a-fA-F]{1,8};?|&#[0-9]{1,10};?|&[A-Za-z][A-Za-z0-9]{1,31};?"
_PERCENT_ESCAPE = r"(?:%[0-9a-fA-F]{2})+"
# Each by itself, as the beginning of one may be the end of another; and all, for text that was escaped in several ways.
_ESCAPES = [
    re.compile(each)
    for each in (_JSON_ESCAPE, _HTML_ESCAPE, _PERCENT_ESCAPE, f"{_JSON_ESCAPE}|{_HTML_ESCAPE}|{_PERCENT_ESCAPE}")
]
_MAX_ESCAPE_DEPTH = 6
# A form of fewer characters is not wrapped, and may turn up by chance where words are joined.
_MIN_WRAPPED = 16
# Characters at the beginning of base64 that depend on what came before, by the number of bytes of that.
_BASE64_HEAD = (0, 2, 3)


class Secret:
    """
    A secret, and all the forms in which a service may echo it.

    :param text: the secret.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.is_short = len(text) < MIN_SECRET_LENGTH
        self._plain: frozenset[str] = frozenset() if self.is_short else frozenset(_plain_forms(text))
        self._encoded: frozenset[str] = frozenset() if self.is_short else frozenset(_base64_forms(text))
        self._forms = sorted(self._plain | self._encoded)
        joined = {_folded(each).replace(" ", "") for each in self._forms}
        self._joined = sorted(each for each in joined if len(each) >= _MIN_WRAPPED)

    def only_long(self, word: int, other: int) -> Secret:
        """
        Return the secret in those forms only that do not turn up by chance.

        :param word: minimum length of what is of letters alone, or of digits alone, as words and numbers of the
            service are.
        :param other: minimum length of anything else.
        """

        def is_long(form: str) -> bool:
            return len(form) >= (word if form.isalpha() or form.isdecimal() else other)

        found = copy(self)
        # What it becomes when it is unescaped may be much shorter than it is.
        found._forms = sorted({*filter(is_long, self._plain), *self._encoded}) if is_long(self._text) else []
        found._joined = [each for each in self._joined if is_long(each)] if is_long(self._text) else []
        return found

    def is_in(self, text: str) -> bool:
        """Tell whether the secret stands in a text, as it is or in base64."""
        return any(form in text for form in self._forms)

    def spans(self, view: str, *, joined: bool = False) -> Iterator[tuple[int, int]]:
        """
        Yield where the secret stands in a text, and where the text ends with a part of it.

        :param view: the text.
        :param joined: whether it is without its blanks. Default False.
        """
        for form in self._joined if joined else self._forms:
            start = view.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = view.find(form, start + 1)
            # Truncated: the shortest part that counts is as long as the shortest secret.
            start = view.find(form[:MIN_SECRET_LENGTH], max(0, len(view) - len(form) + 1))
            while start >= 0:
                if form.startswith(view[start:]):
                    yield start, len(view)
                    break
                start = view.find(form[:MIN_SECRET_LENGTH], start + 1)


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """
    Return the text without the secrets, in whatever form they stand in it.

    They are found plain, and escaped as in JSON, HTML or a URL, also several times; and in base64. What is long is
    found across line breaks, too, as base64 and headers are wrapped. What overlaps is redacted as one.

    :param text: any text.
    :param secrets: the secrets. If one of them is too short to be found for certain, nothing of the text is returned.
    """
    secrets = list(secrets)
    if any(secret.is_short for secret in secrets):
        return REDACTED if text else ""
    found = sorted(
        (starts[first], ends[last - 1])
        for joined, (view, starts, ends) in _views_and_joined(text)
        for secret in secrets
        for first, last in secret.spans(view, joined=joined)
    )
    parts: list[str] = []
    position = 0
    for start, end in found:
        if start > position or not parts:
            parts += [text[position:start], REDACTED]
        position = max(position, end)
    return "".join([*parts, text[position:]])


def _plain_forms(secret: str) -> Iterator[str]:
    # As it is, as headers fold it, and as a form encodes spaces.
    plain = {secret, secret.strip(), " ".join(secret.split()), secret.replace(" ", "+")}
    # Read in the other encoding, as headers are.
    plain |= {data.decode(encoding, "replace") for data in _bytes_of(secret) for encoding in ("utf-8", "latin-1")}
    for form in plain:
        # Folded, as in the text: a secret may hold what is not seen.
        views = (each for view, _, _ in _views(form) for each in (view, _folded(view)))
        yield from (each for each in views if len(each) >= MIN_SECRET_LENGTH)


def _base64_forms(secret: str) -> Iterator[str]:
    for data in _bytes_of(secret):
        for before, head in enumerate(_BASE64_HEAD):
            text = base64.b64encode(b"\0" * before + data).decode()
            bare = text.rstrip("=")
            # The last character depends on what comes next, if it is not a whole one.
            core = bare[head : -1 if len(text) > len(bare) else None]
            for form in (core, *((text, bare) if not before else ())):
                if len(form) >= MIN_SECRET_LENGTH:
                    yield from (form, form.translate(_URL_SAFE))


def _bytes_of(secret: str) -> set[bytes]:
    encoded = {secret.encode("utf-8", "surrogatepass")}
    with suppress(UnicodeEncodeError):
        encoded.add(secret.encode("latin-1"))
    return encoded


_URL_SAFE = str.maketrans("+/", "-_")

_View = tuple[str, Sequence[int], Sequence[int]]


def _views(text: str) -> Iterator[_View]:
    """Yield the text and what it becomes when it is unescaped; with the place in the text of each character."""
    whole: _View = (text, range(len(text)), range(1, len(text) + 1))
    yield whole
    for escape in _ESCAPES:
        view = whole
        for _ in range(_MAX_ESCAPE_DEPTH):
            unescaped = _replace(view, escape, _unescape_one)
            if unescaped is None:
                break
            view = unescaped
            yield view


def _views_and_joined(text: str) -> Iterator[tuple[bool, _View]]:
    """Yield the views of a text, each as it is, with one blank for many, and without; and whether it is without."""
    for view in _views(text):
        yield False, view
        # As sanitize() would show it: a secret may have blanks of its own.
        shown: _View = (view[0].translate(_SHOWN), view[1], view[2])
        folded = _replace(shown, _BLANKS, lambda blanks: " ") or shown
        if folded[0] != view[0]:
            yield False, folded
        joined = _replace(shown, _BLANKS, lambda blanks: "")
        if joined is not None:
            yield True, joined


def _replace(view: _View, pattern: re.Pattern[str], replace: Callable[[str], str]) -> _View | None:
    """Return a view in which what fits a pattern is replaced; None if nothing is."""
    text, starts, ends = view
    parts: list[str] = []
    new_starts: list[int] = []
    new_ends: list[int] = []
    position, changed = 0, False
    for match in pattern.finditer(text):
        first, last = match.span()
        character = replace(match[0])
        changed = changed or character != match[0]
        parts += [text[position:first], character]
        new_starts += [*starts[position:first], *[starts[first]] * len(character)]
        new_ends += [*ends[position:first], *[ends[last - 1]] * len(character)]
        position = last
    if not changed:
        return None
    parts.append(text[position:])
    return "".join(parts), [*new_starts, *starts[position:]], [*new_ends, *ends[position:]]


def _unescape_one(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[0] == "%":
        data = unquote_to_bytes(escape)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")
    if escape[1] == "x":
        return chr(int(escape[2:], 16))
    return "'" if escape == r"\'" else str(json.loads(f'"{escape}"'))


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 signature``, ``2 signatures``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def count_of(number: int, total: int, noun: str, plural: str | None = None) -> str:
    """Return a number of a total, with noun and verb: ``1 of 3 checks is``, ``0 of 3 checks are``."""
    return f"{number} of {count(total, noun, plural)} {'is' if 1 in (number, total) else 'are'}"


def as_name(value: object) -> str | None:
    """
    Return a text of the service, which may write a whole number where a text is expected.

    :param value: what it sent.
    :return: the text; None: it is neither, or a number that is no name, as it has more than 64 bits.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return value if isinstance(value, str) else None


def as_list(value: str | Iterable[str]) -> list[str]:
    """Return a list of what may be given as one string or as several."""
    return [value] if isinstance(value, str) else list(value)
