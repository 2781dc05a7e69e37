"""Say what went wrong: to callers of the service on the wire, and to the people running the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SandboxError(RuntimeError):
    """Report a sandbox that cannot start, or a control call it refused."""


# The flat body is published knowledge; of the words only `InvalidArgument` is, the others are guesses.
_WORDS = {
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
    """Build the flat error body (published knowledge)."""
    return {
        "error": _WORDS.get(status, "Unknown"),
        "message": message,
        "code": status,
        "error_code": f"E900-{status}",
    }


class ServiceError(Exception):
    """Carry an answer other than success from wherever it is decided to the wire."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def invalid(message: str) -> ServiceError:
    """Refuse what was sent."""
    return ServiceError(400, message)


def not_found(what: str) -> ServiceError:
    """Say that there is no such object."""
    return ServiceError(404, f"{what} not found")


def missing_roles(roles: Sequence[str]) -> ServiceError:
    """Name the roles that the caller lacks (that a 403 can name them is published knowledge)."""
    noun = "role" if len(roles) == 1 else "roles"
    return ServiceError(403, f"permission denied: missing {noun} {', '.join(roles)}")
