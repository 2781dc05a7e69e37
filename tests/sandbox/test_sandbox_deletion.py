"""Deleting whitelisting requests: at once, or once the deletion is signed."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_api import Api
from sandbox_approvers import PATH, TWO_GROUPS, Person, create, listed

from airflow_custody.sandbox import Sandbox, SandboxError


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


@pytest.mark.parametrize("status", ["pending", "APPROVED"])
def test_a_deletion_that_is_rejected_changes_nothing(sandbox: Sandbox, api: Api, status: str) -> None:
    sandbox.control.configure(deletion="signed")
    number = create(api)
    sandbox.control.set_whitelist_status(number, status)
    before, was_listed = get(api, number), listed(api)
    for _ in range(2):
        assert delete(api, number) == 200
        assert (get(api, number)["action"], listed(api)) == ("delete", was_listed)
        assert api.post(f"{PATH}/reject", {"ids": [number], "comment": "kept"}).status_code == 200
        assert (get(api, number), listed(api)) == (before, was_listed)


def test_a_status_that_a_test_sets_ends_a_pending_deletion(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.configure(deletion="signed")
    number = create(api)
    delete(api, number)
    sandbox.control.set_whitelist_status(number, "APPROVED")
    assert (get(api, number)["action"], get(api, number)["status"]) == ("create", "APPROVED")
    sandbox.control.configure(deletion="at once")
    assert delete(api, number) == 200
    assert listed(api) == []


def test_there_is_no_third_way(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="deletion"):
        sandbox.control.configure(deletion="never")
