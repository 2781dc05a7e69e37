"""``custody check``, which judges a connection in the same way as the button Test Connection."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
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
NOW = datetime(2026, 7, 1, 12, 0, 0, 300_000, tzinfo=timezone.utc)


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
    assert "TPUser, WhitelistedAddressCreator, WhitelistedAddressApprover, Admin\n" in ran.out
    ran = custody("check", "-o", "json")
    assert ran.data["ok"] is True
    # The main user of the sandbox has no key.
    others = {"tls": "unknown", "signatures": "not checked", "signer": "unknown"}
    assert states(ran) == {name: others.get(name, "ok") for name in ALL_CHECKS}
    assert (
        "so the service is trusted without verification | Give --superadmin-keys and --superadmin-minimum. "
        in detail(ran, "signatures")
    )


def test_after_a_failure_the_rest_is_not_checked(plain: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["check", "--base-url", "http://127.0.0.1:1", "--max-retries", "0"]
    ran = plain(*arguments, "-o", "json")
    assert ran.code == 1
    assert states(ran) == {name: "failed" if name == "settings" else "not checked" for name in CHECKS}
    assert "CUSTODY_TOKEN" in detail(ran, "settings")
    lines = plain(*arguments).out.splitlines()
    assert (lines[0], lines[-1]) == ("FAILED: settings", f"not checked: {', '.join(CHECKS[1:])}")
    monkeypatch.setenv("CUSTODY_TOKEN", "token-of-nobody")
    ran = plain(*arguments, "-o", "json")
    known = {"settings": "ok", "reachable": "failed"}
    assert ran.code == 1
    assert states(ran) == {name: known.get(name, "not checked") for name in CHECKS}
    assert "cannot be reached" in detail(ran, "reachable")


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
        ("status", {"status": 200, "body": {"status": "UP"}}, "list health checks failed: .*it has no 'groups'"),
        ("status", {"status": 404, "body": {"detail": "Not Found"}}, "list health checks failed: Not Found: not an "),
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


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/custody/ui/"])
def test_a_base_url_of_the_pages_is_one_finding(
    plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.token)
    ran = plain("check", "--base-url", f"{sandbox.url}{path}", "-o", "json")
    assert ran.code == 1
    assert {name for name, state in states(ran).items() if state in ("failed", "unknown")} == {"reachable", "tls"}
    why = "the base URL leads to the service's web pages, because it ends in /ui"
    assert row(ran, "reachable")["detail"] == why
    assert row(ran, "reachable")["advice"] == "Remove /ui from the base URL."


def test_a_server_counts_as_the_service_only_if_that_is_proved(custody: Run, sandbox: Sandbox) -> None:
    assert row(custody("check", "-o", "json"), "reachable")["detail"] == "the service responds (status 200)"
    for path in ("/health", "/users/me"):
        add_fault(sandbox, path, 404, OWN_404)
    assert row(custody("check", "-o", "json"), "reachable")["detail"] == "a server responds (status 404)"


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


@pytest.mark.parametrize(("seconds", "state"), [(1, "ok"), (20, "ok"), (300, "failed"), (-300, "failed")])
def test_clocks_that_differ(
    connection: str, custody: Run, monkeypatch: pytest.MonkeyPatch, seconds: int, state: str
) -> None:
    at = NOW + timedelta(seconds=seconds)
    monkeypatch.setattr(Observation, "of", lambda response: Observation(200, NOW, at))
    ran = custody("check", "-o", "json")
    assert states(ran)["clock"] == state
    words = "behind" if seconds > 0 else "ahead of"
    assert f"this machine's clock is {abs(seconds)} s {words} the service's" in detail(ran, "clock")
    # The button does not judge the clocks.
    assert ran.code == (0 if state == "ok" else 1)
    assert CustodyHook().test_connection()[0] is True


# --- who the user is, as the button sees it, too ---------------------------------------------------------------

OWN_404 = {"error": "NotFound", "message": "not found", "code": 404}
OWN_500 = {"error": "x", "message": "m", "code": 13}
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
        ((200, {}), (403, role_refusal("tpuser")), False, ["unknown", "unknown", "failed", "ok"]),
        (None, (403, role_refusal("tpuser")), False, ["ok", "unknown", "failed", "ok"]),
        # A refusal that names no role is not about roles.
        ((200, {}), (403, OTHER_REFUSAL), False, ["unknown", "failed", "not checked", "ok"]),
        (None, (403, OTHER_REFUSAL), False, FAILED),
        ((200, {}), (200, {"result": {"id": "\u200b", "externalUserId": "\n"}}), False, ["not checked"] * 4),
        ((200, {}), (200, {"result": {"externalUserId": "ann"}}), True, ["ok", "ok", "unknown", "ok"]),
        ((404, OWN_404), (404, OWN_404), False, ["unknown", "unknown", "unknown", "failed"]),
        (None, (200, {"result": {"id": " "}}), False, FAILED),
        (None, (404, OWN_404), True, ["ok", "unknown", "unknown", "ok"]),
        (None, (401, "<html>"), False, ["failed", "not checked", "not checked", "ok"]),
        (None, (404, "<html>"), False, FAILED),
        (None, (500, OWN_500), False, FAILED),
        (None, (200, {"result": {"id": "7", "roles": "TPUser"}}), False, FAILED),
        (None, (200, {"result": {"id": "7", "roles": []}}), False, ["ok", "ok", "failed", "ok"]),
        (None, (200, {"result": {"id": "7"}}), True, ["ok", "ok", "unknown", "ok"]),
        # What such a status means is not published.
        (None, (200, {"result": {**USER, "status": "locked"}}), True, ["ok", "unknown", "ok", "ok"]),
    ],
    ids=[
        "blank listing",
        "blank listing and user",
        "blank listing, no user operation",
        "empty groups, no user operation",
        "blank listing, user forbidden",
        "user forbidden",
        "blank listing, user disabled",
        "user disabled",
        "blank listing, user without a visible name",
        "blank listing, user without roles",
        "nothing offered",
        "user with a blank id",
        "user not offered",
        "401 of a gateway",
        "404 of a gateway",
        "user failed",
        "roles that are text",
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
    assert ("may work" in text) is ("may work" in ran.out) is ("locked" in str(user))


@pytest.mark.parametrize("password", ["hunter2-pw12", "hunter2", "pw9"])
def test_a_secret_that_the_service_repeats_is_not_shown(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
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


@pytest.mark.parametrize(
    ("role", "lacks"),
    [
        ("TPUser", "Admin or AdminReadOnly (reading webhooks and their calls)"),
        # One of two is enough to read.
        ("adminreadonly", "Missing: WhitelistedAddressCreator (creating whitelisting requests), "),
    ],
)
def test_missing_roles_are_named_with_their_purpose(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, role: str, lacks: str
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser", role]))
    ran = custody("check", "-o", "json")
    # Nobody needs all roles: who creates should not approve.
    assert ran.code == 0
    assert states(ran)["roles"] == "ok"
    assert lacks in detail(ran, "roles")
    assert ("reading webhooks" in detail(ran, "roles")) is (role == "TPUser")


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


def fingerprints(*keys: str) -> list[str]:
    return list(VerificationPins(keys, 1).fingerprints)


def check(custody: Run, folder: Path, *keys: str, minimum: int = 2, more: tuple[str, ...] = ("-o", "json")) -> Ran:
    file = folder / "keys.pem"
    file.write_text("".join(keys))
    return custody("check", "--superadmin-keys", str(file), "--superadmin-minimum", str(minimum), *more)


def test_the_rules_in_force_are_signed_as_pinned(
    custody: Run, sandbox: Sandbox, keys: list[str], tmp_path: Path
) -> None:
    # One signature would be enough; a pinned key that signed nothing is named all the same.
    sandbox.control.configure(superadmin_minimum=1)
    ran = check(custody, tmp_path, public_pem(1), *keys, minimum=1)
    found = row(ran, "signatures")
    assert ran.code == 0
    assert ran.err == ""
    assert found["state"] == "ok"
    one, two, other = fingerprints(*keys, public_pem(1))
    text = found["detail"]
    assert "1 of 3 pinned keys must sign (" in text
    assert ". Networks: any. Legacy signatures: refused. " in text
    assert "The service's rules in force are dated 20" in text
    assert f"signed by {one}, {two}; SHA-256 " in text
    assert text.endswith(f"not signed by {other}")


def test_rules_that_are_not_signed_as_pinned_fail(custody: Run, keys: list[str], tmp_path: Path) -> None:
    ran = check(custody, tmp_path, public_pem(1), keys[0])
    found = row(ran, "signatures")
    assert ran.code == 1
    assert found["state"] == "failed"
    assert "signed by 1 of the 2 required pinned keys" in found["detail"]
    assert "Check the pins" in found["advice"]
    ran = check(custody, tmp_path, *keys, more=("-o", "json", "--rules-not-before", "2099-01-01"))
    assert ran.code == 1
    assert row(ran, "signatures")["state"] == "failed"


def test_rules_that_are_signed_as_pinned_prove_the_credentials(
    custody: Run, keys: list[str], sandbox: Sandbox, tmp_path: Path
) -> None:
    add_fault(sandbox, "/health", 200, {})
    add_fault(sandbox, "/users/me", 404, OWN_404)
    ran = check(custody, tmp_path, *keys)
    assert ran.code == 0
    assert states(ran)["credentials"] == "ok"


@pytest.mark.parametrize(
    ("response", "state", "code"),
    [
        ((404, OWN_404), "unknown", "not-offered"),
        ((403, OTHER_REFUSAL), "unknown", "not-offered"),
        ((403, role_refusal("admin", "adminreadonly")), "failed", "role-missing"),
        ((404, {"html": "gateway"}), "failed", "response-unusable"),
        ((500, OWN_500), "failed", "service-failed"),
        ((200, {}), "failed", "response-unusable"),
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


def test_a_service_that_offers_only_the_contract_passes(
    custody: Run, sandbox: Sandbox, keys: list[str], tmp_path: Path
) -> None:
    sandbox.control.configure(operations="contract")
    ran = check(custody, tmp_path, *keys)
    assert ran.code == 0
    assert "failed" not in states(ran).values()
    assert {name for name, state in states(ran).items() if state == "unknown"} == {"tls", "user", "roles", "signatures"}
    assert "the service does not offer its rules" in row(ran, "signatures")["detail"]


def test_a_fingerprint_is_that_of_openssl(custody: Run, keys: list[str], tmp_path: Path) -> None:
    command = ["openssl", "pkey", "-pubin", "-outform", "DER"]
    der = subprocess.run(command, input=keys[0].encode(), capture_output=True, check=True).stdout
    fingerprint = hashlib.sha256(der).hexdigest()
    assert check(custody, tmp_path, *keys).out.count(fingerprint) == 2
    # For people, it is shorter.
    out = check(custody, tmp_path, *keys, more=()).out
    assert out.count(fingerprint) == 0
    assert out.count(f"{fingerprint[:16]}…") == 2


# --- the tenant, the signer, and the chains ------------------------------------------------------------------


def test_without_the_operations_on_the_tenant_their_rows_are_left_out(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.configure(not_offered=["GET /currencies", "GET /config/tenant"], computes_enforced=False)
    assert list(states(custody("check", "-o", "json"))) == list(CHECKS)


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
    ("enforced", "state", "text"),
    [
        ((True, True), "ok", "the user is in the rules in force and the public key is in the rules in force"),
        ((True, False), "unknown", "the public key is not in the rules in force"),
        ((False, False), "unknown", "Signatures of this user do not count"),
        ((None, None), None, ""),
    ],
)
def test_a_signer_is_compared_with_the_rules(
    custody: Run, sandbox: Sandbox, enforced: tuple[bool | None, bool | None], state: str | None, text: str
) -> None:
    role = "WhitelistedAddressApprover"
    user: dict[str, Any] = {"id": "1", "roles": ["TPUser", role]}
    known = dict(zip(("enforcedInRules", "publicKeyEnforcedInRules"), enforced, strict=True))
    user |= {name: value for name, value in known.items() if value is not None}
    add_fault(sandbox, "/users/me", 200, {"result": user})
    ran = custody("check", "-o", "json")
    assert ran.code == 0
    assert states(ran).get("signer") == state
    assert not state or text in detail(ran, "signer")
    # The role is required only of a user who is to sign.
    assert custody("check", "--role", role, "-o", "json").code == (1 if state == "unknown" else 0)


def test_a_user_who_does_not_sign_is_not_compared_with_the_rules(custody: Run, sandbox: Sandbox) -> None:
    add_fault(sandbox, "/users/me", 200, {"result": {"id": "1", "roles": ["TPUser"], "enforcedInRules": False}})
    assert "signer" not in states(custody("check", "-o", "json"))


def test_the_active_chains_are_in_one_row(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.configure(currencies=["ETH", "ETH/polygon"], disabled_currencies=["DOT", "NEAR"])
    assert detail(custody("check", "-o", "json"), "chains") == "active: ETH, ETH (polygon); not active: 2 | "
    many = [f"CHAIN{number}" for number in range(2000)]
    sandbox.control.configure(currencies=many, disabled_currencies=[])
    assert len(detail(custody("check", "-o", "json"), "chains")) < 3100
