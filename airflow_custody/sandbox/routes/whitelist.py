"""Serve the whitelisting operations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from airflow_custody.sandbox.access import ServiceState, answer, body_of, needs
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.whitelist import MAX_LIMIT, NewAddress, Search

router = APIRouter(prefix="/whitelists/addresses")

# The roles of the create are part of the given interface; which one the look-ups ask for is a guess.
Creator = Annotated[Caller, Depends(needs("WhitelistedAddressCreator", "TPUser"))]
Reader = Annotated[Caller, Depends(needs("TPUser"))]

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
    """List what waits for signatures (published knowledge); nothing is signed here, so that is all of it."""
    search = Search(
        limit=limit,
        offset=offset,
        ids=ids,
        blockchain=blockchain,
        network=network,
        query=query,
        waiting_only=True,
    )
    return answer(service.whitelist.find(caller, search))


@router.get("/{request_id}")
async def show(service: ServiceState, caller: Reader, request_id: str) -> Response:
    """Show one request, waiting or not (published knowledge)."""
    return answer({"result": service.whitelist.get(caller, request_id)})
