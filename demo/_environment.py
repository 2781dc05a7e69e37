"""Shared by both demos: a clean environment for Airflow, and the sandbox in a separate process."""

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

from airflow_custody.sandbox import SandboxControl, connection_variables

DEMO = Path(__file__).resolve().parent
PROJECT = DEMO.parent
EXAMPLES = PROJECT / "example_dags"

_LOOPBACK = "127.0.0.1,localhost"


def require_airflow() -> str:
    """Return Airflow's version; exit if it cannot ask for an approval in a test run."""
    found = version("apache-airflow")
    if tuple(int(part) for part in found.split(".")[:2]) < (3, 3):
        sys.exit(f"demo: failed: the approval requires Airflow 3.3 or later; found {found}")
    return found


def create_home(name: str) -> Path:
    """Create an empty folder for one demo; files of an earlier run are deleted."""
    home = PROJECT / ".demo" / name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return home


def relative_path(path: Path) -> str:
    """Return a path for display, relative to the project folder if it is inside."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def free_ports(count: int) -> list[int]:
    """Return ports that are not in use."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [listener.getsockname()[1] for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


def airflow_environment(home: Path, sandbox: SandboxProcess, **settings: str) -> dict[str, str]:
    """Return environment variables for an Airflow that shares nothing with the user's own installation."""
    environment = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
    for name in ("NO_PROXY", "no_proxy"):
        # Requests to the sandbox must not go through a proxy, because the sandbox is on this machine.
        environment[name] = ",".join(filter(None, [environment.get(name), _LOOPBACK]))
    return {
        **environment,
        # Airflow starts its components by name, so they must be on the PATH.
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
    """
    The sandbox in a separate process, so that Airflow talks to it over real HTTP; a context manager.

    Its connection has the super-administrators' public keys, so that signatures are verified.

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
            # Start it in its own session, so that Ctrl-C reaches only the demo, which then stops the sandbox.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        try:
            self._read_startup_output()
        except BaseException:
            self.stop()
            raise
        if not self.connection:
            self.stop()
            raise RuntimeError(f"the sandbox did not start: {log.read_text().strip() or 'it printed no error'}")
        self.control = SandboxControl(self.url)
        self.connection = json.dumps({**json.loads(self.connection), "extra": self.control.pins()})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the sandbox, if it is running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read_startup_output(self) -> None:
        """Read the URL and the connection that the sandbox prints when it is ready."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("# URL:"):
                self.url = line.split()[2]
            if line.startswith("export "):
                self.connection = shlex.split(line)[1].partition("=")[2]
                return


def create_signers(sandbox: SandboxProcess) -> dict[str, str]:
    """
    Create two signers, alice and bob, who must sign one after the other, each with a key.

    :return: the connections that the examples need, as environment variables.
    """
    return connection_variables(sandbox.connection, sandbox.control.add_signers(["alice", "bob"]))
