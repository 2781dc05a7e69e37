"""The operation that counts what is pending approval."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from airflow_custody.sandbox.dependencies import ServiceDep, require_roles
from airflow_custody.sandbox.responses import json_response
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.wire import omit_empty

router = APIRouter(prefix="/statistics")

# The role, the default, and that a larger limit is refused, are assumptions.
Reader = Annotated[Caller, Depends(require_roles("TPUser"))]
Limit = Annotated[int, Query(ge=0, le=100)]


@router.get("/for-approval")
async def count(service: ServiceDep, caller: Reader, limit: Limit = 0) -> Response:
    """
    Count what the caller may sign; of the kinds that there are, the sandbox has whitelisted addresses only.

    That no count is above the limit is an assumption, and that the default is the largest.
    """
    number = min(service.approvals.count(caller), limit or 100)
    return json_response(omit_empty(whitelistedAddressesCount=str(number) if number else ""))
