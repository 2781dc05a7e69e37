"""The page of all services, and the page of one connection."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from airflow_custody.plugin.access import GetUserDep, find_connection, list_connections
from airflow_custody.plugin.cards import Card, make_cards
from airflow_custody.plugin.list_page import PAGE_ROWS, query_overview
from airflow_custody.plugin.rendering import page

if TYPE_CHECKING:
    from airflow_custody.plugin.page_hook import ConnectionKey

#: Maximum number of rows of a table on a page of several services.
MAX_ROWS = 5

router = APIRouter()


# FastAPI runs plain functions in threads, so waiting and rendering do not block Airflow's event loop.
@router.get("/")
def show_connections(request: Request, user: GetUserDep) -> HTMLResponse:
    """Return the page of all services whose connections the user may read."""
    cards = _cards(request, list_connections(user))
    is_one = len(cards) == 1
    is_awaited = any(card.is_awaited for card in cards)
    max_rows = PAGE_ROWS if is_one else MAX_ROWS
    return page(request, "overview.html", is_awaited=is_awaited, cards=cards, full=is_one, max_rows=max_rows)


@router.get("/connections/{conn_id:path}")
def show_connection(request: Request, conn_id: str, user: GetUserDep) -> HTMLResponse:
    """Return the page of one connection."""
    (card,) = _cards(request, [find_connection(user, conn_id)])
    return page(
        request,
        "connection.html",
        is_awaited=card.is_awaited,
        conn_id=conn_id,
        card=card,
        full=True,
        max_rows=PAGE_ROWS,
    )


def _cards(request: Request, connections: list[ConnectionKey]) -> list[Card]:
    readings = request.app.state.readings.get(*map(query_overview, connections))
    conn_ids = [connection.conn_id for connection in connections]
    return make_cards(zip(conn_ids, readings, strict=True), datetime.now(timezone.utc))
