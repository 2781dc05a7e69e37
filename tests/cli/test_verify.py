"""The audit of all signatures: ``custody whitelist verify``."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli_runs import Create, Ran, Run
from support.keys.pinned_keys import public_pem

from airflow_custody.client import CustodyClient, VerificationPins
from airflow_custody.client.signers import PemSigner
from airflow_custody.sandbox import Sandbox

Audit = Callable[..., Ran]


@pytest.fixture
def audit(custody: Run, pins: list[str]) -> Audit:
    return lambda *arguments: custody("whitelist", "verify", *pins, *arguments)


def pin(folder: Path, *keys: str) -> list[str]:
    """Return the options that pin these keys, each from a file of its own."""
    options = ["--superadmin-minimum", str(len(keys))]
    for number, key in enumerate(keys):
        (folder / f"{number}.pem").write_text(key)
        options += ["--superadmin-keys", str(folder / f"{number}.pem")]
    return options


def test_hidden_requests_are_not_verified_and_the_evidence_says_so(
    audit: Audit, signed: Create, sandbox: Sandbox, plain: Run, pins: list[str], tmp_path: Path
) -> None:
    shown, hidden = signed(1), signed(2)
    sandbox.control.configure(listings={"whitelist": {"dropped": [hidden]}})
    text = "NOT VERIFIED: the service counts 1 request that it does not return\n"
    ran = audit()
    assert ran.code == 2
    assert ran.out.startswith(text)
    assert "1 request: 1 verified, 1 more hidden (" in ran.out
    file = tmp_path / "evidence.json"
    file.write_text(audit("-o", "json", "--evidence").out)
    # A request that is given by its id is either in the evidence file, or reported as absent.
    for run, arguments in ((audit, []), (plain, ["whitelist", "verify", *pins, "--from", str(file)])):
        assert run(*arguments).out.startswith(text)
        assert [run(*arguments, *each).code for each in ([], ["--id", shown], ["--id", hidden])] == [2, 0, 2]


def test_signed_requests_are_verified(audit: Audit, signed: Create, sandbox: Sandbox) -> None:
    ids = [signed(1), signed(2)]
    ran = audit()
    assert ran.code == 0
    assert ran.err == ""
    *lines, last = ran.out.splitlines()
    assert lines == [
        f'request {each}: verified: ETH 0x{number:040x} "L{number}", validly signed by signer-1@example.test'
        for number, each in enumerate(ids, 1)
    ]
    assert re.match(r"2 requests: 2 verified \(2 of 2 pinned keys must sign \([0-9a-f]{16}…, [0-9a-f]{16}…\)\. ", last)
    # An auditor keeps this JSON output.
    data = audit("-o", "json").data
    pins = VerificationPins(**sandbox.control.pins())
    assert data["service"] == {"base_url": sandbox.url, "tenant_id": "1"}
    assert data["verified_at"][-1] == "Z"
    assert data["pins"]["fingerprints"] == sorted(pins.fingerprints)
    assert data["counts"] == {"verified": 2, "unverified": 0, "pending": 0, "rejected": 0, "absent": 0}
    row, _ = data["rows"]
    expected = {"id": ids[0], "state": "verified", "verified": True, "reason": None, "legacy": False, "omitted": []}
    assert {name: row[name] for name in expected} == expected
    assert row["fields"]["address"] == f"0x{1:040x}"
    assert row["applied"][0]["path"] == [{"group_id": "approvers", "minimum": 1, "user_ids": ["signer-1@example.test"]}]
    assert row["rules"]["signed_by"] == sorted(pins.fingerprints)


def test_unsigned_and_duplicate_addresses_are_named(audit: Audit, create: Create, signed: Create) -> None:
    ids = [signed(1), signed(1, label="Another")]
    forged = create(1)
    ran = audit()
    assert ran.code == 2
    assert ran.err == ""
    assert f"request {forged}: UNVERIFIED: no signature covers its text" in ran.out
    assert f"same destination: requests {ids[0]}, {ids[1]}\n" in ran.out
    assert "\n3 requests: 2 verified, 1 unverified (" in ran.out
    (row,) = audit("-o", "json", "--id", forged).data["rows"]
    assert (row["state"], row["verified"], row["fields"], row["rules"]) == ("unverified", False, None, None)


def test_pending_and_rejected_requests(audit: Audit, create: Create, sandbox: Sandbox) -> None:
    pending = create(2, status="pending")
    rejected = create(3, status="rejected")
    sandbox.control.set_whitelist_envelope(rejected, metadata={"hash": "0" * 64, "payloadAsString": "{}"})
    ran = audit()
    assert ran.code == 0
    assert f"request {pending}: pending, no valid signature\n" in ran.out
    assert f"request {rejected}" not in ran.out
    assert "2 requests: 0 verified, 1 pending, 1 rejected (" in ran.out
    assert not any(each["verified"] for each in audit("-o", "json").data["rows"])


def test_an_invalid_signature_of_a_pending_request_is_a_finding(audit: Audit, create: Create, sandbox: Sandbox) -> None:
    pending = create(2, status="pending")
    rejected = create(3, status="rejected")
    junk = {"signature": {"userId": "ann", "signature": "A" * 88}, "hashes": ["0" * 64]}
    sandbox.control.set_whitelist_envelope(pending, signedAddress={"signatures": [junk]})
    ran = audit("--rejected-statuses", "none")
    assert ran.code == 2
    assert f"request {pending}: PENDING: its signature 1 of 1 " in ran.out
    # The sandbox lists this request among the pending requests.
    assert f"request {rejected}: pending, no valid signature\n" in ran.out


def test_pending_requests_without_rules_of_their_own(
    audit: Audit, plain: Run, pins: list[str], create: Create, sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.control.configure(rules_on_pending=False)
    ann, _ = sandbox.control.add_signers(["ann", "bob"])
    pending = create(2, status="pending")
    with CustodyClient(sandbox.url, ann["token"]) as client:
        signer = PemSigner(lambda: ann["private_key"], name="k")
        signature = signer.sign(f'["{client.get_whitelist_request(pending).hash}"]'.encode())
        client.approve_whitelist_requests([pending], base64.b64encode(signature).decode(), "yes")
    says = f"request {pending}: pending, validly signed by "
    assert says in audit("--id", pending).out
    # The evidence file also contains the rules.
    file = tmp_path / "audit.json"
    file.write_text(audit("--evidence", "-o", "json").out)
    assert says in plain("whitelist", "verify", "--from", str(file), *pins).out
    sandbox.control.add_fault("status", method="GET", path="/rules", status=404, times=None)
    ran = audit()
    assert ran.code == 2
    why = "the service returns it without rules, and the rules in force cannot be used"
    assert f"request {pending}: PENDING: {why}" in ran.out


def test_requests_are_selected_by_id(audit: Audit, create: Create, signed: Create) -> None:
    good, forged = signed(1), create(2)
    assert audit("--id", good, "--id", good).code == 0
    assert audit("--id", forged).code == 2
    ran = audit("--id", good, "--id", "99999")
    assert ran.code == 2
    assert "request 99999: ABSENT: it is not listed\n" in ran.out
    for wrong, why in ((["--id=1,2"], "--id"), (["--evidence"], "--evidence needs -o json")):
        ran = audit(*wrong)
        assert ran.code == 1
        assert ran.out == ""
        assert why in ran.err


def test_without_pins_the_error_explains_pinning(
    custody: Run, plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = custody("whitelist", "verify")
    assert ran.code == 1
    assert ran.out == ""
    assert "Set --superadmin-keys and --superadmin-minimum. Get the keys from the people who hold them" in ran.err
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection())
    ran = plain("whitelist", "verify")
    assert ran.code == 1
    assert "Set superadmin_keys and superadmin_minimum in the Airflow connection 'custody_default'. Get" in ran.err
    assert sandbox.control.request_log() == []


def test_all_keys_in_all_files_are_pinned(custody: Run, signed: Create, sandbox: Sandbox, tmp_path: Path) -> None:
    ran = custody("whitelist", "verify", *pin(tmp_path, public_pem(1)))
    assert ran.code == 0
    assert "nothing to verify" in ran.err
    signed(1)
    ran = custody("whitelist", "verify", *pin(tmp_path, public_pem(1)))
    assert ran.code == 2
    assert "its rules are signed by none of the pinned keys" in ran.out
    assert custody("whitelist", "verify", *pin(tmp_path, *sandbox.control.pins()["superadmin_keys"])).code == 0


# --- without the service ------------------------------------------------------------------------------------


@pytest.fixture
def kept(audit: Audit, create: Create, signed: Create, tmp_path: Path) -> Path:
    """Return a file with the evidence of a request that is verified, an unsigned one, and a pending one."""
    signed(1)
    signed(2)
    create(3)
    create(4, status="pending")
    file = tmp_path / "audit.json"
    ran = audit("--evidence", "-o", "json")
    assert ran.code == 2
    file.write_text(ran.out)
    return file


def test_evidence_is_verified_without_the_service(plain: Run, kept: Path, pins: list[str], sandbox: Sandbox) -> None:
    sandbox.control.clear_request_log()
    ran = plain("whitelist", "verify", "--from", str(kept), *pins, "-o", "json")
    assert ran.code == 2
    then, now = json.loads(kept.read_text()), ran.data
    assert {name: now[name] for name in ("rows", "pins", "counts")} == {
        name: then[name] for name in ("rows", "pins", "counts")
    }
    assert now["service"] is None
    assert now["file"] == {"name": str(kept), "sha256": hashlib.sha256(kept.read_bytes()).hexdigest()}
    # The evidence file contains each rules container once.
    assert len(then["evidence"]["rules"]) < len(then["evidence"]["rows"])
    assert sandbox.control.request_log() == []
    # Evidence that was written from a file can be verified again.
    arguments = ["-o", "json", "--evidence", "--id", then["rows"][0]["id"]]
    kept.write_text(plain("whitelist", "verify", "--from", str(kept), *pins, *arguments).out)
    ran = plain("whitelist", "verify", "--from", str(kept), *pins)
    assert ran.code == 0
    assert "\n1 request: 1 verified (" in ran.out


def test_pins_never_come_from_the_evidence(plain: Run, kept: Path, pins: list[str], tmp_path: Path) -> None:
    for given, why in (
        ([], "--superadmin-keys is missing"),
        (pins[:2], "'superadmin_minimum' is missing: set the number"),
        ([*pins, "--conn-id", "x"], "--conn-id: cannot be used with --from"),
        ([*pins, "--rejected-statuses", "x"], "--rejected-statuses: cannot be used with --from"),
        ([*pins, "--token-stdin"], "--token-stdin: cannot be used with --from"),
    ):
        ran = plain("whitelist", "verify", "--from", str(kept), *given)
        assert ran.code == 1
        assert ran.out == ""
        assert why in ran.err
    ran = plain("whitelist", "verify", "--from", str(kept), *pin(tmp_path, public_pem(1)))
    assert ran.code == 2
    assert "0 verified, 3 unverified" in ran.out


def test_changed_evidence_is_not_verified(plain: Run, kept: Path, pins: list[str]) -> None:
    data = json.loads(kept.read_text())
    for row in data["rows"]:
        row.update(state="verified", verified=True, reason=None)
    first = data["evidence"]["rows"][0]
    metadata = first["envelope"]["metadata"]
    metadata["payloadAsString"] = metadata["payloadAsString"].replace("L1", "X1")
    metadata["hash"] = hashlib.sha256(metadata["payloadAsString"].encode()).hexdigest()
    kept.write_text(json.dumps(data))
    ran = plain("whitelist", "verify", "--from", str(kept), *pins)
    assert ran.code == 2
    assert f"request {first['id']}: UNVERIFIED: " in ran.out
    assert "1 verified, 2 unverified" in ran.out


TWICE = '{"id": "1", "listed": "rejected"}, {"id": "1", "listed": "settled"}'
KEPT = '{"evidence": {"rules": [], "rules_in_force": null, "rows": [%s]}}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("{}", "has no evidence"),
        (KEPT % '{"id": "1", "listed": "verified"}', "rows.0.listed"),
        (KEPT % '{"id": "1", "listed": "settled", "rules": 0}', "refers to rules that it does not contain"),
        (KEPT % '{"id": "1", "listed": "settled", "rules": -1}', "rows.0.rules"),
        (KEPT % TWICE, "contains the same request twice"),
        (KEPT % '{"id": "1", "listed": "rejected", "listed": "settled"}', "it repeats a key in one object"),
    ],
    ids=[
        "empty",
        "no evidence",
        "unknown listing",
        "unknown rules",
        "rules from the end",
        "a request twice",
        "a key twice",
    ],
)
def test_a_file_without_evidence_is_rejected(plain: Run, pins: list[str], tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    ran = plain("whitelist", "verify", "--from", str(file), *pins)
    assert ran.code == 1
    assert ran.out == ""
    assert "other.json " in ran.err
    assert why in ran.err
    assert "--evidence -o json" in ran.err
    assert "cannot be read" in plain("whitelist", "verify", "--from", str(tmp_path / "no.json"), *pins).err


@pytest.mark.parametrize(
    "broken", [None, {"metadata": {"payloadAsString": -1, "hash": 5}}, {"id": "99"}], ids=["none", "numbers", "id"]
)
def test_a_broken_row_of_evidence_does_not_affect_others(
    plain: Run, kept: Path, pins: list[str], broken: dict[str, Any] | None
) -> None:
    data = json.loads(kept.read_text())
    data["evidence"]["rows"] += [
        {"id": "8", "listed": "settled", "envelope": broken},
        {"id": "9", "listed": "pending", "envelope": broken},
    ]
    data["evidence"]["rules_in_force"] = {"rulesContainer": 5}
    kept.write_text(json.dumps(data))
    ran = plain("whitelist", "verify", "--from", str(kept), *pins)
    assert ran.code == 2
    assert "6 requests: 2 verified, 2 unverified, 2 pending (" in ran.out
    assert (
        "request 99: ABSENT: it is not listed\n"
        in plain("whitelist", "verify", "--from", str(kept), *pins, "--id", "99").out
    )
