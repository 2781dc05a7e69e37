"""The list of all requests of a connection, with search and filter. It shows the same reading as the overview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.text import read_number
from airflow_custody.overview import read_overview
from airflow_custody.overview.verdict import SECTIONS
from airflow_custody.plugin.readings import NothingReadError, Query, describe_failure
from airflow_custody.plugin.rendering import FILTERS, page

if TYPE_CHECKING:
    from fastapi import Request
    from fastapi.responses import HTMLResponse

    from airflow_custody.client import CustodyClient
    from airflow_custody.overview.models import Overview, RequestRow
    from airflow_custody.plugin.page_hook import ConnectionKey

#: Maximum number of rows of a table on a page of one service.
PAGE_ROWS = 50
#: Maximum number of whitelisting requests to read for a page, and to keep for each connection: a few megabytes.
MAX_LISTED = 5_000
#: Maximum length of the text to search for.
MAX_SEARCH = 200


@dataclass(frozen=True)
class Page:
    """
    One page of the requests that match a search.

    :param rows: the requests on the page.
    :param total: number of all requests that match.
    :param number: number of the page, from 1.
    :param last: number of the last page, at least 1.
    """

    rows: Sequence[RequestRow]
    total: int
    number: int
    last: int

    @property
    def first_row(self) -> int:
        """The position of the first row among all that match, from 1."""
        return (self.number - 1) * PAGE_ROWS + 1


def find_requests(rows: Sequence[RequestRow], search: str = "", state: str = "", number: int = 1) -> Page:
    """
    Return a page of the requests that match a search.

    :param rows: the requests.
    :param search: words, each of which must be part of the id, the label, the address or the chain, in upper or lower
        case. Default: all requests match.
    :param state: a state. A request matches if this is the state that the service reports, or the state that the
        request's content and signatures prove. Default: all states.
    :param number: number of the page, from 1. If there is no such page, the last page is returned. Default 1.
    """
    words = search.casefold().split()
    found = [row for row in rows if _matches(row, words, state)]
    last = max(1, -(-len(found) // PAGE_ROWS))
    number = min(max(number, 1), last)
    return Page(found[(number - 1) * PAGE_ROWS : number * PAGE_ROWS], len(found), number, last)


def _matches(row: RequestRow, words: Sequence[str], state: str) -> bool:
    if state and state not in (row.state, row.judged) and not (state == "pending" and row.deletion_pending):
        return False
    texts = [text.casefold() for text in (row.id, row.label, row.address, row.chain)]
    return all(any(word in text for text in texts) for word in words)


def list_requests(request: Request, connection: ConnectionKey) -> HTMLResponse:
    """
    Return the list of all requests of a connection.

    :param request: the HTTP request for the page. Its query parameters ``q`` (words), ``state`` and ``page`` are the
        search.
    :param connection: the connection, which the user may read.
    """
    asked = request.query_params
    search, state = asked.get("q", "").strip()[:MAX_SEARCH], asked.get("state", "")
    state = state if state in FILTERS else ""
    values = read_for_page(request, query_overview(connection))
    overview: Overview | None = values["view"]
    requests = overview.requests.value if overview else None
    number = read_number(asked.get("page", ""), MAX_ID) or 1
    found = None if requests is None else find_requests(requests.listed, search, state, number)
    return page(
        request,
        "list.html",
        **values,
        conn_id=connection.conn_id,
        search=search,
        state=state,
        found=found,
        links=_links(found, search, state) if found else {},
    )


def _links(found: Page, search: str, state: str) -> dict[str, str]:
    """Return the links to the pages before and after a page, by their names."""
    numbers = {"Previous": found.number - 1, "Next": found.number + 1}
    query = {name: value for name, value in (("q", search), ("state", state)) if value}
    return {
        name: f"?{urlencode({**query, 'page': number})}"
        for name, number in numbers.items()
        if 1 <= number <= found.last
    }


# --- reading for pages ---------------------------------------------------------------------------------------


def query_overview(connection: ConnectionKey) -> Query[Overview]:
    """Return the query for the overview of a connection, which several pages share."""
    return Query(connection, "overview", _read_overview)


def _read_overview(client: CustodyClient) -> Overview:
    overview = read_overview(client, max_listed=MAX_LISTED, keep_all=True, describe=describe_failure)
    if all(getattr(overview, name).value is None for name in SECTIONS):
        raise NothingReadError(f"The service cannot be read: {overview.health.problem}")
    return overview


def read_for_page(request: Request, query: Query[Any], missing: str = "") -> dict[str, Any]:
    """
    Return the reading for a query as variables of a template.

    :param request: the HTTP request for the page.
    :param query: what to read.
    :param missing: the problem to show if the service does not have the object to read.
    """
    (reading,) = request.app.state.readings.get(query)
    now = datetime.now(timezone.utc)
    is_missing = not reading.problem and reading.value is None and reading.read_at is not None
    return {
        "view": reading.value,
        "is_missing": is_missing,
        "problem": missing if is_missing else reading.describe_problem(now),
        "waiting": reading.describe_wait(now) if reading.is_awaited else "",
        "is_awaited": reading.is_overdue(now),
    }
