"""The page of all connections, and the page of one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from airflow_custody.plugin.access import (
    MAX_CONNECTIONS,
    BaseUser,
    CustodyConnection,
    GetUserDep,
    find_connection,
    list_connections,
)
from airflow_custody.plugin.cache import BUDGET, OVERVIEW, Question, Reading, Readings
from airflow_custody.plugin.cards import Card, Finding, make_card
from airflow_custody.plugin.positions import ReadPosition, find_position, may_see_positions
from airflow_custody.plugin.rendering import page

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.overview.models import Overview

#: How many rows of a table the page of several connections shows; that of one shows all.
MAX_ROWS = 5
ALL_ROWS = 10_000
#: Seconds for all of an overview.
DEADLINE = 20.0

log = logging.getLogger(__name__)
router = APIRouter()


@router.get("/")
async def show_connections(request: Request, user: GetUserDep) -> HTMLResponse:
    """Return the page of all connections that the user may read."""
    connections = await list_connections(user)
    shown = connections[:MAX_CONNECTIONS]
    cards = sorted(await _cards(request.app.state.readings, user, shown), key=lambda card: card.order)
    return await page(
        request,
        "overview.html",
        cards=cards,
        full=len(cards) == 1,
        max_rows=MAX_ROWS if len(cards) > 1 else ALL_ROWS,
        left_out=len(connections) - len(shown),
    )


@router.get("/connections/{conn_id:path}")
async def show_connection(request: Request, conn_id: str, user: GetUserDep) -> HTMLResponse:
    """Return the page of one connection."""
    connection = await find_connection(user, conn_id)
    if connection is None:
        raise HTTPException(404)
    (card,) = await _cards(request.app.state.readings, user, [connection])
    return await page(request, "connection.html", card=card, full=True, max_rows=ALL_ROWS)


@dataclass(frozen=True)
class _Seen:
    """
    What is read of a service for its card.

    :param overview: the overview.
    :param position: how far Airflow has read its journal; None: not known.
    """

    overview: Overview
    position: ReadPosition | None


async def _cards(readings: Readings, user: BaseUser, connections: list[CustodyConnection]) -> list[Card]:
    questions = [Question(each, OVERVIEW, partial(_see, each.conn_id)) for each in connections]
    found = await readings.read_all(questions, budget=BUDGET)
    sees_positions = await run_in_threadpool(may_see_positions, user)
    conn_ids = [each.conn_id for each in connections]
    return [_make_card(*each, sees_positions) for each in zip(conn_ids, found, strict=True)]


def _see(conn_id: str, client: CustodyClient) -> _Seen:
    from airflow_custody.overview import read_overview

    overview = read_overview(client, deadline=DEADLINE)
    position = find_position(conn_id, overview.base_url)
    newest_id = overview.journal.value.newest_id if overview.journal.value else ""
    return _Seen(overview, position.about(newest_id) if position else None)


def _make_card(conn_id: str, reading: Reading[_Seen], sees_positions: bool) -> Card:
    """Return the card of a connection; one that cannot be made hides no other."""
    seen = reading.value
    position = seen.position if seen and sees_positions else None
    try:
        overview: Reading[Overview] = Reading(seen.overview if seen else None, reading.problem, reading.late)
        return make_card(conn_id, overview, position, datetime.now(timezone.utc))
    except Exception:
        log.exception("What was read of the connection %r cannot be shown", conn_id)
        problem = "Something unexpected went wrong. The log of the API server says what."
        return Card(conn_id, None, (Finding("bad", "", problem),))
