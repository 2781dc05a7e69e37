"""The page of one whitelisting request, and the page of several."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyNotFoundError
from airflow_custody.client.text import read_number
from airflow_custody.overview import read_request, read_requests
from airflow_custody.overview.verdict import describe_state
from airflow_custody.plugin.access import GetUserDep, find_connection
from airflow_custody.plugin.links import MAX_REQUESTS
from airflow_custody.plugin.list_page import list_requests, read_for_page
from airflow_custody.plugin.readings import Query
from airflow_custody.plugin.rendering import page

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.overview.models import RequestView

router = APIRouter()

_INVALID_ID = "A request id is a whole number, such as 3711. The service was not called."
_INVALID_IDS = f"A link has up to {MAX_REQUESTS} request ids: whole numbers, separated by commas."
_MISSING = (
    "The service has no whitelisting request with this id, or the connection's user cannot see it. It may have been "
    "deleted, or belong to another tenant or another service."
)


# The id of a connection may contain slashes.
@router.get("/connections/{conn_id:path}/requests/{request_id}")
def show_request(request: Request, conn_id: str, request_id: str, user: GetUserDep) -> HTMLResponse:
    """Return the page of one whitelisting request."""
    connection = find_connection(user, conn_id)
    values: dict[str, Any] = {"conn_id": conn_id, "request_id": request_id, "waiting": "", "view": None, "command": ""}
    if read_number(request_id, MAX_ID) is None:
        return page(request, "request.html", status=404, **values, problem=_INVALID_ID)
    query = Query(connection, ("request", request_id), lambda client: _read_request(client, request_id))
    values |= read_for_page(request, query, missing=_MISSING)
    if view := values["view"]:
        values["verdict"] = describe_state(view.row)
        if view.row.trust == "unverified":
            command = ["custody", "whitelist", "verify", "--conn-id", conn_id, "--id", request_id]
            values["command"] = shlex.join(command)
    return page(request, "request.html", status=404 if values["is_missing"] else 200, **values)


@router.get("/connections/{conn_id:path}/requests")
def show_requests(
    request: Request, conn_id: str, user: GetUserDep, ids: str | None = None, total: str = ""
) -> HTMLResponse:
    """Return the page of a task's whitelisting requests; without ids, the list of all requests."""
    connection = find_connection(user, conn_id)
    if ids is None:
        return list_requests(request, connection)
    request_ids = tuple(dict.fromkeys(ids.split(",")))
    values: dict[str, Any] = {"conn_id": conn_id, "waiting": "", "view": None, "total": read_number(total, MAX_ID)}
    if len(request_ids) > MAX_REQUESTS or any(read_number(each, MAX_ID) is None for each in request_ids):
        return page(request, "requests.html", status=404, **values, problem=_INVALID_IDS)
    query = Query(connection, ("requests", request_ids), lambda client: read_requests(client, request_ids))
    values |= read_for_page(request, query)
    return page(request, "requests.html", **values)


def _read_request(client: CustodyClient, request_id: str) -> RequestView | None:
    """Return a request; None if the service itself, not a gateway, reports that the request does not exist."""
    try:
        return read_request(client, request_id)
    except CustodyNotFoundError as error:
        if error.from_service:
            return None
        raise
