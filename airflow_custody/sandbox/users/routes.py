"""The operations on users, and the sign-in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from airflow_custody.sandbox.web import AnyCaller, ServiceDep, json_response, read_body
from airflow_custody.sandbox.wire import omit_empty

router = APIRouter()


class SignIn(BaseModel):
    """The body of a sign-in."""

    username: str
    password: str


SignInBody = Annotated[SignIn, Depends(read_body(SignIn))]


@router.post("/authentication/token")
async def sign_in(service: ServiceDep, body: SignInBody) -> Response:
    """Issue a token for a name and password."""
    user = service.users.sign_in(body.username, body.password)
    token = service.tokens.add_token(user.roles, user.tenant_id, user.id, jwt=True)
    return json_response({"result": token})


@router.get("/users/me")
async def get_current_user(
    service: ServiceDep,
    caller: AnyCaller,
    check_enforced: Annotated[bool, Query(alias="checkEnforcedInRules")] = False,
) -> Response:
    """Return the caller; the value of `status` is an assumption."""
    external_id = service.users.external_id(caller.user_id)
    user = omit_empty(
        id=caller.user_id,
        tenantId=caller.tenant_id,
        externalUserId=external_id,
        roles=list(caller.roles),
        status="active",
    )
    if check_enforced and service.state.settings.computes_enforced:
        # An absent value means that it was not computed, so false is not left out.
        known = service.users.get(caller.user_id)
        key = service.rules.key_in_force(external_id)
        user |= {
            "enforcedInRules": key is not None,
            "publicKeyEnforcedInRules": key is not None and known is not None and key == known.public_key,
        }
    return json_response({"result": user})
