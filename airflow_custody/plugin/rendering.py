"""
Pages made of templates. Whatever comes from elsewhere is escaped, and what cannot be seen is made visible.

A service decides how much there is to show, so a page, each part of it and each text have a maximum size.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_markup

from airflow_custody.client.text import has_unprintable
from airflow_custody.plugin.cards import duration
from airflow_custody.plugin.failures import BROKEN
from airflow_custody.plugin.paths import ROOT as PATH

log = logging.getLogger(__name__)

#: The key of the scope of a request with the path of the pages: Airflow's own, and ``/custody``.
ROOT = "airflow_custody.root"
#: How many characters of other people's text are shown.
MAX_TEXT = 300
#: How many of a text's hidden characters are named one by one, and how many marks may stand on one character.
MAX_HIDDEN = 10
MAX_MARKS = 3
#: How long a page is, in characters; and how much of it is left for what is not a part.
MAX_PAGE = 2_000_000
_FRAME = 100_000

_TOO_LARGE = "What the service responded is too large to show."


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
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
    try:
        text = _render(template, MAX_PAGE, values)
    except _TooLargeError:
        text = _render(
            "error.html", MAX_PAGE, {**values, "title": "Too large to show", "text": _TOO_LARGE, "login": ""}
        )
    return HTMLResponse(text, status_code=status)


class _TooLargeError(Exception):
    """A page, or a part of it, is larger than it may be."""


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
        reason = BROKEN
    return Markup(_render("unshown.html", MAX_PAGE, {**values, "reason": reason}))  # noqa: S704 - likewise


def visible(text: object, limit: int = MAX_TEXT) -> Markup:
    """
    Return text of other people as markup that shows all of it.

    Its characters that cannot be seen, or change the direction of what follows, or pile up, are shown as their numbers,
    and so are blanks at its ends: the first 10 of them. It is isolated from the text around it.

    :param text: the text.
    :param limit: how many of its characters are shown. Default 300.
    """
    shown = str(text)[:limit]
    ellipsis = "…" if len(str(text)) > limit else ""
    if shown.isascii() and shown.isprintable() and shown == shown.strip():
        return Markup('<bdi class="text">{}{}</bdi>').format(shown, ellipsis)
    return Markup('<bdi class="text">{}{}</bdi>').format(Markup().join(_spell(shown)), ellipsis)


def _spell(text: str) -> Iterator[Markup]:
    left = MAX_HIDDEN
    for is_hidden, run in groupby(zip(_are_hidden(text), text, strict=True), key=lambda each: each[0]):
        characters = [character for _, character in run]
        if not is_hidden:
            yield escape_markup("".join(characters))
            continue
        numbers = " ".join(f"U+{ord(each):04X}" for each in characters[:left])
        if numbers:
            yield Markup('<span class="hidden" title="cannot be seen">{}</span>').format(numbers)
        if len(characters) > left:
            yield Markup("\ufffd")
        left = max(0, left - len(characters))


def _are_hidden(text: str) -> Iterator[bool]:
    """Yield of each character whether it is shown as its number."""
    begin, end = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    # A mark at the beginning stands on nothing.
    marks, is_hidden = 0, True
    for place, character in enumerate(text):
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        stands_on_hidden = bool(marks) and (is_hidden or marks > MAX_MARKS)
        is_hidden = stands_on_hidden or has_unprintable(character) or not begin <= place < end
        yield is_hidden


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
    environment.filters |= {"visible": visible, "segment": segment, "reason": reason, "when": when}
    environment.globals["part"] = part
    return environment
