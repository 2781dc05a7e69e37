from __future__ import annotations

import base64
from typing import Any

import pytest
from support.service.sandbox_api import APPROVER, PATH, Api, Person, refused

from airflow_custody.sandbox import Sandbox


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
