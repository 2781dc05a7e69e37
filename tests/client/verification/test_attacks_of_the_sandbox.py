"""What a client with pins makes of each attack of a malicious service, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.keys.attacks import STEP_OF, attack

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyNotFoundError, CustodyResponseError, CustodyVerificationError
from airflow_custody.client.verification.verifier import VerifiedAddress
from airflow_custody.sandbox import Sandbox

FIELDS = {
    "label": "Treasury",
    "address": "0x" + "ab" * 20,
    "blockchain": "ETH",
    "network": "mainnet",
    "memo": "4242",
    "linkedWalletIds": ["7"],
}
OTHER = {**FIELDS, "address": "0x" + "cd" * 20}
TWO_PEOPLE = [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}]


def connect(sandbox: Sandbox, **settings: Any) -> CustodyClient:
    return CustodyClient(sandbox.url, sandbox.token, **sandbox.control.pins(), **settings)


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with connect(sandbox) as client:
        yield client


@pytest.fixture
def signed(sandbox: Sandbox) -> list[str]:
    """Return requests of which the first is to be attacked; all were signed together, by two people."""
    sandbox.control.set_approvers(TWO_PEOPLE)
    return sandbox.control.add_whitelist_requests([FIELDS, OTHER], signed=True)


def verify(client: CustodyClient, number: str) -> VerifiedAddress:
    """Verify a request as it is read alone and as it is listed, which must agree."""
    assert client.verifier is not None
    wires = [client.get_whitelist_request(number).wire]
    wires += [each.wire for each in client.find_whitelist_requests() if each.id == number]
    found, reasons = [], []
    for wire in wires:
        try:
            found.append(client.verifier.verify(wire))
        except CustodyVerificationError as error:
            reasons.append(error)
    assert len(wires) == 2
    assert not found or not reasons
    if reasons:
        raise reasons[0]
    assert found[0].fields == found[1].fields
    return found[0]


@pytest.mark.parametrize("name", [each for each in STEP_OF if each != "lone surrogate"])
def test_refused(sandbox: Sandbox, client: CustodyClient, signed: list[str], name: str) -> None:
    attack(sandbox.control, sandbox.token, signed[0], name)
    with pytest.raises(CustodyVerificationError, match=signed[0]) as caught:
        verify(client, signed[0])
    assert len(str(caught.value)) < 700
    # The trouble of one row is its own.
    assert verify(client, signed[1])


def test_a_forged_address_is_refused_until_the_service_stops_lying(
    sandbox: Sandbox, client: CustodyClient, signed: list[str]
) -> None:
    sandbox.control.configure(forged=signed[:1])
    with pytest.raises(CustodyVerificationError, match=signed[0]):
        verify(client, signed[0])
    assert verify(client, signed[1])
    sandbox.control.configure(forged=[])
    assert verify(client, signed[0]).fields["address"] == FIELDS["address"]


def test_a_response_that_is_no_json_is_refused_whole(
    sandbox: Sandbox, client: CustodyClient, signed: list[str]
) -> None:
    attack(sandbox.control, sandbox.token, signed[0], "lone surrogate")
    for read in (lambda: client.get_whitelist_request(signed[0]), lambda: list(client.find_whitelist_requests())):
        with pytest.raises(CustodyResponseError, match="not JSON"):
            read()


# --- what no signature can show ------------------------------------------------------------------------------------


def test_older_rules_are_refused_by_their_date_only(sandbox: Sandbox, client: CustodyClient, signed: list[str]) -> None:
    rules = verify(client, signed[0]).rules
    attack(sandbox.control, sandbox.token, signed[0], "older rules")
    assert verify(client, signed[0]).user_ids == ("mallory@example.test",)
    with (
        connect(sandbox, rules_not_before=rules.timestamp) as pinned,
        pytest.raises(CustodyVerificationError, match="rules"),
    ):
        verify(pinned, signed[0])


def test_a_swapped_network_is_refused_by_the_pinned_one_only(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.configure(network_is_hashed=False)
    (number,) = sandbox.control.add_whitelist_requests([FIELDS], signed=True)
    attack(sandbox.control, sandbox.token, number, "swapped network")
    assert "network" not in verify(client, number).fields
    with (
        connect(sandbox, networks=["mainnet"]) as pinned,
        pytest.raises(CustodyVerificationError, match="network"),
    ):
        verify(pinned, number)


def test_what_is_no_longer_in_effect_verifies(sandbox: Sandbox, client: CustodyClient, signed: list[str]) -> None:
    sandbox.control.set_whitelist_status(signed[0], "rejected")
    sandbox.control.set_whitelist_status(signed[0], "APPROVED")
    assert verify(client, signed[0]).fields["address"] == FIELDS["address"]


def test_a_replayed_approval_verifies(sandbox: Sandbox, client: CustodyClient, signed: list[str]) -> None:
    replayed = client.get_whitelist_request(signed[0]).wire["signedAddress"]
    sandbox.control.set_whitelist_status(signed[0], "removed")
    (number,) = sandbox.control.add_whitelist_requests([FIELDS])
    sandbox.control.set_whitelist_envelope(number, signedAddress=replayed)
    assert verify(client, number).fields["address"] == FIELDS["address"]


def test_what_is_hidden_is_not_there(sandbox: Sandbox, client: CustodyClient, signed: list[str]) -> None:
    sandbox.control.set_whitelist_status(signed[0], "removed")
    assert [each.id for each in client.find_whitelist_requests()] == signed[1:]
    with pytest.raises(CustodyNotFoundError):
        client.get_whitelist_request(signed[0])
