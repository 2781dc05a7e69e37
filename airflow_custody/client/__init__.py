"""The custody service as Python, usable without Airflow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_custody.client.auth import ApiKey, PasswordSignIn
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.errors import (
        CustodyAuthenticationError,
        CustodyConfigurationError,
        CustodyConflictError,
        CustodyConnectionError,
        CustodyError,
        CustodyNotFoundError,
        CustodyOutcomeUnknownError,
        CustodyPermissionError,
        CustodyRateLimitError,
        CustodyRequestError,
        CustodyResponseError,
        CustodyServerError,
        CustodyUnhealthyError,
        CustodyVerificationError,
        WhitelistFileError,
    )
    from airflow_custody.client.health.models import HealthCheck
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.verification import VerificationPins, VerifiedAddress, verify_envelope
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

__all__ = [
    "ApiKey",
    "ClientSettings",
    "CustodyAuthenticationError",
    "CustodyClient",
    "CustodyConfigurationError",
    "CustodyConflictError",
    "CustodyConnectionError",
    "CustodyError",
    "CustodyNotFoundError",
    "CustodyOutcomeUnknownError",
    "CustodyPermissionError",
    "CustodyRateLimitError",
    "CustodyRequestError",
    "CustodyResponseError",
    "CustodyServerError",
    "CustodyUnhealthyError",
    "CustodyVerificationError",
    "HealthCheck",
    "PasswordSignIn",
    "VerificationPins",
    "VerifiedAddress",
    "WhitelistEnvelope",
    "WhitelistFileError",
    "WhitelistRequest",
    "verify_envelope",
]

# The module of each name that is not in "errors".
_MODULES = {
    "ApiKey": "auth",
    "ClientSettings": "settings",
    "CustodyClient": "client",
    "HealthCheck": "health.models",
    "PasswordSignIn": "auth",
    "WhitelistEnvelope": "whitelist.envelopes",
    "VerificationPins": "verification",
    "VerifiedAddress": "verification",
    "WhitelistRequest": "whitelist.models",
    "verify_envelope": "verification",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a DAG file that needs only the error types does not load the models.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
