"""What a plan makes of requests that really are signed, or are not, at a service that lies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.keys.attacks import NOT_READ, STEP_OF, attack
from support.whitelist.whitelist_plans import OTHER, ask, rows_of, states

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import WhitelistPlan, create_operation
from airflow_custody.client.whitelist.plans.planner import PlanSettings, make_plan
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    """A client with pinned keys."""
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0, **sandbox.control.pins()) as made:
        yield made


def read_plan(client: CustodyClient, *requests: WhitelistRequest, prune: bool = True) -> WhitelistPlan:
    return make_plan(rows_of(*requests), read_snapshot(client), PlanSettings(prune=prune))


def test_the_text_of_another_request_is_compared_and_not_its_id(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [ask(), ask(address=OTHER, label="Other")]
    first, second = map(client.create_whitelist_request, rows)
    sandbox.control.sign_whitelist_requests([first, second])
    other = client.get_whitelist_request(second).wire
    sandbox.control.set_whitelist_envelope(
        first, metadata=other.get("metadata"), signedAddress=other.get("signedAddress")
    )
    found = read_plan(client, *rows)
    # The file's second row is there, once; what should be there for the first one is not.
    assert [each.state for each in found.rows] == ["create", "unchanged", "duplicate"]
    assert "may be one request with two ids, so this request is not deleted" in found.rows[2].note
    assert not found.with_action("delete")


def test_duplicates_that_were_signed_each_are_two_and_what_nobody_signed_is_not_kept(
    sandbox: Sandbox, client: CustodyClient
) -> None:
    forged, first, second, old = map(client.create_whitelist_request, [ask(), ask(), ask(), ask(label="Old")])
    for each in (first, second, old):
        sandbox.control.sign_whitelist_requests([each])
    sandbox.control.set_whitelist_status(forged, "APPROVED")
    assert states(read_plan(client, ask())) == [
        ("unchanged", None, first),
        ("duplicate", "delete", second),
        ("duplicate", "delete", old),
        ("unverified", None, forged),
    ]
    # What replaces is not what nobody signed.
    for each in (first, second):
        sandbox.control.set_whitelist_status(each, "removed")
    found = make_plan(rows_of(ask()), read_snapshot(client), PlanSettings(prune=True, replace=True))
    assert states(found) == [("differs", None, old), ("unverified", None, forged)]


def test_what_nobody_signed_is_named_once_and_stands_for_nothing(sandbox: Sandbox, client: CustodyClient) -> None:
    forged = [client.create_whitelist_request(ask()) for _ in range(3)]
    for each in forged:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    assert states(read_plan(client, ask())) == [("unverified", None, each) for each in forged]


# With a lone surrogate, the whole response is no JSON.
@pytest.mark.parametrize("name", [each for each in (*STEP_OF, *NOT_READ) if each != "lone surrogate"])
def test_no_attack_makes_a_plan_do_anything(sandbox: Sandbox, client: CustodyClient, name: str) -> None:
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    rows = [ask(network="mainnet", memo="42", linked_wallet_ids=["7"]), ask(address=OTHER, label="Other")]
    attacked, other = sandbox.control.add_whitelist_requests([each.to_wire() for each in rows], signed=True)
    attack(sandbox.control, sandbox.token, attacked, name)
    found = read_plan(client, *rows)
    first, second, *_ = found_states = [each.state for each in found.rows]
    # What claims to be for another address withholds that one: the file's own is asked for, and by no other text.
    assert first in (["unchanged"] if name in NOT_READ else ["unverified", "unreadable", "create"])
    assert second == "unchanged"
    assert {*found.operations} <= {create_operation(rows[0])}
    assert ("create" in found_states) <= (name in ("text", "text and hash"))
    assert all(each.request_id != other for each in found.rows if each.state != "unchanged")
