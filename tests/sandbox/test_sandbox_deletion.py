"""Deleting whitelisting requests: at once, or once the deletion is signed."""

from __future__ import annotations

from typing import Any

from sandbox_api import Api
from sandbox_approvers import PATH, TWO_GROUPS, Person, create, listed

from airflow_custody.sandbox import Sandbox


def delete(api: Api, number: str) -> int:
    return api.post(f"{PATH}/delete", {"id": number, "comment": "sold"}).status_code


def get(api: Api, number: str) -> dict[str, Any]:
    result: dict[str, Any] = api.get(f"{PATH}/{number}").json()["result"]
    return result


def test_a_deletion_takes_effect_once_it_is_signed(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_approvers(TWO_GROUPS)
    sandbox.control.configure(deletion="signed")
    ann, bob = Person(sandbox, api, "ann", "operations"), Person(sandbox, api, "bob", "risk")
    number = create(api)
    ann.approve(number)
    bob.approve(number)
    before = get(api, number)
    assert delete(api, number) == 200
    assert get(api, number) == {**before, "status": "pending", "action": "delete"}
    assert listed(api) == listed(api, includeForApproval=True) == [number]
    assert delete(api, number) == 409
    # The signatures of the creation do not count.
    assert (ann.pending(), bob.pending()) == ([number], [])
    assert ann.approve(number).json() == {"signatures": "1"}
    assert ann.approve(number).status_code == 409
    assert (ann.pending(), ann.pending(includeAlreadySignedByUser=True), bob.pending()) == ([], [number], [number])
    assert listed(api) == [number]
    assert bob.approve(number).json() == {"signatures": "1"}
    assert listed(api, includeForApproval=True) == bob.pending() == []
    assert api.get(f"{PATH}/{number}").status_code == 404
    assert delete(api, number) == 404
