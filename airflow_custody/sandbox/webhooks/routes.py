"""The webhook operations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from airflow_custody.sandbox.service import Service
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.web import ServiceDep, json_response, read_body, read_query, require_roles
from airflow_custody.sandbox.webhooks.calls import CallSearch
from airflow_custody.sandbox.webhooks.store import NewStatus, NewWebhook, WebhookSearch

router = APIRouter(prefix="/webhooks")

Admin = Annotated[Caller, Depends(require_roles("Admin"))]
Reader = Annotated[Caller, Depends(require_roles("Admin", "AdminReadOnly", any_one=True))]

WebhookBody = Annotated[NewWebhook, Depends(read_body(NewWebhook))]
StatusBody = Annotated[NewStatus, Depends(read_body(NewStatus))]
WebhookSearchQuery = Annotated[WebhookSearch, Depends(read_query(WebhookSearch))]
CallSearchQuery = Annotated[CallSearch, Depends(read_query(CallSearch))]


@router.post("")
async def create(service: ServiceDep, caller: Admin, body: WebhookBody) -> Response:
    """Create a webhook. No other operation returns its secret."""
    return json_response(service.webhooks.create(caller, body))


@router.get("")
async def find(service: ServiceDep, caller: Reader, search: WebhookSearchQuery) -> Response:
    """List the webhooks."""
    return json_response(service.webhooks.find(caller, search))


@router.get("/calls")
async def calls(service: ServiceDep, caller: Reader, search: CallSearchQuery) -> Response:
    """List the calls that tests have added. The sandbox delivers nothing."""
    return json_response(service.webhook_calls.find(caller, search))


@router.patch("/{webhook_id}")
async def set_status(service: ServiceDep, caller: Admin, webhook_id: str, body: StatusBody) -> Response:
    """Enable or disable a webhook."""
    return _respond(service, {"webhook": service.webhooks.set_status(caller, webhook_id, body.status)})


@router.delete("/{webhook_id}")
async def delete(service: ServiceDep, caller: Admin, webhook_id: str) -> Response:
    """Delete a webhook."""
    service.webhooks.delete(caller, webhook_id)
    return _respond(service, {})


def _respond(service: Service, published: dict[str, Any]) -> Response:
    """Return the response of a setting, or else the published one."""
    body = service.state.settings.webhook_response
    if isinstance(body, str):
        return Response(body, media_type="text/html" if body else None)
    return json_response(published if body is None else body)
