"""The DAG of the guides to signing, in real Airflow; the HSM is SoftHSM2 where it is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from airflow_runs import load, redacted, run_dag
from connections import connection_json
from hsm import PIN, TOKEN, FakeHsm, HsmPerson, missing, soft_hsm
from people import Person
from task_log import TaskLog

from airflow_custody.client import CustodyClient, CustodyConfigurationError, WhitelistRequest
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner, Pkcs11ConnectionSigner

DOCS = Path(__file__).parent.parent / "docs"
SNIPPETS = DOCS / "snippets"
# What Airflow's database has of its commands, and of connections.
READ_DATABASE = """
from airflow.models import Connection, Log
from airflow.utils.session import create_session
with create_session() as session:
    print([(entry.event, entry.extra) for entry in session.query(Log)])
    print([(each.conn_id, each.get_extra() if each.conn_id == "custody_second_key" else "")
           for each in session.query(Connection)])
"""


def use(kind: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an HSM of a kind."""
    if kind == "SoftHSM2":
        return soft_hsm()
    hsm = FakeHsm()
    monkeypatch.setattr(pkcs11, "lib", lambda path: hsm)
    return hsm


def define_hsm(monkeypatch: pytest.MonkeyPatch, module: str, **changes: Any) -> None:
    extra = {"pkcs11_module": module, "pkcs11_token": TOKEN, "pkcs11_key": "third-key"}
    connection = {"conn_type": "generic", "password": PIN, "extra": extra} | changes
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_HSM", json.dumps(connection))


@pytest.mark.usefixtures("connection", "airflow_db")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["SoftHSM2", "in memory"])
def test_three_approvers_sign(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, task_log: TaskLog, kind: str
) -> None:
    hsm = use(kind, monkeypatch)
    first, second = Person(sandbox, "first", "approvers"), Person(sandbox, "second", "approvers")
    third = HsmPerson(sandbox, hsm, "third")
    (tmp_path / "key.pem").write_text(first.pem)
    monkeypatch.setenv("CUSTODY_KEY_FILE", str(tmp_path / "key.pem"))
    key = {"conn_type": "generic", "extra": {"private_key": second.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_SECOND_KEY", json.dumps(key))
    define_hsm(monkeypatch, hsm.module)
    for name, token in (("first", first.token), ("second", second.token), ("third", third.token)):
        service = json.loads(connection_json(sandbox)) | {"password": token}
        monkeypatch.setenv(f"AIRFLOW_CONN_CUSTODY_{name.upper()}_SIGNER", json.dumps(service))
    group = {"externalGroupID": "approvers", "minimumSignatures": 3}
    sandbox.control.set_approvers([{"sequential": [group]}])

    run = run_dag(load(SNIPPETS / "signing.py").dag)

    assert run.state == "success", run.states
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == ["APPROVED"]
    assert "custody_hsm" in task_log.text
    assert PIN not in task_log.text


@pytest.mark.parametrize("kind", ["SoftHSM2", "in memory"])
def test_a_program_signs(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    hsm = use(kind, monkeypatch)
    ann = HsmPerson(sandbox, hsm, "first", key="first-signer")
    (tmp_path / "pin").write_text(f"{PIN}\n")
    monkeypatch.setenv("CUSTODY_PIN_FILE", str(tmp_path / "pin"))
    monkeypatch.setenv("CUSTODY_PKCS11_MODULE", hsm.module)
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, ann.token) as client:
        number = client.create_whitelist_request(request)
        load(SNIPPETS / "sign_with_hsm.py").sign(client, number, request)
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == ["APPROVED"]


def test_the_pin_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    define_hsm(monkeypatch, "/no/such/library.so", password="a-pin-of-words")
    with pytest.raises(CustodyConfigurationError, match="It comes from the Airflow connection 'custody_hsm'"):
        Pkcs11ConnectionSigner("custody_hsm").check()
    assert "a-pin-of-words" not in redacted("logged: a-pin-of-words")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"password": None}, "there is no PIN"),
        ({"extra": {}}, "no extra 'pkcs11_module', 'pkcs11_token', 'pkcs11_key'"),
        ({"extra": {"pkcs11_module": "/m.so", "pkcs11_token": "t", "pkcs11_key": 7}}, "no extra 'pkcs11_key'"),
        (
            {"extra": {"pkcs11_module": "/m.so", "pkcs11_tokn": "t", "pkcs11_key": "k"}},
            "no extra 'pkcs11_token', but 'pkcs11_tokn': do you mean 'pkcs11_token'",
        ),
        ({"extra": "[]"}, "the connection's Extra is not a JSON object. Correct the Extra"),
        ({"extra": "{pkcs11_module: x}"}, "the connection's Extra is not a JSON object. Correct the Extra"),
        ({"extra": {"pkcs11_module": "m.so", "pkcs11_token": "t", "pkcs11_key": "k"}}, "must be an absolute path"),
    ],
    ids=["no PIN", "no extras", "a number", "a wrong name", "a list", "no JSON", "a relative path"],
)
def test_an_unusable_connection_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], why: str
) -> None:
    define_hsm(monkeypatch, "/m.so", **changes)
    with pytest.raises(CustodyConfigurationError, match=why):
        Pkcs11ConnectionSigner("custody_hsm").check()


@pytest.mark.parametrize("kind", [ConnectionSigner, Pkcs11ConnectionSigner])
def test_a_missing_connection_is_named(kind: type[ConnectionSigner | Pkcs11ConnectionSigner]) -> None:
    why = r"the Airflow connection 'no_such' is not defined\. Make a connection with this id, or correct the signer"
    with pytest.raises(CustodyConfigurationError, match=why):
        kind("no_such").check()


@pytest.mark.parametrize("kind", [ConnectionSigner, Pkcs11ConnectionSigner])
def test_a_connection_that_cannot_be_read_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, kind: type[ConnectionSigner | Pkcs11ConnectionSigner]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_HSM", "{not JSON")
    with pytest.raises(CustodyConfigurationError, match=r"cannot be read from .* AIRFLOW_CONN_CUSTODY_HSM\. Correct"):
        kind("custody_hsm").check()


@pytest.mark.usefixtures("airflow_db")
def test_the_commands_for_a_connection_leave_no_key_in_the_log_table(sandbox: Sandbox, tmp_path: Path) -> None:
    """Airflow keeps each command in its table ``log``, with extras as they were given."""
    if not shutil.which("jq"):
        missing("jq is not installed")
    pem = Person(sandbox, "second", "approvers").pem
    (tmp_path / "second-signer.pem").write_text(pem)
    guide = (DOCS / "how-to" / "sign-with-connection.md").read_text()
    (commands,) = re.findall(r"```bash\n(.*?)```", guide, re.DOTALL)
    # Without the last one, to see the mode of the file.
    *imported, removed = commands.strip().splitlines()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("bash", "-euc", "\n".join(imported))
    file = tmp_path / "second-key.json"
    assert file.stat().st_mode & 0o777 == 0o600
    run("bash", "-euc", removed)
    assert not file.exists()
    log, connections = run(sys.executable, "-c", READ_DATABASE).strip().splitlines()[-2:]
    secret = pem.split("\n")[1]
    assert "connections" in log
    assert "second-key.json" in log
    assert secret not in log
    assert secret in connections
    run("airflow", "connections", "delete", "custody_second_key")
