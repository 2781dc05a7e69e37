"""The webhook operations."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from airflow_custody.sandbox.listings import MAX_PAGE_SIZE, Paging
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.web import ServiceDep, json_response, read_body, require_roles
from airflow_custody.sandbox.webhooks.store import NewStatus, NewWebhook

router = APIRouter(prefix="/webhooks")

Admin = Annotated[Caller, Depends(require_roles("Admin"))]
Reader = Annotated[Caller, Depends(require_roles("Admin", "AdminReadOnly", any_one=True))]

WebhookBody = Annotated[NewWebhook, Depends(read_body(NewWebhook))]
StatusBody = Annotated[NewStatus, Depends(read_body(NewStatus))]

PageRequest = Annotated[Literal["FIRST", "NEXT", "PREVIOUS", "LAST"], Query(alias="cursor.pageRequest")]
PageSize = Annotated[int, Query(alias="cursor.pageSize", ge=0, le=MAX_PAGE_SIZE)]
CurrentPage = Annotated[str | None, Query(alias="cursor.currentPage")]
SortOrder = Annotated[Literal["ASC", "DESC"], Query(alias="sortOrder")]


async def _paging(request: PageRequest = "FIRST", size: PageSize = 0, current: CurrentPage = None) -> Paging:
    return Paging(request=request, size=size, current=current)


Page = Annotated[Paging, Depends(_paging)]


@router.post("")
async def create(service: ServiceDep, caller: Admin, body: WebhookBody) -> Response:
    """Create a webhook and return its secret, which no other operation returns."""
    return json_response(service.webhooks.create(caller, body))


@router.get("")
async def find(
    service: ServiceDep,
    caller: Reader,
    page: Page,
    type: str | None = None,
    url: str | None = None,
    sort_order: SortOrder = "ASC",
) -> Response:
    """List the webhooks."""
    known = service.webhooks.listing.understood({"type": type, "url": url, "sortOrder": sort_order, "cursor": page})
    found = service.webhooks.find(
        caller,
        type=known.get("type"),
        url=known.get("url"),
        descending=known.get("sortOrder") == "DESC",
        paging=known.get("cursor", Paging()),
    )
    return json_response(found)


@router.get("/calls")
async def calls(
    service: ServiceDep,
    caller: Reader,
    page: Page,
    webhook_id: Annotated[str | None, Query(alias="webhookID")] = None,
    event_id: Annotated[str | None, Query(alias="eventID")] = None,
    status: str | None = None,
    sort_order: SortOrder = "DESC",
) -> Response:
    """List the calls to webhooks: those that a test has ordered. The sandbox delivers none."""
    parameters = {"webhookID": webhook_id, "eventID": event_id, "status": status, "sortOrder": sort_order}
    known = service.webhook_calls.listing.understood({**parameters, "cursor": page})
    filters = {"webhook_id": known.get("webhookID"), "event_id": known.get("eventID"), "status": known.get("status")}
    found = service.webhook_calls.find(
        caller,
        filters=filters,
        descending=known.get("sortOrder", "DESC") == "DESC",
        paging=known.get("cursor", Paging()),
    )
    return json_response(found)


@router.patch("/{webhook_id}")
async def set_status(service: ServiceDep, caller: Admin, webhook_id: str, body: StatusBody) -> Response:
    """Enable or disable a webhook."""
    return json_response({"webhook": service.webhooks.set_status(caller, webhook_id, body.status)})


@router.delete("/{webhook_id}")
async def delete(service: ServiceDep, caller: Admin, webhook_id: str) -> Response:
    """Delete a webhook."""
    service.webhooks.delete(caller, webhook_id)
    return json_response({})
