"""What routes depend on: the service, a caller with the right roles, and a valid body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from airflow_custody.sandbox.errors import missing_roles
from airflow_custody.sandbox.service import Service
from airflow_custody.sandbox.users.api_keys import SCHEME
from airflow_custody.sandbox.users.tokens import Caller

Model = TypeVar("Model", bound=BaseModel)


# Asynchronous, as all dependencies here: FastAPI would run a plain function on another thread.
async def get_service(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]


def require_roles(*roles: str) -> Callable[[Request, Service], Awaitable[Caller]]:
    """Return a dependency that authenticates the caller and requires all these roles."""

    async def check(request: Request, service: ServiceDep) -> Caller:
        caller = await _authenticate(service, request)
        if missing := caller.missing(roles):
            raise missing_roles(missing)
        return caller

    return check


def require_any_role(*roles: str) -> Callable[[Request, Service], Awaitable[Caller]]:
    """Return a dependency that authenticates the caller and requires one of these roles."""

    async def check(request: Request, service: ServiceDep) -> Caller:
        caller = await _authenticate(service, request)
        if len(caller.missing(roles)) == len(roles):
            raise missing_roles([" or ".join(roles)])
        return caller

    return check


def read_body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """
    Return a dependency that reads and validates the body.

    FastAPI would read it before it calls any dependency, and then a stranger with a malformed body would get a 400
    instead of a 401. This way the body is read after the caller was checked.
    """

    async def read(request: Request) -> Model:
        try:
            return model.model_validate_json(await request.body())
        except ValidationError as error:
            raise RequestValidationError(error.errors(include_url=False, include_context=False)) from error

    return read


async def _authenticate(service: Service, request: Request) -> Caller:
    authorization = request.headers.get("authorization", "")
    if not authorization.startswith(SCHEME):
        return service.tokens.authenticate(authorization)
    user_id = service.api_keys.authenticate(
        authorization,
        method=request.method,
        host=_signed_host(request.headers.get("host", "")),
        path=request.scope["raw_path"].decode("latin-1").partition("?")[0],
        query=request.scope["query_string"].decode("latin-1"),
        content_type=request.headers.get("content-type", ""),
        body=await request.body(),
    )
    user = service.users.require(user_id)
    return Caller(user.id, user.tenant_id, user.roles)


def _signed_host(host: str) -> str:
    # A default port is not part of what is signed.
    return host.removesuffix(":80").removesuffix(":443")
