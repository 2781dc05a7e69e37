"""The whitelisting operations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.web import ServiceDep, json_response, read_body, read_query, require_roles
from airflow_custody.sandbox.whitelist.models import (
    MAX_LIMIT,
    Approval,
    ApprovalSearch,
    Deletion,
    NewRequest,
    Rejection,
    Search,
)
from airflow_custody.sandbox.wire import omit_empty

router = APIRouter()
_PATH = "/whitelists/addresses"

Creator = Annotated[Caller, Depends(require_roles("WhitelistedAddressCreator", "TPUser"))]
Approver = Annotated[Caller, Depends(require_roles("WhitelistedAddressApprover", "TPUser"))]
# It is an assumption that reading requires this role.
Reader = Annotated[Caller, Depends(require_roles("TPUser"))]

NewRequestBody = Annotated[NewRequest, Depends(read_body(NewRequest))]
ApprovalBody = Annotated[Approval, Depends(read_body(Approval))]
RejectionBody = Annotated[Rejection, Depends(read_body(Rejection))]
DeletionBody = Annotated[Deletion, Depends(read_body(Deletion))]
Limit = Annotated[int, Query(ge=0, le=MAX_LIMIT)]
SearchQuery = Annotated[Search, Depends(read_query(Search))]
ApprovalSearchQuery = Annotated[ApprovalSearch, Depends(read_query(ApprovalSearch))]


@router.post(_PATH)
async def create(request: Request, service: ServiceDep, caller: Creator, body: NewRequestBody) -> Response:
    """Create a request."""
    return json_response({"result": {"id": service.whitelist.create(caller, body, await request.body())}})


@router.get(_PATH)
async def find(service: ServiceDep, caller: Reader, search: SearchQuery) -> Response:
    """Find requests. Pending requests are included only if the query asks for them."""
    return json_response(service.whitelist.find(caller, search))


@router.get(f"{_PATH}/for-approval")
async def find_for_approval(service: ServiceDep, caller: Reader, search: ApprovalSearchQuery) -> Response:
    """Find the requests that the caller may sign."""
    return json_response(service.approvals.find(caller, search))


@router.post(f"{_PATH}/approve")
async def approve(service: ServiceDep, caller: Approver, body: ApprovalBody) -> Response:
    """Approve requests."""
    return json_response({"signatures": str(service.approvals.approve(caller, body))})


@router.post(f"{_PATH}/reject")
async def reject(service: ServiceDep, caller: Approver, body: RejectionBody) -> Response:
    """Reject requests."""
    service.approvals.reject(caller, body)
    return json_response({})


@router.post(f"{_PATH}/delete")
async def delete(service: ServiceDep, caller: Creator, body: DeletionBody) -> Response:
    """Delete a request."""
    service.approvals.delete(caller, body)
    return json_response({"result": {"id": body.id}})


@router.get(_PATH + "/{request_id}")
async def get(service: ServiceDep, caller: Reader, request_id: str) -> Response:
    """Return one request, whether pending or not."""
    return json_response({"result": service.whitelist.get(caller, request_id)})


@router.get("/statistics/for-approval")
async def count_for_approval(
    service: ServiceDep, caller: Reader, limit: Annotated[int, Query(ge=0, le=MAX_LIMIT)] = 0
) -> Response:
    """
    Count the items that the caller may sign.

    The sandbox has only one kind of item, whitelisted addresses. It is an assumption that ``limit`` is the maximum of
    each count, and that its default is the largest limit.
    """
    number = min(service.approvals.count(caller), limit or MAX_LIMIT)
    return json_response(omit_empty(whitelistedAddressesCount=str(number) if number else ""))
