"""What is expected of a request, compared with what is verified of it, or else with its payload. No service."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from airflow_custody.client import CustodyRequestError, VerifiedAddress, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.verification.results import VerifiedRules
from airflow_custody.client.whitelist.expected import compare_listed
from airflow_custody.client.whitelist.progress import ListedRequest

FIELDS = {"currency": "ETH", "address": "0x1", "label": "L", "memo": "", "linkedWallets": [{"id": 7, "name": "hot"}]}
REQUEST = WhitelistRequest(label="L", address="0x1", blockchain="ETH", linked_wallet_ids=["7"])


def address() -> VerifiedAddress:
    return VerifiedAddress(FIELDS, False, "ab", VerifiedRules("cd" * 32, 1767225600, ("ef" * 32,)), ())


def envelope(**wire: Any) -> WhitelistEnvelope:
    return WhitelistEnvelope({"id": "7", "status": "approved", **wire})  # type: ignore[typeddict-item]


def test_a_verified_request_is_compared_by_its_signed_text_alone() -> None:
    other = json.dumps({**FIELDS, "memo": "unsigned"})
    metadata = {"payloadAsString": other, "hash": hashlib.sha256(other.encode()).hexdigest()}
    row = envelope(blockchain="ETH", metadata=metadata)
    assert compare_listed(REQUEST, ListedRequest(row, True, verified=address())) == ()
    with pytest.raises(CustodyRequestError, match=r"7 is not what was asked for: memo \(not asked for\)"):
        compare_listed(REQUEST, ListedRequest(row, True))


def test_what_no_signature_covers_is_no_match() -> None:
    # A legacy form does not have it.
    request = WhitelistRequest(label="L", address="0x1", blockchain="ETH", linked_wallet_ids=["7"], contract_type="x")
    with pytest.raises(
        CustodyRequestError, match=r"is not what was asked for: contract_type \(asked for 'x', shown nothing\)"
    ):
        compare_listed(request, ListedRequest(envelope(), True, verified=address()))


def test_what_only_the_envelope_has_is_compared_and_named() -> None:
    request = WhitelistRequest(
        label="L", address="0x1", blockchain="ETH", linked_wallet_ids=["7"], network="main", visibility_group_id="g"
    )
    row = envelope(network="main", visibilityGroupID="g")
    unsigned = compare_listed(request, ListedRequest(row, True, verified=address()))
    assert unsigned == ("network", "visibility_group_id")
    for wire in ({"network": "test", "visibilityGroupID": "g"}, {"network": "main"}):
        with pytest.raises(CustodyRequestError, match=r"network|visibilityGroupID"):
            compare_listed(request, ListedRequest(envelope(**wire), True, verified=address()))


def test_what_is_not_listed_cannot_be_compared() -> None:
    with pytest.raises(CustodyRequestError, match="not listed"):
        compare_listed(REQUEST, ListedRequest(None, False))
