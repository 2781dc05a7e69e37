"""
The names of all error codes: a type checker finds one that is misspelt.

What each of them stands for is in :mod:`airflow_custody.client.error_codes.catalogue`, which nothing loads that a DAG
file imports.
"""

from __future__ import annotations

from typing import Literal, get_args

#: A code stays what it is, and keeps its meaning: runbooks and alerts name it.
ErrorCode = Literal[
    "connection-missing",
    "connection-type",
    "connection-extra",
    "extra-unknown",
    "base-url-wrong",
    "plain-http",
    "proxy-wrong",
    "ca-bundle-unusable",
    "client-cert-unusable",
    "credentials-missing",
    "credentials-conflict",
    "credentials-malformed",
    "setting-wrong",
    "package-missing",
    "token-expired",
    "credentials-refused",
    "role-missing",
    "unreachable",
    "tls-untrusted",
    "tls-failed",
    "wrong-scheme",
    "proxy-refused",
    "timed-out",
    "connection-lost",
    "rate-limited",
    "service-failed",
    "not-custody-response",
    "response-truncated",
    "too-large",
    "redirected",
    "error-in-success",
    "secret-in-response",
    "listing-changed",
    "not-found",
    "not-offered",
    "bad-request",
    "conflict",
    "write-unconfirmed",
    "parameter-wrong",
    "parameter-missing",
    "id-wrong",
    "ids-empty",
    "wait-timed-out",
    "task-stopped",
    "trigger-failed",
    "trigger-unsupported",
    "page-slow",
    "unexpected",
    "request-wrong",
    "address-invalid",
    "outcome-unknown",
    "record-unreadable",
    "variable-wrong",
    "request-rejected",
    "request-gone",
    "request-unreadable",
    "request-differs",
    "request-contradicts",
    "created-not-listed",
    "file-wrong",
    "file-outside-bundle",
    "same-destination",
    "plan-hash-wrong",
    "plan-changed",
    "plan-over-limits",
    "plan-has-changes",
    "plan-approval-repeated",
    "plan-incomplete",
    "rows-refused",
    "apply-in-progress",
    "evidence-unreadable",
    "signing-key-unusable",
    "key-curve-wrong",
    "signer-wrong",
    "signer-failed",
    "expected-wrong",
    "not-pending",
    "request-changed",
    "signed-otherwise",
    "pins-wrong",
    "pins-missing",
    "not-verified",
    "rules-missing",
    "rules-not-signed",
    "rules-too-old",
    "rule-missing",
    "signature-invalid",
    "too-few-signatures",
    "webhook-secret-lost",
    "delivery-malformed",
    "delivery-signature",
    "delivery-late",
    "delivery-repeated",
    "calls-missing",
    "calls-unordered",
    "cursor-unusable",
    "asset-wrong",
    "not-healthy",
    "health-name-unknown",
    "usage-wrong",
    "options-conflict",
    "password-in-option",
    "output-closed",
    "examples-not-copied",
]


def known_code(code: object) -> ErrorCode | None:
    """Return a code that this version knows; None for any other value, such as one of a later version."""
    names: dict[str, ErrorCode] = {each: each for each in get_args(ErrorCode)}
    return names.get(code) if isinstance(code, str) else None


def label(code: ErrorCode) -> str:
    """Return a code as it stands at the end of a text: ``[custody/token-expired]``."""
    return f"[custody/{code}]"
