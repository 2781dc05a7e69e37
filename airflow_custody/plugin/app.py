"""The pages as an ASGI app. Airflow mounts it without any authentication: each route has it as a dependency."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.providers.common.compat.sdk import conf
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from airflow_custody.plugin import PATH, App, Receive, Send, overview_page, request_page
from airflow_custody.plugin.readings import Readings
from airflow_custody.plugin.rendering import ROOT, page

log = logging.getLogger(__name__)

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "SAMEORIGIN",
}
#: Style and icons are the same for everybody, and contain nothing of the service.
_STATIC_CACHE = "public, max-age=300"

#: Title and text of the error pages, by status.
_ERRORS = {
    401: ("Not signed in", "Sign in to Airflow to see this page."),
    403: ("Not allowed", "Airflow does not accept this sign-in. Sign in again."),
    404: ("Not found", "There is no such page, or no such connection of type Custody that you may see."),
    405: ("Not possible", "These pages can only be read."),
    500: ("Something unexpected went wrong", "The log of the API server says what."),
}


def create_app() -> App:
    """Return the app with all pages, to be mounted into that of Airflow."""
    # A redirect would lead to the host that the request names.
    app = FastAPI(title="Custody", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.readings = Readings()
    # Included first: the path of a connection's page may contain slashes.
    app.include_router(request_page.router)
    app.include_router(overview_page.router)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return _with_headers(app)


def _with_headers(app: App) -> App:
    """Wrap the app to add common headers to every response, errors included."""

    async def with_headers(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # Routing changes the scope as it goes down.
        root = scope[ROOT] = str(scope.get("root_path", "")).rstrip("/")
        is_static = str(scope.get("path", "")).removeprefix(root).startswith("/static/")

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                may_be_kept = is_static and message["status"] in (200, 304)
                headers = {**_HEADERS, "cache-control": _STATIC_CACHE if may_be_kept else "no-store"}
                kept = [each for each in message.get("headers", ()) if each[0].decode("latin-1").lower() not in headers]
                added = [(name.encode(), value.encode()) for name, value in headers.items()]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        await app(scope, receive, send_with_headers)

    return with_headers


def _http_error(request: Request, error: Exception) -> Response:
    return _error_page(request, error.status_code if isinstance(error, HTTPException) else 404)


def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette raises it again after this response, so it is in the log.
    return _error_page(request, 500)


def _error_page(request: Request, status: int) -> Response:
    title, text = _ERRORS.get(status, ("Not possible", "This request cannot be served."))
    login = _login_url(request) if status in (401, 403) else ""
    return page(request, "error.html", status=status, title=title, text=text, login=login)


def _own_url(request: Request) -> str:
    """Return the URL of a request below ``[api] base_url``: the request's own host header may be forged."""
    root, path = request.scope[ROOT], request.scope["path"]
    airflow = (conf.get("api", "base_url", fallback="") or "").rstrip("/") or root.removesuffix(PATH)
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{airflow}{PATH}{quote(path.removeprefix(root))}{query}"


def _login_url(request: Request) -> str:
    """Return the URL for signing in; empty if the auth manager does not have one."""
    try:
        return get_auth_manager().get_url_login(next_url=_own_url(request))
    except Exception:
        log.warning("The auth manager does not say where to sign in", exc_info=True)
        return ""
