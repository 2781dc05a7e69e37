from __future__ import annotations

import base64
from typing import Any

import pytest
from sandbox_api import Api
from sandbox_signers import PATH, ROLES, TWO_GROUPS, Person, create, listed

from airflow_custody.sandbox import Sandbox


def test_enough_signatures_make_a_request_effective(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_approvers(TWO_GROUPS)
    ann, bob = Person(sandbox, api, "ann", "operations"), Person(sandbox, api, "bob", "risk")
    one, two = create(api), create(api, "b")
    assert (ann.pending(), bob.pending()) == ([one, two], [])
    assert bob.approve(one).status_code == 403
    assert ann.approve(one, two).json() == {"signatures": "2"}
    assert (ann.pending(), ann.pending(includeAlreadySignedByUser=True), bob.pending()) == (
        [],
        [one, two],
        [one, two],
    )
    assert ann.approve(one).status_code == 409
    assert listed(api) == []
    assert bob.approve(one).json() == {"signatures": "1"}
    assert listed(api) == [one]
    assert bob.pending() == [two]
    envelope = api.get(f"{PATH}/{one}").json()["result"]
    signed_by = [each["signature"]["userId"] for each in envelope["signedAddress"]["signatures"]]
    assert signed_by == ["ann@example.com", "bob@example.com"]
    assert [trail["userId"] for trail in envelope["trails"]] == ["1", ann.id, bob.id]
    assert [trail["externalUserId"] for trail in envelope["trails"]] == ["user-1@example.test", *signed_by]
    assert base64.b64decode(envelope["signedAddress"]["payload"]).decode() == envelope["metadata"]["payloadAsString"]
    assert [trail["action"] for trail in envelope["trails"]] == ["created", "approved", "approved"]
    assert len(envelope["signedAddress"]["signatures"][0]["hashes"]) == 2
    assert envelope["status"] == "APPROVED"
    assert bob.approve(one).status_code == 409


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": ["3712", "3711"]},
        {"ids": ["3711", "3711"]},
        {"ids": []},
        {"ids": [str(number) for number in range(1, 102)]},
        {"ids": ["x"]},
        {"comment": " "},
        {"signature": ""},
        {"signature": base64.b64encode(b"x" * 64).decode()},
        {"signature": base64.b64encode(b"x" * 70).decode()},
    ],
    ids=str,
)
def test_a_malformed_approval_signs_nothing(sandbox: Sandbox, api: Api, changes: dict[str, Any]) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    create(api)
    create(api, "b")
    assert ann.approve("3711", **changes).status_code == 400
    assert ann.pending() == ["3711", "3712"]


def test_a_batch_is_signed_as_a_whole_or_not_at_all(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    one, two = create(api), create(api, "b")
    sandbox.control.set_whitelist_status(two, "rejected")
    assert ann.approve(one, two).status_code == 409
    hash_of_one = api.get(f"{PATH}/{one}").json()["result"]["metadata"]["hash"]
    body = {"ids": [one, "9999"], "signature": ann.sign([hash_of_one]), "comment": "x"}
    assert api.post(f"{PATH}/approve", body, token=ann.token).status_code == 404
    assert ann.pending() == [one]


def test_a_setting_makes_it_sign_fewer(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    one, two = create(api), create(api, "b")
    sandbox.control.configure(max_signatures=1)
    assert ann.approve(one, two).json() == {"signatures": "1"}
    assert (listed(api), ann.pending()) == ([one], [two])
    sandbox.control.configure(max_signatures=None)
    assert ann.approve(two).json() == {"signatures": "1"}


def test_a_change_between_review_and_signature_is_refused(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    number = create(api)
    before = api.get(f"{PATH}/{number}").json()["result"]["metadata"]["hash"]
    sandbox.control.change_whitelist_request(number, label="Other")
    assert ann.approve(number, signature=ann.sign([before])).status_code == 400
    assert ann.approve(number).status_code == 200


def test_a_user_without_a_key_cannot_sign(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    number = create(api)
    sandbox.control.add_user("ann", ROLES, user_id=ann.id, groups=["approvers"])
    assert ann.approve(number).status_code == 400


def test_a_rejected_request_is_listed_only_with_pending_ones(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    number = create(api)
    body = {"ids": [number], "comment": "not ours"}
    assert api.post(f"{PATH}/reject", body, token=ann.token).json() == {}
    assert (ann.pending(), listed(api), listed(api, includeForApproval=True)) == ([], [], [number])
    assert api.get(f"{PATH}/{number}").json()["result"]["status"] == "rejected"
    assert api.post(f"{PATH}/reject", body, token=ann.token).status_code == 409


def test_only_approvers_decide(sandbox: Sandbox, api: Api) -> None:
    eve = Person(sandbox, api, "eve", "others")
    number = create(api)
    assert api.post(f"{PATH}/reject", {"ids": [number], "comment": "x"}, token=eve.token).status_code == 403
    clerk = sandbox.control.add_token(roles=["TPUser"])
    assert api.post(f"{PATH}/reject", {"ids": [number], "comment": "x"}, token=clerk).status_code == 403
    assert api.post(f"{PATH}/delete", {"id": number, "comment": "x"}, token=clerk).status_code == 403


def test_a_deleted_request_is_gone(api: Api) -> None:
    number = create(api)
    assert api.post(f"{PATH}/delete", {"id": number, "comment": "x"}).json() == {"result": {"id": number}}
    assert listed(api, includeForApproval=True) == []
    assert api.get(f"{PATH}/{number}").status_code == 404
    assert api.post(f"{PATH}/delete", {"id": number, "comment": "x"}).status_code == 404
