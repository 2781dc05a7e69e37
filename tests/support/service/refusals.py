"""Refusals (403) in the service's error form."""

from __future__ import annotations

from typing import Any


def role_refusal(*roles: str) -> dict[str, Any]:
    """Return the body of a refusal that names the roles of which the user needs one."""
    words = f"rpc error: code = PermissionDenied desc = one of the '{' - '.join(roles)}' role is required"
    return {"error": "PermissionDenied", "message": f"filter failed: {words}", "code": 403}


#: A refusal that names no role.
OTHER_REFUSAL: dict[str, Any] = {"error": "PermissionDenied", "message": "This endpoint has been disabled", "code": 403}
