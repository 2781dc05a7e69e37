"""Which service, and as whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Run

from airflow_custody.sandbox import Sandbox


def test_an_airflow_connection_of_the_environment(plain: Run, connection: str) -> None:
    assert plain("health").code == 0
    assert plain("health", "--conn-id", connection).code == 0


def test_an_airflow_connection_of_the_database(plain: Run, sandbox: Sandbox, airflow_db: None) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(conn_id="stored", conn_type="custody", host=sandbox.url, password=sandbox.token))
    try:
        ran = plain("check", "--conn-id", "stored", "-o", "json")
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == "stored").delete()
    assert ran.code == 0
    assert "the Airflow connection 'stored'" in json.loads(ran.out)["checks"][0]["detail"]
    assert sandbox.token not in ran.out + ran.err


def test_an_airflow_connection_that_does_not_exist(plain: Run, airflow_db: None) -> None:
    ran = plain("health", "--conn-id", "nowhere")
    assert (ran.code, ran.out) == (1, "")
    assert "custody: the Airflow connection 'nowhere' is not defined. Make a connection" in ran.err
    assert "Traceback" not in ran.err


def test_settings_of_an_airflow_connection_are_honoured(
    plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"conn_type": "custody", "host": sandbox.url, "password": sandbox.token, "extra": {"timeout": -1}}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(value))
    ran = plain("health")
    assert ran.code == 1
    assert "timeout" in ran.err


@pytest.mark.parametrize("option", [["--timeout", "3"], ["--allow-http"], ["--token-stdin"], ["--proxy", "http://x:1"]])
def test_a_setting_is_never_ignored(plain: Run, connection: str, option: list[str]) -> None:
    ran = plain("health", *option)
    assert ran.code == 1
    assert f"{option[0]}: only with --base-url" in ran.err


def test_two_connections_are_refused(custody: Run) -> None:
    ran = custody("health", "--conn-id", "custody_default")
    assert (ran.code, ran.out) == (1, "")
    assert "--conn-id and --base-url are both given" in ran.err


def test_a_missing_token_is_an_error(plain: Run, sandbox: Sandbox) -> None:
    ran = plain("whitelist", "dump", "--base-url", sandbox.url)
    assert (ran.code, ran.out) == (1, "")
    assert "no credentials are given. Put the API token into the environment variable CUSTODY_TOKEN" in ran.err


def test_a_token_from_standard_input(custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", "another")
    assert custody("health", "--token-stdin", stdin=f"{sandbox.token}\n").code == 0
    assert custody("health").code == 1
    ran = custody("health", "--token-stdin")
    assert ran.code == 1
    assert "standard input is closed or empty" in ran.err


def test_a_user_signs_in(custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.control.add_user("ann", ["TPUser"], password="pass-of-ann")
    monkeypatch.delenv("CUSTODY_TOKEN")
    monkeypatch.setenv("CUSTODY_USER", "ann")
    ran = custody("health")
    assert ran.code == 1
    assert "CUSTODY_PASSWORD is missing" in ran.err
    monkeypatch.setenv("CUSTODY_PASSWORD", "pass-of-ann")
    assert custody("health").code == 0
    monkeypatch.setenv("CUSTODY_PASSWORD", "wrong-pass")
    ran = custody("health")
    assert ran.code == 1
    assert "wrong-pass" not in ran.err
    assert "the environment (CUSTODY_USER, CUSTODY_PASSWORD)" in ran.err


def test_an_api_key(custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    key = sandbox.control.add_api_key(sandbox.control.add_user("ann", ["TPUser"]))
    monkeypatch.setenv("CUSTODY_API_KEY_ID", key["id"])
    monkeypatch.setenv("CUSTODY_API_KEY_SECRET", key["secret"])
    ran = custody("health")
    assert ran.code == 1
    assert "CUSTODY_TOKEN and CUSTODY_API_KEY_ID are both set" in ran.err
    monkeypatch.delenv("CUSTODY_TOKEN")
    assert custody("health").code == 0


@pytest.mark.parametrize("proxy", ["http://ann:s3cret@proxy.example.com:3128", "ann:s3cret@proxy:1", "http://[@"])
def test_a_proxy_with_a_password_is_no_argument(custody: Run, proxy: str) -> None:
    ran = custody("health", "--proxy", proxy)
    assert ran.code == 1
    assert "HTTPS_PROXY" in ran.err
    assert "s3cret" not in ran.err


def test_wrong_settings_are_named(
    plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.token)
    for option, value in {"verify": str(tmp_path / "none.pem"), "client_cert": "none.pem", "timeout": "soon"}.items():
        ran = plain("health", "--base-url", sandbox.url, f"--{option.replace('_', '-')}", value)
        assert ran.code == 1
        assert option in ran.err


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("examples", 0),
        ("whitelist schema", 0),
        ("whitelist validate FILE", 0),
        ("whitelist plan FILE.txt", 1),
        ("check --role nobody", 1),
        ("health --timeout 5", 1),
        ("check --base-url URL", 0),
        ("health --base-url URL", 0),
        ("status --base-url URL", 0),
        ("whitelist plan FILE --base-url URL", 2),
    ],
)
def test_without_a_connection_airflow_is_not_imported(
    sandbox: Sandbox, tmp_path: Path, command: str, code: int
) -> None:
    home, file = tmp_path / "home", tmp_path / "whitelist.yaml"
    home.mkdir()
    file.write_text(f"version: 1\naddresses:\n- {{label: a, address: '0x{1:040x}', blockchain: ETH}}\n")
    arguments = command.replace("URL", sandbox.url).replace("FILE", str(file)).split()
    environment = {**os.environ, "CUSTODY_TOKEN": sandbox.token, "HOME": str(home)}
    environment.pop("AIRFLOW_HOME", None)
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "airflow_custody.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")}
    assert "airflow_custody.cli.main" in loaded
    assert not [each for each in loaded if each == "airflow" or each.startswith("airflow.")]
    assert list(home.iterdir()) == []
