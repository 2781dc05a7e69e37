"""Serve the operations on users."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from airflow_custody.sandbox.access import answer, needs
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.wire import present

router = APIRouter(prefix="/users")

Anyone = Annotated[Caller, Depends(needs())]


@router.get("/me")
async def show_me(caller: Anyone) -> Response:
    """Show who the caller is (published knowledge; the word of `status` is a guess)."""
    user = present(id=caller.user_id, tenantId=caller.tenant_id, roles=list(caller.roles), status="active")
    return answer({"result": user})
