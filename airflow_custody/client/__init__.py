"""The custody service as Python, usable without Airflow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.envelopes import WhitelistEnvelope
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
    )
    from airflow_custody.client.models import HealthCheck, HealthReport, WhitelistRequest
    from airflow_custody.client.sign_in import ApiKey, PasswordSignIn

__all__ = [
    "ApiKey",
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
    "HealthCheck",
    "HealthReport",
    "PasswordSignIn",
    "WhitelistEnvelope",
    "WhitelistRequest",
]

_HOMES = {
    "ApiKey": "sign_in",
    "CustodyClient": "client",
    "HealthCheck": "models",
    "HealthReport": "models",
    "PasswordSignIn": "sign_in",
    "WhitelistEnvelope": "envelopes",
    "WhitelistRequest": "models",
}


def __getattr__(name: str) -> Any:
    # On first use: a DAG file that only needs the error types does not pay for the models.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
