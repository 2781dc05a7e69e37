"""Finding whitelisting requests, and comparing them with what was asked for."""

from __future__ import annotations

import errno
import hashlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyPermissionError,
    CustodyRequestError,
    CustodyResponseError,
    WhitelistEnvelope,
    WhitelistRequest,
)
from airflow_custody.client.verification.signed_text import MAX_PAYLOAD_BYTES
from airflow_custody.client.whitelist.review import compare
from airflow_custody.sandbox import Sandbox

ADDRESS = "0x" + "ab" * 20
REQUEST = WhitelistRequest(label="Treasury", address=ADDRESS, blockchain="ETH")
FIND = {"method": "GET", "path": "/whitelists/addresses"}


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


# --- finding -----------------------------------------------------------------------------------------------


def test_finds_pending_requests_with_their_verified_payload(sandbox: Sandbox, client: CustodyClient) -> None:
    request = WhitelistRequest(label="Trésor", address=ADDRESS, currency="eth", linked_internal_address_ids=["7", "3"])
    number = client.create_whitelist_request(request)
    client.create_whitelist_request(REQUEST.model_copy(update={"address": "0x" + "cd" * 20}))
    (found,) = client.find_whitelist_requests(addresses=[ADDRESS])
    assert found.id == number
    assert found.created_at is not None
    assert not compare(request, found.payload()).faults()
    assert [each.split()[0] for each in compare(REQUEST, found.payload()).faults()] == [
        "label",
        "linkedInternalAddresses",
    ]
    assert not list(client.find_whitelist_requests(addresses=[ADDRESS], include_pending=False))
    assert sandbox.control.request_log(**FIND)[0]["query"] == {
        "addresses": [ADDRESS],
        "includeForApproval": ["true"],
        "limit": ["100"],
        "offset": ["0"],
    }


def test_reads_all_pages_and_only_those_that_are_needed(sandbox: Sandbox, client: CustodyClient) -> None:
    numbers = [client.create_whitelist_request(REQUEST) for _ in range(201)]
    sandbox.control.clear_request_log()
    assert [each.id for each in client.find_whitelist_requests()] == numbers
    assert len(sandbox.control.request_log()) == 3
    assert next(client.find_whitelist_requests(ids=numbers)).id == "3711"
    assert len(sandbox.control.request_log()) == 4


def page(*ids: object, total: object = None) -> dict[str, Any]:
    return {"result": [{"id": each} for each in ids], **({} if total is None else {"totalItems": total})}


def add_responses(sandbox: Sandbox, *bodies: object) -> None:
    for body in bodies:
        sandbox.control.add_fault("status", **FIND, status=200, body=body)


@pytest.mark.parametrize(
    ("bodies", "ids"),
    [
        ([{}], []),
        ([{"result": None}], []),
        ([page(1, "2", total=2)], ["1", "2"]),
        ([page("1", total="1")], ["1"]),
        # Each page begins with the last row of the one before.
        ([page("1", "2", total="3"), page("2", "3", total="3")], ["1", "2", "3"]),
        # Without a total: until a page brings nothing new.
        ([page("1", "2"), page("2", "3"), page("3")], ["1", "2", "3"]),
        ([page("1"), page("1"), page()], ["1"]),
    ],
)
def test_valid_listings(sandbox: Sandbox, client: CustodyClient, bodies: list[Any], ids: list[str]) -> None:
    add_responses(sandbox, *bodies)
    assert [each.id for each in client.find_whitelist_requests()] == ids


@pytest.mark.parametrize(
    ("bodies", "retryable"),
    [
        ([page(total="1")], True),
        ([page("1", "2", total="1")], True),
        ([page("1", "1", total="2")], True),
        ([page("1", "2", total="3"), page("1", "2", total="3")], True),
        ([page("1", "2", total="3"), page("2", total="3")], True),
        ([page("1", "2", total="3"), page(total="3")], True),
        ([page("1", "2", total="3"), page("3", total="3")], True),
        ([page("1", "2", total="4"), page("2", "3", "1", total="4")], True),
        ([page("1", "2", total="3"), page("2", "3", total="4")], True),
        ([page("1", "2", total="3"), page("2", "3")], True),
        ([page("1", "2"), page("1", "2")], True),
        ([page("1"), page("1"), page("1")], True),
        ([page("1", total="many")], False),
        ([page("1", total="-1")], False),
        ([page("1", total=1.5)], False),
        ([page("1", total="1000001")], False),
        ([page("1", total="9" * 5000)], False),
        ([page("1", "", total="2")], False),
        ([page("1", None, total="2")], False),
        ([page("1 ", total="1")], False),
        ([page("1\u200b", total="1")], False),
        ([{"result": [{"status": "pending"}]}], False),
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


ROWS = ["3711", "3712", "3713", "3714"]


@pytest.mark.parametrize(
    ("oddities", "complete"),
    [
        ({"page_size": 2}, True),
        ({"page_size": 3, "totals": [None]}, True),
        ({"ignored": ["limit"]}, True),
        # A row that was listed leaves, and the next would be skipped; also if another comes at the end.
        ({"page_size": 2, "orders": [ROWS, ROWS[1:]]}, False),
        ({"page_size": 2, "orders": [ROWS[:3], ROWS[1:]]}, False),
        ({"page_size": 2, "orders": [ROWS, ROWS[1:]], "totals": [None]}, False),
        # The last row read leaves.
        ({"page_size": 2, "orders": [ROWS, ["3711", "3713", "3714"]], "totals": ["4"]}, False),
        # A row comes in front, or moves to a later page or an earlier one.
        ({"page_size": 2, "orders": [ROWS[1:], ROWS], "totals": [None]}, False),
        ({"page_size": 2, "orders": [ROWS, ["3712", "3713", "3714", "3711"]]}, False),
        ({"page_size": 2, "orders": [ROWS, ["3714", "3711", "3712", "3713"]]}, False),
        ({"page_size": 2, "orders": [ROWS, ["3714", "3712", "3713", "3711"]]}, False),
        # The same page again and again.
        ({"page_size": 2, "ignored": ["offset"]}, False),
        ({"page_size": 1, "ignored": ["offset"], "totals": [None]}, False),
        ({"page_size": 1}, False),
        ({"page_size": 1, "totals": [None]}, False),
        ({"totals": ["5"]}, False),
        ({"totals": ["3"]}, False),
        ({"page_size": 2, "totals": ["4", "5"]}, False),
        ({"page_size": 2, "totals": ["4", None]}, False),
        ({"totals": [10**30]}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("for_approval", [False, True])
def test_a_listing_is_complete_or_an_error(
    sandbox: Sandbox, client: CustodyClient, oddities: dict[str, Any], complete: bool, for_approval: bool
) -> None:
    for _ in ROWS:
        client.create_whitelist_request(REQUEST)
    sandbox.control.configure(listings={"whitelist": oddities})
    find = client.find_whitelist_requests_for_approval if for_approval else client.find_whitelist_requests
    sandbox.control.clear_request_log()
    if complete:
        assert [each.id for each in find()] == ROWS
        return
    with pytest.raises(CustodyResponseError):
        list(find())
    assert len(sandbox.control.request_log()) <= 4


@pytest.mark.parametrize("for_approval", [False, True])
def test_a_request_that_was_not_asked_for_is_refused(
    sandbox: Sandbox, client: CustodyClient, for_approval: bool
) -> None:
    for _ in ROWS:
        client.create_whitelist_request(REQUEST)
    find = client.find_whitelist_requests_for_approval if for_approval else client.find_whitelist_requests
    assert [each.id for each in find(ids=ROWS[:2])] == ROWS[:2]
    sandbox.control.configure(listings={"whitelist": {"ignored": ["ids"]}})
    with pytest.raises(CustodyResponseError, match="which was not asked for") as caught:
        list(find(ids=ROWS[:2]))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("status", "kind"), [(404, CustodyNotFoundError), (403, CustodyPermissionError), (405, CustodyRequestError)]
)
def test_a_service_without_the_lookup_raises_a_specific_error(
    sandbox: Sandbox, client: CustodyClient, status: int, kind: type[CustodyError]
) -> None:
    sandbox.control.add_fault("status", **FIND, status=status)
    with pytest.raises(kind) as caught:
        list(client.find_whitelist_requests())
    assert caught.value.status == status


@pytest.mark.parametrize("filters", [{"ids": []}, {"addresses": []}, {"blockchain": ""}])
def test_an_empty_filter_does_not_find_everything(
    sandbox: Sandbox, client: CustodyClient, filters: dict[str, Any]
) -> None:
    with pytest.raises(CustodyRequestError, match="empty"):
        list(client.find_whitelist_requests(**filters))
    assert sandbox.control.request_log() == []


# --- verifying and comparing -------------------------------------------------------------------------------


def envelope(text: str | None, hash_: str | None = None) -> WhitelistEnvelope:
    if text is not None and hash_ is None:
        hash_ = hashlib.sha256(text.encode()).hexdigest()
    return WhitelistEnvelope({"id": "1", "metadata": {"payloadAsString": text, "hash": hash_}})


@pytest.mark.parametrize(
    "bad",
    [
        WhitelistEnvelope({"id": "1"}),
        envelope(None),
        envelope("{}", "0" * 64),
        envelope("{}", hashlib.sha256(b"{}").hexdigest().upper()),
        envelope("{"),
        envelope("[]"),
        envelope('{"label":"a","label":"b"}'),
        envelope('{"x":{"id":"1","id":"2"}}'),
        envelope("[" * 100_000),
        envelope(json.dumps({"label": "a" * MAX_PAYLOAD_BYTES})),
    ],
)
def test_a_payload_that_cannot_be_verified_is_refused(bad: WhitelistEnvelope) -> None:
    with pytest.raises(CustodyResponseError, match="cannot be verified"):
        bad.payload()


def payload(**changes: object) -> dict[str, Any]:
    return {
        "currency": "ETH",
        "address": ADDRESS,
        "label": "Treasury",
        "memo": "",
        "linkedInternalAddresses": [],
        **changes,
    }


# --- before_send -------------------------------------------------------------------------------------------


def test_before_send_runs_once_the_connection_is_established(sandbox: Sandbox, client: CustodyClient) -> None:
    created_before = []
    number = client.create_whitelist_request(
        REQUEST, before_send=lambda: created_before.append(len(sandbox.control.whitelist_requests()))
    )
    assert number == "3711"
    assert created_before == [0]
    unreachable = CustodyClient("http://127.0.0.1:9", "token", timeout=60, max_retries=1)
    with pytest.raises(CustodyConnectionError, match="nothing was sent"):
        unreachable.create_whitelist_request(REQUEST, before_send=lambda: created_before.append(1))
    assert len(created_before) == 1


@pytest.mark.parametrize(
    "why",
    [BrokenPipeError(errno.EPIPE, "gone"), TimeoutError("slow"), ConnectionError("x"), ValueError("no"), SystemExit(3)],
    ids=lambda why: type(why).__name__,
)
def test_an_exception_of_before_send_is_raised_and_nothing_is_sent(
    sandbox: Sandbox, client: CustodyClient, why: BaseException
) -> None:
    def refuse() -> None:
        raise why

    with pytest.raises(type(why)) as caught:
        client.create_whitelist_request(REQUEST, before_send=refuse)
    assert caught.value is why
    assert sandbox.control.request_log() == []
    # The connection, which holds half a request, is not used again.
    assert client.create_whitelist_request(REQUEST) == "3711"


def test_before_send_belongs_to_its_own_call(sandbox: Sandbox, client: CustodyClient) -> None:
    calls: list[str] = []

    def create(name: str) -> None:
        client.create_whitelist_request(REQUEST, before_send=lambda: calls.append(name))

    threads = [threading.Thread(target=create, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == sorted(str(number) for number in range(8))

    def find_others() -> None:
        calls.append("outer")
        list(client.find_whitelist_requests())

    client.create_whitelist_request(REQUEST, before_send=find_others)
    assert calls[8:] == ["outer"]
