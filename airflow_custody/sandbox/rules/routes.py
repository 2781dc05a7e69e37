"""The operation on rules."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.web import ServiceDep, json_response, require_roles

router = APIRouter()

# That it needs no role is an assumption: none is named.
AnyCaller = Annotated[Caller, Depends(require_roles())]


@router.get("/rules")
async def get_rules(service: ServiceDep, caller: AnyCaller) -> Response:
    """Return the rules in force."""
    rules = service.rules.current()
    result = {
        "rulesContainer": rules["container"],
        "rulesSignatures": json.loads(rules["signed_by"]),
        "locked": False,
        "creationDate": rules["created_at"],
        "updateDate": rules["created_at"],
    }
    return json_response({"result": result})
