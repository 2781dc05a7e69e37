from __future__ import annotations

import io
from pathlib import Path

import pytest
from support.cli_runs import Create, Ran, Run

from airflow_custody.cli.main import main
from airflow_custody.sandbox import Sandbox

VARIABLES = ("TOKEN", "USER", "PASSWORD", "API_KEY_ID", "API_KEY_SECRET")


@pytest.fixture
def plain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command in this process, without any credentials."""
    for name in VARIABLES:
        monkeypatch.delenv(f"CUSTODY_{name}", raising=False)

    def run(*arguments: str, stdin: str | io.StringIO = "") -> Ran:
        capsys.readouterr()
        bytes_ = io.BytesIO(stdin.encode()) if isinstance(stdin, str) else None
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(bytes_, encoding="utf-8") if bytes_ else stdin)
        code = main(arguments)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def custody(plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command against the sandbox, with the sandbox's token."""

    def run(*arguments: str, stdin: str = "") -> Ran:
        return plain(*arguments, "--base-url", sandbox.url, "--max-retries", "0", "--timeout", "5", stdin=stdin)

    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.token)
    return run


@pytest.fixture
def create(sandbox: Sandbox) -> Create:
    """Return a function that creates a request, in effect unless a status is given, and returns its id."""

    def create(number: int, *, status: str = "APPROVED", **fields: str) -> str:
        row = {"label": f"L{number}", "address": f"0x{number:040x}", "blockchain": "ETH", **fields}
        (identifier,) = sandbox.control.add_whitelist_requests([row], status="pending")
        if status != "pending":
            sandbox.control.set_whitelist_status(identifier, status)
        return identifier

    return create


@pytest.fixture
def pins(sandbox: Sandbox, tmp_path: Path) -> list[str]:
    """Return the options that pin the sandbox's super-administrators."""
    pins = sandbox.control.pins()
    file = tmp_path / "keys.pem"
    file.write_text("".join(pins["superadmin_keys"]))
    return ["--superadmin-keys", str(file), "--superadmin-minimum", str(pins["superadmin_minimum"])]


@pytest.fixture
def signed(create: Create, sandbox: Sandbox) -> Create:
    """Return a function that creates a request that users really sign, and returns its id."""

    def create_signed(number: int, **fields: str) -> str:
        sandbox.control.sign_whitelist_requests([identifier := create(number, status="pending", **fields)])
        return identifier

    return create_signed
