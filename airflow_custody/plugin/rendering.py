"""
Rendering of pages from templates. Text from elsewhere is escaped, and its invisible characters are made visible.

A service decides how much there is to show, so each text has a maximum size.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_markup

from airflow_custody.client.text import has_unprintable
from airflow_custody.plugin import PATH
from airflow_custody.plugin.cards import duration

#: The key of the scope of a request with the path of the pages: Airflow's own, and ``/custody``.
ROOT = "airflow_custody.root"
#: Maximum number of characters shown of other people's text.
MAX_TEXT = 300
#: Maximum number of a text's hidden characters that are named one by one, and of marks on one character.
MAX_HIDDEN = 10
MAX_MARKS = 3


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """
    Return a page.

    :param request: the request, whose scope has the path of the pages.
    :param template: name of a file in ``templates/``; it extends ``base.html``.
    :param status: HTTP status. Default 200.
    :param values: the template's variables. Always set: ``root``, ``now``, ``refresh``; ``airflow``, the path below
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
    return HTMLResponse(_environment().get_template(template).render(values), status_code=status)


def visible(text: object, limit: int = MAX_TEXT) -> Markup:
    """
    Return text of other people as markup that shows all of it.

    Invisible characters, those that change the direction of text or pile up, and blanks at the ends are shown as their
    numbers: the first 10 of them. The text is isolated from the text around it.

    :param text: the text.
    :param limit: maximum number of its characters to show. Default 300.
    """
    shown = str(text)[:limit]
    begin, end = len(shown) - len(shown.lstrip(" ")), len(shown.rstrip(" "))
    pieces, marks, hidden = [], 0, 0
    for place, each in enumerate(shown):
        marks = marks + 1 if unicodedata.category(each) in ("Mn", "Me") else 0
        is_visible = begin <= place < end and not has_unprintable(each)
        if is_visible and marks <= MAX_MARKS:
            pieces.append(escape_markup(each))
            continue
        hidden += 1
        number = Markup('<span class="hidden" title="cannot be seen">U+{:04X}</span>').format(ord(each))
        pieces.append(number if hidden <= MAX_HIDDEN else Markup("\ufffd"))
    ellipsis = "…" if len(str(text)) > limit else ""
    return Markup('<bdi class="text">{}{}</bdi>').format(Markup().join(pieces), ellipsis)


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


def sentence(text: str) -> str:
    """Return a text with a capital letter at its beginning."""
    return f"{text[:1].upper()}{text[1:]}"


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
    environment.filters |= {"visible": visible, "segment": segment, "sentence": sentence, "when": when}
    return environment
