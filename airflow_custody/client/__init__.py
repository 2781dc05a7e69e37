"""The custody service as Python, usable without Airflow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyAuthenticationError as CustodyAuthenticationError
from airflow_custody.client.errors import CustodyConfigurationError as CustodyConfigurationError
from airflow_custody.client.errors import CustodyConflictError as CustodyConflictError
from airflow_custody.client.errors import CustodyConnectionError as CustodyConnectionError
from airflow_custody.client.errors import CustodyError as CustodyError
from airflow_custody.client.errors import CustodyNotFoundError as CustodyNotFoundError
from airflow_custody.client.errors import CustodyOutcomeUnknownError as CustodyOutcomeUnknownError
from airflow_custody.client.errors import CustodyPermissionError as CustodyPermissionError
from airflow_custody.client.errors import CustodyRateLimitError as CustodyRateLimitError
from airflow_custody.client.errors import CustodyRequestError as CustodyRequestError
from airflow_custody.client.errors import CustodyResponseError as CustodyResponseError
from airflow_custody.client.errors import CustodyServerError as CustodyServerError
from airflow_custody.client.errors import CustodyUnhealthyError as CustodyUnhealthyError
from airflow_custody.client.errors import CustodyVerificationError as CustodyVerificationError
from airflow_custody.client.errors import WhitelistFileError as WhitelistFileError

if TYPE_CHECKING:
    from airflow_custody.client.auth import ApiKey as ApiKey
    from airflow_custody.client.auth import PasswordSignIn as PasswordSignIn
    from airflow_custody.client.client import CustodyClient as CustodyClient
    from airflow_custody.client.health.models import HealthCheck as HealthCheck
    from airflow_custody.client.settings import ClientSettings as ClientSettings
    from airflow_custody.client.verification import VerificationPins as VerificationPins
    from airflow_custody.client.verification import VerifiedAddress as VerifiedAddress
    from airflow_custody.client.verification import verify_envelope as verify_envelope
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope as WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest as WhitelistRequest

# These names are imported on first use, so that a DAG file that needs only the errors does not load their modules.
_LATER = {
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


# An editor must report a misspelled name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
