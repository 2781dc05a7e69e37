"""Which service, and as whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.airflow.connections import connection_json
from support.cli_runs import Run

from airflow_custody.sandbox import Sandbox


def test_an_airflow_connection(
    plain: Run, connection: str, sandbox: Sandbox, airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plain("health").code == 0
    ran = plain("check", "--conn-id", connection, "-o", "json")
    assert ran.code == 0
    assert f"the Airflow connection {connection!r}" in ran.data["checks"][0]["detail"]
    assert sandbox.token not in ran.out + ran.err
    ran = plain("health", "--conn-id", "nowhere")
    assert ran.code == 1
    assert ran.out == ""
    assert "custody: the Airflow connection 'nowhere' is not defined. Make a connection" in ran.err
    assert "Traceback" not in ran.err
    # Its settings are honoured.
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=-1))
    ran = plain("health")
    assert ran.code == 1
    assert "timeout" in ran.err


@pytest.mark.parametrize("option", [["--timeout", "3"], ["--allow-http"], ["--token-stdin"]])
def test_a_setting_is_never_ignored(plain: Run, connection: str, option: list[str]) -> None:
    ran = plain("health", *option)
    assert ran.code == 1
    assert f"{option[0]}: only with --base-url" in ran.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--conn-id", "custody_default"], "--conn-id and --base-url are both given"),
        (["--verify", "/none.pem"], "verify"),
        (["--client-cert", "none.pem"], "client_cert"),
        # Others on the machine can read an argument.
        (["--proxy", "http://ann:s3cret@proxy.example.com:3128"], "HTTPS_PROXY"),
        (["--proxy", "ann:s3cret@proxy:1"], "HTTPS_PROXY"),
        (["--proxy", "http://[@"], "HTTPS_PROXY"),
    ],
)
def test_wrong_options_are_named(custody: Run, arguments: list[str], text: str) -> None:
    ran = custody("health", *arguments)
    assert ran.code == 1
    assert ran.out == ""
    assert text in ran.err
    assert "s3cret" not in ran.err


def test_credentials_come_from_the_environment_or_standard_input(
    custody: Run, plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(text: str, *options: str) -> None:
        ran = custody("health", *options)
        assert ran.code == 1, ran.err
        assert ran.out == "", ran.err
        assert text in ran.err, ran.err
        assert "wrong-" not in ran.err

    ann = sandbox.control.add_user("ann", ["TPUser"], password="pass-of-ann")
    key = sandbox.control.add_api_key(ann)
    monkeypatch.setenv("CUSTODY_TOKEN", "wrong-token")
    assert custody("health", "--token-stdin", stdin=f"{sandbox.token}\n").code == 0
    fails("")
    fails("standard input is closed or empty", "--token-stdin")
    monkeypatch.setenv("CUSTODY_API_KEY_ID", key["id"])
    monkeypatch.setenv("CUSTODY_API_KEY_SECRET", key["secret"])
    fails("CUSTODY_TOKEN and CUSTODY_API_KEY_ID are both set")
    monkeypatch.delenv("CUSTODY_TOKEN")
    assert custody("health").code == 0
    monkeypatch.delenv("CUSTODY_API_KEY_ID")
    monkeypatch.delenv("CUSTODY_API_KEY_SECRET")
    fails("no credentials are given. Put the API token into the environment variable CUSTODY_TOKEN")
    monkeypatch.setenv("CUSTODY_USER", "ann")
    fails("CUSTODY_PASSWORD is missing")
    monkeypatch.setenv("CUSTODY_PASSWORD", "pass-of-ann")
    assert custody("health").code == 0
    monkeypatch.setenv("CUSTODY_PASSWORD", "wrong-password")
    fails("the environment (CUSTODY_USER, CUSTODY_PASSWORD)")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("whitelist validate FILE", 0),
        ("check --role nobody", 1),
        ("check --base-url URL", 0),
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
    start = [sys.executable, "-X", "importtime", "-m", "airflow_custody.cli"]
    ended = subprocess.run([*start, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")}
    assert "airflow_custody.cli.main" in loaded
    assert not [each for each in loaded if each == "airflow" or each.startswith("airflow.")]
    assert list(home.iterdir()) == []
