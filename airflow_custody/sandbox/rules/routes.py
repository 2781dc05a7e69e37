"""The operations on rules."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from airflow_custody.sandbox.dependencies import ServiceDep, require_roles
from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.responses import json_response
from airflow_custody.sandbox.rules.store import SignedRules
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.wire import is_decimal, omit_empty

router = APIRouter(prefix="/rules")

# That these need no role is an assumption: none is named.
AnyCaller = Annotated[Caller, Depends(require_roles())]
SuperAdmin = Annotated[Caller, Depends(require_roles("SuperAdmin"))]

# The default, and that a larger limit is refused, are assumptions.
Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("")
async def get_rules(service: ServiceDep, caller: AnyCaller) -> Response:
    """Return the rules in force."""
    return json_response({"result": _rules(service.rules.current())})


@router.get("/history")
async def list_rules(service: ServiceDep, caller: AnyCaller, limit: Limit = 20, cursor: str = "") -> Response:
    """List all versions of the rules; that those in force come first is an assumption."""
    if cursor and (not is_decimal(cursor) or len(cursor) > 9):
        raise invalid("cursor: not one of this listing")
    versions, offset = service.rules.history(), int(cursor or 0)
    end = offset + limit
    return json_response(
        omit_empty(
            result=[_rules(each) for each in versions[offset:end]],
            totalItems=str(len(versions)),
            cursor=str(end) if end < len(versions) else "",
        )
    )


@router.get("/publickeys")
async def list_public_keys(service: ServiceDep, caller: AnyCaller) -> Response:
    """Return the super-administrators' public keys."""
    return json_response({"publicKeys": service.rules.public_keys()})


@router.get("/proposal")
async def get_proposal(service: ServiceDep, caller: SuperAdmin) -> Response:
    """Return the rules that are proposed: there are none."""
    raise not_found("proposed rules")


@router.get("/{version}")
async def get_version(service: ServiceDep, caller: AnyCaller, version: str) -> Response:
    """Return one version of the rules; that they are numbered is an assumption."""
    if not is_decimal(version) or len(version) > 18:
        raise invalid(f"{version!r} is not an id: a decimal number is expected")
    return json_response({"result": _rules(service.rules.get(int(version)))})


def _rules(rules: SignedRules) -> dict[str, Any]:
    return {
        "rulesContainer": rules.container,
        "rulesSignatures": list(rules.signed_by),
        "locked": False,
        "creationDate": rules.created_at,
        "updateDate": rules.created_at,
    }
