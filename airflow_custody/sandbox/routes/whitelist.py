"""Serve the whitelisting operations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from airflow_custody.sandbox.access import ServiceState, answer, body_of, needs
from airflow_custody.sandbox.approval import Approval, Deletion, Rejection
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.whitelist import MAX_LIMIT, NewAddress, Search

router = APIRouter(prefix="/whitelists/addresses")

# The roles of the create are part of the given interface; which one the look-ups ask for is a guess.
Creator = Annotated[Caller, Depends(needs("WhitelistedAddressCreator", "TPUser"))]
Reader = Annotated[Caller, Depends(needs("TPUser"))]

Approver = Annotated[Caller, Depends(needs("WhitelistedAddressApprover", "TPUser"))]

ApprovalBody = Annotated[Approval, Depends(body_of(Approval))]
RejectionBody = Annotated[Rejection, Depends(body_of(Rejection))]
DeletionBody = Annotated[Deletion, Depends(body_of(Deletion))]
AddressBody = Annotated[NewAddress, Depends(body_of(NewAddress))]
# The most is published knowledge; that more is refused, and how many come when nothing is said, is a guess.
Limit = Annotated[int, Query(ge=0, le=MAX_LIMIT)]
Offset = Annotated[int, Query(ge=0, le=2**31)]
Ids = Annotated[list[str], Query()]
Addresses = Annotated[list[str], Query()]
ForApproval = Annotated[bool, Query(alias="includeForApproval")]
AlreadySigned = Annotated[bool, Query(alias="includeAlreadySignedByUser")]


@router.post("")
async def create(request: Request, service: ServiceState, caller: Creator, asked: AddressBody) -> Response:
    """Keep a whitelisting request."""
    return answer({"result": {"id": service.whitelist.create(caller, asked, await request.body())}})


@router.get("")
async def find(
    service: ServiceState,
    caller: Reader,
    limit: Limit = 0,
    offset: Offset = 0,
    ids: Ids = [],  # noqa: B006 - FastAPI copies it
    addresses: Addresses = [],  # noqa: B006
    blockchain: str | None = None,
    network: str | None = None,
    query: str | None = None,
    waiting_too: ForApproval = False,
) -> Response:
    """List requests; those still waiting only when asked for (published knowledge)."""
    search = Search(
        limit=limit,
        offset=offset,
        ids=ids,
        addresses=addresses,
        blockchain=blockchain,
        network=network,
        query=query,
        waiting_too=waiting_too,
    )
    return answer(service.whitelist.find(caller, search))


@router.get("/for-approval")
async def find_for_approval(
    service: ServiceState,
    caller: Reader,
    limit: Limit = 0,
    offset: Offset = 0,
    ids: Ids = [],  # noqa: B006
    blockchain: str | None = None,
    network: str | None = None,
    query: str | None = None,
    already_signed: AlreadySigned = False,
) -> Response:
    """List what the caller may sign (published knowledge)."""
    search = Search(
        limit=limit,
        offset=offset,
        ids=ids,
        blockchain=blockchain,
        network=network,
        query=query,
        waiting_only=True,
    )
    return answer(service.approvals.find(caller, search, signed_too=already_signed))


@router.post("/approve")
async def approve(service: ServiceState, caller: Approver, asked: ApprovalBody) -> Response:
    """Sign requests (published knowledge)."""
    return answer({"signatures": str(service.approvals.approve(caller, asked))})


@router.post("/reject")
async def reject(service: ServiceState, caller: Approver, asked: RejectionBody) -> Response:
    """Reject requests (published knowledge)."""
    service.approvals.reject(caller, asked)
    return answer({})


@router.post("/delete")
async def delete(service: ServiceState, caller: Creator, asked: DeletionBody) -> Response:
    """Delete a request (published knowledge)."""
    service.approvals.delete(caller, asked)
    return answer({"result": {"id": asked.id}})


@router.get("/{request_id}")
async def show(service: ServiceState, caller: Reader, request_id: str) -> Response:
    """Show one request, waiting or not (published knowledge)."""
    return answer({"result": service.whitelist.get(caller, request_id)})
