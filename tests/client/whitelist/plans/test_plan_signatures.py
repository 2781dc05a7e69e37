"""Plans for requests that are really signed, or not signed, at a service that lies."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.keys.attacks import NOT_READ, STEP_OF, attack
from support.whitelist.whitelist_plans import OTHER, ask, rows_of, states

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import WhitelistPlan, create_operation
from airflow_custody.client.whitelist.plans.planner import PlanSettings, make_plan
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.sandbox import Sandbox

# The order of the curve P-256.
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
    # The service has the file's second row once, and lacks the first row.
    assert [each.state for each in found.rows] == ["create", "unchanged", "duplicate"]
    assert "may be one request with two ids, so this request is not deleted" in found.rows[2].note
    assert not found.with_action("delete")


def twin(signing: dict[str, Any]) -> dict[str, Any]:
    """Return the other signature that anyone can compute from a signature: r, n - s."""
    raw = base64.b64decode(signing["signature"]["signature"])
    other = raw[:32] + (ORDER - int.from_bytes(raw[32:], "big")).to_bytes(32, "big")
    return {**signing, "signature": {**signing["signature"], "signature": base64.b64encode(other).decode()}}


@pytest.mark.parametrize("has_legacy_form", [False, True], ids=["same text", "a legacy form is signed"])
@pytest.mark.parametrize("change", [dict, twin], ids=["same signatures", "twins"])
def test_one_request_under_two_ids_is_never_deleted(
    sandbox: Sandbox, change: Callable[[dict[str, Any]], dict[str, Any]], has_legacy_form: bool
) -> None:
    copy, real = sandbox.control.add_whitelist_requests([ask().to_wire()] * 2, status="pending")
    with CustodyClient(
        sandbox.url, sandbox.token, max_retries=0, **sandbox.control.pins(), allow_legacy_signatures=has_legacy_form
    ) as client:
        old_text = str(client.get_whitelist_request(real).text).replace(',"contractType":""', "")
        sandbox.control.set_whitelist_metadata(real, payloadAsString=old_text, hash=hash_of(old_text))
        sandbox.control.sign_whitelist_requests([real])
        signings: Any = (client.get_whitelist_request(real).wire["signedAddress"] or {})["signatures"]
        text = old_text[:-1] + ',"contractType":""}' if has_legacy_form else old_text
        sandbox.control.set_whitelist_status(copy, "APPROVED")
        sandbox.control.set_whitelist_metadata(copy, payloadAsString=text, hash=hash_of(text))
        sandbox.control.set_whitelist_envelope(copy, signedAddress={"signatures": [*map(change, signings)]})
        found = read_plan(client, ask())
    assert states(found) == [("unchanged", None, copy), ("duplicate", None, real)]
    assert "may be one request with two ids, so this request is not deleted" in found.rows[1].note


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
    # An unsigned request replaces nothing.
    for each in (first, second):
        sandbox.control.set_whitelist_status(each, "removed")
    found = make_plan(rows_of(ask()), read_snapshot(client), PlanSettings(prune=True, replace=True))
    assert states(found) == [("differs", None, old), ("unverified", None, forged)]


# With a lone surrogate, the whole response is not JSON.
@pytest.mark.parametrize("name", [each for each in (*STEP_OF, *NOT_READ) if each != "lone surrogate"])
def test_no_attack_makes_a_plan_do_anything(sandbox: Sandbox, client: CustodyClient, name: str) -> None:
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    rows = [ask(network="mainnet", memo="42", linked_wallet_ids=["7"]), ask(address=OTHER, label="Other")]
    attacked, other = sandbox.control.add_whitelist_requests([each.to_wire() for each in rows], signed=True)
    attack(sandbox.control, sandbox.token, attacked, name)
    found = read_plan(client, *rows)
    first, second, *_ = found_states = [each.state for each in found.rows]
    # A request that claims to be for another address withholds that address. The file's own row is requested only once.
    assert first in (["unchanged"] if name in NOT_READ else ["unverified", "unreadable", "create"])
    assert second == "unchanged"
    assert {*found.operations} <= {create_operation(rows[0])}
    assert ("create" in found_states) <= (name in ("text", "text and hash"))
    assert all(each.request_id != other for each in found.rows if each.state != "unchanged")
