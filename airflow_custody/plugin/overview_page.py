"""The page of all services, and the page of one connection."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from airflow_custody.overview import read_overview
from airflow_custody.overview.verdict import SECTIONS
from airflow_custody.plugin.access import GetUserDep, find_connection, list_connections
from airflow_custody.plugin.cards import Card, make_cards
from airflow_custody.plugin.readings import ConnectionKey, NothingReadError, Question, describe_failure
from airflow_custody.plugin.rendering import page

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.overview.models import Overview

#: Maximum rows of a table on the page of several connections; the page of one shows all.
MAX_ROWS = 5
ALL_ROWS = 1_000
#: Maximum number of requests to read for a page.
MAX_LISTED = 5_000

router = APIRouter()


# Plain functions run in threads, so waiting and rendering do not block Airflow's event loop.
@router.get("/")
def show_connections(request: Request, user: GetUserDep) -> HTMLResponse:
    """Return the page of all services, by the connections that the user may read."""
    cards = _cards(request, list_connections(user))
    is_one = len(cards) == 1
    return page(request, "overview.html", cards=cards, full=is_one, max_rows=ALL_ROWS if is_one else MAX_ROWS)


@router.get("/connections/{conn_id:path}")
def show_connection(request: Request, conn_id: str, user: GetUserDep) -> HTMLResponse:
    """Return the page of one connection."""
    (card,) = _cards(request, [find_connection(user, conn_id)])
    return page(request, "connection.html", conn_id=conn_id, card=card, full=True, max_rows=ALL_ROWS)


def _cards(request: Request, connections: list[ConnectionKey]) -> list[Card]:
    readings = request.app.state.readings.get(*(Question(each, "overview", _read) for each in connections))
    conn_ids = [each.conn_id for each in connections]
    return make_cards(zip(conn_ids, readings, strict=True), datetime.now(timezone.utc))


def _read(client: CustodyClient) -> Overview:
    overview = read_overview(client, max_listed=MAX_LISTED, describe=describe_failure)
    if all(getattr(overview, name).value is None for name in SECTIONS):
        raise NothingReadError(f"Nothing of the service can be read: {overview.health.problem}")
    return overview
