"""However much a service sends: nothing fails in its own way, takes long, or makes a message that nobody can read."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from whitelist_plans import ask, listed, plan

from airflow_custody.client import CustodyClient, CustodyOutcomeUnknownError, WhitelistEnvelope
from airflow_custody.client.errors import CustodyRequestError, CustodyResponseError
from airflow_custody.client.text import read_number
from airflow_custody.client.whitelist.expected import compare_listed
from airflow_custody.client.whitelist.plan import CHANGES, WhitelistPlan
from airflow_custody.client.whitelist.planner import id_order
from airflow_custody.client.whitelist.progress import ListedRequest
from airflow_custody.client.whitelist.review import compare
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.operators.whitelist_plan import changes_text
from airflow_custody.sandbox import Sandbox

# Python does not read a number of more than 4300 digits.
LONG = "9" * 5000
WORDS: Any = {"effective_statuses": None, "rejected_statuses": ()}


@given(st.text(max_size=6) | st.from_regex(r"[0-9]{1,6}", fullmatch=True), st.integers(0, 10**5))
def test_a_number_is_read_or_refused(text: str, maximum: int) -> None:
    found = read_number(text, maximum)
    is_number = text.isascii() and text.isdigit() and int(text) <= maximum and len(text) <= len(str(maximum))
    assert found == (int(text) if is_number else None)


def test_a_long_number_is_none() -> None:
    assert read_number(LONG, 10**30) is None
    assert id_order(LONG) > id_order("9" * 18)


def test_an_id_that_cannot_be_one_is_its_own_trouble() -> None:
    good, bad = listed(1), listed(2, wire={"id": LONG}, address="0x" + "b" * 40)
    found = plan(ask(), [bad, good])
    assert [row.state for row in found.rows] == ["unchanged", "unreadable"]
    assert len(found.rows[1].request_id) <= 40
    assert len(found.rows[1].note) < 200


def test_a_number_of_signatures_that_is_too_long_is_no_response(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=200, body={"signatures": LONG}, method="POST")
    with CustodyClient(sandbox.url, sandbox.token) as client, pytest.raises(CustodyOutcomeUnknownError):
        client.approve_whitelist_requests(["1"], "c2ln", "comment")


# --- keys ----------------------------------------------------------------------------------------------------------


def with_keys(number: int, **changes: Any) -> WhitelistEnvelope:
    """Return a request with so many keys that nobody knows."""
    wire = listed().wire
    text = json.loads(str((wire.get("metadata") or {}).get("payloadAsString")))
    text = json.dumps({**text, **{f"key{each}": "v" for each in range(number)}, **changes})
    metadata = {"payloadAsString": text, "hash": hashlib.sha256(text.encode()).hexdigest()}
    return WhitelistEnvelope({**wire, "metadata": metadata})  # type: ignore[typeddict-item]


MANY_LINKS = [{"id": str(each), f"k{each}": "v"} for each in range(20_000)]


@pytest.mark.parametrize(
    "envelope",
    [with_keys(40_000), with_keys(0, linkedInternalAddresses=MANY_LINKS), with_keys(0, other=MANY_LINKS)],
    ids=["keys", "keys of links", "keys of others"],
)
def test_too_many_keys_are_not_read(envelope: WhitelistEnvelope) -> None:
    started = time.process_time()
    with pytest.raises(CustodyResponseError, match="its payload has more than 200 keys"):
        envelope.payload()
    (row,) = plan([], envelope).rows
    assert row.state == "unreadable"
    assert time.process_time() - started < 1


def test_many_links_are_read_quickly() -> None:
    # What is known has no limit but the size of the text.
    links = [{"id": str(each), "address": "a", "label": "l"} for each in range(20_000)]
    started = time.process_time()
    assert plan(ask(), with_keys(150, linkedInternalAddresses=links)).rows[0].state == "differs"
    assert time.process_time() - started < 2


def test_a_message_names_some_of_the_keys() -> None:
    envelope = with_keys(150, **{"x" * 50_000: "v"})
    found: WhitelistPlan = plan(ask(), envelope)
    assert found.rows[0].state == "differs"
    assert len(found.rows[0].note) < 500
    assert len(changes_text(found, CHANGES)) < 500
    with pytest.raises(CustodyRequestError, match=r"and 141 more") as caught:
        compare_listed(ask(), ListedRequest(envelope, True))
    assert len(str(caught.value)) < 1500
    assert "accept_fields=['key0', " in str(caught.value.advice)
    accepted = compare(ask(), envelope.payload()).unaccounted
    compare_listed(ask(), ListedRequest(envelope, True), accepted)


# --- status words --------------------------------------------------------------------------------------------------


def test_status_words_in_results_are_short() -> None:
    word = "Z\n" * 50_000
    envelope = listed(wire={"status": word})
    one = RequestWait("1", **WORDS).update({"1": ListedRequest(envelope, True)})
    assert len(one.result["status"]) == 100
    (row,) = plan(ask(), envelope).rows
    assert len(row.status) == 100
    found = {str(each): ListedRequest(listed(wire={"status": f"{each}{word}"}), True) for each in range(300)}
    statuses = RequestWait(list(found), **WORDS).update(found).result["statuses"]
    assert len(statuses) == 20
    assert len(json.dumps(statuses)) < 4000
