"""Reading stays fast, and messages stay readable, however much a service sends."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from support.whitelist.whitelist_plans import SETTINGS, ask, listed, plan, settings_of, snapshot_of

from airflow_custody.client import WhitelistEnvelope
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.whitelist.comparison import compare
from airflow_custody.client.whitelist.plans.plan import CHANGES, changes_text
from airflow_custody.client.whitelist.request import compare_effective

# Python does not read a number of more than 4300 digits.
LONG = "9" * 5000


def test_a_plan_keeps_what_is_too_long_to_that_row() -> None:
    good, bad = listed(1), listed(2, wire={"id": LONG}, address="0x" + "b" * 40)
    found = plan(ask(), [bad, good])
    assert [row.state for row in found.rows] == ["unchanged", "unreadable"]
    assert len(found.rows[1].request_id) <= 100
    assert len(found.rows[1].note) < 200
    (row,) = plan(ask(), listed(wire={"status": "Z\n" * 50_000})).rows
    assert len(row.status) == 100
    for length, is_whole in ((1000, True), (1001, False), (5000, False)):
        (row,) = plan(ask(), listed(label="x" * length)).rows
        assert (row.shown["label"] == "x" * length) is is_whole
        assert len(row.shown["label"]) < 1100


def with_keys(number: int, **changes: Any) -> WhitelistEnvelope:
    """Return a request with this number of unknown keys."""
    envelope = listed()
    text = json.dumps({**envelope.payload(), **{f"key{each}": "v" for each in range(number)}, **changes})
    metadata = {"payloadAsString": text, "hash": hashlib.sha256(text.encode()).hexdigest()}
    return WhitelistEnvelope({**envelope.wire, "metadata": metadata})  # type: ignore[typeddict-item]


def test_a_message_names_some_of_the_keys() -> None:
    envelope = with_keys(150, **{"x" * 50_000: "v"})
    found = plan(ask(), envelope)
    assert found.rows[0].state == "differs"
    assert len(found.rows[0].note) < 500
    assert len(changes_text(found, CHANGES)) < 500
    (request,) = snapshot_of([envelope])
    with pytest.raises(CustodyRequestError, match=r"and 141 more") as caught:
        compare_effective(ask(), request, SETTINGS)
    assert len(str(caught.value)) < 1500
    assert "add 'key0', 'key1'" in str(caught.value.advice)
    accepted = settings_of(accept_fields=compare(ask(), envelope, envelope.payload(), SETTINGS).unaccounted)
    compare_effective(ask(), request, accepted)
