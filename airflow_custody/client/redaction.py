"""Secrets in text from elsewhere, in whatever form: they are found and replaced."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from urllib.parse import quote_plus, unquote_to_bytes

from airflow_custody.client.text import SHOWN, fold

#: What stands in the place of a secret.
REDACTED = "***"
#: Shorter secrets turn up by chance in any text.
MIN_SECRET_LENGTH = 4

_JSON_ESCAPE = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[\"'\\/bfnrt]"
)
_JSON_NUMBER = re.compile(r"\\u([0-9a-fA-F]{4})")
_HTML_ESCAPE = r"&#[xX][0-9a-fA-F]{1,8};|&#[0-9]{1,10};|&[A-Za-z][A-Za-z0-9]{1,31};"
_PERCENT_ESCAPE = r"(?:%[0-9a-fA-F]{2})+"
# Each by itself, as the beginning of one may be the end of another; and all, for text that was escaped in several ways.
_ESCAPES = [
    re.compile(each)
    for each in (_JSON_ESCAPE, _HTML_ESCAPE, _PERCENT_ESCAPE, f"{_JSON_ESCAPE}|{_HTML_ESCAPE}|{_PERCENT_ESCAPE}")
]
# Where a text ends within an escape, or within several that are one character; and what became of half a character: a
# surrogate, or the mark for what could not be decoded.
_HALF_JSON = r"\\+u[dD][89abAB][0-9a-fA-F]{2}"
_HALF_PERCENT = (
    "(?:%[cCdD][0-9a-fA-F]|%[eE][0-9a-fA-F](?:%[89abAB][0-9a-fA-F])?|%[fF][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){0,2})"
)
_UNFINISHED = re.compile(
    rf"(?:(?:{_HALF_JSON})?\\+(?:u[0-9a-fA-F]{{0,3}}|x[0-9a-fA-F]?)?|{_HALF_JSON}"
    r"|&(?:#(?:[xX][0-9a-fA-F]{0,8}|[0-9]{0,10})|[A-Za-z][A-Za-z0-9]{0,31})?"
    rf"|{_HALF_PERCENT}?%[0-9a-fA-F]?|{_HALF_PERCENT}|[\ud800-\udbff]|\ufffd+)\Z"
)
# No escape is longer.
_MAX_ESCAPE = 40
_MAX_ESCAPE_DEPTH = 6
# Of what was escaped twice, one end may be within another.
_MAX_UNFINISHED = 2
_BLANKS = re.compile(" +")
# What a header was folded with, also if it became part of a form.
_FOLDS = re.compile(r" +|(?:%0[aAdD])+\+")
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
        joined = {fold(each).replace(" ", "") for each in self._forms}
        self._joined = sorted(each for each in joined if len(each) >= _MIN_WRAPPED)
        in_json = (json.dumps(each)[1:-1] for each in self._plain)
        bare = {without_json_escapes(each) for each in (*self._plain, *in_json)}
        self._bare_plain = sorted(each for each in bare if len(each) >= MIN_SECRET_LENGTH)
        # What a part of it is not in is not in a text either.
        self._bare_encoded = [
            each for each in self._encoded if not any(other != each and other in each for other in self._encoded)
        ]

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
        found._bare_plain = [each for each in self._bare_plain if is_long(each)] if is_long(self._text) else []
        found._bare_encoded = self._bare_encoded if is_long(self._text) else []
        return found

    def is_in(self, text: str, bare: str) -> bool:
        """
        Tell whether the secret stands in a text: plain, escaped as JSON or in base64.

        :param text: the text.
        :param bare: what :func:`without_json_escapes` makes of it.
        """
        return any(form in bare for form in (*self._bare_plain, *self._bare_encoded)) or any(
            # It may be too short without them.
            "\\" in form and form in text
            for form in self._forms
        )

    def spans(self, view: str, *, joined: bool = False) -> Iterator[tuple[int, int]]:
        """
        Yield where the secret stands in a text, and where the text ends with a part of it.

        :param view: the text.
        :param joined: whether it is without its blanks. Default False.
        """
        for form in self._joined if joined else self._forms:
            start = view.find(form)
            while start >= 0:
                end = start + len(form)
                following = view.find(form, start + 1)
                if 0 <= following < end:
                    # It overlaps itself, and may do so many times: the text repeats itself in such steps.
                    step = following - start
                    while view.startswith(view[end - step : end], end):
                        end += step
                    following = view.find(form, end - len(form) + 1)
                yield start, end
                start = following
            # Truncated: the shortest part that counts is as long as the shortest secret.
            start = view.find(form[:MIN_SECRET_LENGTH], max(0, len(view) - len(form) + 1))
            while start >= 0:
                if form.startswith(view[start:]):
                    yield start, len(view)
                    break
                start = view.find(form[:MIN_SECRET_LENGTH], start + 1)


def without_json_escapes(text: str) -> str:
    """
    Return a text as it would be unescaped as JSON, however often, but without any backslash.

    That costs little, also of many megabytes.
    """
    return _JSON_NUMBER.sub(lambda match: chr(int(match[1], 16)), text).replace("\\", "")


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
        for joined, (view, starts, ends) in _all_views(text)
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
        views = (each for view, _, _ in _views(_whole(form)) for each in (view, fold(view)))
        yield from (each for each in views if len(each) >= MIN_SECRET_LENGTH)


def _base64_forms(secret: str) -> Iterator[str]:
    in_json = json.dumps(secret)[1:-1]
    # As it is, and within what is encoded as a whole: JSON, or a form.
    texts = {secret, in_json, in_json.replace("/", r"\/"), json.dumps(secret, ensure_ascii=False)[1:-1]}
    texts.add(quote_plus(secret, errors="surrogatepass"))
    for data in {data for each in texts for data in _bytes_of(each)}:
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


def _whole(text: str) -> _View:
    """Return a text as a view: with the place in the text of each character."""
    return text, range(len(text)), range(1, len(text) + 1)


def _views(text: _View, *, unfold: bool = False, finish: bool = False) -> Iterator[_View]:
    """
    Yield a view and what it becomes when it is unescaped.

    :param text: the view.
    :param unfold: whether blanks are taken out of each before it is unescaped. Default False.
    :param finish: whether each counts without the beginning of an escape at its end, too. Default False.
    """

    def prepared(view: _View) -> Iterator[_View]:
        view = _unfolded(view) if unfold else view
        yield view
        for _ in range(_MAX_UNFINISHED if finish else 0):
            finished = _finished(view)
            if finished is None:
                break
            view = finished
            yield view

    whole = [*prepared(text)]
    yield from whole
    for escape in _ESCAPES:
        views = whole
        for _ in range(_MAX_ESCAPE_DEPTH):
            unescaped = filter(None, (_replace(view, escape, _unescape_one) for view in views))
            # By what they are, and how far they extend.
            found = {(view[0], *view[2][-1:]): view for each in unescaped for view in prepared(each)}
            views = [*found.values()]
            yield from views


def _all_views(text: str) -> Iterator[tuple[bool, _View]]:
    """Yield the views of a text, each as it is, with one blank for many, and without; and whether it is without."""
    whole = _whole(text)
    is_folded = False
    for view in _views(whole, finish=True):
        yield from _with_blanks_and_without(view)
        is_folded = is_folded or _FOLDS.search(view[0].translate(SHOWN)) is not None
    if is_folded:
        # A line may break within an escape.
        for view in _views(whole, unfold=True, finish=True):
            yield True, view


def _with_blanks_and_without(view: _View) -> Iterator[tuple[bool, _View]]:
    yield False, view
    # As sanitize() would show it: a secret may have blanks of its own.
    shown = _shown(view)
    folded = _replace(shown, _BLANKS, lambda blanks: " ") or shown
    if folded[0] != view[0]:
        yield False, folded
    joined = _replace(shown, _BLANKS, lambda blanks: "")
    if joined is not None:
        yield True, joined


def _shown(view: _View) -> _View:
    return view[0].translate(SHOWN), view[1], view[2]


def _finished(view: _View) -> _View | None:
    """Return a view without the beginning of an escape at its end, over which the rest extends; None: it has none."""
    text, starts, ends = view
    match = _UNFINISHED.search(text, max(0, len(text) - _MAX_ESCAPE))
    if match is None or not match.start():
        return None
    length = match.start()
    return text[:length], starts[:length], [*ends[: length - 1], ends[-1]]


def _unfolded(view: _View) -> _View:
    shown = _shown(view)
    return _replace(shown, _FOLDS, lambda fold: "") or shown


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


_LETTERS = dict(zip("\"'\\/bfnrt", "\"'\\/\b\f\n\r\t", strict=True))


def _unescape_one(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[0] == "%":
        data = unquote_to_bytes(escape)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")
    if escape[1] in _LETTERS:
        return _LETTERS[escape[1]]
    if escape[1] == "x":
        return chr(int(escape[2:], 16))
    return str(json.loads(f'"{escape}"'))
