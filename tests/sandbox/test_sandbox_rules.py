"""The rules that super-administrators sign, as the operations and the envelopes show them."""

from __future__ import annotations

import base64
from typing import Any

from sandbox_api import Api
from sandbox_signers import PATH, TWO_GROUPS, Person, create
from sandbox_wire import decode, fields_of, is_signed

from airflow_custody.sandbox import Sandbox


def in_force(api: Api) -> dict[str, Any]:
    result: dict[str, Any] = api.get("/rules").json()["result"]
    return result


def get(api: Api, number: str) -> dict[str, Any]:
    result: dict[str, Any] = api.get(f"{PATH}/{number}").json()["result"]
    return result


def test_all_super_administrators_sign_the_container(sandbox: Sandbox, api: Api) -> None:
    rules = in_force(api)
    pins = sandbox.control.pins()
    assert pins["superadmin_minimum"] == 2
    keys = dict(zip([each["userId"] for each in rules["rulesSignatures"]], pins["superadmin_keys"], strict=True))
    container = base64.b64decode(rules["rulesContainer"])
    assert list(keys) == ["superadmin-1@example.test", "superadmin-2@example.test"]
    for each in rules["rulesSignatures"]:
        assert is_signed(keys[each["userId"]], container, base64.b64decode(each["signature"]))
        assert not is_signed(keys[each["userId"]], container + b"x", base64.b64decode(each["signature"]))
    # In an envelope the same signatures are one message.
    envelope = get(api, create(api))
    assert envelope["rulesContainer"] == rules["rulesContainer"]
    found = [fields_of(each) for each in decode(envelope["rulesSignatures"])[1]]
    assert [(each[1][0].decode(), base64.b64encode(each[2][0]).decode()) for each in found] == [
        (each["userId"], each["signature"]) for each in rules["rulesSignatures"]
    ]


def test_the_container_has_users_groups_and_rules(sandbox: Sandbox, api: Api) -> None:
    ann, bob = Person(sandbox, api, "ann", "operations", "risk"), Person(sandbox, api, "bob", "operations")
    sandbox.control.add_user("nokey", ["TPUser"], groups=["operations"])
    sandbox.control.set_approvers(TWO_GROUPS)
    container = decode(in_force(api)["rulesContainer"])
    users = [fields_of(each) for each in container[1]]
    names = [user[1][0].decode() for user in users]
    assert names == [ann.external_id, bob.external_id, "superadmin-1@example.test", "superadmin-2@example.test"]
    assert [user[3] for user in users] == [[b"\x0a\x0b"]] * 2 + [[b"\x03"]] * 2
    assert users[2][2][0].decode() == sandbox.control.pins()["superadmin_keys"][0]
    groups = {each[1][0]: each.get(2) for each in map(fields_of, container[2])}
    assert groups == {b"operations": [b"ann@example.com", b"bob@example.com"], b"risk": [b"ann@example.com"]}
    (rule,) = map(fields_of, container[6])
    assert list(rule) == [2]
    (branch,) = map(fields_of, rule[2])
    assert [fields_of(each) for each in branch[1]] == [{1: [b"operations"], 2: [1]}, {1: [b"risk"], 2: [1]}]


def test_a_listing_shows_each_container_once_if_asked(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.sign_whitelist_requests([create(api)])
    Person(sandbox, api, "ann")
    create(api, "b")
    create(api, "c")
    query = {"includeForApproval": True}
    plain = api.get(PATH, params=query).json()
    once = api.get(PATH, params={**query, "rulesContainerNormalized": True}).json()
    assert len(once["rulesContainers"]) == 2
    by_hash = {each.pop("hash"): each for each in once["rulesContainers"]}
    for row in once["result"]:
        row.update(by_hash[row.pop("rulesContainerHash")])
    assert once["result"] == plain["result"]
    assert "rulesContainers" not in plain
    # Only this listing can.
    pending = api.get(f"{PATH}/for-approval", params={"rulesContainerNormalized": True}).json()
    assert {"rulesContainer", "rulesSignatures"} < set(pending["result"][0])
    empty = api.get(PATH, params={"rulesContainerNormalized": True, "ids": "1"}).json()
    assert empty == {}
    sandbox.control.configure(listings={"whitelist": {"ignored": ["rulesContainerNormalized"]}})
    assert api.get(PATH, params={"rulesContainerNormalized": True, **query}).json() == plain
