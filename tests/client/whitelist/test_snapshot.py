"""All requests, or some of them, are read in the same way, whichever listing contains them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import SkippingTime
from support.whitelist.listed_requests import ListsRequests
from support.whitelist.whitelist_plans import SETTINGS, listed, settings_of

from airflow_custody.client import ClientSettings, CustodyClient, CustodyResponseError, CustodyServerError
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.request import Request
from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name
from airflow_custody.sandbox import Sandbox


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


class Service(ListsRequests):
    """Lists rows, whose ids are their numbers."""

    verifier = None

    def __init__(self, rows: Sequence[Row], settings: ClientSettings = SETTINGS) -> None:
        self.settings = settings
        self._rows = {str(number): row for number, row in enumerate(rows, 1)}

    def _found(self, ids: Any, action: bool, *where: str) -> Iterator[WhitelistEnvelope]:
        for each, row in self._rows.items():
            if (ids is None or each in ids) and (row.for_approval if action else row.where) in where:
                wire = {"status": row.status, "action": row.action if action else "create"}
                yield listed(int(each), wire=wire)

    def find_whitelist_requests(self, *, ids: Any = None, include_pending: bool = True) -> Iterator[WhitelistEnvelope]:
        return self._found(ids, False, "settled", *(["pending"] if include_pending else []))

    def find_whitelist_requests_for_approval(
        self, *, ids: Any = None, include_already_signed: bool = False
    ) -> Iterator[WhitelistEnvelope]:
        return self._found(ids, True, "signable", *(["signed"] if include_already_signed else []))


LIVE = Row("LIVE", "settled", "signed", "create")


@pytest.mark.parametrize(
    ("row", "effective", "state"),
    [
        # An address is in effect until its deletion is approved.
        *(
            (Row("APPROVED", "settled", "signable", action), ("approved",), "effective")
            for action in ("DELETE", "remove")
        ),
        *(
            (Row("APPROVED", "settled", "signable", action), ("approved",), "pending")
            for action in ("create", "odd", "")
        ),
        # This user signed the request before it took effect or was rejected; or this user may still sign it.
        (Row("APPROVED", "settled", "signed", "create"), ("approved",), "effective"),
        (Row("Rejected", "settled", "signed", "create"), ("approved",), "rejected"),
        (Row("Rejected", "settled", "signable", "create"), ("approved",), "pending"),
        (Row("APPROVED", "pending", "signed", "create"), ("approved",), "pending"),
        (Row("APPROVED", "hidden", "signable", "create"), ("approved",), "pending"),
        (Row("APPROVED", "hidden", "signed", "create"), ("approved",), "missing"),
        # The status words in the client's settings decide.
        (LIVE, ("live",), "effective"),
        (LIVE, ("approved",), "unknown"),
        (Row("Rejected", "settled", "", "create"), ("live",), "rejected"),
    ],
    ids=str,
)
def test_the_state_follows_from_where_a_request_is_listed_and_its_status(
    row: Row, effective: tuple[str, ...], state: str
) -> None:
    service = Service([row, Row("pending", "pending", "", "create")], settings_of(effective_statuses=effective))
    found = read_snapshot(cast("Any", service), ["1", "2"])
    assert {each.id: each.state for each in found} == {"1": state, "2": "pending"}


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


@given(ROWS, st.sampled_from([SETTINGS, settings_of(effective_statuses="active")]))
def test_all_requests_are_read_as_some_are(rows: Sequence[Row], settings: ClientSettings) -> None:
    client = cast("Any", Service(rows, settings))
    everything = read_snapshot(client)
    some = read_snapshot(client, [str(number) for number, _ in enumerate(rows, 1)])
    for each in some:
        other = everything.requests.get(each.id, Request(each.id, "missing"))
        assert (each.state, each.reported, each.deletion_pending) == (
            other.state,
            other.reported,
            other.deletion_pending,
        )
    for number, row in enumerate(rows, 1):
        is_deletion = row.where == "settled" and row.for_approval == "signable" and row.action in ("delete", "REMOVE")
        assert some[str(number)].deletion_pending is is_deletion


def test_a_request_that_is_asked_for_twice_is_read_once() -> None:
    found = read_snapshot(cast("Any", Service([LIVE])), ids=["1", "1", "2"])
    assert {each.id: each.state for each in found} == {"1": "unknown", "2": "missing"}
    assert [*read_snapshot(cast("Any", Service([LIVE])), ids=[])] == []


class ChangingService(Service):
    """A service whose listing cannot be read for some times."""

    def __init__(self, failures: int, *, retryable: bool) -> None:
        super().__init__([LIVE])
        self._failures, self._retryable = failures, retryable
        self.reads = 0

    def find_whitelist_requests(self, *, ids: Any = None, include_pending: bool = True) -> Iterator[WhitelistEnvelope]:
        self.reads += not include_pending
        if self.reads <= self._failures:
            raise CustodyResponseError("it changed", retryable=self._retryable)
        return super().find_whitelist_requests(ids=ids, include_pending=include_pending)


@pytest.mark.parametrize(
    ("failures", "retryable", "ids", "reads", "seconds"),
    [
        (0, True, None, 1, 0),
        (4, True, None, 5, 7.5),
        # The listing changes too often; it cannot be read; or only some of the requests were asked for.
        (5, True, None, None, 7.5),
        (1, False, None, None, 0),
        (1, True, ["1"], None, 0),
    ],
)
def test_a_listing_that_changes_while_it_is_read_is_read_again(
    waits: SkippingTime, failures: int, retryable: bool, ids: list[str] | None, reads: int | None, seconds: float
) -> None:
    service = ChangingService(failures, retryable=retryable)
    if reads is None:
        with pytest.raises(CustodyResponseError, match="it changed"):
            read_snapshot(cast("Any", service), ids=ids)
    else:
        assert [each.id for each in read_snapshot(cast("Any", service), ids=ids)] == ["1"]
        assert service.reads == reads
    assert waits.skipped == seconds


def test_a_plan_names_the_tenant_if_the_service_has_one_and_waits_if_it_cannot_tell(sandbox: Sandbox) -> None:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
        base_url = client.settings.base_url
        assert service_name(client) == f"{base_url} (tenant 1)"
        sandbox.control.add_fault("status", path="/users/me", status=404)
        assert service_name(client) == base_url
        sandbox.control.add_fault("status", path="/users/me", status=500)
        with pytest.raises(CustodyServerError):
            service_name(client)
