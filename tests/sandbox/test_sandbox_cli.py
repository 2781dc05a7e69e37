from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sandbox_api import OpenClient

from airflow_custody.sandbox import Sandbox, SandboxControl, SandboxError
from airflow_custody.sandbox import __main__ as command

ROOT = Path(__file__).parents[2]
ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}


class Process:
    """The command as a process that is ready for calls."""

    def __init__(self, *arguments: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "airflow_custody.sandbox", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.lines: list[str] = []
        last = "#   custody whitelist verify" if "--with-signers" in arguments else "export "
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(last):
                break
        export = next((shlex.split(line)[1] for line in self.lines if line.startswith("export ")), "{}")
        self.connection = json.loads(export.partition("=")[2] or "{}")
        self.url_and_token = self.connection.get("host", ""), self.connection.get("password", "")

    def stop(self, number: int) -> tuple[int, str]:
        self.popen.send_signal(number)
        _, errors = self.popen.communicate(timeout=600)
        return self.popen.returncode, errors


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airflow_custody.sandbox", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_prints_what_it_is_and_exits_cleanly(client_of: OpenClient, number: signal.Signals) -> None:
    process = Process("--token", "it's mine")
    assert "sandbox" in process.lines[0]
    assert "not the real service" in process.lines[0]
    host = process.connection["host"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", host)
    assert process.connection == {"conn_type": "custody", "host": host, "password": "it's mine"}
    assert process.lines[-1].startswith("export AIRFLOW_CONN_CUSTODY_DEFAULT='{")
    assert any(host + "/sandbox" in line for line in process.lines)
    api = client_of(*process.url_and_token)
    assert api.get("/users/me").status_code == 200
    assert api.session.get(host + "/sandbox/about").json()["result"]["sandbox"] is True
    assert process.stop(number) == (0, "")


#: What somebody may do who has pasted what was printed: run two commands, and have both approvers sign in between.
TRY_OUT = """
import logging, sys
from airflow_custody.cli.main import main
from airflow_custody.client import WhitelistRequest
from airflow_custody.client.whitelist.signing import RequestSigner
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.signers import ConnectionSigner

check, verify = sys.argv[1:]
assert main([*check.split()[1:], "--output=json"]) == 0
print("---")
asked = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")
with CustodyHook() as hook:
    number = hook.get_conn().create_whitelist_request(asked)
for name in ("first", "second"):
    with CustodyHook(f"custody_{name}_signer") as hook:
        approver = RequestSigner(hook.get_conn(), ConnectionSigner(f"custody_{name}_key"), log=logging.getLogger())
        assert approver.sign([number], expected={number: asked}, comment="tried out") == 1
assert main([*verify.split()[1:], "--output=json"]) == 0
"""


def paste(process: Process, home: Path, *commands: str) -> str:
    """Return what commands print in a shell into which what was printed below the addresses has been pasted."""
    printed = "\n".join(process.lines[process.lines.index("") :])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    done = subprocess.run(
        ["bash", "-euc", "\n".join([printed, *commands])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**environment, "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_printed_for_approvers_can_be_pasted(tmp_path: Path) -> None:
    process = Process("--with-signers", "--token", "it's-mine")
    check, run_airflow, verify = (line.removeprefix("#").partition("  #")[0].strip() for line in process.lines[-3:])
    assert (ROOT / "example_dags" / "custody_whitelist_complete.py").exists()
    assert run_airflow.split() == ['AIRFLOW__CORE__DAGS_FOLDER="$PWD/example_dags"', "airflow", "standalone"]
    assert "custody_whitelist_complete" in process.lines[-2]
    assert (check, verify) == ("custody check", "custody whitelist verify")
    output = paste(process, tmp_path, shlex.join([sys.executable, "-c", TRY_OUT, check, verify]))
    # Airflow's log is in between.
    checked, verified = (json.loads(text[text.index("{\n") :]) for text in output.split("\n---\n"))
    assert {each["check"]: each["state"] for each in checked["checks"]}["signatures"] == "ok"
    (row,) = verified["rows"]
    assert row["verified"]
    assert [group["user_ids"] for group in row["applied"][0]["path"]] == [["alice@example.test"], ["bob@example.test"]]
    process.stop(signal.SIGTERM)


def test_what_is_pinned_is_printed_twice(tmp_path: Path) -> None:
    process = Process("--with-signers")
    control = SandboxControl(process.connection["host"])
    output = paste(process, tmp_path, 'echo "$CUSTODY_PINS"', "echo ---", 'echo -n "$CUSTODY_SUPERADMIN_KEYS"')
    pins, _, keys = output.partition("---\n")
    assert json.loads(pins) == process.connection["extra"] == control.pins()
    assert keys == "".join(control.pins()["superadmin_keys"])
    control.close()
    process.stop(signal.SIGTERM)


def test_the_keys_as_files(tmp_path: Path) -> None:
    folder, arguments = tmp_path / "new" / "the keys", ["--with-signers", "--state", str(tmp_path / "state")]
    first = Process(*arguments, "--keys", str(folder))
    first.stop(signal.SIGTERM)
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert files.keys() == {"alice.pem", "bob.pem", "superadmins.pem"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    exports = "\n".join(first.lines)
    assert all(json.dumps(files[name])[1:-1] in exports for name in ("alice.pem", "bob.pem"))
    assert f"'{folder}/bob.pem'" in exports
    # All of it is in the state, but for the port.
    second = Process(*arguments, "--keys", str(folder), "--port", first.connection["host"].rpartition(":")[2])
    second.stop(signal.SIGTERM)
    assert second.lines == first.lines


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "bob.pem").write_text("somebody's key")
    done = run("--with-signers", "--keys", str(tmp_path))
    assert done.returncode == 1
    assert re.fullmatch(r"error: cannot write the keys: .*bob\.pem'\n", done.stderr)
    assert (tmp_path / "bob.pem").read_text() == "somebody's key"


def test_a_kill_loses_nothing(client_of: OpenClient, tmp_path: Path) -> None:
    file = str(tmp_path / "state")
    first = Process("--state", file)
    api = client_of(*first.url_and_token)
    number = api.post("/whitelists/addresses", ADDRESS).json()["result"]["id"]
    hook = api.post("/webhooks", {"type": "requestStatus.updated", "url": "https://example.com"}).json()["webhook"]
    port = first.connection["host"].rpartition(":")[2]
    first.stop(signal.SIGKILL)
    second = Process("--state", file, "--port", port)
    assert second.connection == first.connection
    api = client_of(*second.url_and_token)
    assert api.get(f"/whitelists/addresses/{number}").status_code == 200
    assert api.get("/webhooks").json()["webhooks"] == [hook]
    assert second.stop(signal.SIGTERM)[0] == 0


def test_port_taken(sandbox: Sandbox) -> None:
    done = run("--port", str(sandbox.port))
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"error: cannot listen on .*\n", done.stderr)


@pytest.mark.parametrize("option", ["--keys", "--state", "--host", "--token"])
def test_what_would_end_a_comment_is_refused(tmp_path: Path, option: str) -> None:
    done = run("--with-signers", option, f"{tmp_path}/k\ntouch {tmp_path}/PWNED #")
    assert done.returncode == 2
    assert f"{option} has a line break" in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_what_is_printed_for_a_shell_is_data(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Names come from the state, which others may have written."""
    evil = f"first; touch {tmp_path}/PWNED\ntouch {tmp_path}/PWNED #"
    add_signers = SandboxControl.add_signers

    def add(control: SandboxControl, names: Sequence[str]) -> list[dict[str, str]]:
        return [each | changes for each in add_signers(control, names)]

    monkeypatch.setattr(SandboxControl, "add_signers", add)
    options = command.make_parser().parse_args(["--with-signers"])
    changes = {"name": evil, "external_id": evil, "token": evil, "private_key": evil}
    command._print_instructions(sandbox, options)
    printed = capsys.readouterr().out
    subprocess.run(["bash", "-euc", printed], check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    changes = {"group": evil}
    with pytest.raises(SandboxError, match="cannot print the variable"):
        command._print_instructions(sandbox, options)


def test_missing_extra() -> None:
    code = (
        "import runpy, sys; sys.modules['uvicorn'] = None; sys.argv = ['sandbox'];"
        "runpy.run_module('airflow_custody.sandbox', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'airflow-provider-custody[sandbox]'" in done.stderr
