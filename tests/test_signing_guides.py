"""The DAG of the guides to signing, in real Airflow; the HSM is SoftHSM2 where it is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pkcs11
import pytest
from support.airflow.airflow_runs import load, run_dag
from support.airflow.connections import connection_json
from support.airflow.task_log import TaskLog
from support.keys.hsm import PIN, TOKEN, FakeHsm, HsmPerson, SoftHsm, missing, soft_hsm
from support.service.people import Person

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox

DOCS = Path(__file__).parent.parent / "docs"
SNIPPETS = DOCS / "snippets"
# The tables of Airflow's database for commands and for connections.
READ_DATABASE = """
from airflow.models import Connection, Log
from airflow.utils.session import create_session
with create_session() as session:
    print([(entry.event, entry.extra) for entry in session.query(Log)])
    print([(each.conn_id, each.get_extra() if each.conn_id == "custody_second_key" else "")
           for each in session.query(Connection)])
"""


@pytest.fixture(params=["SoftHSM2", "in memory"])
def hsm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SoftHsm | FakeHsm:
    if request.param == "SoftHSM2":
        return soft_hsm()
    fake = FakeHsm()
    monkeypatch.setattr(pkcs11, "lib", lambda path: fake)
    return fake


@pytest.mark.usefixtures("connection", "airflow_db")
@pytest.mark.filterwarnings("ignore")
def test_three_approvers_sign(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, task_log: TaskLog, hsm: SoftHsm | FakeHsm
) -> None:
    first, second = Person(sandbox, "first", "approvers"), Person(sandbox, "second", "approvers")
    third = HsmPerson(sandbox, hsm, "third")
    (tmp_path / "key.pem").write_text(first.pem)
    monkeypatch.setenv("CUSTODY_KEY_FILE", str(tmp_path / "key.pem"))
    labels = {"pkcs11_module": hsm.module, "pkcs11_token": TOKEN, "pkcs11_key": third.key}
    connections = {
        "SECOND_KEY": {"conn_type": "generic", "extra": {"private_key": second.pem}},
        "HSM": {"conn_type": "generic", "password": PIN, "extra": labels},
    }
    for name, token in (("FIRST", first.token), ("SECOND", second.token), ("THIRD", third.token)):
        connections[f"{name}_SIGNER"] = json.loads(connection_json(sandbox)) | {"password": token}
    for name, connection in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_CUSTODY_{name}", json.dumps(connection))
    group = {"externalGroupID": "approvers", "minimumSignatures": 3}
    sandbox.control.set_approvers([{"sequential": [group]}])

    run = run_dag(load(SNIPPETS / "signing.py").dag)

    assert run.state == "success", run.states
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == ["APPROVED"]
    assert "custody_hsm" in task_log.text
    assert PIN not in task_log.text


def test_a_program_signs(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hsm: SoftHsm | FakeHsm
) -> None:
    ann = HsmPerson(sandbox, hsm, "first", key="first-signer")
    (tmp_path / "pin").write_text(f"{PIN}\n")
    monkeypatch.setenv("CUSTODY_PIN_FILE", str(tmp_path / "pin"))
    monkeypatch.setenv("CUSTODY_PKCS11_MODULE", hsm.module)
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, ann.token) as client:
        number = client.create_whitelist_request(request)
        load(SNIPPETS / "sign_with_hsm.py").sign(client, number, request)
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == ["APPROVED"]


@pytest.mark.slow
@pytest.mark.usefixtures("airflow_db")
def test_the_commands_for_a_connection_leave_no_key_in_the_log_table(sandbox: Sandbox, tmp_path: Path) -> None:
    """Airflow keeps each command in its table ``log``, with extras as they were given."""
    if not shutil.which("jq"):
        missing("jq is not installed")
    pem = Person(sandbox, "second", "approvers").pem
    (tmp_path / "second-signer.pem").write_text(pem)
    guide = (DOCS / "how-to" / "approve-and-sign.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", guide, re.DOTALL)
    (commands,) = (each for each in blocks if "airflow connections import" in each)
    # Leave out the last command, so that the test can check the mode of the file.
    *imported, removed = commands.strip().splitlines()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    file = tmp_path / "second-key.json"

    def run(*command: str) -> str:
        environment = os.environ | {"PATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("bash", "-euc", "\n".join(imported))
    assert file.stat().st_mode & 0o777 == 0o600
    run("bash", "-euc", removed)
    assert not file.exists()
    log, stored = run(sys.executable, "-c", READ_DATABASE).strip().splitlines()[-2:]
    secret = pem.split("\n")[1]
    assert "second-key.json" in log
    assert secret not in log
    assert secret in stored
    run("airflow", "connections", "delete", "custody_second_key")
