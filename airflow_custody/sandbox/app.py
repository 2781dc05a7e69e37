"""Put the application together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from airflow_custody.sandbox.access import Service
from airflow_custody.sandbox.errors import ServiceError, error_body
from airflow_custody.sandbox.paths import CONTROL, ROOT
from airflow_custody.sandbox.routes import control, health, users, webhooks, whitelist
from airflow_custody.sandbox.wire import dumps


def build_app(service: Service) -> FastAPI:
    """Build the application around the state it serves."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service
    for part in (health, whitelist, webhooks, users):
        app.include_router(part.router, prefix=ROOT)
    app.include_router(control.router, prefix=CONTROL)
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failure)
    return app


# Every error, also those the framework finds, has the service's flat body.


async def _service_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return _error(error.status, error.message)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _error(400, "; ".join(_complaint(one) for one in error.errors()))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, str(error.detail), dict(error.headers or {}))


async def _failure(_: Request, error: Exception) -> Response:
    return _error(500, f"the sandbox itself failed: {type(error).__name__}")


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    body = dumps(error_body(status, message)).encode()
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def _complaint(error: Any) -> str:
    place: Sequence[Any] = [part for part in error["loc"] if part not in ("body", "query", "path")]
    where = ".".join(str(part) for part in place)
    return f"{where}: {error['msg']}" if where else str(error["msg"])
