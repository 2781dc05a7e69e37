"""No command but ``whitelist delete`` changes anything at the service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli_runs import Create, Run, all_commands, options_of

from airflow_custody.sandbox import Sandbox


def test_only_delete_writes_to_the_service(
    custody: Run,
    plain: Run,
    create: Create,
    pins: list[str],
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    roles = ["TPUser", "Admin", "WhitelistedAddressCreator", "WhitelistedAddressApprover"]
    sandbox.control.add_user("ann", roles, password="pass-of-ann")
    sandbox.control.add_webhook()
    identifier = create(1)
    create(2)
    file = tmp_path / "list.json"
    row = {"label": "L9", "address": f"0x{9:040x}", "blockchain": "ETH"}
    file.write_text(json.dumps({"version": 1, "addresses": [row]}))
    arguments = {
        "whitelist validate": [str(file)],
        "whitelist plan": [str(file), "--prune"],
        "whitelist show": [identifier],
        "whitelist verify": pins,
    }
    monkeypatch.delenv("CUSTODY_TOKEN")
    monkeypatch.setenv("CUSTODY_USER", "ann")
    monkeypatch.setenv("CUSTODY_PASSWORD", "pass-of-ann")
    before = sandbox.control.whitelist_requests()
    sandbox.control.clear_request_log()
    for name, parser in all_commands().items():
        if name != "whitelist delete":
            run = custody if "--base-url" in options_of(parser) else plain
            ran = run(*name.split(), *arguments.get(name, []))
            # The two requests have no signatures.
            assert ran.code == (2 if name in ("whitelist plan", "whitelist verify") else 0), (name, ran)
    log = {(each["method"], each["path"].endswith("/authentication/token")) for each in sandbox.control.request_log()}
    assert log == {("GET", False), ("POST", True)}
    assert sandbox.control.whitelist_requests() == before
