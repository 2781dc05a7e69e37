"""
The error codes: each message ends with one, alerts match on it, and the documentation's page of errors explains it.

The advice about an error is in its message.
"""

from __future__ import annotations

from typing import Literal, get_args

#: A code keeps its name and its meaning: runbooks and alerts name it.
ErrorCode = Literal[
    "setting-wrong",
    "credentials-missing",
    "package-missing",
    "token-expired",
    "credentials-refused",
    "role-missing",
    "unknown-host",
    "unreachable",
    "tls-failed",
    "no-response",
    "rate-limited",
    "service-failed",
    "response-unusable",
    "listing-changed",
    "not-found",
    "not-offered",
    "request-refused",
    "outcome-unknown",
    "parameter-wrong",
    "wait-timed-out",
    "task-stopped",
    "unexpected",
    "address-invalid",
    "record-unreadable",
    "request-rejected",
    "request-exists",
    "request-differs",
    "file-wrong",
    "plan-changed",
    "plan-over-limits",
    "plan-has-changes",
    "plan-incomplete",
    "signing-failed",
    "not-pending",
    "not-verified",
    "webhook-secret-lost",
    "delivery-refused",
    "calls-missing",
    "not-healthy",
]


def known_code(code: object) -> ErrorCode | None:
    """Return a code that this version knows; None for any other value, such as one of a later version."""
    names: dict[str, ErrorCode] = {each: each for each in get_args(ErrorCode)}
    return names.get(code) if isinstance(code, str) else None


def label(code: ErrorCode) -> str:
    """Return a code as it stands at the end of a text: ``[custody/token-expired]``."""
    return f"[custody/{code}]"
