"""Responses in the service's JSON, for errors too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from airflow_custody.sandbox.errors import ServiceError, error_body
from airflow_custody.sandbox.wire import dumps


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    # Half of a surrogate pair, which an attack may send, as an escape.
    return Response(
        dumps(value).encode(errors="backslashreplace"),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )


def add_error_handlers(app: FastAPI) -> None:
    """Give every error the service's error body, including those the framework raises."""
    app.add_exception_handler(ServiceError, _handle_service_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(Exception, _handle_unexpected_error)


async def _handle_service_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return _error_response(error.status, error.message)


async def _handle_invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _error_response(400, "; ".join(_describe(one) for one in error.errors()))


async def _handle_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error_response(error.status_code, str(error.detail), error.headers)


async def _handle_unexpected_error(_: Request, error: Exception) -> Response:
    return _error_response(500, f"the sandbox failed: {type(error).__name__}")


def _error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_response(error_body(status, message), status, headers)


def _describe(error: Any) -> str:
    location = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
    return f"{location}: {error['msg']}" if location else str(error["msg"])
