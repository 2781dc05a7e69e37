"""A listing of all says of each request what is found of it by its id, whatever the service lists where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.cli.verify import read_rows
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.listing import fetch_listing
from airflow_custody.client.whitelist.progress import find_listed
from airflow_custody.client.whitelist.wait import RequestWait


@dataclass(frozen=True)
class Row:
    """
    A request, and where the service lists it.

    :param where: ``settled``, also without asking for pending ones; ``pending``, only with them; or ``hidden``.
    :param for_approval: ``signable`` and ``signed`` by the client's user, or neither.
    :param action: what approving it does, as it is listed for approval.
    """

    status: str | None
    where: str
    for_approval: str
    action: str


ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from(["approved", "Approved", "active", "pending", "rejected", "", None]),
        st.sampled_from(["settled", "pending", "hidden"]),
        st.sampled_from(["signable", "signed", ""]),
        st.sampled_from(["create", "", "update", "delete", "REMOVE"]),
    ),
    max_size=4,
)
STATES = {"effective": "unchanged", "unknown": "differs"}


class Service:
    """Lists rows, whose ids are their numbers."""

    verifier = None

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {str(number): row for number, row in enumerate(rows, 1)}

    def _found(self, ids: Any, action: bool, *where: str) -> Iterator[WhitelistEnvelope]:
        for each, row in self._rows.items():
            if (ids is None or each in ids) and (row.for_approval if action else row.where) in where:
                wire = {"id": each, "status": row.status, "action": row.action if action else "create"}
                yield WhitelistEnvelope(cast("Any", wire))

    def find_whitelist_requests(self, *, ids: Any = None, include_pending: bool = True) -> Iterator[WhitelistEnvelope]:
        return self._found(ids, False, "settled", *(["pending"] if include_pending else []))

    def find_whitelist_requests_for_approval(
        self, *, ids: Any = None, include_already_signed: bool = False
    ) -> Iterator[WhitelistEnvelope]:
        return self._found(ids, True, "signable", *(["signed"] if include_already_signed else []))

    def count_whitelist_requests(self, *, include_pending: bool = True) -> int:
        return len([*self.find_whitelist_requests(include_pending=include_pending)])


@given(ROWS)
def test_a_listing_says_of_each_what_is_found_by_its_id(rows: Sequence[Row]) -> None:
    client = cast("Any", Service(rows))
    for listing in (fetch_listing(client), fetch_listing(client, by_status=False)):
        ids = [each.id for each in (*listing.envelopes, *listing.deletions)]
        found = find_listed(client, ids, strict=False)
        deletions = {each for each, one in found.items() if one.deletion_pending}
        assert {each.id for each in listing.deletions} == deletions
        for each in listing.envelopes:
            waited_for = RequestWait(each.id).state_of(found[each.id])
            state = listing.state_of(each, EFFECTIVE_STATUSES, REJECTED_STATUSES)
            assert state == STATES.get(waited_for, waited_for)


@given(ROWS)
def test_verify_says_the_same_with_and_without_ids(rows: Sequence[Row]) -> None:
    client = cast("Any", Service(rows))
    listed = {each.id: each.listed for each in read_rows(client, None, None)}
    assert {each.id: each.listed for each in read_rows(client, list(listed), None)} == listed


@given(ROWS)
def test_the_deletion_of_what_is_listed_as_settled_is_no_creation(rows: Sequence[Row]) -> None:
    client = cast("Any", Service(rows))
    for listing in (fetch_listing(client), fetch_listing(client, by_status=False)):
        for number, row in enumerate(rows, 1):
            is_deletion = row.where == "settled" and bool(row.for_approval) and row.action in ("delete", "REMOVE")
            assert (str(number) in {each.id for each in listing.deletions}) is is_deletion
            assert not (is_deletion and str(number) in listing.for_approval_ids)
