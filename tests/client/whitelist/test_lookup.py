"""Finding whitelisting requests: a complete listing or an error. An unreadable row hides no other row."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from airflow_custody.client import (
    CustodyClient,
    CustodyRequestError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.client.verification.signed_rules import add_rules
from airflow_custody.sandbox import Sandbox

ADDRESS = "0x" + "ab" * 20
REQUEST = WhitelistRequest(label="Treasury", address=ADDRESS, blockchain="ETH")
FIND = {"method": "GET", "path": "/whitelists/addresses"}


def page(*ids: object, total: object = None) -> dict[str, Any]:
    return {"result": [{"id": each} for each in ids], **({} if total is None else {"totalItems": total})}


def add_responses(sandbox: Sandbox, *bodies: object) -> None:
    for body in bodies:
        sandbox.control.add_fault("status", **FIND, status=200, body=body)


@pytest.mark.parametrize(
    ("bodies", "retryable"),
    [
        # The listing changes while it is read, or its pages do not fit together.
        ([page(total="1")], True),
        ([page("1", "2", total="1")], True),
        ([page("1", "2", total="3"), page("1", "2", total="3")], True),
        ([page("1", "2", total="4"), page("2", "3", "1", total="4")], True),
        ([page("1", "2", total="3"), page("2", "3", total="4")], True),
        # The listing cannot be understood.
        *(([page("1", total=total)], False) for total in ("many", "01", "-1", "٣", 1.5, True, str(2**53), "9" * 5000)),
        *(([page("1", odd, total="2")], False) for odd in (None, "2 ")),
        *(([{"result": [row]}], False) for row in ({"status": 1.5}, {"id": True, "trails": 5}, {"trails": 5}, "junk")),
        ([{"result": {"id": "1"}}], False),
        ([{"status": "UP"}], False),
        ([[]], False),
    ],
)
def test_inconsistent_listings_are_refused(
    sandbox: Sandbox, client: CustodyClient, bodies: list[Any], retryable: bool
) -> None:
    add_responses(sandbox, *bodies)
    with pytest.raises(CustodyResponseError) as caught:
        list(client.find_whitelist_requests())
    assert caught.value.retryable is retryable


@pytest.mark.parametrize("for_approval", [False, True])
def test_only_what_was_asked_for_is_found(sandbox: Sandbox, client: CustodyClient, for_approval: bool) -> None:
    numbers = [client.create_whitelist_request(REQUEST) for _ in range(3)]
    sandbox.control.clear_request_log()
    find: Any = client.find_whitelist_requests_for_approval if for_approval else client.find_whitelist_requests
    # An empty filter does not find everything.
    for empty in ([], [""]):
        with pytest.raises(CustodyRequestError, match="a filter is empty"):
            list(find(ids=empty))
    assert sandbox.control.request_log() == []
    assert [each.id for each in find(ids=numbers[:2])] == numbers[:2]
    sandbox.control.configure(listings={"whitelist": {"ignored": ["ids"]}})
    with pytest.raises(CustodyResponseError, match="which was not requested") as caught:
        list(find(ids=numbers[:2]))
    assert not caught.value.retryable


# --- what verification needs of a listing ------------------------------------------------------------------

RULES = {"rulesContainer": "AAAA", "rulesSignatures": "BBBB"}
OTHER_RULES = {"rulesContainer": "CCCC", "rulesSignatures": "DDDD"}


def test_only_a_client_with_pins_asks_for_rules_beside_the_rows(sandbox: Sandbox, client: CustodyClient) -> None:
    list(client.find_whitelist_requests())
    with CustodyClient(sandbox.url, sandbox.token, **sandbox.control.pins()) as pinned:
        list(pinned.find_whitelist_requests())
    queries = [each["query"] for each in sandbox.control.request_log()]
    assert queries == [
        {"includeForApproval": ["true"], "limit": ["100"], "offset": ["0"]},
        {"includeForApproval": ["true"], "rulesContainerNormalized": ["true"], "limit": ["100"], "offset": ["0"]},
    ]


def label_of(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_each_row_has_the_rules_that_it_names(sandbox: Sandbox, client: CustodyClient) -> None:
    x, y, twice = label_of("AAAA"), label_of("CCCC"), label_of("EEEE")
    labels: list[Any] = [x, x, y, "absent", None, twice, [x]]
    rows: list[Any] = [{"id": str(n), "rulesContainerHash": label} for n, label in enumerate(labels, 1)]
    rows.append({"id": "8", **OTHER_RULES})
    repeated = [{"hash": twice, "rulesContainer": "EEEE", "rulesSignatures": each} for each in ("BBBB", "DDDD")]
    containers = [{"hash": x, **RULES}, {"hash": y, **OTHER_RULES}, *repeated, {"hash": 5, **RULES}, "junk"]
    # The second page has them again.
    others = {"result": [rows[-1], {"id": "9", "rulesContainerHash": x}], "rulesContainers": [{"hash": x, **RULES}]}
    first = {"result": rows, "rulesContainers": containers}
    add_responses(sandbox, {**first, "totalItems": "9"}, {**others, "totalItems": "9"})
    found = list(client.find_whitelist_requests())
    shown = [{name: value for name, value in each.wire.items() if name in RULES and value} for each in found]
    assert shown == [RULES, RULES, OTHER_RULES, {}, {}, {}, {}, OTHER_RULES, RULES]


@pytest.mark.parametrize(
    ("label", "entries", "fault"),
    [
        ("x", [{"hash": "x", **RULES}], "wrong label"),
        (label_of("AAAA"), [{"hash": label_of("AAAA"), **OTHER_RULES}], "wrong label"),
        # The hash of the bytes in base64, and the hash of the text in hexadecimal.
        (label_of("\0\0\0"), [{"hash": label_of("\0\0\0"), **RULES}], "wrong label"),
        (hashlib.sha256(b"AAAA").hexdigest(), [{"hash": hashlib.sha256(b"AAAA").hexdigest(), **RULES}], "wrong label"),
        (label_of("AAAA"), [{"hash": label_of("AAAA"), **RULES}] * 2, "several"),
        ("x", [{"hash": "x", "rulesContainer": ["AAAA"]}], "wrong label"),
        ("x", [], None),
    ],
)
def test_rules_count_only_under_the_one_label_that_fits_them(label: str, entries: list[Any], fault: str | None) -> None:
    row: dict[str, Any] = {"id": "1", "rulesContainerHash": label}
    other, own = {"id": "2", "rulesContainerHash": label_of("GGGG")}, {**row, **OTHER_RULES}
    good = {"rulesContainer": "GGGG", "rulesSignatures": "HHHH"}
    add_rules([row, other, own], [*entries, {"hash": label_of("GGGG"), **good}], {})
    assert row == {"id": "1", "rulesContainerHash": label} | ({"rulesFault": fault} if fault else {})
    # The other rows still have their rules.
    assert {**other, **good} == other
    assert {**own, **OTHER_RULES} == own
    assert "rulesFault" not in own


@pytest.mark.parametrize(
    "junk",
    [{"metadata": "junk"}, {"metadata": {"hash": [5]}}, {"signedAddress": ["junk"]}, {"status": {"a": 1}}],
)
def test_a_row_that_cannot_be_read_hides_no_other(
    sandbox: Sandbox, client: CustodyClient, junk: dict[str, Any]
) -> None:
    rows = [{"id": 1, "status": "APPROVED", **junk}, {"id": "2", "status": "x"}]
    add_responses(sandbox, {"result": rows, "totalItems": "2"})
    one, two = client.find_whitelist_requests()
    # No part of the faulty row counts.
    assert one.wire == {"id": "1"}
    assert two.id == "2"
    assert two.status == "x"
    with pytest.raises(CustodyResponseError):
        one.payload()


GOOD = {"signature": {"userId": 8, "signature": "A" * 86 + "=="}, "hashes": ["ab"]}
# A signature without a user counts for no user.
JUNK = [None, "junk", {"signature": "junk"}, {"hashes": "ab"}, {"signature": {"userId": True}}, {"hashes": ["ab"]}]


@pytest.mark.parametrize(("signatures", "signed_by"), [(7, frozenset()), ([*JUNK, GOOD], frozenset("8"))])
def test_signatures_that_cannot_be_read_are_that_rows_trouble(
    sandbox: Sandbox, client: CustodyClient, signatures: Any, signed_by: frozenset[str]
) -> None:
    junk = {"signedAddress": {"signatures": signatures}, "rulesContainer": 5, "rulesContainerHash": {}}
    add_responses(sandbox, {"result": [{"id": "1", "status": "x", **junk}], "totalItems": "1"})
    (found,) = client.find_whitelist_requests()
    assert found.status == "x"
    assert found.signed_by == signed_by
