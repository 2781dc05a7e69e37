"""What the command line says about requests that nobody signed, if keys are pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_runs import Create, Ran, Run

from airflow_custody.sandbox import Sandbox


@pytest.fixture
def pinned(plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a command with a connection that pins the keys."""
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_PINNED", sandbox.connection(pins=True))

    def run(*arguments: str, stdin: str = "") -> Ran:
        return plain(*arguments, "--conn-id", "custody_pinned", stdin=stdin)

    return run


def test_a_dump_leaves_them_out_and_a_plan_names_them(
    pinned: Run, custody: Run, create: Create, sandbox: Sandbox, tmp_path: Path
) -> None:
    signed, forged, waiting = create(1, status="pending"), create(2), create(3, status="pending")
    sandbox.control.sign_whitelist_requests([signed])
    assert custody("whitelist", "dump").code == 0
    ran = pinned("whitelist", "dump")
    assert ran.code == 1
    assert [each["label"] for each in yaml.safe_load(ran.out)["addresses"]] == ["L1", "L3"]
    assert "THIS FILE IS NOT COMPLETE" in ran.out
    text = f"missing: whitelisting request {forged} is not verified: "
    assert f"custody: {text}" in ran.err
    assert f"# {text}" in ran.out
    # Anybody may have put it there: the service alone says that somebody asked for it.
    assert f"request {waiting} is pending approval (status pending), and nobody has signed it: keep it" in ran.out
    assert f"1 row is only what the service claims: nobody has signed {waiting}. Keep in the file only" in ran.err
    file = tmp_path / "list.yaml"
    file.write_text(ran.out)
    ran = pinned("whitelist", "plan", str(file), "--prune", "-o", "json")
    assert ran.code == 2
    data = json.loads(ran.out)
    assert {state: number for state, number in data["counts"].items() if number} == {
        "unchanged": 1,
        "pending": 1,
        "unverified": 1,
    }
    (row,) = [each for each in data["rows"] if each["state"] == "unverified"]
    assert (row["id"], row["action"], row["where"]) == (forged, None, "")
    assert row["request"]["label"] == "L2"
    for form in ("table", "markdown"):
        ran = pinned("whitelist", "plan", str(file), "-o", form)
        assert ran.code == 2
        assert f"whitelisting request {forged} is not verified" in ran.out
        assert waiting in ran.out
    # Once it is signed, nothing is left to do.
    sandbox.control.sign_whitelist_requests([forged])
    ran = pinned("whitelist", "dump")
    assert ran.code == 0
    file.write_text(ran.out)
    assert pinned("whitelist", "plan", str(file)).code == 0
