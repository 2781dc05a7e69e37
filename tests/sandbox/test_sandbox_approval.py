from __future__ import annotations

import base64
from typing import Any

import pytest
from support.service.sandbox_api import APPROVER, PATH, Api, Person, refused

from airflow_custody.sandbox import Sandbox

TWO_GROUPS = [
    {
        "sequential": [
            {"externalGroupID": "operations", "minimumSignatures": 1},
            {"externalGroupID": "risk", "minimumSignatures": 1},
        ]
    }
]


def test_enough_signatures_make_a_request_effective(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_approvers(TWO_GROUPS)
    ann, bob = Person(sandbox, api, "ann", "operations"), Person(sandbox, api, "bob", "risk")
    one, two = api.create(), api.create()
    assert ann.pending() == [one, two]
    assert bob.pending() == []
    refused(bob.approve(one), 403)
    assert ann.approve(one, two).json() == {"signatures": "2"}
    assert ann.pending() == []
    assert bob.pending() == [one, two]
    assert ann.pending(includeAlreadySignedByUser=True) == [one, two]
    refused(ann.approve(one), 409)
    assert api.listed() == []
    assert bob.approve(one).json() == {"signatures": "1"}
    assert api.listed() == [one]
    assert bob.pending() == [two]
    envelope = api.get(f"{PATH}/{one}").json()["result"]
    signed = envelope["signedAddress"]
    assert [each["signature"]["userId"] for each in signed["signatures"]] == ["ann@example.com", "bob@example.com"]
    assert [len(each["hashes"]) for each in signed["signatures"]] == [2, 1]
    assert base64.b64decode(signed["payload"]).decode() == envelope["metadata"]["payloadAsString"]
    trails = [(trail["action"], trail["userId"]) for trail in envelope["trails"]]
    assert trails == [("created", "1"), ("approved", ann.id), ("approved", bob.id)]
    refused(bob.approve(one), 409)


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": ["3712", "3711"]},
        {"ids": ["3711", "3711"]},
        {"ids": [str(number) for number in range(1, 102)]},
        {"comment": " "},
        {"signature": base64.b64encode(b"x" * 64).decode()},
        {"signature": base64.b64encode(b"x" * 70).decode()},
    ],
    ids=str,
)
def test_a_malformed_approval_signs_nothing(sandbox: Sandbox, api: Api, changes: dict[str, Any]) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    both = [api.create(), api.create()]
    refused(ann.approve("3711", **changes), 400)
    assert ann.pending() == both == ["3711", "3712"]


def test_a_batch_is_signed_as_a_whole_or_not_at_all(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    one, two = api.create(), api.create()
    sandbox.control.set_whitelist_status(two, "rejected")
    refused(ann.approve(one, two), 409)
    refused(ann.approve(ids=[one, "9999"], signature=ann.sign(hash_of(api, one))), 404)
    assert ann.pending() == [one]


def test_a_signature_of_what_has_changed_since_is_refused(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    one = api.create()
    signature = ann.sign(hash_of(api, one))
    sandbox.control.change_whitelist_request(one, label="Other")
    refused(ann.approve(one, signature=signature), 400)
    assert ann.pending() == [one]


def test_a_user_without_a_key_cannot_sign(sandbox: Sandbox, api: Api) -> None:
    ann = Person(sandbox, api, "ann", "approvers")
    one = api.create()
    sandbox.control.add_user("ann", APPROVER, user_id=ann.id, groups=["approvers"])
    refused(ann.approve(one), 400)


def hash_of(api: Api, request_id: str) -> str:
    return str(api.get(f"{PATH}/{request_id}").json()["result"]["metadata"]["hash"])


def test_a_rejected_request_is_listed_with_pending_ones_only(sandbox: Sandbox, api: Api) -> None:
    ann, eve = Person(sandbox, api, "ann", "approvers"), Person(sandbox, api, "eve", "others")
    number = api.create()
    rejection = {"ids": [number], "comment": "not ours"}
    refused(api.post(f"{PATH}/reject", rejection, token=eve.token), 403)
    assert api.post(f"{PATH}/reject", rejection, token=ann.token).json() == {}
    assert api.listed(f"{PATH}?includeForApproval=1") == [number]
    assert api.listed() == []
    assert ann.pending() == []
    refused(api.post(f"{PATH}/reject", rejection, token=ann.token), 409)


def test_a_deleted_request_is_gone(sandbox: Sandbox, api: Api) -> None:
    eve = Person(sandbox, api, "eve", "others")
    number = api.create()
    deletion = {"id": number, "comment": "x"}
    refused(api.post(f"{PATH}/delete", deletion, token=eve.token), 403)
    assert api.post(f"{PATH}/delete", deletion).json() == {"result": {"id": number}}
    refused(api.get(f"{PATH}/{number}"), 404)
    refused(api.post(f"{PATH}/delete", deletion), 404)
