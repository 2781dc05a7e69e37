"""The outcome of each deletion of an approved plan, according to its record and to the listed request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from support.whitelist.listed_requests import ListsRequests
from support.whitelist.whitelist_plans import ADDRESS, OTHER, SETTINGS, listed, snapshot_of

from airflow_custody.client.errors import (
    CustodyError,
    CustodyNotFoundError,
    CustodyResponseError,
)
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.idempotency.deletions import Deletions, deletion_key, observe
from airflow_custody.idempotency.store import PlannedDeletion

KEY, KEPT = deletion_key("7"), "8"


OPERATION = json.dumps(
    {"delete": "7", "beside": [KEPT], "request": {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}}
)


class Service(ListsRequests):
    """
    A service that lists requests in effect, and deletes.

    :param envelopes: the requests.
    :param by_id: what reading request 7 by its id gives; None: it is read as it is listed.
    :param delete: what deleting gives; None: it deletes.
    """

    verifier = None
    settings = SETTINGS

    def __init__(
        self,
        *envelopes: WhitelistEnvelope,
        by_id: WhitelistEnvelope | CustodyError | None = None,
        delete: CustodyError | None = None,
    ) -> None:
        self._envelopes = {each.id: each for each in envelopes}
        self._by_id, self._delete = by_id, delete
        self.deleted: list[tuple[str, str]] = []

    def find_whitelist_requests(
        self, *, ids: Any = None, include_pending: bool = True, limit: Any = None
    ) -> Iterator[WhitelistEnvelope]:
        return iter([each for each in self._envelopes.values() if ids is None or each.id in ids])

    def find_whitelist_requests_for_approval(self, *, ids: Any = None) -> Iterator[WhitelistEnvelope]:
        return iter(())

    def get_whitelist_request(self, request_id: str) -> WhitelistEnvelope:
        found = self._by_id if request_id == "7" and self._by_id else self._envelopes.get(request_id)
        if isinstance(found, CustodyError):
            raise found
        if found is None:
            raise GONE
        return found

    def delete_whitelist_request(self, request_id: str, comment: str) -> None:
        if self._delete is not None:
            raise self._delete
        self.deleted.append((request_id, comment))


GONE = CustodyNotFoundError("no such request", status=404, from_service=True)
APPROVED = [listed(7), listed(8, address=OTHER)]


def deletions(service: Service) -> Deletions:
    expected = observe(snapshot_of(APPROVED), ["7", KEPT])
    planned = {KEY: PlannedDeletion(operation=OPERATION, expected=expected)}
    return Deletions(cast("Any", service), planned, "why")


# --- sending ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "state", "is_sent"),
    [
        (Service(*APPROVED), "deleted", True),
        # Another program deleted the request in the meantime.
        (Service(*APPROVED, delete=GONE), "deleted", True),
        (Service(APPROVED[1]), "deleted", False),
        # The request is not listed, but still exists.
        (Service(APPROVED[1], by_id=listed(7)), "refused", False),
        # The request, or the request that is kept beside it, has changed.
        (Service(listed(7, label="Other"), APPROVED[1]), "refused", False),
        (Service(listed(7, wire={"status": "approved"}), APPROVED[1]), "refused", False),
        (Service(APPROVED[0], listed(8, address=OTHER, label="Other")), "refused", False),
        (Service(APPROVED[0]), "refused", False),
        # Other requests may change.
        (Service(*APPROVED, listed(9)), "deleted", True),
    ],
    ids=[
        "as approved",
        "deleted in between",
        "gone",
        "not listed, still there",
        "its label changed",
        "its status changed",
        "what is kept changed",
        "what is kept is gone",
        "beside another one",
    ],
)
def test_a_request_is_deleted_while_it_is_what_was_approved(service: Service, state: str, is_sent: bool) -> None:
    job, begun = deletions(service), list[str]()
    (row,) = job.prepare([KEY]).values()
    found = job.send(KEY, row, lambda: begun.append(KEY))
    assert found.state == state
    assert ("it has changed since the plan was approved" in found.detail) is (state == "refused")
    assert begun == ([KEY] if is_sent else [])
    assert {*service.deleted} <= ({("7", "why")} if is_sent else set())
    # A request that was gone before does not count as deleted, because a signer may have rejected it.
    _, text = job.describe(KEY, found, None)
    assert ("was already deleted" in text) is (state == "deleted" and not is_sent)


@pytest.mark.parametrize(("by_id", "state"), [(None, "refused"), (GONE, "deleted")], ids=["still there", "gone"])
def test_a_request_that_vanishes_between_two_listings_is_not_deleted(by_id: CustodyError | None, state: str) -> None:
    odd = [listed(7, wire={"status": "odd"}), APPROVED[1]]
    service = Service(*odd, by_id=by_id)
    find = service.find_whitelist_requests

    def find_without(*, include_pending: bool = True, **given: Any) -> Iterator[WhitelistEnvelope]:
        return (each for each in find(**given) if each.id != "7" or not include_pending)

    service.find_whitelist_requests = find_without  # type: ignore[method-assign]
    expected = observe(snapshot_of(odd, settled=["7"]), ["7", KEPT])
    planned = {KEY: PlannedDeletion(operation=OPERATION, expected=expected)}
    job = Deletions(cast("Any", service), planned, "why")
    assert job.send(KEY, job.prepare([KEY])[KEY], lambda: None).state == state
    assert service.deleted == []


def test_a_hidden_request_is_not_taken_for_deleted() -> None:
    service = Service(APPROVED[1], by_id=GONE)
    service.hidden = 1
    job = deletions(service)
    (row,) = job.prepare([KEY]).values()
    with pytest.raises(CustodyResponseError, match="the service counts 1 request that it does not return"):
        job.send(KEY, row, lambda: None)
    assert service.deleted == []


@pytest.mark.parametrize(
    ("pending", "deletions_pending"),
    [(["8"], []), ([], [APPROVED[1]])],
    ids=["kept one pending", "kept one's deletion pending"],
)
def test_a_request_is_kept_while_the_one_beside_it_is_not_in_effect(
    pending: list[str], deletions_pending: list[WhitelistEnvelope]
) -> None:
    service = Service(*APPROVED)
    service.find_whitelist_requests = lambda *, ids=None, include_pending=True, limit=None: iter(  # type: ignore[method-assign]
        [each for each in APPROVED if include_pending or each.id not in pending]
    )
    service.find_whitelist_requests_for_approval = lambda *, ids=None: iter(deletions_pending)  # type: ignore[method-assign]
    now = snapshot_of(APPROVED, pending=pending, deletions=deletions_pending)
    planned = {KEY: PlannedDeletion(operation=OPERATION, expected=observe(now, ["7", KEPT]))}
    job = Deletions(cast("Any", service), planned, "why")
    (row,) = job.prepare([KEY]).values()
    found = job.send(KEY, row, lambda: None)
    assert found.state == "refused"
    assert service.deleted == []
