"""The page of one whitelisting request, and the page of several."""

from __future__ import annotations

import shlex
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyNotFoundError
from airflow_custody.client.text import read_number
from airflow_custody.overview import read_request, read_requests
from airflow_custody.plugin.access import GetUserDep, find_connection
from airflow_custody.plugin.cards import describe_awaited, describe_problem
from airflow_custody.plugin.links import MAX_REQUESTS
from airflow_custody.plugin.readings import Question
from airflow_custody.plugin.rendering import page

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.overview.models import RequestRow, RequestView

router = APIRouter()

#: The levels of the states, and their words.
_STATES = {
    "effective": ("good", "In effect"),
    "pending": ("warning", "Pending approval"),
    "rejected": ("bad", "Rejected"),
}
_NO_NUMBER = "The id of a whitelisting request is a whole number, such as 3711: the service was not asked."
_NO_NUMBERS = f"A link names up to {MAX_REQUESTS} ids of whitelisting requests: whole numbers, separated by commas."
_NOT_THERE = (
    "The service has no whitelisting request with this id, or none that the connection's user may see. It may have "
    "been deleted, or belong to another tenant or another service than this connection's."
)


# An id of a connection may contain slashes.
@router.get("/connections/{conn_id:path}/requests/{request_id}")
def show_request(request: Request, conn_id: str, request_id: str, user: GetUserDep) -> HTMLResponse:
    """Return the page of one whitelisting request."""
    connection = find_connection(user, conn_id)
    values: dict[str, Any] = {"conn_id": conn_id, "request_id": request_id, "awaited": "", "view": None, "command": ""}
    if read_number(request_id, MAX_ID) is None:
        return page(request, "request.html", status=404, **values, problem=_NO_NUMBER)
    question = Question(connection, ("request", request_id), lambda client: _read_request(client, request_id))
    values |= _values(request, question, missing=_NOT_THERE)
    if view := values["view"]:
        values["verdict"] = _verdict(view.row)
        if view.row.trust == "unverified":
            command = ["custody", "whitelist", "verify", "--conn-id", conn_id, "--id", request_id]
            values["command"] = shlex.join(command)
    return page(request, "request.html", status=404 if values["is_missing"] else 200, **values)


@router.get("/connections/{conn_id:path}/requests")
def show_requests(request: Request, conn_id: str, user: GetUserDep, ids: str = "", total: str = "") -> HTMLResponse:
    """Return the page of the whitelisting requests that a task was about."""
    connection = find_connection(user, conn_id)
    named = tuple(dict.fromkeys(ids.split(",")))
    values: dict[str, Any] = {"conn_id": conn_id, "awaited": "", "view": None, "total": read_number(total, MAX_ID)}
    values["refresh"] = f"{quote(request.scope['path'])}?{request.url.query}"
    if len(named) > MAX_REQUESTS or any(read_number(each, MAX_ID) is None for each in named):
        return page(request, "requests.html", status=404, **values, problem=_NO_NUMBERS)
    values |= _values(request, Question(connection, ("requests", named), lambda client: read_requests(client, named)))
    return page(request, "requests.html", **values)


def _values(request: Request, question: Question[Any], missing: str = "") -> dict[str, Any]:
    """Return a page's variables for a reading; ``missing`` is its text if the service has no such object."""
    (reading,) = request.app.state.readings.get(question)
    now = datetime.now(timezone.utc)
    is_missing = not reading.problem and reading.value is None and reading.read_at is not None
    problem = missing if is_missing else ""
    if reading.problem:
        problem = describe_problem(reading, now)
    return {
        "view": reading.value,
        "is_missing": is_missing,
        "problem": problem,
        "awaited": "" if reading.awaited_for is None else describe_awaited(reading, now),
    }


def _verdict(row: RequestRow) -> tuple[str, str]:
    """Return the state of a request, as a level of the style sheet and in words."""
    level, word = _STATES.get(row.state, ("unknown", "State not known"))
    if row.trust == "unverified":
        return "bad", f"{word}, not verified"
    if row.deletion_pending:
        return "warning", f"{word}, deletion pending"
    return ("warning", f"{word}, with a problem") if row.problem and level == "good" else (level, word)


def _read_request(client: CustodyClient, request_id: str) -> RequestView | None:
    try:
        return read_request(client, request_id)
    except CustodyNotFoundError as error:
        # A 404 that is not the service's own tells nothing about the request.
        if error.from_service:
            return None
        raise
