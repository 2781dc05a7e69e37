"""The operations on the tenant."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from airflow_custody.sandbox.web import AnyCaller, ServiceDep, json_response
from airflow_custody.sandbox.wire import omit_empty

router = APIRouter()


@router.get("/currencies")
async def list_currencies(
    service: ServiceDep, caller: AnyCaller, show_disabled: Annotated[bool, Query(alias="showDisabled")] = False
) -> Response:
    """Return the currencies, on one page."""
    return json_response(omit_empty(result=service.tenant.currencies(show_disabled=show_disabled)))


@router.get("/config/tenant")
async def get_tenant_config(service: ServiceDep, caller: AnyCaller) -> Response:
    """Return the configuration of the caller's tenant. It is an assumption that it is in an object ``config``."""
    settings = service.state.settings
    config = omit_empty(
        tenantId=caller.tenant_id,
        superAdminMinimumSignatures=str(settings.superadmin_minimum),
        protectEngineVersion=settings.version,
    )
    return json_response({"config": config})
