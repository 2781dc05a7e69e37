"""The custody service as Python, usable without Airflow."""

from __future__ import annotations

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
)
from airflow_custody.client.models import HealthCheck, HealthReport, WhitelistRequest

__all__ = [
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
    "WhitelistRequest",
]
