"""Serve the operations on users, and signing in (published knowledge)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from airflow_custody.sandbox.access import ServiceState, answer, body_of, needs
from airflow_custody.sandbox.errors import invalid
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.wire import present

router = APIRouter()

Anyone = Annotated[Caller, Depends(needs())]


class SignIn(BaseModel):
    """Describe the body of a sign-in."""

    username: str | None = None
    email: str | None = None
    password: str
    totp: str = ""


class Nothing(BaseModel):
    """Describe an empty body."""


SignInBody = Annotated[SignIn, Depends(body_of(SignIn))]
NothingBody = Annotated[Nothing, Depends(body_of(Nothing))]


@router.post("/authentication/token")
async def sign_in(service: ServiceState, asked: SignInBody) -> Response:
    """Give a token for a user name, or an e-mail address, and a password."""
    name = asked.username or asked.email
    if not name:
        raise invalid("username: Field required")
    user = service.users.sign_in(name, asked.password, asked.totp)
    return answer({"result": service.tokens.of(Caller(user.id, user.tenant_id, user.roles))})


@router.post("/users/me/token/renew")
async def renew(service: ServiceState, caller: Anyone, _: NothingBody) -> Response:
    """Give a new token for one that is still accepted."""
    return answer({"result": service.tokens.of(caller)})


@router.get("/users/me")
async def show_me(caller: Anyone) -> Response:
    """Show who the caller is (the word of `status` is a guess)."""
    user = present(id=caller.user_id, tenantId=caller.tenant_id, roles=list(caller.roles), status="active")
    return answer({"result": user})
