"""How a client with pinned keys responds to each attack of a malicious service, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.keys.attacks import STEP_OF, attack

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyResponseError, CustodyVerificationError
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


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, **sandbox.control.pins()) as client:
        yield client


@pytest.fixture
def signed(sandbox: Sandbox) -> list[str]:
    """Return requests that two people have signed together. The first of them is to be attacked."""
    sandbox.control.set_approvers(TWO_PEOPLE)
    return sandbox.control.add_whitelist_requests([FIELDS, OTHER], signed=True)


def verify(client: CustodyClient, number: str) -> VerifiedAddress:
    """Verify a request that is read alone, and as it is listed. Both must have the same result."""
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
    # The fault of one row does not affect the other rows.
    assert verify(client, signed[1])


def test_a_response_that_is_no_json_is_refused_whole(
    sandbox: Sandbox, client: CustodyClient, signed: list[str]
) -> None:
    attack(sandbox.control, sandbox.token, signed[0], "lone surrogate")
    for read in (lambda: client.get_whitelist_request(signed[0]), lambda: list(client.find_whitelist_requests())):
        with pytest.raises(CustodyResponseError, match="not JSON"):
            read()
