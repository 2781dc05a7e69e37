"""The errors that the sandbox sends to clients or raises itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SandboxError(RuntimeError):
    """Raised when a sandbox cannot start, or rejects a control call."""


# Only `InvalidArgument` is published; the other names are assumptions.
_NAMES = {
    400: "InvalidArgument",
    401: "Unauthenticated",
    403: "PermissionDenied",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "AlreadyExists",
    429: "ResourceExhausted",
    500: "Internal",
    503: "Unavailable",
}


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return an error body in the service's form."""
    return {
        "error": _NAMES.get(status, "Unknown"),
        "message": message,
        "code": status,
        "error_code": f"E900-{status}",
    }


class ServiceError(Exception):
    """Raised to send an error response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def invalid(message: str) -> ServiceError:
    """Return a 400 error."""
    return ServiceError(400, message)


def not_found(what: str) -> ServiceError:
    """Return a 404 error that names the missing object."""
    return ServiceError(404, f"{what} not found")


def missing_role(roles: Sequence[str]) -> ServiceError:
    """Return a 403 error that names the roles of which the user needs one, in the published words."""
    return ServiceError(403, f"one of the '{' - '.join(map(str.lower, roles))}' role is required")
