"""
Rendering of pages from templates.

Text from outside is escaped, and its invisible characters are made visible. Each text has a maximum size, because the
service decides how long it is.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime, timezone
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_markup

from airflow_custody.client.text import has_unprintable
from airflow_custody.hooks._advice import name_connection
from airflow_custody.overview.models import STATES
from airflow_custody.plugin import PATH

#: The key in a request's scope under which the path of the pages is stored: Airflow's own path and ``/custody``.
ROOT = "airflow_custody.root"
#: After how many seconds a browser loads a page again that lacks its first reading.
RELOAD_AFTER = 3
#: Maximum number of characters that are shown of a text.
MAX_TEXT = 300
#: Maximum number of invisible characters of a text that are shown by number.
MAX_HIDDEN = 10
#: Maximum number of combining marks on one character.
MAX_MARKS = 3
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def page(
    request: Request, template: str, *, status: int = 200, is_awaited: bool = False, **values: Any
) -> HTMLResponse:
    """
    Return a page.

    These variables of the template are always set: ``root``, the path of the pages; ``airflow``, the path of Airflow's
    own pages; ``standalone``, whether the page is outside of Airflow's frame; ``refresh``, the link to the page itself;
    ``now``.

    :param request: the request, whose scope has the path of the pages.
    :param template: the name of a file in ``templates/`` that extends ``base.html``.
    :param status: the HTTP status. Default 200.
    :param is_awaited: whether the page lacks its first reading. If so, the browser loads it again after
        :data:`RELOAD_AFTER` seconds. Default False.
    :param values: other variables of the template.
    """
    root = request.scope[ROOT]
    values = {
        "root": root,
        "airflow": root.removesuffix(PATH),
        # Without this header, it is unknown whether the page is in Airflow's frame. Show the link to Airflow then,
        # because a superfluous link is better than a missing link.
        "standalone": request.headers.get("sec-fetch-dest") != "iframe",
        "now": datetime.now(timezone.utc),
        "refresh": quote(request.scope["path"]),
        **values,
    }
    headers = {"refresh": str(RELOAD_AFTER)} if is_awaited else None
    return HTMLResponse(_environment().get_template(template).render(values), status_code=status, headers=headers)


def visible(text: object, limit: int = MAX_TEXT) -> Markup:
    """
    Return a text from outside as markup in which all of its characters are visible.

    Invisible characters, characters that change the direction of the text, piled-up marks, and blanks at either end are
    shown by number; after the first ten, by a replacement character. The markup isolates the text from its
    surroundings.

    :param text: the text.
    :param limit: the maximum number of characters to show. Default 300.
    """
    shown = str(text)[:limit]
    first = len(shown) - len(shown.lstrip(" "))
    end = len(shown.rstrip(" "))
    pieces = []
    marks = 0
    hidden = 0
    for position, character in enumerate(shown):
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        is_visible = first <= position < end and not has_unprintable(character)
        if is_visible and marks <= MAX_MARKS:
            pieces.append(escape_markup(character))
            continue
        hidden += 1
        if hidden <= MAX_HIDDEN:
            number = Markup('<span class="hidden" title="invisible character">U+{:04X}</span>').format(ord(character))
            pieces.append(number)
        else:
            pieces.append(Markup("\ufffd"))
    ellipsis = "…" if len(str(text)) > limit else ""
    return Markup('<bdi class="text">{}{}</bdi>').format(Markup().join(pieces), ellipsis)


def when(moment: datetime | None, now: datetime) -> Markup:
    """
    Return a moment as markup: its distance from now, and the time in UTC.

    :param moment: the moment; None if it is unknown.
    :param now: the time.
    """
    if moment is None:
        return Markup('<span class="muted">unknown</span>')
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        distance = "just now"
    elif seconds > 0:
        distance = f"{duration(seconds)} ago"
    else:
        distance = f"in {duration(-seconds)}"
    exact = f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}Z" title="{} UTC">{} <span class="at">{} UTC</span></time>').format(
        exact.replace(" ", "T"), exact, distance, exact[:-3]
    )


def duration(seconds: float) -> str:
    """
    Return a time span as text, such as ``2 h 5 min``.

    The text has the largest unit, and also the next smaller unit if the number of largest units is below ten.

    :param seconds: the time span; a negative time span counts as zero.
    """
    rest = max(0, int(seconds))
    for (size, unit), (smaller_size, smaller_unit) in pairwise(_UNITS):
        if rest < size:
            continue
        amount = rest // size
        smaller_amount = rest % size // smaller_size
        if smaller_amount and amount < 10:
            return f"{amount} {unit} {smaller_amount} {smaller_unit}"
        return f"{amount} {unit}"
    return f"{rest} s"


def sentence(text: str) -> str:
    """Return a text with its first letter in upper case."""
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
    environment.globals["STATES"] = STATES
    environment.filters |= {
        "visible": visible,
        "segment": segment,
        "sentence": sentence,
        "when": when,
        "name_connection": name_connection,
    }
    return environment
