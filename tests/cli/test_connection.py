"""The options that name the service and the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.airflow.connections import connection_json
from support.cli_runs import Run

from airflow_custody.sandbox import Sandbox


def test_an_airflow_connection_is_used(plain: Run, connection: str, sandbox: Sandbox) -> None:
    assert plain("health").code == 0
    ran = plain("check", "--conn-id", connection, "-o", "json")
    assert ran.code == 0
    assert f"the Airflow connection {connection!r}" in ran.data["checks"][0]["detail"]
    assert sandbox.token not in ran.out + ran.err


def test_an_airflow_connection_that_does_not_exist_is_named(plain: Run, airflow_db: None) -> None:
    ran = plain("health", "--conn-id", "nowhere")
    assert ran.code == 1
    assert ran.out == ""
    assert "custody: the Airflow connection 'nowhere' is not defined. Create a connection" in ran.err
    assert "Traceback" not in ran.err


def test_an_airflow_connection_is_found_in_the_database(plain: Run, sandbox: Sandbox, airflow_db: None) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    fields = json.loads(connection_json(sandbox))
    extra = json.dumps(fields.pop("extra", {}))
    with create_session() as session:
        session.add(Connection(conn_id="custody_of_the_database", extra=extra, **fields))
    try:
        ran = plain("check", "--conn-id", "custody_of_the_database", "-o", "json")
    finally:
        with create_session() as session:
            session.query(Connection).filter_by(conn_id="custody_of_the_database").delete()
    assert ran.code == 0, ran.err
    assert "the Airflow connection 'custody_of_the_database'" in ran.data["checks"][0]["detail"]


@pytest.mark.parametrize("option", [["--timeout", "3"], ["--token-stdin"]])
def test_a_setting_is_never_ignored(plain: Run, connection: str, option: list[str]) -> None:
    ran = plain("health", *option)
    assert ran.code == 1
    assert f"{option[0]}: can only be used with --base-url" in ran.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--conn-id", "custody_default"], "--conn-id and --base-url are both given"),
        (["--verify", "/none.pem"], "verify"),
        # An argument is unsafe for a secret, because other users of the machine can read it.
        (["--proxy", "http://ann:s3cret@proxy.example.com:3128"], "HTTPS_PROXY"),
        (["--proxy", "ann:s3cret@proxy:1"], "HTTPS_PROXY"),
    ],
)
def test_wrong_options_are_named(custody: Run, arguments: list[str], text: str) -> None:
    ran = custody("health", *arguments)
    assert ran.code == 1
    assert ran.out == ""
    assert text in ran.err
    assert "s3cret" not in ran.err


@pytest.fixture
def ann(sandbox: Sandbox) -> str:
    """Add the user ann, whose password is pass-of-ann, and return the id."""
    return str(sandbox.control.add_user("ann", ["TPUser"], password="pass-of-ann"))


def test_a_token_from_standard_input_comes_before_the_one_in_the_environment(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", "wrong-token")
    assert custody("health", "--token-stdin", stdin=f"{sandbox.token}\n").code == 0
    assert custody("health").code == 1


@pytest.mark.parametrize("method", ["API key", "password"])
def test_an_api_key_or_a_password_signs_in(
    custody: Run, sandbox: Sandbox, ann: str, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    key = sandbox.control.add_api_key(ann)
    variables = {"API_KEY_ID": key["id"], "API_KEY_SECRET": key["secret"]}
    if method == "password":
        variables = {"USER": "ann", "PASSWORD": "pass-of-ann"}
    monkeypatch.delenv("CUSTODY_TOKEN", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"CUSTODY_{name}", value)
    assert custody("health").code == 0


@pytest.mark.parametrize(
    ("variables", "options", "reason"),
    [
        ({}, [], "no credentials are given. Put the API token into the environment variable CUSTODY_TOKEN"),
        ({"TOKEN": "wrong-token"}, ["--token-stdin"], "standard input is closed or empty"),
        (
            {"TOKEN": "wrong-token", "API_KEY_ID": "7", "API_KEY_SECRET": "wrong-secret"},
            [],
            "CUSTODY_TOKEN and CUSTODY_API_KEY_ID are both set",
        ),
        ({"USER": "ann"}, [], "CUSTODY_PASSWORD is missing"),
        ({"USER": "ann", "PASSWORD": "wrong-password"}, [], "the environment (CUSTODY_USER, CUSTODY_PASSWORD)"),
    ],
    ids=["none", "empty standard input", "of two kinds", "without a password", "wrong password"],
)
def test_credentials_that_cannot_be_used_are_named_and_never_shown(
    custody: Run,
    ann: str,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    options: list[str],
    reason: str,
) -> None:
    monkeypatch.delenv("CUSTODY_TOKEN", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"CUSTODY_{name}", value)
    ran = custody("health", *options)
    assert ran.code == 1
    assert ran.out == ""
    assert reason in ran.err
    assert "wrong-" not in ran.err


@pytest.mark.parametrize(
    ("command", "code"), [("--help", 0), ("check --base-url URL", 0), ("whitelist plan FILE --base-url URL", 2)]
)
def test_without_a_connection_airflow_is_not_imported(
    sandbox: Sandbox, tmp_path: Path, command: str, code: int
) -> None:
    file = tmp_path / "whitelist.yaml"
    file.write_text(f"version: 1\naddresses:\n- {{label: a, address: '0x{1:040x}', blockchain: ETH}}\n")
    arguments = command.replace("URL", sandbox.url).replace("FILE", str(file)).split()
    start = [sys.executable, "-X", "importtime", "-m", "airflow_custody.cli"]
    environment = {**os.environ, "CUSTODY_TOKEN": sandbox.token}
    ended = subprocess.run([*start, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")}
    assert "airflow_custody.cli.main" in loaded
    assert "airflow" not in loaded
