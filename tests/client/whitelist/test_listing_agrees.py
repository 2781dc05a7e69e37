"""A listing of all says of each request what is found of it by its id, whatever the service lists where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.cli.verify import read_rows
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.listing import fetch_listing, find_listed
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


LIVE = Row("LIVE", "settled", "signed", "create")


@pytest.mark.parametrize(
    ("row", "effective_statuses", "state"),
    [
        # An address is in effect until its deletion is.
        *(
            (Row("APPROVED", "settled", "signable", action), ["approved"], "effective")
            for action in ("DELETE", "remove")
        ),
        *(
            (Row("APPROVED", "settled", "signable", action), ["approved"], "pending")
            for action in ("create", "odd", "")
        ),
        # This user signed it before it took effect, or was rejected; or may still sign it.
        (Row("APPROVED", "settled", "signed", "create"), ["approved"], "effective"),
        (Row("Rejected", "settled", "signed", "create"), ["approved"], "rejected"),
        (Row("Rejected", "settled", "signable", "create"), ["approved"], "pending"),
        (Row("odd", "settled", "signable", "create"), ["approved"], "pending"),
        (Row("APPROVED", "pending", "signed", "create"), ["approved"], "pending"),
        # The words that were given decide. Without a word, nothing says that it is not pending the approval of others.
        (LIVE, ["live"], "effective"),
        (LIVE, ["approved"], "pending"),
        (LIVE, None, "pending"),
    ],
)
def test_what_the_service_lists_for_approval_although_it_is_decided(
    row: Row, effective_statuses: list[str] | None, state: str
) -> None:
    # Numbers that are equal by chance prove nothing: another request is pending, and not listed otherwise.
    client = cast("Any", Service([row, Row("pending", "pending", "", "create")]))
    wait = RequestWait("1", effective_statuses=effective_statuses)
    assert {each: wait.state_of(one) for each, one in find_listed(client, "12").items()} == {"1": state, "2": "pending"}
    words = EFFECTIVE_STATUSES if effective_statuses is None else effective_statuses
    # Without words, the default ones tell what was signed and is not pending any more.
    for given_words in (words, None) if [*words] == [*EFFECTIVE_STATUSES] else (words,):
        listing = fetch_listing(client, effective_statuses=given_words)
        found = {each.id: listing.state_of(each, words, REJECTED_STATUSES) for each in listing.envelopes}
        assert found == {"1": state, "2": "pending"}


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


@given(ROWS)
def test_a_listing_says_of_each_what_is_found_by_its_id(rows: Sequence[Row]) -> None:
    client = cast("Any", Service(rows))
    for listing in (fetch_listing(client), fetch_listing(client, effective_statuses=None)):
        found = find_listed(client, [each.id for each in (*listing.envelopes, *listing.deletions)])
        deletions = {each for each, one in found.items() if one.deletion_pending}
        assert {each.id for each in listing.deletions} == deletions
        for each in listing.envelopes:
            waited_for = RequestWait(each.id).state_of(found[each.id])
            assert listing.state_of(each, EFFECTIVE_STATUSES, REJECTED_STATUSES) == waited_for
        # The deletion of what is listed as settled is no creation.
        for number, row in enumerate(rows, 1):
            is_deletion = row.where == "settled" and bool(row.for_approval) and row.action in ("delete", "REMOVE")
            assert (str(number) in deletions) is is_deletion
            assert not (is_deletion and listing.listed_as.get(str(number)) == "for approval")
    # `custody whitelist verify` says the same with and without ids.
    listed = {each.id: each.listed for each in read_rows(client, None, None)}
    assert {each.id: each.listed for each in read_rows(client, list(listed), None)} == listed
