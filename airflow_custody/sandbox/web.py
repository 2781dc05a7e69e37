"""Building blocks of routes: dependencies, JSON responses and error handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar, get_origin

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from airflow_custody.sandbox.errors import ServiceError, error_body, missing_role
from airflow_custody.sandbox.service import Service
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.wire import dumps

Model = TypeVar("Model", bound=BaseModel)


# This function is asynchronous, like all dependencies here, because FastAPI runs a plain function on another thread.
async def get_service(request: Request) -> Service:
    """Return the service that handles a request."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]


def require_roles(*roles: str, any_one: bool = False) -> Callable[[Request, Service], Awaitable[Caller]]:
    """
    Return a dependency that authenticates the caller and requires roles.

    :param roles: the roles.
    :param any_one: whether one of the roles is enough. Default: all are required.
    """

    async def check(request: Request, service: ServiceDep) -> Caller:
        # An API key's signature covers the host without a default port.
        host = request.headers.get("host", "").removesuffix(":80").removesuffix(":443")
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        query = request.scope["query_string"].decode("latin-1")
        call = (request.method, host, path, query, request.headers.get("content-type", ""))
        caller = service.tokens.authenticate(request.headers.get("authorization", ""), call, await request.body())
        missing = caller.missing(roles)
        if any_one and len(missing) == len(roles):
            raise missing_role(roles)
        if missing and not any_one:
            # The service checks one required role after the other.
            raise missing_role(missing[:1])
        return caller

    return check


#: A caller with any roles. It is an assumption that the operations on users and rules require no role.
AnyCaller = Annotated[Caller, Depends(require_roles())]


def read_body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """
    Return a dependency that reads and validates the body.

    It runs after authentication. FastAPI itself reads the body before it calls any dependency, so an unauthenticated
    call with a malformed body would get a 400 instead of a 401.
    """

    async def read(request: Request) -> Model:
        return model.model_validate_json(await request.body())

    return read


def read_query(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """
    Return a dependency that reads and validates the query.

    A list field receives all values of a repeated parameter. This replaces FastAPI's own query models, which ignore
    aliases before release 0.128.
    """
    names = {field.alias or name: get_origin(field.annotation) is list for name, field in model.model_fields.items()}

    async def read(request: Request) -> Model:
        query = request.query_params
        given = {name: query.getlist(name) if many else query[name] for name, many in names.items() if name in query}
        return model.model_validate(given)

    return read


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    # A test may send half of a surrogate pair. Write it as an escape, because UTF-8 cannot encode it.
    body = dumps(value).encode(errors="backslashreplace")
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Give every error, including the framework's, the service's error body."""
    for kind in (ServiceError, RequestValidationError, ValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _handle_error)


async def _handle_error(request: Request, error: Exception) -> Response:
    headers, status, message = None, 500, f"internal error of the sandbox: {type(error).__name__}"
    if isinstance(error, ServiceError):
        status, message = error.status, error.message
    elif isinstance(error, (RequestValidationError, ValidationError)):
        status, message = 400, "; ".join(map(_describe, error.errors()))
    elif isinstance(error, HTTPException):
        status, message, headers = error.status_code, str(error.detail), error.headers
    return json_response(error_body(status, message), status, headers)


def _describe(error: Any) -> str:
    location = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
    return f"{location}: {error['msg']}" if location else str(error["msg"])
