from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from sandbox_api import Api
from sandbox_approvers import PATH, create

from airflow_custody.sandbox import Sandbox, SandboxError, connection_variables
from airflow_custody.sandbox.rules.keys import sign


def read(api: Api, number: str) -> dict[str, Any]:
    result: dict[str, Any] = api.get(f"{PATH}/{number}").json()["result"]
    return result


def test_approvers_whose_keys_the_sandbox_makes(sandbox: Sandbox, api: Api) -> None:
    alice, bob = found = sandbox.control.add_approvers(["alice", "bob"])
    assert [(each["name"], each["external_id"], each["group"]) for each in found] == [
        ("alice", "alice@example.test", "first"),
        ("bob", "bob@example.test", "second"),
    ]
    assert sandbox.control.add_approvers(["alice", "bob"]) == found
    number = create(api)
    hashes = [read(api, number)["metadata"]["hash"]]
    message = json.dumps(hashes).encode()
    for each in (alice, bob):
        pending = [
            api.get(f"{PATH}/for-approval", token=person["token"]).json().get("result", []) for person in (alice, bob)
        ]
        assert [bool(rows) for rows in pending] == [each is alice, each is bob]
        # The main token's user has no key.
        assert api.get(f"{PATH}/for-approval").json().get("result", []) == []
        signature = base64.b64encode(sign(each["private_key"], message)).decode()
        body = {"ids": [number], "signature": signature, "comment": "checked"}
        assert api.post(f"{PATH}/approve", body, token=each["token"]).status_code == 200
    assert read(api, number)["status"] == "APPROVED"
    with pytest.raises(SandboxError, match="there are others already: alice, bob"):
        sandbox.control.add_approvers(["bob", "carol"])
    sandbox.control.reset()
    assert sandbox.control.add_approvers(["bob", "carol"])[0]["private_key"] != bob["private_key"]


@pytest.mark.parametrize("names", [["alice"], ["alice", " "], ["alice", "alice"], ["a", "b", "c"]], ids=str)
def test_approvers_are_two(sandbox: Sandbox, names: list[str]) -> None:
    with pytest.raises(SandboxError, match="names"):
        sandbox.control.add_approvers(names)


def test_the_connections_of_approvers(sandbox: Sandbox) -> None:
    approvers = sandbox.control.add_approvers(["alice", "bob"])
    variables = connection_variables(sandbox.connection(pins=True), approvers)
    assert [name.removeprefix("AIRFLOW_CONN_CUSTODY_") for name in variables] == [
        *("DEFAULT", "FIRST_APPROVER", "FIRST_KEY", "SECOND_APPROVER", "SECOND_KEY")
    ]
    service = json.loads(variables["AIRFLOW_CONN_CUSTODY_DEFAULT"])
    assert service["extra"] == sandbox.control.pins()
    for each in approvers:
        prefix = f"AIRFLOW_CONN_CUSTODY_{each['group'].upper()}"
        assert json.loads(variables[f"{prefix}_APPROVER"]) == {**service, "password": each["token"]}
        assert json.loads(variables[f"{prefix}_KEY"])["extra"] == {"private_key": each["private_key"]}
