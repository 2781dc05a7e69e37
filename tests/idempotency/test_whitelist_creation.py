"""For each fact alone: whether a request at the service blocks a row, belongs to it, or proves nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from support.whitelist.listed_requests import ListsRequests
from support.whitelist.whitelist_plans import ADDRESS, OTHER, PENDING, ask, listed, snapshot_of, unreadable

from airflow_custody.client.errors import (
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyResponseError,
    CustodyServerError,
)
from airflow_custody.client.settings import ClientSettings
from airflow_custody.client.tenant.models import Currency
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.idempotency.create import ONE
from airflow_custody.idempotency.whitelist_creation import MAX_ADDRESSES, WhitelistCreation

MINE, YOURS = {"userId": "7", "externalUserId": "ann"}, {"userId": "8", "externalUserId": "bob"}
REJECTED = {"status": "REJECTED"}


class Service(ListsRequests):
    """
    A service that lists requests in effect, of which its own filter finds some.

    :param envelopes: the requests.
    :param hidden: the ids of those that the filter does not find.
    :param user: the connection's user, or why the service does not say who that is.
    """

    settings = ClientSettings("https://custody.example", timeout=10.0)
    verifier = None

    def __init__(
        self,
        *envelopes: WhitelistEnvelope,
        hidden: Sequence[str] = (),
        user: dict[str, str] | CustodyError | None = None,
    ) -> None:
        self._envelopes, self._hidden, self._user = envelopes, hidden, user
        #: The addresses of each search.
        self.searches: list[list[str]] = []

    def find_whitelist_requests(
        self, *, ids: Any = None, addresses: Any = None, include_pending: bool = True
    ) -> Iterator[WhitelistEnvelope]:
        if addresses is not None:
            self.searches.append(addresses)
            return iter([each for each in self._envelopes if each.id not in self._hidden])
        shown = [each for each in self._envelopes if include_pending or each.status != PENDING["status"]]
        return iter([each for each in shown if ids is None or each.id in ids])

    def find_whitelist_requests_for_approval(self, *, ids: Any = None) -> Iterator[WhitelistEnvelope]:
        return iter(())

    def list_currencies(self) -> list[Currency]:
        return [Currency(symbol=each, enabled=True) for each in ("ETH", "BTC")]

    def get_current_user(self) -> dict[str, str]:
        if isinstance(self._user, CustodyError):
            raise self._user
        found = self._user or {"id": "7", "externalUserId": "ann"}
        return found


def creation(service: Service, **given: Any) -> WhitelistCreation:
    return WhitelistCreation(cast("Any", service), given.pop("requests", {ONE: ask()}), **given)


def created_by(user: dict[str, str], number: int = 3711, **payload: Any) -> WhitelistEnvelope:
    return listed(number, wire={"trails": [{**user, "date": "2026-11-20T10:00:00Z"}]}, **payload)


# --- before a row is sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envelopes", "state", "detail"),
    [
        ([], "sent", ""),
        # Requests for another destination.
        ([listed(address=OTHER)], "sent", ""),
        ([listed()], "found", "3711"),
        ([listed(wire=PENDING)], "found", "3711"),
        ([listed(wire={"status": "ODD"})], "refused", "its status 'ODD' is unknown"),
        ([listed(wire=REJECTED)], "sent", ""),
        ([listed(label="Other")], "refused", "3711: it differs in: label"),
        ([unreadable("{}")], "refused", "3799: request 3799 cannot be read"),
        ([unreadable("{}", **REJECTED)], "sent", ""),
        # The first one with the same content counts.
        ([listed(1, label="Other"), listed(2), listed(3)], "found", "2"),
    ],
    ids=[
        "nothing",
        "another destination",
        "the same, in effect",
        "the same, pending",
        "the same, with an unknown status",
        "the same, rejected",
        "another label",
        "unreadable",
        "unreadable, rejected",
        "several",
    ],
)
def test_a_row_is_not_sent_if_what_exists_may_be_for_its_destination(
    envelopes: list[WhitelistEnvelope], state: str, detail: str
) -> None:
    ids = [each.id for each in envelopes]
    # Found by the filter, or listed before.
    settled = [each.id for each in envelopes if each.status == "ODD"]
    for before, hidden in ((snapshot_of([]), []), (snapshot_of(envelopes, settled=settled), ids)):
        (row,) = creation(Service(*envelopes, hidden=hidden), before=before).prepare([ONE]).values()
        assert row.state == state
        assert row.detail == detail or (detail and detail in row.detail)
        known = ids if state != "sent" or "REJECTED" in {each.status for each in envelopes} else []
        assert row.known_ids == sorted(known)
    # A request that the plan knows, or that this task has created, blocks nothing, and is not new.
    for given in ({"replaced": {ONE: ids}}, {"ignored": ids}, {"own_ids": lambda: ids}):
        (row,) = creation(Service(*envelopes), before=snapshot_of([]), **given).prepare([ONE]).values()
        assert row.state == "sent"
        assert row.known_ids == sorted(known)
        assert row.replaces == (ids if "replaced" in given else [])


def test_each_address_is_searched_for_once_in_small_searches() -> None:
    addresses = [f"0x{each:040x}" for each in range(MAX_ADDRESSES + 1)]
    requests = {f"{each} {memo}": ask(address=each, memo=memo) for each in addresses for memo in "12"}
    service = Service()
    assert {*creation(service, requests=requests, before=snapshot_of([])).prepare([*requests])} == {*requests}
    assert service.searches == [addresses[:MAX_ADDRESSES], addresses[MAX_ADDRESSES:]]
    # A single request is searched for in each spelling, as nothing was listed before.
    service = Service()
    creation(service, requests={ONE: ask(address=ADDRESS)}).find([ONE], thorough=False)
    assert {ADDRESS, ADDRESS.upper()} < {*service.searches[0]}


# --- what is found ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_listed_before", [True, False])
@pytest.mark.parametrize("thorough", [True, False])
@pytest.mark.parametrize("is_hidden", [True, False])
def test_only_what_the_filter_finds_can_be_compared_with_what_it_found_before(
    is_listed_before: bool, thorough: bool, is_hidden: bool
) -> None:
    service = Service(listed(1), listed(2), hidden=["2"] if is_hidden else [])
    before = snapshot_of([]) if is_listed_before else None
    found = creation(service, before=before).find([ONE], thorough=thorough)[ONE]
    expected = {"1": True, "2": is_listed_before or not is_hidden}
    if is_hidden and not thorough:
        del expected["2"]
    assert {each.id: each.filtered for each in found.candidates} == expected
    # A request that was listed before, and is listed now, is recognized without the filter.
    assert bool(service.searches) is not (is_listed_before and thorough)


@pytest.mark.parametrize(
    ("trail", "user", "is_other"),
    [
        (MINE, None, False),
        (YOURS, None, True),
        # One of the two ids is enough.
        ({"userId": "7"}, None, False),
        ({"userId": "8", "externalUserId": "ann"}, None, False),
        ({"externalUserId": "bob"}, None, True),
        # The creator of the request, or the connection's user, is unknown.
        ({}, None, False),
        (YOURS, {"id": ""}, False),
        (YOURS, CustodyNotFoundError("no", status=404), False),
    ],
    ids=[
        "own",
        "another's",
        "own id",
        "own external id",
        "another external id",
        "no trail",
        "no user",
        "no user offered",
    ],
)
def test_the_trail_names_the_creator(trail: dict[str, str], user: Any, is_other: bool) -> None:
    found = creation(Service(created_by(trail), user=user)).find([ONE], thorough=False)[ONE]
    assert [each.by_other for each in found.candidates] == [is_other]


def test_the_search_is_repeated_while_the_connections_user_cannot_be_read() -> None:
    with pytest.raises(CustodyConnectionError):
        creation(Service(created_by(MINE), user=CustodyConnectionError("away"))).find([ONE], thorough=True)


GROUP = {"visibilityGroupID": "g"}
SAYS_NOT = "the service does not report the connection's user"
MAY_HIDE = "it lists no request that the connection's user has created, so it may hide such requests"
OF_GROUP = (
    "it lists no request of the visibility group g that the connection's user has created, so it may hide such requests"
)


@pytest.mark.parametrize(
    ("trail", "wire", "user", "group", "why"),
    [
        (MINE, {}, None, None, ""),
        (MINE, GROUP, None, "g", ""),
        (YOURS, {}, None, None, MAY_HIDE),
        ({}, {}, None, None, MAY_HIDE),
        (MINE, GROUP, None, None, MAY_HIDE),
        (MINE, {}, None, "g", OF_GROUP),
        (MINE, {}, CustodyNotFoundError("no", status=404), None, SAYS_NOT),
    ],
    ids=[
        "own",
        "own, of the group",
        "another's",
        "no trail",
        "own, of a group",
        "own, of no group",
        "no user offered",
    ],
)
def test_absence_is_proved_only_where_a_request_of_this_user_is_listed(
    trail: dict[str, str], wire: dict[str, str], user: Any, group: str | None, why: str
) -> None:
    shown = listed(address=OTHER, wire={"trails": [{**trail, "date": "2026-11-20T10:00:00Z"}], **wire})
    made = creation(Service(shown, user=user), requests={ONE: ask(visibility_group_id=group)})
    found = made.find([ONE], thorough=True)[ONE]
    assert found.candidates == []
    assert found.inconclusive is not None
    assert why in found.inconclusive
    assert bool(found.inconclusive) is bool(why)


# --- one request by its id ----------------------------------------------------------------------------------

NOT_OFFERED = CustodyNotFoundError("no such request", status=404, from_service=True)
GATEWAY = CustodyNotFoundError("no such page", status=404, from_service=False)
BROKEN = CustodyServerError("broken", status=500, from_service=True)


def test_a_hidden_request_is_not_taken_for_one_that_does_not_exist() -> None:
    def gone(_: str) -> WhitelistEnvelope:
        raise NOT_OFFERED

    service = Service()
    service.get_whitelist_request = gone  # type: ignore[attr-defined]
    assert creation(service).get(ONE, "3711") is None
    service.hidden = 2
    with pytest.raises(CustodyResponseError, match="the service counts 2 requests that it does not return"):
        creation(service).get(ONE, "3711")


@pytest.mark.parametrize("error", [NOT_OFFERED, GATEWAY, BROKEN], ids=["not offered", "a gateway's", "broken"])
@pytest.mark.parametrize("fails", ["listing", "reading"])
def test_only_the_services_own_404_tells_that_a_request_does_not_exist(fails: str, error: CustodyError) -> None:
    def failing(*_: object, **__: object) -> Iterator[WhitelistEnvelope]:
        raise error

    service = Service()
    service.get_whitelist_request = failing if fails == "reading" else lambda _: listed()  # type: ignore[attr-defined]
    if fails == "listing":
        service.find_whitelist_requests = failing  # type: ignore[method-assign]
    if error is not NOT_OFFERED:
        with pytest.raises(type(error)):
            creation(service).get(ONE, "3711")
    elif fails == "reading":
        assert creation(service).get(ONE, "3711") is None
    else:
        found = creation(service).get(ONE, "3711")
        assert found is not None
        assert found.id == "3711"
