"""Requests that users of the sandbox's own really sign."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from sandbox_api import Api
from sandbox_approvers import PATH, TWO_GROUPS, Person, create, listed
from sandbox_wire import decode, fields_of, is_signed

from airflow_custody.sandbox import Sandbox, SandboxError
from airflow_custody.sandbox.wire import dumps

TWO_OF_ONE_GROUP = [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}]


def get(api: Api, number: str) -> dict[str, Any]:
    result: dict[str, Any] = api.get(f"{PATH}/{number}").json()["result"]
    return result


def signed_by(envelope: dict[str, Any]) -> list[str]:
    """Return who has signed, after verifying each signature with the user's key in the envelope's rules."""
    users = {each[1][0].decode(): each[2][0].decode() for each in map(fields_of, decode(envelope["rulesContainer"])[1])}
    found = []
    for each in envelope["signedAddress"]["signatures"]:
        user_id = each["signature"]["userId"]
        assert envelope["metadata"]["hash"] in each["hashes"]
        assert is_signed(
            users[user_id], dumps(each["hashes"]).encode(), base64.b64decode(each["signature"]["signature"])
        )
        found.append(user_id)
    return found


def signers(*numbers: int) -> list[str]:
    return [f"signer-{number}@example.test" for number in numbers]


@pytest.mark.parametrize(("approvers", "number"), [(None, 1), (TWO_GROUPS, 2), (TWO_OF_ONE_GROUP, 2)], ids=str)
def test_they_sign_until_it_is_in_effect(sandbox: Sandbox, api: Api, approvers: Any, number: int) -> None:
    sandbox.control.set_approvers(approvers)
    one = create(api)
    sandbox.control.sign_whitelist_requests([one])
    envelope = get(api, one)
    assert envelope["status"] == "APPROVED"
    assert signed_by(envelope) == signers(*range(1, number + 1))
    assert listed(api) == [one]
    # The same users sign the next one, under the same rules.
    two = create(api, "b")
    sandbox.control.sign_whitelist_requests([two])
    assert signed_by(get(api, two)) == signed_by(envelope)
    assert get(api, two)["rulesContainer"] == envelope["rulesContainer"]


def test_they_add_what_is_missing(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_approvers(TWO_OF_ONE_GROUP)
    ann = Person(sandbox, api, "ann", "approvers")
    one, two = create(api), create(api, "b")
    ann.approve(one)
    sandbox.control.sign_whitelist_requests([two, one, one])
    assert signed_by(get(api, one)) == [ann.external_id, *signers(1)]
    assert signed_by(get(api, two)) == signers(1, 2)
    sandbox.control.sign_whitelist_requests([one, two])
    assert signed_by(get(api, two)) == signers(1, 2)


def test_what_was_forged_can_be_signed_later(sandbox: Sandbox, api: Api) -> None:
    one = create(api)
    sandbox.control.set_whitelist_status(one, "APPROVED")
    assert "signedAddress" not in get(api, one)
    sandbox.control.sign_whitelist_requests([one])
    assert signed_by(get(api, one)) == signers(1)


def test_both_links_take_two(sandbox: Sandbox, api: Api) -> None:
    links = {"linkedWalletIds": ["7"], "linkedInternalAddressIds": ["9"]}
    body = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40, **links}
    (one,) = sandbox.control.add_whitelist_requests([body], signed=True)
    assert signed_by(get(api, one)) == signers(1, 2)


def test_what_cannot_be_signed_is_refused(sandbox: Sandbox, api: Api) -> None:
    one, two = create(api), create(api, "b")
    sandbox.control.set_whitelist_status(two, "rejected")
    for ids in ([one, two], [one, "1"], [one, "x"]):
        with pytest.raises(SandboxError, match=r"neither pending|not found|not an id"):
            sandbox.control.sign_whitelist_requests(ids)
    with pytest.raises(SandboxError, match="APPROVED"):
        sandbox.control.add_whitelist_requests([], status="pending", signed=True)
    sandbox.control.set_rules([])
    with pytest.raises(SandboxError, match="no rule"):
        sandbox.control.sign_whitelist_requests([create(api, "c")])
    assert listed(api) == []
    sandbox.control.sign_whitelist_requests([])


def test_many_are_signed_a_hundred_at_a_time(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_approvers(TWO_GROUPS)
    rows = [{"blockchain": "ETH", "label": f"Row {each}", "address": f"0x{each:040x}"} for each in range(2_050)]
    started = time.monotonic()
    ids = sandbox.control.add_whitelist_requests(rows, signed=True)
    assert time.monotonic() - started < 300
    for number, hashes in ((ids[0], 100), (ids[-1], 50)):
        envelope = get(api, number)
        assert signed_by(envelope) == signers(1, 2)
        assert {len(each["hashes"]) for each in envelope["signedAddress"]["signatures"]} == {hashes}
    assert len(listed(api, limit=100, offset=1_950)) == 100


def test_the_participant_is_in_the_text_where_it_is_set(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.configure(fill={"tnParticipantID": "bank-1"})
    one = create(api)
    sandbox.control.sign_whitelist_requests([one])
    envelope = get(api, one)
    assert list(envelope["metadata"]["payload"].items())[-1] == ("tnParticipantID", "bank-1")
    assert envelope["tnParticipantID"] == "bank-1"
    assert signed_by(envelope) == signers(1)
