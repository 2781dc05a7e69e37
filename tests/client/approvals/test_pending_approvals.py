"""How much is pending approval, as the service counts it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyClient, CustodyNotFoundError, CustodyResponseError, WhitelistRequest
from airflow_custody.client.approvals.models import PendingApprovals
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


def respond(sandbox: Sandbox, body: Any, status: int = 200) -> None:
    sandbox.control.add_fault("status", status=status, body=body, method="GET", path="/statistics")


def test_what_is_pending_is_counted(sandbox: Sandbox, client: CustodyClient) -> None:
    assert client.get_pending_approvals() == PendingApprovals()
    for number in range(3):
        client.create_whitelist_request(
            WhitelistRequest(label=f"L{number}", address=f"0x{number:040x}", blockchain="ETH")
        )
    found = client.get_pending_approvals()
    assert (found.whitelisted_addresses, found.total, found.at_least) == (3, 3, ())
    assert len(list(client.find_whitelist_requests_for_approval())) == 3
    assert sandbox.control.request_log("GET", "/statistics")[-1]["query"] == {"limit": ["100"]}


def test_all_kinds_are_read_and_a_count_at_the_limit_may_stand_for_more(
    sandbox: Sandbox, client: CustodyClient
) -> None:
    # As text and as numbers; zero is left out.
    respond(
        sandbox,
        {
            "whitelistedContractsCount": "2",
            "requestsCount": "100",
            "accountChangesCount": 3,
            "contractCallsCount": "0",
            "settlementsCount": None,
            "pledgesCount": "101",
            "another": ["thing"],
        },
    )
    found = client.get_pending_approvals()
    assert found == PendingApprovals(whitelisted_contracts=2, requests=100, account_changes=3, pledges=101)
    assert found.at_least == ("requests", "pledges")
    assert found.to_json()["at_least"] == ["requests", "pledges"]
    assert found.to_json()["requests"] == 100


@pytest.mark.parametrize(
    "body",
    [
        {"requestsCount": "-1"},
        {"requestsCount": "1.5"},
        {"requestsCount": "9" * 5000},
        {"requestsCount": ["1"]},
        {"requestsCount": True},
        {"status": "UP"},
        [],
    ],
)
def test_what_is_no_number_is_no_count(sandbox: Sandbox, client: CustodyClient, body: Any) -> None:
    respond(sandbox, body)
    with pytest.raises(CustodyResponseError):
        client.get_pending_approvals()


def test_a_service_that_does_not_offer_it(sandbox: Sandbox, client: CustodyClient) -> None:
    respond(sandbox, {"error": "NotFound", "message": "not found", "code": 404}, 404)
    with pytest.raises(CustodyNotFoundError) as caught:
        client.get_pending_approvals()
    assert caught.value.not_offered


@given(st.dictionaries(st.sampled_from(list(PendingApprovals().counts)), st.integers(0, 2**63 - 1)))
def test_counts(counts: dict[str, int]) -> None:
    found = PendingApprovals(**counts)
    assert found.total == sum(counts.values())
    assert set(found.at_least) == {name for name, number in counts.items() if number >= 100}


def test_the_counts_in_words() -> None:
    one = dict.fromkeys(PendingApprovals().counts, 1)
    assert PendingApprovals(**one).texts == [
        "1 request",
        "1 whitelisted contract",
        "1 transfer or other request",
        "1 account change",
        "1 contract call",
        "1 settlement",
        "1 pledge",
    ]
    many = PendingApprovals(whitelisted_addresses=100, requests=2)
    assert many.texts == ["at least 100 requests", "2 transfer or other requests"]
    assert PendingApprovals(requests=1, limit=1).texts == ["at least 1 transfer or other request"]
    assert PendingApprovals().texts == []
