"""Give routes what they need: the service's state, a caller with the right roles, a body of its form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from airflow_custody.sandbox.api_keys import SCHEME, ApiKeys
from airflow_custody.sandbox.approval import Approvals
from airflow_custody.sandbox.errors import missing_roles
from airflow_custody.sandbox.faults import FaultBook
from airflow_custody.sandbox.health import HealthBoard
from airflow_custody.sandbox.pauses import Pauses
from airflow_custody.sandbox.received import ReceivedLog
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.tokens import Caller, Tokens
from airflow_custody.sandbox.users import Users
from airflow_custody.sandbox.webhooks import WebhookBook
from airflow_custody.sandbox.whitelist import WhitelistBook
from airflow_custody.sandbox.wire import dumps

# Any from 3.14 on would do.
DEFAULT_VERSION = "3.20"

Model = TypeVar("Model", bound=BaseModel)


class Service:
    """Bundle everything the sandbox knows."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.users = Users(state)
        self.tokens = Tokens(state)
        self.api_keys = ApiKeys(state)
        self.health = HealthBoard(state)
        self.whitelist = WhitelistBook(state)
        self.approvals = Approvals(state, self.users, self.whitelist)
        self.webhooks = WebhookBook(state)
        self.faults = FaultBook()
        self.pauses = Pauses()
        self.received = ReceivedLog()

    async def caller(self, request: Request) -> Caller:
        """Find out who calls, or refuse with 401."""
        authorization = request.headers.get("authorization")
        if not (authorization or "").startswith(SCHEME):
            return self.tokens.caller(authorization)
        user = self.users.needed(
            self.api_keys.user_of(
                str(authorization),
                method=request.method,
                host=_host_as_signed(request.headers.get("host", "")),
                path=request.scope["raw_path"].decode("latin-1").partition("?")[0],
                query=request.scope["query_string"].decode("latin-1"),
                content_type=request.headers.get("content-type", ""),
                body=await request.body(),
            )
        )
        return Caller(user.id, user.tenant_id, user.roles)

    @property
    def version(self) -> tuple[int, ...]:
        """Tell which version of the service is played."""
        return tuple(int(part) for part in self.state.setting("version", DEFAULT_VERSION).split("."))

    def reset(self) -> None:
        """Go back to how a fresh sandbox is; only the main token stays.

        Calls that a fault still holds up are cut off, or they would do their work in somebody else's test.
        """
        self.state.clear()
        self.health.load()
        self.faults.clear()
        self.pauses.call_off()
        self.received.clear()


def _host_as_signed(host: str) -> str:
    """Leave out the port if it is a usual one."""
    return host.removesuffix(":80").removesuffix(":443")


def the_service(request: Request) -> Service:
    """Find the service a request is for."""
    service: Service = request.app.state.service
    return service


async def _service(request: Request) -> Service:
    return the_service(request)


ServiceState = Annotated[Service, Depends(_service)]


def needs(*roles: str) -> Callable[[Request], Awaitable[Caller]]:
    """Make a dependency that asks for a token with all these roles."""

    # Not a plain function: FastAPI would run that on another thread.
    async def check(request: Request) -> Caller:
        caller = await the_service(request).caller(request)
        if missing := caller.lacks(roles):
            raise missing_roles(missing)
        return caller

    return check


def body_of(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """Make a dependency that reads the body.

    FastAPI reads a body before it asks any dependency, so that a malformed one from a stranger would be a 400;
    here it is read where the dependency stands, after the caller was checked.
    """

    async def read(request: Request) -> Model:
        try:
            return model.model_validate_json(await request.body())
        except ValidationError as error:
            raise RequestValidationError(error.errors(include_url=False, include_context=False)) from error

    return read


def answer(value: Any) -> Response:
    """Answer 200 with JSON."""
    return Response(dumps(value).encode(), media_type="application/json")
