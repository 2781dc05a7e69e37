"""The control routes for webhooks and their calls."""

from __future__ import annotations

from fastapi import APIRouter, Response

from airflow_custody.sandbox.control.bodies import AnyCall, AnyWebhook, Enabled, ManyCalls, NewEvent, WebhookChange
from airflow_custody.sandbox.control.responses import control_result
from airflow_custody.sandbox.dependencies import ServiceDep
from airflow_custody.sandbox.webhooks.calls import CallBehaviour

router = APIRouter()


@router.post("/webhooks")
async def add_webhook(service: ServiceDep, body: AnyWebhook) -> Response:
    """Add a webhook."""
    return control_result(service.webhooks.add(**body.model_dump()))


@router.get("/webhooks")
async def all_webhooks(service: ServiceDep) -> Response:
    """List all webhooks."""
    return control_result(service.webhooks.list_all())


@router.post("/webhook-calls")
async def add_webhook_call(service: ServiceDep, body: AnyCall) -> Response:
    """Add a call to a webhook."""
    service.webhook_calls.add(body.tenant_id, body.call)
    return control_result()


@router.patch("/webhooks/{webhook_id}")
async def change_webhook(service: ServiceDep, webhook_id: str, body: WebhookChange) -> Response:
    """Change a webhook."""
    return control_result(service.webhooks.change(webhook_id, **body.model_dump()))


@router.post("/webhook-calls/many")
async def add_webhook_calls(service: ServiceDep, body: ManyCalls) -> Response:
    """Add many calls."""
    return control_result(service.webhook_calls.add_many(**body.model_dump()))


@router.post("/webhook-events")
async def send_event(service: ServiceDep, body: NewEvent) -> Response:
    """Write the calls of an event."""
    return control_result(service.webhook_calls.send_event(**body.model_dump()))


@router.put("/webhook-call-behaviour")
async def set_call_behaviour(service: ServiceDep, body: CallBehaviour) -> Response:
    """Set how calls are written, kept and listed."""
    service.webhook_calls.set_behaviour(body)
    return control_result()


@router.put("/whitelist-events")
async def set_whitelist_events(service: ServiceDep, body: Enabled) -> Response:
    """Set whether a call is written when a whitelisting request changes."""
    service.webhook_calls.set_whitelist_events(body.enabled)
    return control_result()
