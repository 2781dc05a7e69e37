"""What ``custody check`` says of what is pinned, and of the rules in force."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Ran, Run
from pinned_keys import public_pem

from airflow_custody.client import VerificationPins
from airflow_custody.sandbox import Sandbox

OWN_404 = {"error": "NotFound", "message": "not found", "code": 404}


def found(ran: Ran) -> dict[str, str]:
    (row,) = [each for each in json.loads(ran.out)["checks"] if each["check"] == "signatures"]
    assert isinstance(row, dict)
    return row


@pytest.fixture
def keys(sandbox: Sandbox) -> list[str]:
    return list(sandbox.control.pins()["superadmin_keys"])


def fingerprints(*keys: str) -> list[str]:
    return list(VerificationPins(keys, 1).fingerprints)


def check(custody: Run, folder: Path, *keys: str, minimum: int = 2, more: tuple[str, ...] = ()) -> Ran:
    file = folder / "keys.pem"
    file.write_text("".join(keys))
    arguments = ["--superadmin-keys", str(file), "--superadmin-minimum", str(minimum), *more]
    return custody("check", "-o", "json", *arguments)


def test_the_rules_in_force_are_signed_as_pinned(custody: Run, keys: list[str], tmp_path: Path) -> None:
    ran = check(custody, tmp_path, *keys)
    row = found(ran)
    assert (ran.code, ran.err, row["state"]) == (0, "", "ok")
    one, two = fingerprints(*keys)
    assert f"2 of 2 pinned keys must sign ({one}, {two}); any network, legacy signatures do not count" in row["detail"]
    assert "The rules that the service says are in force are of 20" in row["detail"]
    assert f"signed by {', '.join(sorted((one, two)))}; SHA-256 " in row["detail"]


def test_rules_that_are_not_signed_as_pinned_fail(custody: Run, keys: list[str], tmp_path: Path) -> None:
    ran = check(custody, tmp_path, public_pem(1), keys[0])
    row = found(ran)
    assert (ran.code, row["state"]) == (1, "failed")
    assert "signed by 1 of the 2 pinned keys" in row["detail"]
    assert "are the pins right?" in row["advice"]
    ran = check(custody, tmp_path, *keys, more=("--rules-not-before", "2099-01-01"))
    assert (ran.code, found(ran)["state"]) == (1, "failed")


@pytest.mark.parametrize(
    ("status", "body", "state", "text", "code"),
    [
        (404, OWN_404, "unknown", "the service does not offer its rules", "not-offered"),
        (404, "<html>gateway</html>", "failed", "not the service's own words", "not-offered"),
        (500, {"error": "Internal", "message": "broken", "code": 500}, "failed", "broken", "service-failed"),
        (200, {"result": {}}, "failed", "result.rulesContainer", "response-unusable"),
        (200, {}, "failed", "it has no 'result.rulesContainer'", "response-unusable"),
    ],
)
def test_only_what_the_service_says_that_it_does_not_offer_is_unknown(
    custody: Run,
    sandbox: Sandbox,
    keys: list[str],
    tmp_path: Path,
    status: int,
    body: Any,
    state: str,
    text: str,
    code: str,
) -> None:
    sandbox.control.add_fault("status", status=status, body=body, method="GET", path="/rules")
    ran = check(custody, tmp_path, *keys)
    row = found(ran)
    assert (ran.code, row["state"], row["code"]) == (0 if state == "unknown" else 1, state, code)
    assert text in row["detail"]
    assert "2 of 2 pinned keys" in row["detail"]


def test_a_fingerprint_is_what_openssl_prints(custody: Run, keys: list[str], tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    file.write_text("".join(keys))
    own = tmp_path / "key.pem"
    own.write_text(keys[0])
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", str(own), "-outform", "DER"], capture_output=True, check=True
    ).stdout
    arguments = ["check", "--superadmin-keys", str(file), "--superadmin-minimum", "2"]
    fingerprint = hashlib.sha256(der).hexdigest()
    assert custody(*arguments, "-o", "json").out.count(fingerprint) == 2
    # For people, it is shorter.
    out = custody(*arguments).out
    assert (out.count(fingerprint), out.count(f"{fingerprint[:16]}…")) == (0, 2)
    (line,) = [line for line in out.splitlines() if line.startswith("  signatures ")]
    assert len(line) < 330


def test_texts_of_the_service_push_nothing_out(custody: Run, sandbox: Sandbox, keys: list[str], tmp_path: Path) -> None:
    user = {"id": "1" * 500, "externalUserId": "x" * 5000, "tenantId": "1", "roles": ["R" * 5000] * 500}
    sandbox.control.add_fault("status", status=200, body={"result": user}, method="GET", path="/users/me")
    ran = check(custody, tmp_path, *keys)
    rows = {each["check"]: each for each in json.loads(ran.out)["checks"]}
    assert "tenantId 1" in rows["user"]["detail"]
    assert " and 490 more; not for this user: " in rows["roles"]["detail"]
    assert "Give the user TPUser" in rows["roles"]["advice"]
    assert len(ran.out) < 8000
