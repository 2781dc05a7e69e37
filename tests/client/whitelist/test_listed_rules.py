"""Listings as verification needs them: rules once on a page, and junk that hides nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyClient, CustodyResponseError
from airflow_custody.client.verification.listed_rules import ListedRules
from airflow_custody.client.whitelist.envelopes import Signing, WhitelistEnvelope
from airflow_custody.sandbox import Sandbox

FIND = {"method": "GET", "path": "/whitelists/addresses"}
RULES = {"rulesContainer": "AAAA", "rulesSignatures": "BBBB"}
OTHER_RULES = {"rulesContainer": "CCCC", "rulesSignatures": "DDDD"}


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


def add(sandbox: Sandbox, *bodies: Any) -> None:
    for body in bodies:
        sandbox.control.add_fault("status", **FIND, status=200, body=body)


def rules_of(envelope: WhitelistEnvelope) -> dict[str, Any]:
    return {name: value for name, value in envelope.wire.items() if name in RULES}


def test_only_a_client_with_pins_asks_for_rules_beside_the_rows(sandbox: Sandbox, client: CustodyClient) -> None:
    list(client.find_whitelist_requests())
    with CustodyClient(sandbox.url, sandbox.token, **sandbox.control.pins()) as pinned:
        list(pinned.find_whitelist_requests())
        list(pinned.find_whitelist_requests_for_approval())
        pinned.count_whitelist_requests()
    queries = [each["query"] for each in sandbox.control.request_log()]
    assert queries == [
        {"includeForApproval": ["true"], "limit": ["100"], "offset": ["0"]},
        {"includeForApproval": ["true"], "rulesContainerNormalized": ["true"], "limit": ["100"], "offset": ["0"]},
        {"limit": ["100"], "offset": ["0"]},
        {"includeForApproval": ["true"], "limit": ["1"], "offset": ["0"]},
    ]


def test_each_row_has_the_rules_that_it_names(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [
        {"id": "1", "rulesContainerHash": "x"},
        {"id": "2", "rulesContainerHash": "x"},
        {"id": "3", "rulesContainerHash": "y"},
        {"id": "4", "rulesContainerHash": "absent"},
        {"id": "5"},
        {"id": "6", "rulesContainerHash": "twice"},
        {"id": "7", "rulesContainerHash": ["x"]},
        {"id": "8", **OTHER_RULES},
    ]
    containers = [
        {"hash": "x", **RULES},
        {"hash": "y", **OTHER_RULES},
        *[{"hash": "twice", **RULES}] * 2,
        {"hash": 5, **RULES},
        "junk",
    ]
    # The second page has them under other labels.
    others = {"result": [rows[-1], {"id": "9", "rulesContainerHash": "z"}], "rulesContainers": [{"hash": "z", **RULES}]}
    add(sandbox, {"result": rows, "rulesContainers": containers, "totalItems": "9"}, {**others, "totalItems": "9"})
    found = list(client.find_whitelist_requests())
    assert [rules_of(each) for each in found] == [RULES, RULES, OTHER_RULES, {}, {}, {}, {}, OTHER_RULES, RULES]
    # Each text is there once, over pages too.
    assert len({id(value) for each in found for value in rules_of(each).values()}) == 4


def test_a_service_may_ignore_what_it_is_asked(sandbox: Sandbox, client: CustodyClient) -> None:
    add(sandbox, {"result": [{"id": "1", **RULES}, {"id": "2", **RULES}], "rulesContainers": "junk", "totalItems": "2"})
    one, two = client.find_whitelist_requests()
    assert rules_of(one) == rules_of(two) == RULES
    assert one.wire["rulesContainer"] is two.wire["rulesContainer"]


@pytest.mark.parametrize(
    "junk",
    [
        {"metadata": "junk"},
        {"metadata": {"hash": [5]}},
        {"signedAddress": ["junk"]},
        {"trails": [5]},
        {"status": {"a": 1}},
        {"network": True},
    ],
)
def test_a_row_that_cannot_be_read_hides_no_other(
    sandbox: Sandbox, client: CustodyClient, junk: dict[str, Any]
) -> None:
    add(sandbox, {"result": [{"id": 1, "status": "APPROVED", **junk}, {"id": "2", "status": "x"}], "totalItems": "2"})
    one, two = client.find_whitelist_requests()
    # Nothing of it counts.
    assert one.wire == {"id": "1"}
    assert (two.id, two.status) == ("2", "x")
    with pytest.raises(CustodyResponseError):
        one.payload()


@pytest.mark.parametrize("row", [{"status": 1.5}, {"id": True, "trails": 5}, {"id": None, "trails": 5}, "junk"])
def test_a_row_without_an_id_is_no_row(sandbox: Sandbox, client: CustodyClient, row: Any) -> None:
    add(sandbox, {"result": [row]})
    with pytest.raises(CustodyResponseError):
        list(client.find_whitelist_requests())


def test_junk_that_verification_reads_is_that_rows_trouble(sandbox: Sandbox, client: CustodyClient) -> None:
    junk = {"signedAddress": {"signatures": 7}, "rulesContainer": 5, "rulesSignatures": [], "rulesContainerHash": {}}
    add(sandbox, {"result": [{"id": "1", "status": "x", **junk}], "totalItems": "1"})
    (found,) = client.find_whitelist_requests()
    assert found.status == "x"
    assert found.signings == ()
    assert found.wire["rulesContainer"] == 5


def test_signatures_that_cannot_be_read_hide_no_other() -> None:
    good = {"signature": {"userId": 8, "signature": "s"}, "hashes": ["ab"]}
    entries: list[Any] = [
        None,
        "junk",
        {"signature": "junk"},
        {"hashes": "ab"},
        {"hashes": [5]},
        {"signature": {"userId": True}},
        {"signature": {"userId": "a", "signature": 5}},
        good,
    ]
    envelope = WhitelistEnvelope({"id": "1", "signedAddress": {"signatures": entries}})
    assert envelope.signings == (Signing("8", "s", ("ab",)),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["signature", "hashes", "userId", "hash", *RULES]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(entries=JSON, containers=JSON, label=JSON)
def test_no_junk_breaks_the_reading(entries: Any, containers: Any, label: Any) -> None:
    row: Any = {"id": "1", "signedAddress": {"signatures": entries}, "rulesContainerHash": label}
    ListedRules().add_to([row], containers)
    envelope = WhitelistEnvelope(row)
    assert all(isinstance(each, str) for each in envelope.signed_by)
