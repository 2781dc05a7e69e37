"""The operation on rules."""

from __future__ import annotations

import json

from fastapi import APIRouter, Response

from airflow_custody.sandbox.web import AnyCaller, ServiceDep, json_response

router = APIRouter()


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
