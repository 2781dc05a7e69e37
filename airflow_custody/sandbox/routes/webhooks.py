"""Serve the webhook operations."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from airflow_custody.sandbox.access import ServiceState, answer, body_of, needs
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.webhooks import MAX_PAGE, NewStatus, NewWebhook, Paging

router = APIRouter(prefix="/webhooks")

# The role is published knowledge.
Admin = Annotated[Caller, Depends(needs("Admin"))]

WebhookBody = Annotated[NewWebhook, Depends(body_of(NewWebhook))]
StatusBody = Annotated[NewStatus, Depends(body_of(NewStatus))]

PageRequest = Annotated[Literal["FIRST", "NEXT", "PREVIOUS", "LAST"], Query(alias="cursor.pageRequest")]
PageSize = Annotated[int, Query(alias="cursor.pageSize", ge=0, le=MAX_PAGE)]
CurrentPage = Annotated[str | None, Query(alias="cursor.currentPage")]
SortOrder = Annotated[Literal["ASC", "DESC"], Query(alias="sortOrder")]


async def _paging(request: PageRequest = "FIRST", size: PageSize = 0, current: CurrentPage = None) -> Paging:
    return Paging(request=request, size=size, current=current)


Page = Annotated[Paging, Depends(_paging)]


@router.post("")
async def create(service: ServiceState, caller: Admin, asked: WebhookBody) -> Response:
    """Keep a webhook and show its secret this once (published knowledge)."""
    return answer(service.webhooks.create(caller, asked))


@router.get("")
async def find(
    service: ServiceState,
    caller: Admin,
    page: Page,
    type: str | None = None,
    url: str | None = None,
    sort_order: SortOrder = "ASC",
) -> Response:
    """List webhooks (published knowledge)."""
    found = service.webhooks.find(caller, type=type, url=url, descending=sort_order == "DESC", paging=page)
    return answer(found)


@router.get("/calls")
async def calls(caller: Admin, page: Page) -> Response:
    """List deliveries (published knowledge): the sandbox makes none, whatever is asked for."""
    _, _, cursor = page.window(0)
    return answer({"cursor": cursor})


@router.patch("/{webhook_id}")
async def set_status(service: ServiceState, caller: Admin, webhook_id: str, asked: StatusBody) -> Response:
    """Enable or disable a webhook (part of the given interface; what is answered is published knowledge)."""
    return answer({"webhook": service.webhooks.set_status(caller, webhook_id, asked.status)})


@router.delete("/{webhook_id}")
async def delete(service: ServiceState, caller: Admin, webhook_id: str) -> Response:
    """Delete a webhook (part of the given interface; what is answered is published knowledge)."""
    service.webhooks.delete(caller, webhook_id)
    return answer({})
