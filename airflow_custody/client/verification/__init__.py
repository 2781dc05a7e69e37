"""Verification that an address is signed as the rules require."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_custody.client.errors import CustodyVerificationError
    from airflow_custody.client.verification.pins import VerificationPins
    from airflow_custody.client.verification.results import VerifiedAddress
    from airflow_custody.client.verification.verifier import Verifier, verify_envelope

__all__ = ["CustodyVerificationError", "VerificationPins", "VerifiedAddress", "Verifier", "verify_envelope"]

_MODULES = {"CustodyVerificationError": "errors", "VerificationPins": "verification.pins"}
_MODULES |= {"VerifiedAddress": "verification.results"}


def __getattr__(name: str) -> Any:
    # Import modules on first use, like the parent package.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "verification.verifier")
    return getattr(importlib.import_module(f"airflow_custody.client.{module}"), name)
