"""
Rendering of pages from templates.

Text from outside is escaped, and its invisible characters are made visible. Each text has a maximum size, because the
service decides how long it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_markup

from airflow_custody.client.text import has_unprintable
from airflow_custody.client.timestamps import describe_duration
from airflow_custody.client.whitelist.hidden import describe_hidden
from airflow_custody.hooks._advice import name_connection
from airflow_custody.overview.models import STATES, TRUSTS
from airflow_custody.overview.verdict import LEVELS, describe_state
from airflow_custody.plugin import PATH

#: The key in a request's scope under which the path of the pages is stored: Airflow's own path and ``/custody``.
ROOT = "airflow_custody.root"
#: If a page lacks a current reading, the browser loads the page again after this number of seconds.
RELOAD_AFTER = 3
#: The name of the query parameter that keeps a page from loading itself again.
STAY = "stay"
#: The states to filter requests by, with their words. A missing request is not in any list.
FILTERS = {state: words for state, words in STATES.items() if state != "missing"}
#: Maximum number of characters that are shown of a text.
MAX_TEXT = 300
#: Maximum number of invisible characters of a text that are shown by their numbers, such as ``U+200B``.
MAX_HIDDEN = 10
#: Maximum number of combining marks on one character.
MAX_MARKS = 3
# Matches an e-mail address in a text. The address is not broken at the end of a line.
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")


def page(
    request: Request, template: str, *, status: int = 200, is_awaited: bool = False, **values: Any
) -> HTMLResponse:
    """
    Return a page.

    These variables of the template are always set: ``root``, the path of the Custody pages; ``airflow``, the path of
    Airflow's own pages; ``standalone``, whether the page is outside of Airflow's frame; ``refresh``, the link to the
    page itself; ``stay``, the link to the page that stops it from loading itself again (empty if the page does not load
    itself again); ``now``, the time.

    :param request: the request, whose scope has the path of the pages.
    :param template: the name of a file in ``templates/`` that extends ``base.html``.
    :param status: the HTTP status. Default 200.
    :param is_awaited: whether the page lacks a current reading. If so, the browser loads it again after
        :data:`RELOAD_AFTER` seconds, unless the user has stopped this. The browser stops after ten minutes at the
        latest, because each read then ends with a value or a problem. Default False.
    :param values: other variables of the template.
    """
    root = request.scope[ROOT]
    query = [(name, value) for name, value in request.query_params.multi_items() if name != STAY]
    loads_itself = is_awaited and STAY not in request.query_params
    values = {
        "root": root,
        "airflow": root.removesuffix(PATH),
        # If the browser does not send this header, it is unknown whether the page is in Airflow's frame. In that case,
        # show the link to Airflow, because a superfluous link is better than a missing link.
        "standalone": request.headers.get("sec-fetch-dest") != "iframe",
        "now": datetime.now(timezone.utc),
        "refresh": _link(request, query),
        "stay": _link(request, [*query, (STAY, "1")]) if loads_itself else "",
        **values,
    }
    headers = {"refresh": str(RELOAD_AFTER)} if loads_itself else None
    return HTMLResponse(_environment().get_template(template).render(values), status_code=status, headers=headers)


def _link(request: Request, query: Sequence[tuple[str, str]]) -> str:
    """Return a link to the requested page with other query parameters."""
    path = quote(request.scope["path"])
    return f"{path}?{urlencode(query, safe=',')}" if query else path


def visible(text: object, limit: int = MAX_TEXT) -> Markup:
    """
    Return a text from outside as markup in which all of its characters are visible.

    Invisible characters, characters that change the direction of the text, surplus combining marks, and blanks at
    either end are shown by their numbers. After the first ten of them, the others are shown as a replacement character.
    The markup isolates the text from its surroundings, and keeps an e-mail address on one line if it fits.

    :param text: the text.
    :param limit: the maximum number of characters to show. Default 300.
    """
    shown = str(text)[:limit]
    first = len(shown) - len(shown.lstrip(" "))
    end = len(shown.rstrip(" "))
    emails = [each.span() for each in _EMAIL.finditer(shown)]
    begins, ends = {begin for begin, _ in emails}, {end for _, end in emails}
    pieces = []
    marks = 0
    hidden = 0
    for position, character in enumerate(shown):
        if position in ends:
            pieces.append(Markup("</span>"))
        if position in begins:
            pieces.append(Markup('<span class="whole">'))
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
    if len(shown) in ends:
        pieces.append(Markup("</span>"))
    ellipsis = "…" if len(str(text)) > limit else ""
    return Markup('<bdi class="text">{}{}</bdi>').format(Markup().join(pieces), ellipsis)


def when(moment: datetime | None, now: datetime, *, exact: bool = False) -> Markup:
    """
    Return a moment as markup: its distance from now, with the time in UTC as a tooltip.

    A tooltip cannot be reached by keyboard or touch. Therefore, the page of a request uses ``exact``: it shows the
    time, and has the distance in the tooltip.

    :param moment: the moment; None if it is unknown.
    :param now: the time.
    :param exact: whether to show the time, with the distance in the tooltip. Default False.
    """
    if moment is None:
        return Markup('<span class="muted">unknown</span>')
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        distance = "just now"
    elif seconds > 0:
        distance = f"{describe_duration(seconds)} ago"
    else:
        distance = f"in {describe_duration(-seconds)}"
    utc = moment.astimezone(timezone.utc)
    time = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    shown, tooltip = (time, distance) if exact else (distance, time)
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%S}Z" title="{}">{}</time>').format(utc, tooltip, shown)


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
    environment.globals |= {
        "LEVELS": LEVELS,
        "TRUSTS": TRUSTS,
        "FILTERS": FILTERS,
        "describe_state": describe_state,
        "describe_hidden": describe_hidden,
    }
    environment.filters |= {
        "visible": visible,
        "segment": segment,
        "sentence": sentence,
        "when": when,
        "name_connection": name_connection,
    }
    return environment
