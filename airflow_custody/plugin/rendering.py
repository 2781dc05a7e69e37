"""
Pages made of templates. Whatever comes from elsewhere is escaped, and what cannot be seen is made visible.

A service decides how much there is to show. So a page, each part of it and each text have a maximum size, and pages are
made in threads: the event loop that waits for them serves all of Airflow.
"""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_markup

from airflow_custody.client.text import has_unprintable
from airflow_custody.plugin.paths import ROOT as PATH

T = TypeVar("T")

log = logging.getLogger(__name__)

#: The key of the scope of a request with the path of the pages: Airflow's own, and ``/custody``.
ROOT = "airflow_custody.root"
#: How many characters of other people's text are shown.
MAX_TEXT = 300
#: How many of a text's hidden characters are named one by one, and how many marks may stand on one character.
MAX_HIDDEN = 10
MAX_MARKS = 3
#: How many groups of signatures a row shows.
MAX_GROUPS = 10
#: How long a page is, in characters; and how much of it is left for what is not a part.
MAX_PAGE = 2_000_000
_FRAME = 100_000
_THREADS = 2

_TOO_LARGE = "What the service responded is too large to show."
_NOT_SHOWN = "Something unexpected went wrong. The log of the API server says what."
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


async def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """
    Return a page. One that is too large says so instead.

    :param request: the request, which says below which address the pages are.
    :param template: name of a file in ``templates/``; it extends ``base.html``.
    :param status: HTTP status. Default 200.
    :param values: what the template shows. There always: ``root``, ``now``, ``refresh``; ``airflow``, the path below
        which Airflow's own pages are; ``standalone``, whether this page is outside of their frame.
    """
    root = request.scope[ROOT]
    values = {
        "root": root,
        "airflow": root.removesuffix(PATH),
        # A browser that does not say so may show it anywhere: one link too many is better than none.
        "standalone": request.headers.get("sec-fetch-dest") != "iframe",
        "now": datetime.now(timezone.utc),
        "refresh": quote(request.scope["path"]),
        **values,
    }
    text = await asyncio.get_running_loop().run_in_executor(_threads(), _render_page, template, values)
    return HTMLResponse(text, status_code=status)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="custody-page-making")


class _TooLargeError(Exception):
    """A page, or a part of it, is larger than it may be."""


def _render_page(template: str, values: dict[str, Any]) -> str:
    try:
        return _render(template, MAX_PAGE, values)
    except _TooLargeError:
        error = {**values, "title": "Too large to show", "text": _TOO_LARGE, "login": ""}
        return _render("error.html", MAX_PAGE, error)


def _render(template: str, limit: int, values: dict[str, Any]) -> str:
    """Return what becomes of a template; more than the limit is not made."""
    pieces, length = [], 0
    for piece in _environment().get_template(template).generate(values):
        length += len(piece)
        if length > limit:
            raise _TooLargeError
        pieces.append(piece)
    return "".join(pieces)


def part(template: str, of: int, **values: Any) -> Markup:
    """
    Return one of several parts of a page: one that cannot be shown hides no other.

    :param template: name of a file in ``templates/``.
    :param of: how many parts the page has: each gets its share.
    :param values: what the template shows, and ``unshown.html``, which stands in its place if it cannot be shown.
    """
    try:
        return Markup(_render(template, (MAX_PAGE - _FRAME) // of, values))  # noqa: S704 - it is made of a template
    except _TooLargeError:
        reason = f"{_TOO_LARGE} 'custody status' shows it."
    except Exception:
        log.exception("A part of a page cannot be shown")
        reason = _NOT_SHOWN
    return Markup(_render("unshown.html", MAX_PAGE, {**values, "reason": reason}))  # noqa: S704 - likewise


def few(paths: Sequence[Sequence[T]]) -> list[Sequence[T]]:
    """Return the first groups of the ways to approve a request: at most 10 in all."""
    found, left = [], MAX_GROUPS
    for path in paths:
        if left > 0:
            found.append(path[:left])
            left -= len(path)
    return found


def left_out(paths: Sequence[Sequence[object]]) -> int:
    """Return how many groups :func:`few` leaves out."""
    return max(0, sum(map(len, paths)) - MAX_GROUPS)


def visible(text: object, limit: int = MAX_TEXT) -> Markup:
    """
    Return text of other people as markup that shows all of it.

    Its characters that cannot be seen, or change the direction of what follows, or pile up, are shown as their numbers,
    and so are blanks at its ends: the first 10 of them, and how many there are more. It is isolated from the text
    around it.

    :param text: the text.
    :param limit: how many of its characters are shown. Default 300.
    """
    shown = str(text)
    cut = len(shown) > limit
    shown = shown[:limit]
    is_plain = shown.isascii() and shown.isprintable() and shown == shown.strip()
    markup = escape_markup(shown) if is_plain else Markup().join(_spell(shown))
    return Markup('<bdi class="text">{}{}</bdi>').format(markup, "…" if cut else "")


def _spell(text: str) -> Iterator[Markup]:
    end, left, more, tail = 0, MAX_HIDDEN, 0, []
    for match in _HIDDEN.finditer(text.translate(_KINDS)):
        run = text[match.start() : match.end()]
        if left:
            yield escape_markup(text[end : match.start()])
            yield _hidden(" ".join(f"U+{ord(each):04X}" for each in run[:left]))
        else:
            tail.append(text[end : match.start()])
        if len(run) > left:
            tail.append("\ufffd")
        more += max(0, len(run) - left)
        left = max(0, left - len(run))
        end = match.end()
    yield escape_markup("".join([*tail, text[end:]]))
    if more:
        yield _hidden(f"\ufffd: {more} more")


def _hidden(text: str) -> Markup:
    return Markup(f'<span class="hidden" title="cannot be seen">{escape_markup(text)}</span>')  # noqa: S704 - escaped


class _Kinds(dict[int, str]):
    """
    The kinds of characters, for ``str.translate``: ``h`` is hidden, ``m`` stands on another, ``b`` is blank, ``v`` is
    visible.
    """

    def __missing__(self, number: int) -> str:
        character = chr(number)
        is_mark = unicodedata.category(character) in ("Mn", "Me")
        kind = "h" if has_unprintable(character) else "m" if is_mark else "b" if character == " " else "v"
        if len(self) < _MAX_KINDS:
            self[number] = kind
        return kind


_MAX_KINDS = 10_000
_KINDS = _Kinds()
# What is hidden, with the marks on it; marks that stand on nothing; those above the number that may stand on one; and
# blanks at the ends.
_HIDDEN = re.compile(rf"(?:h|^m)[hm]*|(?<=m{{{MAX_MARKS}}})[hm]+|^b+|(?<!b)b+$")


def duration(seconds: float) -> str:
    """Return a time span in words, such as ``2 h 5 min``: its largest unit, and the next one if it is small."""
    rest = max(0, int(seconds))
    for (size, unit), (next_size, next_unit) in pairwise(_UNITS):
        if rest >= size:
            amount, smaller = rest // size, rest % size // next_size
            return f"{amount} {unit} {smaller} {next_unit}" if smaller and amount < 10 else f"{amount} {unit}"
    return f"{rest} s"


def when(moment: datetime | None, now: datetime) -> Markup:
    """
    Return a moment as markup: how long ago it was, or how far ahead it is, and the time in UTC.

    :param moment: the moment; None: it is not known.
    :param now: the time.
    """
    if moment is None:
        return Markup('<span class="muted">unknown</span>')
    seconds = (now - moment).total_seconds()
    words = f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"
    exact = f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}Z" title="{} UTC">{} <span class="at">{} UTC</span></time>').format(
        exact.replace(" ", "T"), exact, "just now" if abs(seconds) < 1 else words, exact[:-3]
    )


def reason(text: str, request_id: str) -> str:
    """
    Return what is wrong with a request, for where its id and that it is not verified stand already.

    :param text: what is wrong, maybe as a sentence about the request.
    :param request_id: the request's id.
    """
    rest = text.removeprefix(f"whitelisting request {request_id} ").removeprefix("is not verified: ")
    return f"{rest[:1].upper()}{rest[1:]}"


def segment(text: str) -> str:
    """Return text as one segment of a URL's path."""
    return quote(text, safe="", errors="replace")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": visible, "duration": duration, "segment": segment, "reason": reason}
    environment.filters |= {"when": when, "few": few, "left_out": left_out}
    environment.globals["part"] = part
    return environment
