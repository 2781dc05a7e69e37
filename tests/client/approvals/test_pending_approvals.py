"""The counts of everything that is pending approval, as the service reports them."""

from __future__ import annotations

from typing import Any

import pytest
from support.whitelist.calls import create

from airflow_custody.client import CustodyClient, CustodyResponseError
from airflow_custody.client.approvals.operations import PendingApprovals
from airflow_custody.sandbox import Sandbox


def test_pending_requests_are_counted(sandbox: Sandbox, client: CustodyClient) -> None:
    for _ in range(3):
        create(client)
    found = client.get_pending_approvals()
    assert found.whitelisted_addresses == 3
    assert found.total == 3
    assert found.at_least == ()
    assert len(list(client.find_whitelist_requests_for_approval())) == 3
    assert sandbox.control.request_log("GET", "/statistics")[-1]["query"] == {"limit": ["100"]}


def test_a_count_at_the_limit_may_stand_for_more(sandbox: Sandbox, client: CustodyClient) -> None:
    # The service may send counts as text or as numbers. Zero is left out.
    counts = {"requestsCount": "100", "accountChangesCount": 3, "contractCallsCount": "0", "settlementsCount": None}
    sandbox.control.add_fault("status", status=200, body={**counts, "pledgesCount": "101", "another": ["thing"]})
    found = client.get_pending_approvals()
    assert found == PendingApprovals(requests=100, account_changes=3, pledges=101)
    assert found.total == 204
    assert found.at_least == ("requests", "pledges")
    assert found.to_json()["at_least"] == ["requests", "pledges"]
    assert found.to_json()["requests"] == 100
    assert found.texts == ["at least 100 transfer or other requests", "3 account changes", "at least 101 pledges"]


@pytest.mark.parametrize("number", ["", "01", "-1", "1.5", str(2**53), "9" * 5000, ["1"], True])
def test_only_a_number_is_a_count(sandbox: Sandbox, client: CustodyClient, number: Any) -> None:
    sandbox.control.add_fault("status", status=200, body={"requestsCount": number})
    with pytest.raises(CustodyResponseError):
        client.get_pending_approvals()
