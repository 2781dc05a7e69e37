"""A 403 is about roles only if the service says so; the id of an error is quoted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service.refusals import OTHER_REFUSAL, role_refusal
from support.whitelist.calls import create, read

from airflow_custody.client import CustodyClient, CustodyError, CustodyPermissionError
from airflow_custody.client.http.responses import parse_required_roles
from airflow_custody.sandbox import Sandbox

WEBHOOK = "00000000-0000-4000-8000-000000000000"
Call = Callable[[CustodyClient], object]


def refusal_of(client: CustodyClient, call: Call) -> CustodyError:
    with pytest.raises(CustodyPermissionError) as caught:
        call(client)
    return caught.value


# --- the roles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "roles"),
    [
        ("one of the 'operator' role is required", ["operator"]),
        ("E17: no: one of the 'operator - admin' role is required (trace 9)", ["operator", "admin"]),
        ("one of the '\toperator-admin   -   tpuser ' role is required", ["operator", "admin", "tpuser"]),
        ("one of the 'admin - admin' role is required", ["admin"]),
        ("one of the ' - ' role is required", []),
        ("one of the 'operator' role is", []),
        # Only names of roles in the published form are quoted.
        ("one of the 'operator - \x1b[2J - <b> - two words' role is required", ["operator"]),
        (f"one of the '{'x' * 61}' role is required", []),
    ],
)
def test_roles_are_taken_from_the_published_words(message: str, roles: list[str]) -> None:
    assert parse_required_roles(message) == tuple(roles)


@given(
    st.lists(st.text("abcdefghij", min_size=1, max_size=60), min_size=1, max_size=40, unique=True), st.text(), st.text()
)
def test_roles_are_found_in_any_text(roles: list[str], before: str, after: str) -> None:
    message = f"{before.replace('one of', '')}one of the '{' - '.join(roles)}' role is required{after}"
    assert parse_required_roles(message) == tuple(roles[:20])


# Calls, with what each needs besides the named role, and whether this package can do without it.
CALLS: dict[str, tuple[Call, str, bool]] = {
    "health": (read, "TPUser", False),
    "create": (create, "WhitelistedAddressCreator and TPUser", False),
    "rules": (lambda client: client.get_rules(), "", True),
    # Any response, and also the request, may contain a secret.
    "delete webhook": (lambda client: client.delete_webhook(WEBHOOK), "", False),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_that_names_roles_is_never_taken_for_not_offered(
    sandbox: Sandbox, client: CustodyClient, name: str
) -> None:
    call, others, _ = CALLS[name]
    sandbox.control.add_fault("status", status=403, body=role_refusal("operator", "admin"), times=None)
    error = refusal_of(client, call)
    assert error.code == "role-missing"
    assert error.required_roles == ("operator", "admin")
    also = f" This operation also needs {others}." if others else ""
    assert f"The user needs one of the roles operator, admin.{also}" in str(error)
    assert not error.not_offered
    assert not error.not_offered_by_service
    assert error.is_missing_role
    again = CustodyError.from_json(error.to_json())
    assert again.is_missing_role
    assert again.required_roles == error.required_roles


@pytest.mark.parametrize("message", [OTHER_REFUSAL["message"], "one of the '' role is required", ""])
@pytest.mark.parametrize("name", CALLS)
def test_any_other_refusal_is_about_the_tenant_or_the_object(
    sandbox: Sandbox, client: CustodyClient, name: str, message: str
) -> None:
    call, _, is_optional = CALLS[name]
    sandbox.control.add_fault("status", status=403, body={**OTHER_REFUSAL, "message": message}, times=None)
    error = refusal_of(client, call)
    assert error.code == ("not-offered" if is_optional else "request-refused")
    assert error.required_roles == ()
    assert "names no role: the operation may be disabled for this tenant, or the object may not be visible" in str(
        error
    )
    assert "needs" not in str(error)
    assert not error.is_missing_role
    for each in (error, CustodyError.from_json(error.to_json())):
        assert each.not_offered_by_service is is_optional
        assert each.not_offered is is_optional


@pytest.mark.parametrize("name", ["health", "rules"])
def test_a_gateway_can_name_no_role(sandbox: Sandbox, client: CustodyClient, name: str) -> None:
    body = {"message": role_refusal("admin")["message"], "code": "403"}
    sandbox.control.add_fault("status", status=403, body=body, times=None)
    error = refusal_of(client, CALLS[name][0])
    assert error.code == "response-unusable"
    assert error.required_roles == ()
    assert not error.is_missing_role
    assert not error.not_offered_by_service


# --- the id of an error ------------------------------------------------------------------------------------


def flat(details: Any) -> dict[str, Any]:
    return {"error": "InvalidArgument", "message": "no", "code": 400, "error_code": "E900-1", "details": details}


def rpc(details: Any) -> dict[str, Any]:
    return {"code": 3, "message": "no", "details": details}


@pytest.mark.parametrize("form", [flat, rpc])
@pytest.mark.parametrize(
    ("details", "found"),
    [
        ([{"message": "no", "code": 400, "id": "4f1d-77.a_B"}], "4f1d-77.a_B"),
        ([{"@type": "type.example/Info"}, "text", {"id": 123}], "123"),
        ([{"id": "one"}, {"id": "two"}], "one"),
        ([{"id": ""}, {"id": None}, {"id": ["x"]}], None),
        # A value that is not certainly an id is not quoted.
        ([{"id": "x" * 81}], None),
        ([{"id": "a b"}, {"id": "\x1b[2J"}, {"id": "a\n[custody/not-healthy]"}], None),
        ({"id": "x"}, None),
        ("x", None),
        (None, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["health", "delete webhook"])
def test_the_id_of_an_error_is_quoted(
    sandbox: Sandbox,
    client: CustodyClient,
    name: str,
    form: Callable[[Any], dict[str, Any]],
    details: Any,
    found: str | None,
) -> None:
    sandbox.control.add_fault("status", status=400, body=form(details), times=None)
    with pytest.raises(CustodyError) as caught:
        CALLS[name][0](client)
    assert caught.value.error_id == found
    assert (f"error id {found})" in caught.value.reason) is (found is not None)
    again = CustodyError.from_json(caught.value.to_json())
    assert str(again) == str(caught.value)
    assert again.error_id == found


def test_a_secret_is_no_id(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_fault("status", status=400, body=flat([{"id": sandbox.token}]))
    with pytest.raises(CustodyError) as caught:
        read(client)
    assert sandbox.token not in f"{caught.value} {caught.value.to_json()}"
