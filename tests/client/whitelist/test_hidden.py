"""Requests that the service counts but does not return: found by each listing, and absence then proves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_custody.client import (
    CustodyClient,
    CustodyConflictError,
    CustodyError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox


def add(sandbox: Sandbox, number: int, status: str = "APPROVED") -> list[str]:
    rows = [{"label": f"L{each}", "address": f"0x{each:040x}", "blockchain": "ETH"} for each in range(number)]
    return sandbox.control.add_whitelist_requests(rows, status=status)


def drop(sandbox: Sandbox, *ids: str, keep_place: bool = True, **settings: Any) -> None:
    drops = {"dropped": list(ids), "dropped_keep_place": keep_place}
    sandbox.control.configure(listings={"whitelist": {**drops, **settings}})


@pytest.mark.parametrize("keep_place", [True, False])
def test_a_snapshot_has_all_other_requests_and_counts_the_hidden_ones(
    sandbox: Sandbox, client: CustodyClient, keep_place: bool
) -> None:
    ids = add(sandbox, 230)
    # At the place where pages overlap; and more than a page.
    hidden = [ids[99], *ids[110:215]]
    drop(sandbox, *hidden, keep_place=keep_place)
    found = read_snapshot(client)
    assert [each.id for each in found] == [each for each in ids if each not in hidden]
    assert {each.state for each in found} == {"effective"}
    assert found.hidden == len(hidden)
    assert [each.id for each in client.find_whitelist_requests()] == [*found.requests]
    # If requests are read by id, only hidden requests with these ids count.
    assert read_snapshot(client, ids=[ids[0], ids[1]]).hidden == 0
    some = read_snapshot(client, ids=ids[98:112])
    assert (some.hidden, some[ids[99]].state, some[ids[98]].state) == (3, "missing", "effective")


def test_the_hidden_requests_are_those_of_the_listing_with_pending_ones(
    sandbox: Sandbox, client: CustodyClient
) -> None:
    effective, pending = add(sandbox, 2), add(sandbox, 2, "pending")
    drop(sandbox, effective[0], pending[0])
    found = read_snapshot(client)
    assert (found.hidden, [each.id for each in found]) == (2, [effective[1], pending[1]])
    drop(sandbox, pending[0])
    assert read_snapshot(client).hidden == 1


@pytest.mark.parametrize("listed", [0, 1])
def test_a_404_does_not_prove_that_a_request_is_gone_while_requests_are_hidden(
    sandbox: Sandbox, client: CustodyClient, listed: int
) -> None:
    hidden, *_ = add(sandbox, 1 + listed)
    drop(sandbox, hidden)
    sandbox.control.add_fault("status", path=f"/whitelists/addresses/{hidden}", status=404, times=None)
    with pytest.raises(CustodyResponseError, match="the service counts 1 request that it does not return") as caught:
        status_if_exists(client, hidden)
    assert caught.value.code == "outcome-unknown"
    # Therefore the deletion is not confirmed.
    sandbox.control.add_fault("status", method="POST", path="/whitelists/addresses/delete", status=200, body={"a": 1})
    with pytest.raises(CustodyError, match="the service counts 1 request that it does not return"):
        client.delete_whitelist_request(hidden, "why")


def test_if_nothing_is_listed_another_hidden_request_may_be_the_one(sandbox: Sandbox, client: CustodyClient) -> None:
    """The service's filter by id may not count it."""
    (hidden,) = add(sandbox, 1)
    drop(sandbox, hidden)
    with pytest.raises(CustodyResponseError, match="may be among them, so whether it exists is unknown"):
        status_if_exists(client, "99")
    drop(sandbox)
    assert status_if_exists(client, "99") is None


def test_a_hidden_request_does_not_count_as_gone(
    sandbox: Sandbox, client: CustodyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestWait, "gone_after", 0.0)
    shown, hidden = add(sandbox, 2)
    drop(sandbox, hidden)
    wait, other, gone = RequestWait([shown, hidden]), RequestWait(shown), RequestWait("99")
    for _ in range(3):
        with pytest.raises(CustodyResponseError, match=f"request {hidden} is not listed, but the service") as caught:
            wait.poll(client)
        assert caught.value.retryable
        assert other.poll(client).is_done
        state = gone.poll(client)
    assert isinstance(state.error, CustodyConflictError)


# --- pages and counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 101, True, "20", 2.0, None])
def test_a_page_size_that_the_service_does_not_have_is_refused(
    sandbox: Sandbox, client: CustodyClient, size: Any
) -> None:
    with pytest.raises(CustodyRequestError, match="page_size must be a whole number from 1 to 100"):
        list(client.find_whitelist_requests(page_size=size))
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ({}, 0),
        ({"totalItems": "3"}, 3),
        ({"totalItems": 3}, 3),
        ({"totalItems": "0"}, 0),
        # A page with rows and no total.
        ({"result": [{"id": "1"}]}, None),
    ],
    ids=str,
)
def test_a_count_may_be_a_json_number_and_zero_is_left_out(
    sandbox: Sandbox, client: CustodyClient, body: dict[str, Any], number: int | None
) -> None:
    sandbox.control.add_fault("status", status=200, body=body)
    assert client.count_whitelist_requests() == number
