"""``custody check``, which judges a connection in the same way as the button Test Connection."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.cli_runs import Ran, Run
from support.keys.pinned_keys import public_pem
from support.service.authorities import Authority
from support.service.refusals import OTHER_REFUSAL, role_refusal

from airflow_custody.client import VerificationPins
from airflow_custody.client.checks import CHECKS
from airflow_custody.client.http.responses import Observation
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox

ALL_CHECKS = [*CHECKS[:-1], "tenant", "signer", "chains", CHECKS[-1]]
NOW = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


def row(ran: Ran, name: str) -> dict[str, str]:
    (found,) = [each for each in ran.data["checks"] if each["check"] == name]
    assert isinstance(found, dict)
    return found


def states(ran: Ran) -> dict[str, str]:
    return {each["check"]: each["state"] for each in ran.data["checks"]}


def detail(ran: Ran, name: str) -> str:
    return f"{row(ran, name)['detail']} | {row(ran, name)['advice']}"


def test_a_good_connection_passes_all_checks(custody: Run) -> None:
    ran = custody("check")
    assert ran.code == 0
    assert ran.err == ""
    verdict, _, _, *rows = ran.out.splitlines()
    assert verdict == "no check failed"
    assert [line.strip().split("  ")[0] for line in rows] == ALL_CHECKS
    ran = custody("check", "-o", "json")
    assert ran.data["ok"] is True
    # The main user of the sandbox has no key.
    others = {"tls": "unknown", "signatures": "not checked", "signer": "unknown"}
    assert states(ran) == {name: others.get(name, "ok") for name in ALL_CHECKS}
    assert "so the service is trusted without verification | Set --superadmin-keys" in detail(ran, "signatures")


@pytest.mark.parametrize(
    ("token", "passed", "failed", "says"),
    [
        (None, [], "settings", "CUSTODY_TOKEN"),
        ("unknown-token", ["settings"], "reachable", "cannot be reached"),
    ],
)
def test_after_a_failure_the_rest_is_not_checked(
    plain: Run, monkeypatch: pytest.MonkeyPatch, token: str | None, passed: list[str], failed: str, says: str
) -> None:
    if token:
        monkeypatch.setenv("CUSTODY_TOKEN", token)
    ran = plain("check", "--base-url", "http://127.0.0.1:1", "--max-retries", "0", "-o", "json")
    assert ran.code == 1
    known = {**dict.fromkeys(passed, "ok"), failed: "failed"}
    assert states(ran) == {name: known.get(name, "not checked") for name in CHECKS}
    assert says in detail(ran, failed)


def test_a_connection_that_breaks_says_nothing_about_the_credentials(
    plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.token)
    sandbox.control.add_fault("status", status=503, retry_after=0)
    sandbox.control.add_fault("drop", times=None)
    ran = plain("check", "--base-url", sandbox.url, "--max-retries", "1", "-o", "json")
    known = {"settings": "ok", "reachable": "ok", "tls": "unknown", "clock": "ok", "health listing": "failed"}
    assert ran.code == 1
    assert states(ran) == {name: known.get(name, "not checked") for name in CHECKS}
    assert row(ran, "credentials")["detail"] == ""
    assert row(ran, "health listing")["code"] == "no-response"


@pytest.mark.parametrize(
    ("kind", "response", "seen"),
    [
        ("html", {"status": 200}, "list health checks failed: .*a web page"),
        ("status", {"status": 200, "body": {}}, "get current user failed: .*it has no 'result'"),
    ],
)
def test_another_program_is_not_the_service(
    custody: Run, sandbox: Sandbox, kind: str, response: dict[str, Any], seen: str
) -> None:
    sandbox.control.add_fault(kind, **response, times=None)
    ran = custody("check", "-o", "json")
    assert ran.code == 1
    expected = {"settings": "ok", "reachable": "failed", "tls": "unknown", "clock": "ok"}
    assert states(ran) == {name: expected.get(name, "not checked") for name in CHECKS}
    assert re.match(f"another program responds, not the custody service: {seen}", detail(ran, "reachable"))


def test_a_base_url_of_the_pages_is_one_finding(plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.token)
    ran = plain("check", "--base-url", f"{sandbox.url}/custody/ui/", "-o", "json")
    assert ran.code == 1
    assert {name for name, state in states(ran).items() if state in ("failed", "unknown")} == {"reachable", "tls"}
    assert row(ran, "reachable")["advice"] == "Remove /ui from the base URL."


def test_tls_is_shown_with_the_end_of_the_certificate(
    plain: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bundle, certificate = authority
    with Sandbox(certfile=certificate) as server:
        monkeypatch.setenv("CUSTODY_TOKEN", server.token)
        for verify, code, name, state, text in (
            (["--verify", bundle], 0, "tls", "ok", "TLSv1.3; the certificate is accepted, and expires on 3000-01-01 "),
            (["--verify", "false"], 0, "tls", "unknown", "TLSv1.3; the certificate is not verified"),
            ([], 1, "reachable", "failed", "TLS: the certificate of"),
        ):
            ran = plain("check", "--base-url", server.url, "--max-retries", "0", "-o", "json", *verify)
            assert ran.code == code
            assert row(ran, name)["state"] == state
            assert text in detail(ran, name)


@pytest.mark.parametrize(("seconds", "state"), [(60, "ok"), (61, "failed"), (-61, "failed")])
def test_clocks_that_differ(
    connection: str, custody: Run, monkeypatch: pytest.MonkeyPatch, seconds: int, state: str
) -> None:
    at = NOW + timedelta(seconds=seconds)
    monkeypatch.setattr(Observation, "of", lambda response: Observation(200, NOW, at))
    ran = custody("check", "-o", "json")
    assert states(ran)["clock"] == state
    words = "behind" if seconds > 0 else "ahead of"
    assert f"this machine's clock is {abs(seconds)} s {words} the service's" in detail(ran, "clock")
    # Unlike the command, the button does not compare the clocks.
    assert ran.code == (0 if state == "ok" else 1)
    assert CustodyHook().test_connection()[0] is True


# --- the user: the button checks the same ---------------------------------------------------------------------

OWN_404 = {"error": "NotFound", "message": "not found", "code": 404}
USER = {"id": "7", "roles": ["TPUser"]}
Fault = tuple[int, Any]
FAILED = ["ok", "failed", "not checked", "ok"]


def add_fault(sandbox: Sandbox, path: str, status: int, body: Any) -> None:
    kind = "html" if isinstance(body, str) else "status"
    sandbox.control.add_fault(kind, path=path, status=status, body=body, times=20)


@pytest.mark.parametrize(
    ("health", "user", "good", "expected"),
    [
        # The responses of /health and of /users/me (None: the sandbox's own), whether the connection is good, and the
        # states of "credentials", "user", "roles" and "health listing".
        ((200, {}), None, True, ["ok", "ok", "ok", "ok"]),
        ((200, {}), (200, {}), False, ["not checked"] * 4),
        ((200, {}), (404, OWN_404), False, ["failed", "unknown", "unknown", "ok"]),
        ((200, {"groups": {}}), (404, OWN_404), True, ["ok", "unknown", "unknown", "ok"]),
        (None, (403, role_refusal("tpuser")), False, ["ok", "unknown", "failed", "ok"]),
        # A refusal that names no role does not prove that a role is missing.
        ((200, {}), (403, OTHER_REFUSAL), False, ["unknown", "failed", "not checked", "ok"]),
        ((200, {}), (200, {"result": {"id": "\u200b", "externalUserId": "\n"}}), False, ["not checked"] * 4),
        ((404, OWN_404), (404, OWN_404), False, ["unknown", "unknown", "unknown", "failed"]),
        (None, (404, OWN_404), True, ["ok", "unknown", "unknown", "ok"]),
        (None, (401, "<html>"), False, ["failed", "not checked", "not checked", "ok"]),
        (None, (404, "<html>"), False, FAILED),
        (None, (200, {"result": {"id": "7", "roles": []}}), False, ["ok", "ok", "failed", "ok"]),
        (None, (200, {"result": {"id": "7"}}), True, ["ok", "ok", "unknown", "ok"]),
        # It is not published what such a status means.
        (None, (200, {"result": {**USER, "status": "locked"}}), True, ["ok", "unknown", "ok", "ok"]),
    ],
    ids=[
        "blank listing",
        "blank listing and user",
        "blank listing, no user operation",
        "empty groups, no user operation",
        "user forbidden",
        "blank listing, user disabled",
        "blank listing, user without a visible name",
        "nothing offered",
        "user not offered",
        "401 of a gateway",
        "404 of a gateway",
        "no roles",
        "roles not reported",
        "status that is not published",
    ],
)
def test_the_button_judges_in_the_same_way(
    connection: str,
    custody: Run,
    sandbox: Sandbox,
    health: Fault | None,
    user: Fault | None,
    good: bool,
    expected: list[str],
) -> None:
    for path, fault in (("/health", health), ("/users/me", user)):
        if fault is not None:
            add_fault(sandbox, path, *fault)
    tested, text = CustodyHook().test_connection()
    assert tested is good, text
    assert good or text.endswith("]")
    ran = custody("check", "-o", "json")
    names = ("credentials", "user", "roles", "health listing")
    assert {name: states(ran)[name] for name in names} == dict(zip(names, expected, strict=True))
    assert ran.code == (0 if good else 1)
    assert ran.data["ok"] == good
    for each in ran.data["checks"]:
        assert each["code"] or each["state"] != "failed", each
    assert ("the user is active" in text) is ("the user is active" in ran.out) is ("locked" in str(user))


def test_a_secret_that_the_service_repeats_is_not_shown(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "pw9"
    sandbox.control.add_user("ann", ["TPUser"], password=password)
    user = {"id": f"x{password}", "externalUserId": password, "roles": ["TPUser", password], "status": password}
    add_fault(sandbox, "/users/me", 200, {"result": user})
    connection = {"conn_type": "custody", "host": sandbox.url, "login": "ann", "password": password}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    assert password not in CustodyHook().test_connection()[1]
    monkeypatch.delenv("CUSTODY_TOKEN")
    monkeypatch.setenv("CUSTODY_USER", "ann")
    monkeypatch.setenv("CUSTODY_PASSWORD", password)
    for form in ("json", "table"):
        ran = custody("check", "-o", form)
        assert password not in ran.out + ran.err
        assert "user" in ran.out


# --- roles ---------------------------------------------------------------------------------------------------


def test_missing_roles_are_named_with_their_purpose(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser", "adminreadonly"]))
    ran = custody("check", "-o", "json")
    # A user need not have all roles, because the creator of a request should not approve it.
    assert ran.code == 0
    assert states(ran)["roles"] == "ok"
    assert "Missing: WhitelistedAddressCreator (creating whitelisting requests), " in detail(ran, "roles")
    # One of the two roles is enough to read.
    assert "reading webhooks" not in detail(ran, "roles")


@pytest.mark.parametrize(
    ("response", "state", "code"),
    [
        (None, "ok", ""),
        ((200, {"result": USER}), "failed", "role-missing"),
        ((404, OWN_404), "failed", "role-missing"),
        ((502, "<html>"), "not checked", ""),
    ],
    ids=["has them", "lacks one", "no user operation", "gateway"],
)
def test_required_roles(custody: Run, sandbox: Sandbox, response: Fault | None, state: str, code: str) -> None:
    if response:
        add_fault(sandbox, "/users/me", *response)
    ran = custody("check", "--role", "tpuser", "--role", "AdminReadOnly or ADMIN", "-o", "json")
    found = row(ran, "roles")
    assert ran.code == (0 if state == "ok" else 1)
    assert found["state"] == state
    assert found["code"] == code
    if response == (200, {"result": USER}):
        assert found["advice"] == "Grant the user AdminReadOnly or ADMIN, or use another user."


def test_an_unknown_role_is_rejected(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("check", "--role", "TPUser", "--role", "Admin or AdminReadOnyl")
    assert ran.code == 1
    assert ran.out == ""
    assert "--role: unknown role 'AdminReadOnyl'. The roles are: Admin, AdminReadOnly, TPUser, " in ran.err
    assert sandbox.control.request_log() == []


# --- what is pinned, and the rules in force --------------------------------------------------------------------


@pytest.fixture
def keys(sandbox: Sandbox) -> list[str]:
    return list(sandbox.control.pins()["superadmin_keys"])


def check(custody: Run, folder: Path, *keys: str, minimum: int = 2) -> Ran:
    file = folder / "keys.pem"
    file.write_text("".join(keys))
    return custody("check", "--superadmin-keys", str(file), "--superadmin-minimum", str(minimum), "-o", "json")


def test_the_rules_in_force_are_signed_as_pinned(
    custody: Run, sandbox: Sandbox, keys: list[str], tmp_path: Path
) -> None:
    # One signature would be enough, but a pinned key that has signed nothing is named nevertheless.
    sandbox.control.configure(superadmin_minimum=1)
    ran = check(custody, tmp_path, public_pem(1), *keys, minimum=1)
    found = row(ran, "signatures")
    assert ran.code == 0
    assert found["state"] == "ok"
    one, two, other = VerificationPins([*keys, public_pem(1)], 1).fingerprints
    assert "1 of 3 pinned keys must sign (" in found["detail"]
    assert f"signed by {one}, {two}; SHA-256 " in found["detail"]
    assert found["detail"].endswith(f"not signed by {other}")
    ran = check(custody, tmp_path, public_pem(1), keys[0])
    found = row(ran, "signatures")
    assert ran.code == 1
    assert found["state"] == "failed"
    assert "signed by 1 of the 2 required pinned keys" in found["detail"]
    assert "Check the pins" in found["advice"]


@pytest.mark.parametrize(
    ("response", "state", "code"),
    [
        ((404, OWN_404), "unknown", "not-offered"),
        ((403, OTHER_REFUSAL), "unknown", "not-offered"),
        ((403, role_refusal("admin", "adminreadonly")), "failed", "role-missing"),
        ((404, {"html": "gateway"}), "failed", "response-unusable"),
    ],
)
def test_rules_are_unknown_only_if_the_service_does_not_offer_them(
    custody: Run, sandbox: Sandbox, keys: list[str], tmp_path: Path, response: Fault, state: str, code: str
) -> None:
    add_fault(sandbox, "/rules", *response)
    ran = check(custody, tmp_path, *keys)
    found = row(ran, "signatures")
    assert ran.code == (0 if state == "unknown" else 1)
    assert found["state"] == state
    assert found["code"] == code
    assert "2 of 2 pinned keys" in found["detail"]


# --- the tenant, the signer, and the chains ------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/currencies", "/config/tenant"])
def test_a_gateways_page_proves_nothing_about_the_tenant(custody: Run, sandbox: Sandbox, path: str) -> None:
    sandbox.control.add_fault("html", path=path, status=404, times=None)
    ran = custody("check", "-o", "json")
    assert ran.code == 0
    assert states(ran)["chains" if path == "/currencies" else "tenant"] == "unknown"
    assert states(ran)["reachable"] == "ok"


@pytest.mark.parametrize(
    ("config", "state", "text"),
    [
        ({"tenantId": "1", "superAdminMinimumSignatures": "2"}, "ok", "tenant 1; it requires as many"),
        ({"tenantId": "1", "superAdminMinimumSignatures": "3"}, "failed", "requires 3 super-administrators, but "),
        ({"tenantId": "1", "superAdminMinimumSignatures": "1"}, "failed", "requires 1 super-administrator, but "),
        ({"tenantId": "1"}, "unknown", "does not report how many super-administrators must sign"),
        ({"tenantId": "9", "superAdminMinimumSignatures": "2"}, "failed", "but the user belongs to tenant 1"),
    ],
)
def test_the_tenant_is_compared_with_the_pins(
    custody: Run, sandbox: Sandbox, keys: list[str], tmp_path: Path, config: dict[str, str], state: str, text: str
) -> None:
    add_fault(sandbox, "/config/tenant", 200, {"config": config})
    ran = check(custody, tmp_path, *keys)
    assert ran.code == (1 if state == "failed" else 0)
    assert row(ran, "tenant")["state"] == state
    assert text in detail(ran, "tenant")
    if "requires" in text and state == "failed":
        assert "Never copy it from the service." in detail(ran, "tenant")


def test_without_pins_the_minimum_is_not_shown(custody: Run) -> None:
    assert detail(custody("check", "-o", "json"), "tenant") == "tenant 1, version 3.20 | "


@pytest.mark.parametrize(
    ("user", "key", "state", "text"),
    [
        (True, True, "ok", "the user is in the rules in force and the public key is in the rules in force"),
        (True, False, "unknown", "the public key is not in the rules in force"),
        (False, False, "unknown", "This user's signatures do not count"),
    ],
)
def test_a_signer_is_compared_with_the_rules(
    custody: Run, sandbox: Sandbox, user: bool, key: bool, state: str, text: str
) -> None:
    role = "WhitelistedAddressApprover"
    result = {"id": "1", "roles": ["TPUser", role], "enforcedInRules": user, "publicKeyEnforcedInRules": key}
    add_fault(sandbox, "/users/me", 200, {"result": result})
    ran = custody("check", "-o", "json")
    assert ran.code == 0
    assert states(ran)["signer"] == state
    assert text in detail(ran, "signer")
    # The role is required only if the user is to sign.
    assert custody("check", "--role", role, "-o", "json").code == (1 if state == "unknown" else 0)


def test_the_active_chains_are_in_one_row(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.configure(currencies=["ETH", "ETH/polygon"], disabled_currencies=["DOT", "NEAR"])
    assert detail(custody("check", "-o", "json"), "chains") == "active: ETH, ETH (polygon); not active: 2 | "
