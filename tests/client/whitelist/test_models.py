from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyRequestError, WhitelistRequest
from airflow_custody.client.text import has_unprintable


@given(st.text())
def test_an_address_is_sent_unchanged_or_refused(address: str) -> None:
    if address != address.strip() or not address or has_unprintable(address):
        with pytest.raises(CustodyRequestError, match="address"):
            WhitelistRequest(label="a", address=address, blockchain="ETH")
    else:
        assert WhitelistRequest(label="a", address=address, blockchain="ETH").to_wire()["address"] == address


def test_wire_names_without_fields_that_were_not_given() -> None:
    request = WhitelistRequest(label="a", address="x", blockchain="ETH", currency="ETH", visibility_group_id=7)  # type: ignore[arg-type]
    assert request.to_wire() == {
        "label": "a",
        "address": "x",
        "blockchain": "ETH",
        "currency": "ETH",
        "visibilityGroupID": "7",
    }


@pytest.mark.parametrize("name", [name for name in WhitelistRequest.model_fields if not name.startswith("linked")])
def test_bytes_are_no_text(name: str) -> None:
    fields: dict[str, Any] = {"label": "l", "address": "a", "blockchain": "ETH", name: b"ETH"}
    with pytest.raises(CustodyRequestError, match=f"{name} must be a string"):
        WhitelistRequest(**fields)


@pytest.mark.parametrize("name", ["label", "address"])
def test_a_required_field_that_is_none_is_missing(name: str) -> None:
    fields: dict[str, Any] = {"label": "l", "address": "a", "blockchain": "ETH", name: None}
    with pytest.raises(CustodyRequestError, match=f"{name} is missing"):
        WhitelistRequest(**fields)
