"""The page of one whitelisting request, and the page of several."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyNotFoundError
from airflow_custody.client.text import read_number
from airflow_custody.plugin.access import BaseUser, GetUserDep, find_connection
from airflow_custody.plugin.cache import Question, Reading
from airflow_custody.plugin.comparison import Compared, compare_with
from airflow_custody.plugin.paths import MAX_REQUESTS
from airflow_custody.plugin.rendering import page

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.overview.models import RequestRow, RequestsView, RequestView
    from airflow_custody.plugin.origins import Origin

log = logging.getLogger(__name__)
router = APIRouter()

#: The levels of the states, and their words.
_STATES = {
    "effective": ("good", "In effect"),
    "pending": ("warning", "Pending approval"),
    "rejected": ("bad", "Rejected"),
}
_NO_NUMBER = "The id of a whitelisting request is a whole number, such as 3711: the service was not asked."
_NOT_THERE = (
    "The service has no whitelisting request with this id, or none that the connection's user may see. It may have "
    "been deleted, or belong to another tenant or another service than this connection's."
)
_NOT_THE_SERVICE = (
    "What responded is not the custody service, but something before it, such as a gateway: whether there is such a "
    "request is not known. See whether the base URL of the connection is right."
)


@dataclass(frozen=True)
class _Missing:
    """
    That there is no such request.

    :param known: whether the service itself says so.
    :param detail: what the response was.
    """

    known: bool
    detail: str


# An id of a connection may contain slashes.
@router.get("/connections/{conn_id:path}/requests/{request_id}")
async def show_request(request: Request, conn_id: str, request_id: str, user: GetUserDep) -> HTMLResponse:
    """Return the page of one whitelisting request."""
    values: dict[str, Any] = {"conn_id": conn_id, "request_id": request_id, "problem": "", "detail": "", "late": ""}
    values |= {"view": None, "origin": None, "compared": None, "command": ""}
    connection = await find_connection(user, conn_id)
    if connection is None:
        raise HTTPException(404)
    if read_number(request_id, MAX_ID) is None:
        return await page(request, "request.html", status=404, **(values | {"problem": _NO_NUMBER}))
    question = Question(connection, ("request", request_id), _reader(request_id))
    reading: Reading[RequestView | _Missing] = await request.app.state.readings.read(question)
    view, status = reading.value, 200
    values |= {"problem": "" if view else reading.problem, "late": _describe_late(reading)}
    if isinstance(view, _Missing):
        values |= {"problem": _NOT_THERE if view.known else _NOT_THE_SERVICE, "detail": view.detail}
        status = 404 if view.known else 200
    elif view is not None:
        origin = await run_in_threadpool(_find_origin, user, conn_id, request_id, view.base_url)
        values |= {"view": view, "verdict": _verdict(view.row), "origin": origin}
        values["compared"] = await run_in_threadpool(_compare, view, origin)
        if view.row.trust == "unverified":
            command = ["custody", "whitelist", "verify", "--conn-id", conn_id, "--id", request_id]
            values["command"] = shlex.join(command)
    return await page(request, "request.html", status=status, **values)


@router.get("/connections/{conn_id:path}/requests")
async def show_requests(
    request: Request, conn_id: str, user: GetUserDep, ids: str = "", total: str = ""
) -> HTMLResponse:
    """Return the page of the whitelisting requests that a task was about."""
    connection = await find_connection(user, conn_id)
    if connection is None:
        raise HTTPException(404)
    named = tuple(dict.fromkeys(ids.split(",")))
    values: dict[str, Any] = {"conn_id": conn_id, "view": None, "late": "", "total": read_number(total, MAX_ID)}
    values |= {"refresh": f"{quote(request.scope['path'])}?{request.url.query}"}
    if len(named) > MAX_REQUESTS or any(read_number(each, MAX_ID) is None for each in named):
        problem = f"A link names up to {MAX_REQUESTS} ids of whitelisting requests: whole numbers, separated by commas."
        return await page(request, "requests.html", status=404, **(values | {"problem": problem}))
    question = Question(connection, ("requests", named), _list_reader(named))
    reading: Reading[RequestsView] = await request.app.state.readings.read(question)
    values |= {"view": reading.value, "problem": "" if reading.value else reading.problem}
    values["late"] = _describe_late(reading)
    return await page(request, "requests.html", **values)


def _describe_late(reading: Reading[Any]) -> str:
    """Return why what is shown is not what the service shows now; empty if it is, or there is nothing but a problem."""
    if not reading.late or (reading.problem and reading.value is None):
        return ""
    older = ""
    if isinstance(reading.value, _Missing):
        older = " What is said above is older."
    elif reading.value is not None:
        older = " Below is what it showed before."
    if reading.problem:
        return f"{reading.problem}{older}"
    return f"The service has not responded yet.{older} The reading goes on: refresh this page in a few seconds."


def _verdict(row: RequestRow) -> tuple[str, str]:
    """Return how a request is, as a level of the style sheet and in words."""
    level, word = _STATES.get(row.state, ("unknown", "State not known"))
    if row.trust == "unverified":
        return "bad", f"{word}, not verified"
    if row.deletion_pending:
        return "warning", f"{word}, deletion pending"
    return ("warning", f"{word}, with a problem") if row.problem and level == "good" else (level, word)


def _reader(request_id: str) -> Callable[[CustodyClient], RequestView | _Missing]:
    def read(client: CustodyClient) -> RequestView | _Missing:
        from airflow_custody.overview import read_request

        try:
            return read_request(client, request_id)
        except CustodyNotFoundError as error:
            return _Missing(error.from_service, str(error))

    return read


def _list_reader(request_ids: tuple[str, ...]) -> Callable[[CustodyClient], RequestsView]:
    def read(client: CustodyClient) -> RequestsView:
        from airflow_custody.overview import read_requests

        return read_requests(client, request_ids)

    return read


def _find_origin(user: BaseUser, conn_id: str, request_id: str, base_url: str) -> Origin | None:
    """Return the task that created a request; that it cannot be found out is no reason to hide the request."""
    try:
        from airflow_custody.plugin.origins import find_origin

        return find_origin(user, conn_id, request_id, base_url)
    except ImportError:
        # This Airflow keeps no state of tasks.
        return None
    except Exception:
        log.warning("Which task created the request %r cannot be found out", request_id, exc_info=True)
        return None


def _compare(view: RequestView, origin: Origin | None) -> Compared | None:
    """Return a request compared with what its task asked for; None if that is not known."""
    return None if origin is None or origin.asked_for is None else compare_with(view, origin.asked_for)
