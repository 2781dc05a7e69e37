"""
The pages as an ASGI app.

Airflow mounts the app without authentication, so each route depends on Airflow's authentication.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
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

from airflow_custody.plugin import PATH, App, Message, Receive, Send, overview_page, request_page
from airflow_custody.plugin.readings import Readings
from airflow_custody.plugin.rendering import ROOT, page

log = logging.getLogger(__name__)

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "SAMEORIGIN",
}
#: Style and icons may be cached, because they are the same for all users, and contain no data of a service.
_STATIC_CACHE = "public, max-age=300"

#: Title and text of each error page, by status.
_ERRORS = {
    401: ("Not signed in", "Sign in to Airflow to see this page."),
    403: ("Not allowed", "Airflow rejected your sign-in. Sign in again."),
    404: ("Not found", "This page does not exist, or you cannot read this connection."),
    405: ("Read-only", "The Custody pages cannot change anything."),
    500: ("Unexpected error", "See the log of the API server."),
}


def create_app() -> App:
    """Return the app with all pages, for Airflow to mount."""
    # Do not redirect, because a redirect would lead to the host in the request, which may be forged.
    app = FastAPI(title="Custody", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.readings = Readings()
    # Include this router first, because the path of a connection's page may contain slashes, and therefore also matches
    # the paths of request pages.
    app.include_router(request_page.router)
    app.include_router(overview_page.router)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return _with_headers(app)


def _with_headers(app: App) -> App:
    """Wrap the app so that every response has the common headers, errors included."""

    async def with_headers(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # Read the paths before the app is called, because routing changes the scope.
        root = scope[ROOT] = str(scope.get("root_path", "")).rstrip("/")
        is_static = str(scope.get("path", "")).removeprefix(root).startswith("/static/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_cacheable = is_static and message["status"] in (200, 304)
                message = _replace_headers(
                    message, {**_HEADERS, "cache-control": _STATIC_CACHE if is_cacheable else "no-store"}
                )
            await send(message)

        await app(scope, receive, send_with_headers)

    return with_headers


def _replace_headers(message: Message, headers: Mapping[str, str]) -> Message:
    others = [
        (name, value) for name, value in message.get("headers", ()) if name.decode("latin-1").lower() not in headers
    ]
    new = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {**message, "headers": [*others, *new]}


def _http_error(request: Request, error: Exception) -> Response:
    return _error_page(request, error.status_code if isinstance(error, HTTPException) else 404)


def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette raises the error again after this response, so that it is logged.
    return _error_page(request, 500)


def _error_page(request: Request, status: int) -> Response:
    title, text = _ERRORS.get(status, ("Not possible", "This request cannot be handled."))
    login = _login_url(request) if status in (401, 403) else ""
    return page(request, "error.html", status=status, title=title, text=text, login=login)


def _own_url(request: Request) -> str:
    """
    Return a request's URL, built from ``[api] base_url``.

    The request's host header is not used, because it may be forged.
    """
    root, path = request.scope[ROOT], request.scope["path"]
    airflow = (conf.get("api", "base_url", fallback="") or "").rstrip("/") or root.removesuffix(PATH)
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{airflow}{PATH}{quote(path.removeprefix(root))}{query}"


def _login_url(request: Request) -> str:
    """Return the URL for signing in; empty if the auth manager has none."""
    try:
        return get_auth_manager().get_url_login(next_url=_own_url(request))
    except Exception:
        log.warning("The auth manager returned no URL for signing in", exc_info=True)
        return ""
