"""Looking up the requests of many waits: a request whose look-up fails does not stop the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import pytest
from support.whitelist.listed_requests import ListsRequests
from support.whitelist.whitelist_plans import SETTINGS, listed

from airflow_custody.client.errors import (
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyServerError,
)
from airflow_custody.client.wait_state import WaitState
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.request import Request
from airflow_custody.client.whitelist.wait import PollResult, RequestWait, poll_requests


class Service(ListsRequests):
    """
    A service with every request, of which some make a look-up fail.

    :param bad: the ids of these.
    :param error: the failure.
    :param is_settled: whether it lists requests as settled.
    :param wire: what the envelope of each request has beside its id.
    """

    verifier = None
    settings = SETTINGS

    def __init__(
        self, bad: Iterable[str] = (), error: CustodyError | None = None, *, is_settled: bool = True, **wire: Any
    ) -> None:
        self._bad, self._error, self._is_settled, self._wire = frozenset(bad), error, is_settled, wire
        #: The number of ids of each look-up.
        self.lookups: list[int] = []

    def find_whitelist_requests(self, *, ids: list[str], include_pending: bool = True) -> Iterator[WhitelistEnvelope]:
        if not include_pending:
            self.lookups.append(len(ids))
        if self._error is not None and not self._bad.isdisjoint(ids):
            raise self._error
        return iter([listed(int(each), wire=self._wire) for each in ids if self._is_settled or include_pending])

    def find_whitelist_requests_for_approval(self, *, ids: list[str]) -> Iterator[WhitelistEnvelope]:
        return iter(())


def looked_up(service: Service, *waits: RequestWait) -> Mapping[str, Request | CustodyError]:
    return poll_requests(cast("Any", service), waits).requests


def updated(wait: RequestWait, requests: Mapping[str, Request | CustodyError]) -> WaitState:
    return wait.update(PollResult(requests, SETTINGS))


def ids(number: int) -> list[str]:
    return [str(each) for each in range(1, number + 1)]


def test_each_request_is_looked_up_once_by_the_hundred() -> None:
    service = Service()
    found = looked_up(service, RequestWait(ids(150)), RequestWait(["150", "151"]), RequestWait("7"))
    assert sorted(found, key=int) == ids(151)
    assert {each.state for each in found.values() if isinstance(each, Request)} == {"effective"}
    assert sorted(service.lookups) == [51, 100]
    assert looked_up(Service()) == {}


OF_ONE: list[tuple[type[CustodyError], int | None]] = [
    *((CustodyRequestError, status) for status in (400, 413, 414, 422, 431)),
    (CustodyNotFoundError, 404),
    (CustodyServerError, 500),
    # The row cannot be understood.
    *((CustodyResponseError, status) for status in (None, 299)),
]
OF_ALL: list[tuple[type[CustodyError], int | None]] = [
    *((CustodyRequestError, status) for status in (None, 401, 403, 405, 409)),
    *((CustodyServerError, status) for status in (501, 503)),
    (CustodyConnectionError, None),
    (CustodyResponseError, 300),
]


@pytest.mark.parametrize(("kind", "status"), OF_ONE)
def test_a_request_that_makes_a_lookup_fail_is_isolated(kind: type[CustodyError], status: int | None) -> None:
    service = Service(["42"], kind("odd", status=status, advice="Ask."))
    found = looked_up(service, RequestWait(ids(150)))
    error = found["42"]
    assert isinstance(error, kind)
    assert error.advice == "The error is about whitelisting request 42. Ask."
    assert all(isinstance(each, Request) for id_, each in found.items() if id_ != "42")
    # The list of ids is halved until the failing request is alone.
    assert len(service.lookups) <= 2 + 2 * math.ceil(math.log2(100))
    # Alone, it needs no name, and its own advice stays behind it.
    (alone,) = looked_up(Service(["42"], kind("odd", status=status, advice="Ask.")), RequestWait("42")).values()
    assert isinstance(alone, kind)
    assert alone.advice == "Ask."


@pytest.mark.parametrize(("kind", "status"), OF_ALL)
def test_a_failure_of_the_service_itself_is_not_halved(kind: type[CustodyError], status: int | None) -> None:
    service = Service(ids(150), error := kind("down", status=status))
    assert looked_up(service, RequestWait(ids(150))) == dict.fromkeys(ids(150), error)
    assert len(service.lookups) == 1


def test_many_such_requests_are_not_all_isolated_in_one_poll() -> None:
    bad = ids(300)[::2]
    service = Service(bad, CustodyRequestError("odd", status=400, error_code="E1"))
    found = looked_up(service, RequestWait(ids(300)))
    # Three look-ups, and twice 24 of halves.
    assert len(service.lookups) == 3 + 48
    assert any(isinstance(found[each], CustodyRequestError) for each in bad)
    rest = [each for each in found.values() if isinstance(each, CustodyResponseError)]
    assert rest
    for each in rest:
        assert each.retryable
        assert each.message.startswith("the look-up of ")
        assert "requests fails because of one of these requests: odd (status 400, E1)" in each.message


def test_while_no_lookup_works_only_requests_that_were_looked_up_alone_are_named() -> None:
    error = CustodyServerError("down", status=500)
    found = looked_up(Service(ids(300), error), RequestWait(ids(300)))
    alone = [each for each, one in found.items() if one is not error]
    assert 0 < len(alone) < 50
    for each in alone:
        assert cast("CustodyError", found[each]).advice == f"The error is about whitelisting request {each}."
    assert error.advice is None


# --- whose turn it is ---------------------------------------------------------------------------------------


def turn(approvers: object, signatures: int) -> str:
    """Return the end of a summary that says who must sign next, for a request with this number of signatures."""
    entries = [
        {"signature": {"userId": str(user), "signature": "A" * 86 + "=="}, "hashes": ["ab"]}
        for user in range(signatures)
    ]
    service = Service(is_settled=False, approvers=approvers, signedAddress={"signatures": entries})
    return updated(RequestWait("7"), looked_up(service, RequestWait("7"))).summary.partition("; ")[2]


def group(name: object, minimum: object = 1) -> dict[str, object]:
    return {"externalGroupID": name, "minimumSignatures": minimum}


@pytest.mark.parametrize(
    ("minimums", "turns"),
    [
        ([1, 1], "ab-"),
        ([2, 1], "aab-"),
        # Every group signs at least once.
        *(([odd, 1], "ab-") for odd in (0, None)),
        ([1, 3], "abbb-"),
    ],
    ids=str,
)
def test_the_groups_sign_one_after_another(minimums: list[object], turns: str) -> None:
    ways = [{"sequential": [group(name, minimum) for name, minimum in zip("ab", minimums, strict=True)]}]
    for number, name in enumerate(turns):
        expected = "" if name == "-" else f"it is the turn of the group {name!r}"
        assert turn({"parallel": ways}, number) == expected
    # With several ways, or in another form, it is not known.
    odd: list[object] = [{"parallel": ways * 2}, {"parallel": []}, None, "a", {"parallel": [7]}]
    assert [turn(each, 0) for each in odd] == [""] * len(odd)
