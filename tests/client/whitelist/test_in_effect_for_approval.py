"""What the service lists for approval although it is in effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.listing import fetch_listing
from airflow_custody.client.whitelist.progress import find_listed
from airflow_custody.client.whitelist.review import is_deletion
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


@pytest.fixture
def row(client: CustodyClient) -> dict[str, Any]:
    """Return a request that is in effect, as the service lists it."""
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    client.create_whitelist_request(request)
    (envelope,) = client.find_whitelist_requests()
    return {**envelope.wire, "status": "APPROVED"}


class Service:
    """Rows in place of what the sandbox lists."""

    def __init__(self, client: CustodyClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = client
        self._monkeypatch = monkeypatch

    def lists(
        self,
        settled: Sequence[dict[str, Any]],
        *,
        pending: Sequence[dict[str, Any]] = (),
        for_approval: Sequence[dict[str, Any]] = (),
        already_signed: Sequence[dict[str, Any]] = (),
    ) -> None:
        from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

        def chosen(rows: Sequence[dict[str, Any]], ids: Any) -> Iterator[WhitelistEnvelope]:
            return iter([WhitelistEnvelope(cast("Any", each)) for each in rows if ids is None or each["id"] in ids])

        def find(*, ids: Any = None, include_pending: bool = True) -> Iterator[WhitelistEnvelope]:
            return chosen([*settled, *(pending if include_pending else ())], ids)

        def find_for_approval(*, ids: Any = None, include_already_signed: bool = False) -> Iterator[WhitelistEnvelope]:
            return chosen([*for_approval, *(already_signed if include_already_signed else ())], ids)

        def count(*, include_pending: bool = True) -> int:
            return len([*find(include_pending=include_pending)])

        self._monkeypatch.setattr(self.client, "find_whitelist_requests", find)
        self._monkeypatch.setattr(self.client, "find_whitelist_requests_for_approval", find_for_approval)
        self._monkeypatch.setattr(self.client, "count_whitelist_requests", count)

    def states(self, effective_statuses: Sequence[str] = EFFECTIVE_STATUSES) -> list[dict[str, str]]:
        """Return the states by the requests' ids: as a sensor and as a plan, in two ways, sees them."""
        words: dict[str, Any] = {"effective_statuses": effective_statuses, "rejected_statuses": REJECTED_STATUSES}
        found: list[dict[str, str]] = []
        for by_status in (True, False):
            listing = fetch_listing(self.client, by_status=by_status, effective_statuses=effective_statuses)
            found.append({each.id: listing.state_of(each, **words) for each in listing.envelopes})
        listed = find_listed(self.client, found[0])
        return [{each: RequestWait(each, **words).state_of(one) for each, one in listed.items()}, *found]


@pytest.fixture
def service(client: CustodyClient, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(client, monkeypatch)


@pytest.mark.parametrize("shown", ["delete", "create"])
def test_an_address_is_in_effect_until_its_deletion_is(service: Service, row: dict[str, Any], shown: str) -> None:
    service.lists([{**row, "action": shown}], for_approval=[{**row, "action": "DELETE"}])
    assert service.states() == [{row["id"]: "effective"}] * 3


@pytest.mark.parametrize("action", ["create", "update", "odd"])
def test_what_the_user_may_still_sign_is_pending(service: Service, row: dict[str, Any], action: str) -> None:
    service.lists([row], for_approval=[{**row, "action": action}])
    assert service.states() == [{row["id"]: "pending"}] * 3


def test_what_the_user_signed_before_it_took_effect_is_in_effect(service: Service, row: dict[str, Any]) -> None:
    service.lists([row], already_signed=[row])
    assert service.states() == [{row["id"]: "effective"}] * 3


def test_the_words_that_were_given_decide_about_what_the_user_signed(service: Service, row: dict[str, Any]) -> None:
    live = {**row, "status": "LIVE"}
    service.lists([live], already_signed=[live])
    assert service.states(["live"]) == [{row["id"]: "effective"}] * 3
    assert service.states() == [{row["id"]: "pending"}] * 3
    # Without a word, nothing says that it is not pending the approval of others.
    listed = find_listed(service.client, [row["id"]])[row["id"]]
    assert RequestWait(row["id"], effective_statuses=None, rejected_statuses=()).state_of(listed) == "pending"


@pytest.mark.parametrize("signable", [True, False])
def test_what_was_rejected_after_the_user_signed_it_is_rejected(
    service: Service, row: dict[str, Any], signable: bool
) -> None:
    rejected = {**row, "status": "Rejected"}
    service.lists([rejected], for_approval=[rejected] if signable else [], already_signed=[rejected])
    assert service.states() == [{row["id"]: "pending" if signable else "rejected"}] * 3


def test_what_the_user_signed_and_awaits_others_is_pending(service: Service, row: dict[str, Any]) -> None:
    service.lists([], pending=[row], already_signed=[row])
    assert service.states() == [{row["id"]: "pending"}] * 3


@pytest.mark.parametrize("status", ["APPROVED", "rejected", "odd"])
def test_numbers_that_are_equal_by_chance_prove_nothing(service: Service, row: dict[str, Any], status: str) -> None:
    mine = {**row, "status": status}
    service.lists([mine], pending=[{**row, "id": "8"}], for_approval=[mine])
    assert service.states() == [{row["id"]: "pending", "8": "pending"}] * 3


@pytest.mark.parametrize(
    ("action", "expected"),
    [("DELETE", True), ("remove", True), ("Revoked", True), ("update", False), ("create", False), ("", False)],
)
def test_a_deletion_says_so(action: str, expected: bool) -> None:
    assert is_deletion(action) is expected
