from __future__ import annotations

import json
import re
import socket
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from authorities import Authority
from cli_runs import Ran, Run

from airflow_custody.cli.check import CHECKS
from airflow_custody.client.http.responses import Observation
from airflow_custody.sandbox import Sandbox

NOW = datetime(2026, 7, 1, 12, 0, 0, 300_000, tzinfo=timezone.utc)


def states(ran: Ran) -> dict[str, str]:
    return {each["check"]: each["state"] for each in json.loads(ran.out)["checks"]}


def detail(ran: Ran, name: str) -> str:
    (found,) = [each for each in json.loads(ran.out)["checks"] if each["check"] == name]
    return f"{found['detail']} | {found['advice']}"


def test_all_is_well(custody: Run) -> None:
    ran = custody("check")
    assert (ran.code, ran.err) == (0, "")
    title, header, *lines = ran.out.splitlines()
    assert (title, header.split()) == ("checks:", ["CHECK", "STATE", "DETAIL"])
    assert [line.strip().split("  ")[0] for line in lines] == list(CHECKS)
    assert "TPUser, WhitelistedAddressCreator, WhitelistedAddressApprover, Admin\n" in ran.out
    found = custody("check", "-o", "json")
    assert json.loads(found.out)["ok"] is True
    others = {"tls": "unknown", "signatures": "not checked"}
    assert states(found) == {name: others.get(name, "ok") for name in CHECKS}
    assert "is the service's word | Give --superadmin-keys and --superadmin-minimum. " in detail(found, "signatures")


def test_wrong_settings_leave_the_rest_unchecked(plain: Run) -> None:
    ran = plain("check", "--base-url", "https://custody.example.com", "-o", "json")
    assert ran.code == 1
    assert states(ran) == {name: "failed" if name == "settings" else "not checked" for name in CHECKS}
    assert "CUSTODY_TOKEN" in detail(ran, "settings")
    lines = plain("check", "--base-url", "https://custody.example.com").out.splitlines()
    assert [line.split()[0] for line in lines] == ["checks:", "CHECK", "settings", "not"]
    assert lines[-1] == f"not checked: {', '.join(CHECKS[1:])}"


def test_a_service_that_is_not_there(plain: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", "token-of-nobody")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        ran = plain("check", "--base-url", url, "--max-retries", "0", "-o", "json")
    assert ran.code == 1
    ok = {"settings": "ok", "reachable": "failed"}
    assert states(ran) == {name: ok.get(name, "not checked") for name in CHECKS}
    assert "cannot be reached" in detail(ran, "reachable")


@pytest.mark.parametrize(
    ("kind", "response", "seen"),
    [
        ("html", {"status": 200}, "list health checks failed: .*a web page"),
        ("html", {"status": 404}, "list health checks failed: .*a web page"),
        ("status", {"status": 200, "body": {"status": "UP"}}, "list health checks failed: .*it has no 'groups'"),
        ("status", {"status": 200, "body": []}, "list health checks failed: .*should be a valid dictionary"),
        ("status", {"status": 404, "body": {"detail": "Not Found"}}, "list health checks failed: Not Found: not the "),
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
    text = detail(ran, "reachable")
    assert re.match(f"another program responds, not the custody service: {seen}", text)
    assert "check --base-url" in text


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("TPusr", "Do you mean 'TPUser'?"),
        ("Admin or AdminReadOnyl", "Do you mean 'AdminReadOnly'?"),
        ("HSM", "There are: Admin, AdminReadOnly, TPUser, WhitelistedAddressApprover, WhitelistedAddressCreator."),
    ],
)
def test_a_role_that_is_mistyped_is_refused(custody: Run, sandbox: Sandbox, given: str, advice: str) -> None:
    ran = custody("check", "--role", "TPUser", "--role", given)
    assert (ran.code, ran.out) == (1, "")
    assert f"--role: there is no role {given.split(' or ')[-1]!r}. {advice} [custody/parameter-wrong]" in ran.err
    assert sandbox.control.request_log() == []


def test_tls_is_shown_with_the_end_of_the_certificate(
    plain: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bundle, certificate = authority
    with Sandbox(certfile=certificate) as server:
        monkeypatch.setenv("CUSTODY_TOKEN", server.token)
        arguments = ["check", "--base-url", server.url, "--max-retries", "0", "-o", "json"]
        ran = plain(*arguments, "--verify", bundle)
        assert ran.code == 0
        assert states(ran)["tls"] == "ok"
        assert "TLSv1.3; the certificate is accepted, and ends on 3000-01-01 " in detail(ran, "tls")
        ran = plain(*arguments, "--verify", "false")
        assert states(ran)["tls"] == "unknown"
        assert "TLSv1.3; the certificate is not verified" in detail(ran, "tls")
        ran = plain(*arguments)
        assert ran.code == 1
        assert "TLS: the certificate of" in detail(ran, "reachable")


@pytest.mark.parametrize("kind", ["token", "password"])
def test_credentials_that_are_refused(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "token":
        monkeypatch.setenv("CUSTODY_TOKEN", "token-of-nobody")
    else:
        monkeypatch.delenv("CUSTODY_TOKEN")
        monkeypatch.setenv("CUSTODY_USER", "nobody")
        monkeypatch.setenv("CUSTODY_PASSWORD", "password-of-nobody")
    ran = custody("check", "-o", "json")
    assert ran.code == 1
    found = states(ran)
    assert (found["reachable"], found["credentials"], found["clock"]) == ("ok", "failed", "ok")
    assert {found[name] for name in ("user", "roles", "health listing")} == {"not checked"}
    assert "of-nobody" not in ran.out + ran.err


def test_a_token_that_has_expired_sends_nothing(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser"], expires_in=-5, jwt=True))
    ran = custody("check", "-o", "json")
    assert (states(ran)["credentials"], states(ran)["reachable"]) == ("failed", "not checked")
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser"], expires_in=500, jwt=True))
    assert "the token expires at" in detail(custody("check", "-o", "json"), "credentials")


def test_roles_that_are_missing_are_named_with_what_they_are_for(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sandbox.control.add_user("ann", ["TPUser"])
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser"], user_id=user))
    ran = custody("check", "-o", "json")
    # Nobody needs all roles: who creates should not approve.
    assert (ran.code, states(ran)["roles"]) == (0, "ok")
    text = detail(ran, "roles")
    assert "create whitelisting request, delete whitelisting request (lacks WhitelistedAddressCreator)" in text
    assert "list webhooks, list webhook calls (lacks Admin or AdminReadOnly)" in text
    ran = custody("check", "--role", "admin", "-o", "json")
    assert (ran.code, states(ran)["roles"]) == (1, "failed")
    assert "Give the user admin" in detail(ran, "roles")
    # One of two is enough to read.
    user = sandbox.control.add_user("bob", ["TPUser", "adminreadonly"])
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser", "adminreadonly"], user_id=user))
    text = detail(custody("check", "-o", "json"), "roles")
    assert "delete webhook, create webhook (lacks Admin)" in text
    assert "list webhook" not in text


# --- clocks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "state"), [(1, "ok"), (20, "ok"), (300, "failed"), (-300, "failed")])
def test_clocks_that_differ(custody: Run, monkeypatch: pytest.MonkeyPatch, seconds: int, state: str) -> None:
    monkeypatch.setattr(
        Observation,
        "of",
        lambda response: Observation(200, NOW, NOW + timedelta(seconds=seconds)),
    )
    ran = custody("check", "-o", "json")
    assert states(ran)["clock"] == state
    words = "behind" if seconds > 0 else "ahead of"
    assert f"this machine's clock is {abs(seconds)} s {words} the service's" in detail(ran, "clock")
