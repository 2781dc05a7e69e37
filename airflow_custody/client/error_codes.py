"""
The error codes. The message of each error ends with its code.

Alerts match on the codes, and the documentation's page of error codes explains them. The message itself has the advice.
"""

from __future__ import annotations

from typing import Literal, get_args

#: A code keeps its name and its meaning, because runbooks and alerts use it.
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
    "chain-disabled",
    "record-unreadable",
    "request-rejected",
    "request-missing",
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
    """
    Return a code that this version knows; None for other values.

    A later version may have more codes.
    """
    names: dict[str, ErrorCode] = {each: each for each in get_args(ErrorCode)}
    return names.get(code) if isinstance(code, str) else None


def label(code: ErrorCode) -> str:
    """Return a code in its printed form: ``[custody/token-expired]``."""
    return f"[custody/{code}]"
