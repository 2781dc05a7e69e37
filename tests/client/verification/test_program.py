"""The documentation's program, which verifies an address without Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification import VerificationPins, verify_envelope
from airflow_custody.sandbox import Sandbox


# [START howto_verify_envelope]
def signed_fields(client: CustodyClient, request_id: str, keys: Path) -> dict[str, Any]:
    """Return the signed fields of a request; raise CustodyVerificationError if too few people have signed it."""
    pins = VerificationPins(keys.read_text(), superadmin_minimum=2)
    verified = verify_envelope(client.get_whitelist_request(request_id).wire, pins)
    return dict(verified.fields)


# [END howto_verify_envelope]


def test_only_signed_fields_are_returned(sandbox: Sandbox, tmp_path: Path) -> None:
    keys = tmp_path / "superadmins.pem"
    keys.write_text("".join(sandbox.control.pins()["superadmin_keys"]))
    fields = {"label": "Treasury", "address": "0x" + "ab" * 20, "blockchain": "ETH"}
    (signed,) = sandbox.control.add_whitelist_requests([fields], signed=True)
    (forged,) = sandbox.control.add_whitelist_requests([fields])
    with CustodyClient(sandbox.url, sandbox.token) as client:
        assert signed_fields(client, signed, keys)["address"] == fields["address"]
        with pytest.raises(CustodyVerificationError, match="no signature covers its text"):
            signed_fields(client, forged, keys)
