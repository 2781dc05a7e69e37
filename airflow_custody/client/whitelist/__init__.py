"""Whitelisting requests: creating, finding, approving, rejecting, deleting and verifying them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_custody.client.errors import CustodyVerificationError
    from airflow_custody.client.whitelist.verification import (
        VerificationPins,
        VerifiedAddress,
        Verifier,
        verify_envelope,
    )

__all__ = ["CustodyVerificationError", "VerificationPins", "VerifiedAddress", "Verifier", "verify_envelope"]


def __getattr__(name: str) -> Any:
    # On first use, as in the package above.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "airflow_custody.client.errors" if name == "CustodyVerificationError" else f"{__name__}.verification"
    return getattr(importlib.import_module(module), name)
