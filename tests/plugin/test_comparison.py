from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.overview.models import RequestRow, RequestView
from airflow_custody.plugin.comparison import Compared, ComparedField, compare_with

ASKED = {"label": "L", "address": "0xA", "blockchain": "ETH", "linked_wallet_ids": ["12"]}
PAYLOAD = {"currency": "ETH", "address": "0xA", "label": "L", "linkedWallets": [{"id": 12, "name": "W", "path": "m/1"}]}


def compared(payload: dict[str, Any] | None, asked_for: Any = ASKED, **envelope: Any) -> Compared:
    text = json.dumps(payload)
    metadata: Any = {"payloadAsString": text, "hash": hashlib.sha256(text.encode()).hexdigest()}
    shown = WhitelistEnvelope({"id": "1", "metadata": metadata, **envelope})  # type: ignore[typeddict-item]
    return compare_with(RequestView(RequestRow("1", "CREATED"), payload=payload, envelope=shown), asked_for)


def test_what_was_asked_for() -> None:
    found = compared(PAYLOAD)
    assert found.same
    assert found.summary == "It is what the task asked for."
    assert found.fields == (
        ComparedField("blockchain", "ETH", "ETH", "same"),
        ComparedField("address", "0xA", "0xA", "same"),
        ComparedField("label", "L", "L", "same"),
        ComparedField("linked_wallet_ids", "12", "12", "same"),
    )


def test_what_differs_is_missing_or_was_filled_in() -> None:
    found = compared({**PAYLOAD, "label": "M", "memo": "7", "addressType": "individual", "linkedWallets": None})
    rows = {each.name: (each.asked, each.shown, each.verdict, each.note) for each in found.fields}
    assert rows["label"] == ("L", "M", "differs", "")
    assert rows["memo"] == ("", "7", "differs", "nobody asked for it")
    assert rows["address_type"] == ("", "individual", "same", "the service's own value")
    assert rows["linked_wallet_ids"] == ("12", "", "unclear", "")
    assert found.summary.startswith("It is not what the task asked for")


def test_what_cannot_be_told() -> None:
    found = compared({**PAYLOAD, "tnParticipantID": "x"})
    assert not found.same
    assert found.summary.startswith("It may not be")


def test_an_envelope_that_contradicts_its_payload() -> None:
    found = compared(PAYLOAD, action="delete")
    assert not found.same
    assert "does not say that an address is created" in found.problems[0]


def test_what_cannot_be_compared() -> None:
    assert "payload" in compared(None).problems[0]
    assert "what the task asked for cannot be read" in compared(PAYLOAD, {"label": "L"}).problems[0]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*PAYLOAD, "network", "other"]), _JSON), st.dictionaries(st.text(), _JSON))
def test_anything_is_compared(payload: dict[str, Any], asked_for: dict[str, Any]) -> None:
    assert compared({**PAYLOAD, **payload}, {**ASKED, **asked_for}).summary
