"""The health operations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from airflow_custody.sandbox.errors import not_found
from airflow_custody.sandbox.web import ServiceDep, require_roles

_MIN_VERSION = (3, 14)


async def _require_version(service: ServiceDep) -> None:
    if tuple(int(part) for part in service.state.settings.version.split(".")) < _MIN_VERSION:
        raise not_found("page")


router = APIRouter(prefix="/health", dependencies=[Depends(_require_version), Depends(require_roles("TPUser"))])

TenantId = Annotated[str | None, Query(alias="tenantId")]


@router.get("")
async def list_health_checks(service: ServiceDep, tenant_id: TenantId = None) -> Response:
    """List the health checks by group."""
    return Response(service.health.listing(tenant_id), media_type="application/json")
