"""Serve the health operations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from airflow_custody.sandbox.access import ServiceState, needs, the_service
from airflow_custody.sandbox.errors import ServiceError, not_found
from airflow_custody.sandbox.health import unhealthy

# That the listing is not there before is part of the given interface; of the others it is a guess.
_SINCE = (3, 14)


async def _exists(request: Request) -> None:
    if the_service(request).version < _SINCE:
        raise not_found("page")


# The role for the listing is part of the given interface; that the others ask for the same is a guess.
router = APIRouter(prefix="/health", dependencies=[Depends(_exists), Depends(needs("TPUser"))])

Tenant = Annotated[str | None, Query(alias="tenantId")]
FailIfUnhealthy = Annotated[bool, Query(alias="failIfUnhealthy")]


@router.get("")
async def list_health(service: ServiceState, tenant_id: Tenant = None, fail: FailIfUnhealthy = False) -> Response:
    """List the checks by group."""
    return _shown(service, service.health.all(tenant_id), fail, tenant_id)


@router.get("/all")
async def list_by_component(service: ServiceState, tenant_id: Tenant = None, fail: FailIfUnhealthy = False) -> Response:
    """List the checks by component (published knowledge)."""
    return _shown(service, service.health.by_component(tenant_id), fail, tenant_id)


@router.get("/{group}")
async def list_group(
    service: ServiceState, group: str, tenant_id: Tenant = None, fail: FailIfUnhealthy = False
) -> Response:
    """List the checks of one group (published knowledge)."""
    return _shown(service, service.health.of_group(tenant_id, group), fail, tenant_id, group)


@router.get("/{group}/{check}")
async def show_check(
    service: ServiceState, group: str, check: str, tenant_id: Tenant = None, fail: FailIfUnhealthy = False
) -> Response:
    """Show one check (published knowledge)."""
    return _shown(service, service.health.one(tenant_id, group, check), fail, tenant_id, group, check)


def _shown(service: ServiceState, body: bytes, fail: bool, *selection: str | None) -> Response:
    # That there is `failIfUnhealthy` is published knowledge; that it means a 503 is a guess.
    if fail and (bad := unhealthy(service.health.select(*selection))):
        raise ServiceError(503, f"unhealthy: {'; '.join(bad)}")
    return Response(body, media_type="application/json")
