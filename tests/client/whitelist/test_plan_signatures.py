"""What a plan makes of requests that really are signed, or are not, at a service that lies."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from attacks import Outcome, attack, names
from people import Person
from whitelist_plans import OTHER, ask, rows_of, states

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.listing import fetch_listing
from airflow_custody.client.whitelist.plan import WhitelistPlan, create_operation
from airflow_custody.client.whitelist.planner import make_plan
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    """A client with pinned keys."""
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0, **sandbox.control.pins()) as made:
        yield made


def read_plan(client: CustodyClient, *requests: WhitelistRequest, prune: bool = True) -> WhitelistPlan:
    return make_plan(rows_of(*requests), fetch_listing(client), prune=prune)


def sign(person: Person, hash_: str) -> str:
    """Return a person's signature over one hash."""
    signature = PemSigner(lambda: person.pem, name=person.name).sign(f'["{hash_}"]'.encode())
    return base64.b64encode(signature).decode()


def test_what_was_signed_is_in_effect_and_what_nobody_signed_is_not(sandbox: Sandbox, client: CustodyClient) -> None:
    signed, forged = (client.create_whitelist_request(ask(address=f"0x{each:040x}")) for each in (1, 2))
    sandbox.control.sign_whitelist_requests([signed])
    sandbox.control.set_whitelist_status(forged, "APPROVED")
    rows = [ask(address=f"0x{each:040x}") for each in (1, 2)]
    found = read_plan(client, *rows)
    assert states(found) == [("unchanged", None, signed), ("unverified", None, forged)]
    assert f"whitelisting request {forged} is not verified: " in found.rows[1].note
    # In no file, it is not deleted, and the true one is.
    assert states(read_plan(client, ask(address=OTHER, label="Other"))) == [
        ("create", "create", ""),
        ("undeclared", "delete", signed),
        ("unverified", None, forged),
    ]
    # Without pins, it is as the service says.
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as trusting:
        assert [each.state for each in read_plan(trusting, *rows).rows] == ["unchanged", "unchanged"]


def test_rules_that_others_signed_prove_nothing(sandbox: Sandbox, client: CustodyClient) -> None:
    signed = client.create_whitelist_request(ask())
    sandbox.control.sign_whitelist_requests([signed])
    with Sandbox() as other:
        pins = other.control.pins()
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0, **pins) as foreign:
        pending = foreign.create_whitelist_request(ask(address=OTHER))
        found = read_plan(foreign, ask(), ask(address=OTHER))
    # Whoever signs the pending one would do so under rules that nobody has to keep.
    assert states(found) == [("unverified", None, signed), ("unverified", None, pending)]
    assert all("rules" in each.note for each in found.rows)


def test_a_pending_request_whose_signature_is_not_for_it(sandbox: Sandbox, client: CustodyClient) -> None:
    person = Person(sandbox, "ann", "approvers")
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    number = client.create_whitelist_request(ask())
    (row,) = read_plan(client, ask()).rows
    assert (row.state, row.request_id) == ("pending", number)
    hash_ = client.get_whitelist_request(number).hash
    assert hash_ is not None
    with CustodyClient(sandbox.url, person.token, timeout=60, max_retries=0) as hers:
        hers.approve_whitelist_requests([number], sign(person, hash_), "yes")
    assert [each.state for each in read_plan(client, ask()).rows] == ["pending"]
    # Changed after she signed.
    sandbox.control.change_whitelist_request(number, label="Another")
    assert states(read_plan(client, ask())) == [("unverified", None, number)]
    # Her signature is over another list of hashes.
    shown: Any = client.get_whitelist_request(number).wire["signedAddress"]
    shown["signatures"][0]["signature"]["signature"] = base64.b64encode(bytes(64)).decode()
    sandbox.control.change_whitelist_request(number, label="Treasury")
    sandbox.control.set_whitelist_envelope(number, signedAddress=shown)
    assert states(read_plan(client, ask())) == [("unverified", None, number)]


@pytest.mark.parametrize("is_allowed", [False, True])
def test_what_was_signed_in_a_legacy_form(sandbox: Sandbox, client: CustodyClient, is_allowed: bool) -> None:
    person = Person(sandbox, "ann", "approvers")
    number = client.create_whitelist_request(ask(contract_type="ERC20"))
    text = (client.get_whitelist_request(number).wire.get("metadata") or {}).get("payloadAsString") or ""
    old = hashlib.sha256(text.replace(',"contractType":"ERC20"', "").encode()).hexdigest()
    sandbox.control.set_whitelist_status(number, "APPROVED")
    sandbox.control.set_whitelist_envelope(
        number,
        signedAddress={
            "signatures": [
                {"signature": {"userId": person.external_id, "signature": sign(person, old)}, "hashes": [old]}
            ]
        },
    )
    pins = {**sandbox.control.pins(), "allow_legacy_signatures": is_allowed}
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0, **pins) as client:
        (given,) = read_plan(client, ask(contract_type="ERC20")).rows
        (silent,) = read_plan(client, ask()).rows
    if not is_allowed:
        assert [given.state, silent.state] == ["unverified"] * 2
        return
    # Nobody signed that it is ERC20: the service may have made it up.
    assert (given.state, given.fields, given.shown) == ("differs", ("contract_type",), {"contract_type": ""})
    assert "does not cover contractType" in given.note
    assert silent.state == "unchanged"


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
    assert "may be one under two ids, so it is not deleted" in found.rows[2].note
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
    found = make_plan(rows_of(ask()), fetch_listing(client), prune=True, replace=True)
    assert states(found) == [("differs", None, old), ("unverified", None, forged)]


@pytest.mark.parametrize("outcome", ["refused", "not read"])
def test_no_attack_makes_a_plan_do_anything(sandbox: Sandbox, client: CustodyClient, outcome: Outcome) -> None:
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    rows = [ask(network="mainnet", memo="42", linked_wallet_ids=["7"]), ask(address=OTHER, label="Other")]
    attacked, other = sandbox.control.add_whitelist_requests([each.to_wire() for each in rows], signed=True)
    # With that, the whole response is no JSON.
    made = [each for each in names(outcome) if each != "lone surrogate"]
    for name in made:
        attack(sandbox.control, sandbox.token, attacked, name)
        found = read_plan(client, *rows)
        states_ = [each.state for each in found.rows]
        # What claims to be for another address withholds that one: the file's own is asked for, and by no other text.
        expected = ["unchanged"] if outcome == "not read" else ["unverified", "unreadable", "create"]
        assert states_[0] in expected, name
        assert states_[1] == "unchanged"
        assert {*found.operations} <= {create_operation(rows[0])}, name
        assert ("create" in states_) <= (name in ("text", "text and hash")), name
        assert all(each.request_id != other for each in found.rows if each.state != "unchanged"), name
    assert len(made) > 3


def test_many_rows_share_their_rules(sandbox: Sandbox, client: CustodyClient) -> None:
    requests = [ask(address=f"0x{number:040x}", label=f"L{number}") for number in range(250)]
    wire = [each.to_wire() for each in requests]
    sandbox.control.add_whitelist_requests(wire[:240], signed=True)
    forged = sandbox.control.add_whitelist_requests(wire[240:])
    sandbox.control.clear_request_log()
    found = read_plan(client, *requests)
    assert {**found.counts, "unchanged": 0, "unverified": 0} == dict.fromkeys(found.counts, 0)
    assert (found.counts["unchanged"], found.counts["unverified"]) == (240, 10)
    assert [each.request_id for each in found.rows if each.state == "unverified"] == forged
    log = sandbox.control.request_log()
    assert {each["path"] for each in log} <= {
        "/api/rest/v1/whitelists/addresses",
        "/api/rest/v1/whitelists/addresses/for-approval",
    }
    assert len(log) == 5
