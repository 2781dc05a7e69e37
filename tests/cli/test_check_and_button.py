"""``custody check`` and the button Test Connection judge a connection in the same way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_runs import Run

from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox

OWN_403 = {"error": "PermissionDenied", "message": "missing role", "code": 403}
OWN_404 = {"error": "NotFound", "message": "not found", "code": 404}
USER = {"id": "7", "roles": ["TPUser"]}
Fault = tuple[int, Any]
#: By name: the responses of /health and of /users/me (None: the sandbox's own), whether the connection is good, and
#: the states of "credentials", "user", "roles" and "health listing".
CASES: dict[str, tuple[Fault | None, Fault | None, bool, list[str]]] = {
    "all is well": (None, None, True, ["ok", "ok", "ok", "ok"]),
    "nothing is checked": ((200, {"groups": {}}), None, True, ["ok", "ok", "ok", "ok"]),
    "nothing is left out": ((200, {}), None, True, ["ok", "ok", "ok", "ok"]),
    "{} to all": ((200, {}), (200, {}), False, ["not checked"] * 4),
    "{} and no user": ((200, {}), (404, OWN_404), False, ["failed", "unknown", "unknown", "ok"]),
    "no checks and no user": ((200, {"groups": {}}), (404, OWN_404), True, ["ok", "unknown", "unknown", "ok"]),
    "{} and no right": ((200, {}), (403, OWN_403), False, ["unknown", "unknown", "failed", "ok"]),
    "no right": (None, (403, OWN_403), False, ["ok", "unknown", "failed", "ok"]),
    "nobody": ((200, {}), (200, {"result": {"id": None}}), False, ["not checked"] * 4),
    "nobody, without id": (None, (200, {"result": {"status": "ok"}}), False, ["ok", "failed", "not checked", "ok"]),
    "a blank": (None, (200, {"result": {"id": " "}}), False, ["ok", "failed", "not checked", "ok"]),
    "nothing to see": (
        (200, {}),
        (200, {"result": {"id": "\u200b", "externalUserId": "\n"}}),
        False,
        ["not checked"] * 4,
    ),
    "an external id": ((200, {}), (200, {"result": {"externalUserId": "ann"}}), True, ["ok", "ok", "unknown", "ok"]),
    "no user": (None, (404, OWN_404), True, ["ok", "unknown", "unknown", "ok"]),
    "a gateway's 404": (None, (404, "<html>"), False, ["ok", "failed", "not checked", "ok"]),
    "a gateway's 502": (None, (502, "<html>"), False, ["ok", "failed", "not checked", "ok"]),
    "a 500": (None, (500, {"error": "x", "message": "m", "code": 13}), False, ["ok", "failed", "not checked", "ok"]),
    "a list": (None, (200, []), False, ["ok", "failed", "not checked", "ok"]),
    "roles as a text": (
        None,
        (200, {"result": {"id": "7", "roles": "TPUser"}}),
        False,
        ["ok", "failed", "not checked", "ok"],
    ),
    "no roles": (None, (200, {"result": {"id": "7", "roles": []}}), False, ["ok", "ok", "failed", "ok"]),
    "roles not said": (None, (200, {"result": {"id": "7"}}), True, ["ok", "ok", "unknown", "ok"]),
    "disabled": (None, (200, {"result": {**USER, "status": "disabled"}}), True, ["ok", "unknown", "ok", "ok"]),
    "an old service": ((404, OWN_404), (404, OWN_404), False, ["unknown", "unknown", "unknown", "failed"]),
    "a gateway's 401": (None, (401, "<html>"), False, ["failed", "not checked", "not checked", "ok"]),
}


def states(out: str) -> dict[str, str]:
    return {each["check"]: each["state"] for each in json.loads(out)["checks"]}


@pytest.mark.parametrize("name", CASES)
def test_the_same_judgement(connection: str, custody: Run, sandbox: Sandbox, name: str) -> None:
    health, user, good, expected = CASES[name]
    for path, fault in (("/health", health), ("/users/me", user)):
        if fault is not None:
            kind = "html" if isinstance(fault[1], str) else "status"
            sandbox.control.add_fault(kind, path=path, status=fault[0], body=fault[1], times=20)
    tested, text = CustodyHook().test_connection()
    assert tested is good, text
    assert good or text.endswith("]")
    ran = custody("check", "-o", "json", "--max-retries", "0")
    found = states(ran.out)
    assert [found[each] for each in ("credentials", "user", "roles", "health listing")] == expected
    assert (ran.code, json.loads(ran.out)["ok"]) == (0 if good else 1, good)
    for each in json.loads(ran.out)["checks"]:
        assert each["code"] or each["state"] != "failed", each


@pytest.mark.parametrize(
    ("fault", "code"),
    [((404, OWN_404), "role-missing"), ((200, {"result": {"id": "7"}}), "role-missing"), ((502, "<html>"), "")],
)
def test_a_role_that_is_asked_for_and_cannot_be_shown_fails(
    custody: Run, sandbox: Sandbox, fault: Fault, code: str
) -> None:
    kind = "html" if isinstance(fault[1], str) else "status"
    sandbox.control.add_fault(kind, path="/users/me", status=fault[0], body=fault[1], times=20)
    ran = custody("check", "--role", "TPUser", "-o", "json", "--max-retries", "0")
    (row,) = [each for each in json.loads(ran.out)["checks"] if each["check"] == "roles"]
    assert (ran.code, row["state"], row["code"]) == (1, "failed" if code else "not checked", code)


def test_rules_that_are_signed_as_pinned_prove_the_credentials(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_signers(["alice", "bob"])
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection(pins=True))
    sandbox.control.add_fault("status", path="/health", status=200, body={}, times=9)
    sandbox.control.add_fault("status", path="/users/me", status=404, body=OWN_404, times=9)
    tested, text = CustodyHook().test_connection()
    assert tested, text
    assert "signed with the pinned keys" in text


def test_roles_that_are_asked_for(custody: Run, sandbox: Sandbox) -> None:
    roles = ["--role", "tpuser", "--role", "AdminReadOnly or ADMIN"]
    assert custody("check", *roles).code == 0
    sandbox.control.add_fault("status", path="/users/me", status=200, body={"result": USER})
    ran = custody("check", *roles, "-o", "json")
    (row,) = [each for each in json.loads(ran.out)["checks"] if each["check"] == "roles"]
    assert (ran.code, row["advice"]) == (1, "Give the user AdminReadOnly or ADMIN, or use another user.")


def test_a_status_that_may_mean_no_work_is_said(connection: str, custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(
        "status", path="/users/me", status=200, body={"result": {**USER, "status": "locked"}}, times=2
    )
    assert "User 7 (status locked: may this user work?) has the roles" in CustodyHook().test_connection()[1]
    assert "status locked. What this status means is not published" in custody("check").out


@pytest.mark.parametrize("password", ["hunter2-pw12", "hunter2", "pw9"])
def test_a_secret_that_the_service_repeats_is_not_shown(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    sandbox.control.add_user("ann", ["TPUser"], password=password)
    user = {"id": f"x{password}", "externalUserId": password, "roles": ["TPUser", password], "status": password}
    sandbox.control.add_fault("status", path="/users/me", status=200, body={"result": user}, times=9)
    monkeypatch.setenv(
        "AIRFLOW_CONN_CUSTODY_DEFAULT",
        json.dumps({"conn_type": "custody", "host": sandbox.url, "login": "ann", "password": password}),
    )
    _, text = CustodyHook().test_connection()
    assert password not in text
    monkeypatch.delenv("CUSTODY_TOKEN")
    monkeypatch.setenv("CUSTODY_USER", "ann")
    monkeypatch.setenv("CUSTODY_PASSWORD", password)
    for form in ("json", "table"):
        ran = custody("check", "-o", form)
        assert password not in ran.out + ran.err
        assert "user" in ran.out
