"""Set up what both demos need: a clean environment for Airflow, and the sandbox as a process of its own."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import TracebackType

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from airflow_custody.sandbox import SandboxControl

PROJECT = Path(__file__).resolve().parent.parent
EXAMPLES = PROJECT / "example_dags"

_LOOPBACK = "127.0.0.1,localhost"


def require_airflow() -> str:
    """Return the version of Airflow, or end the program if it cannot ask a person in a DAG's test run."""
    found = version("apache-airflow")
    if tuple(int(part) for part in found.split(".")[:2]) < (3, 3):
        sys.exit(f"demo: failed: it needs Airflow 3.3 or later, for the approval by a person; this is {found}")
    return found


def fresh_home(name: str) -> Path:
    """Make an empty folder for one demo, without what an earlier one left in it."""
    home = PROJECT / ".demo" / name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return home


def shown(path: Path) -> str:
    """Write a path the way a person in the project's folder would."""
    return str(path.relative_to(PROJECT))


def free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [listener.getsockname()[1] for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


def airflow_environment(home: Path, sandbox: SandboxProcess, **settings: str) -> dict[str, str]:
    """Build the environment of an Airflow that shares nothing with one the user may have."""
    environment = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
    for name in ("NO_PROXY", "no_proxy"):
        # The sandbox is next door: a proxy meant for the world must not be asked for it.
        environment[name] = ",".join(filter(None, [environment.get(name), _LOOPBACK]))
    return {
        **environment,
        # Airflow starts its parts by name.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_CUSTODY_DEFAULT": sandbox.connection,
        **settings,
    }


class SandboxProcess:
    """Run the sandbox as a process of its own, so that real HTTP goes between it and Airflow; a context manager.

    :param home: folder for its state and its log.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.connection = ""
        self.control: SandboxControl

    def __enter__(self) -> SandboxProcess:
        log = self._home / "sandbox.log"
        command = [sys.executable, "-m", "airflow_custody.sandbox", "--state", str(self._home / "sandbox.db")]
        with log.open("w") as errors:
            # In its own session: Ctrl-C is for the demo, which then stops the sandbox.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        try:
            self._read_introduction()
        except BaseException:
            self.stop()
            raise
        if not self.connection:
            self.stop()
            raise RuntimeError(f"the sandbox did not start: {log.read_text().strip() or 'it says nothing'}")
        self.control = SandboxControl(self.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the sandbox; does nothing when it has stopped."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read_introduction(self) -> None:
        """Take the URL and the connection from what the sandbox prints when it is ready."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("URL:"):
                self.url = line.split()[1]
            if line.startswith("export "):
                self.connection = shlex.split(line)[1].partition("=")[2]
                return


def approver_connections(sandbox: SandboxProcess) -> dict[str, str]:
    """
    Make two users who must sign one after the other, each with a key.

    :return: the connections that the example of a complete whitelisting needs, as environment variables.
    """
    service = json.loads(sandbox.connection)
    variables = {}
    groups = []
    for name, person in (("first", "bob"), ("second", "carol")):
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        roles = ["TPUser", "WhitelistedAddressApprover"]
        user = sandbox.control.add_user(person, roles, groups=[name], public_key=public)
        token = sandbox.control.add_token(roles=roles, user_id=user)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        groups.append({"externalGroupID": name, "minimumSignatures": 1})
        variables[f"AIRFLOW_CONN_CUSTODY_{name.upper()}_APPROVER"] = json.dumps({**service, "password": token})
        variables[f"AIRFLOW_CONN_CUSTODY_{name.upper()}_KEY"] = json.dumps(
            {"conn_type": "generic", "extra": {"private_key": private}}
        )
    sandbox.control.set_approvers([{"sequential": groups}])
    return variables
