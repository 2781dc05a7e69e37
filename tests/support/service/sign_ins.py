"""Signing in to the sandbox."""

from __future__ import annotations

from typing import Any

from airflow_custody.client import ApiKey, CustodyClient, PasswordSignIn, WhitelistRequest
from airflow_custody.sandbox import Sandbox

PASSWORD = "correct horse battery"
ROLES = ["TPUser", "WhitelistedAddressCreator"]
SIGN_IN = {"path": "/authentication/token"}
REQUEST = WhitelistRequest(label="Trésor", address="0x" + "ab" * 20, blockchain="ETH")


def client_of(sandbox: Sandbox, auth: PasswordSignIn | ApiKey, **settings: Any) -> CustodyClient:
    return CustodyClient(sandbox.url, auth=auth, **{"timeout": 60, "max_retries": 0, **settings})


def sign_ins(sandbox: Sandbox) -> int:
    """Return the number of sign-ins."""
    return len(sandbox.control.request_log(**SIGN_IN))
