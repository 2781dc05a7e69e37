"""Airflow in separate processes, some of which are killed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import requests
from processes import free_ports, in_session, kill, until
from typing_extensions import Self

Component = Literal["api-server", "scheduler", "dag-processor", "triggerer"]
_COMMANDS: dict[Component, tuple[str, ...]] = {
    "api-server": ("airflow", "api-server"),
    # Run no log servers, because their ports may still be in use after a kill.
    "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),
    "dag-processor": ("airflow", "dag-processor"),
    "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
}
_HEALTH = ("metadatabase", "scheduler", "dag_processor", "triggerer")
_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent


class Airflow:
    """
    Airflow's components, each in a session of its own, with LocalExecutor and SQLite; a context manager.

    :param folder: where it makes its home. DAG files find it in ``FAULTS_FOLDER``, and import what is beside this file.
    :param dags: folder of the DAG files.
    :param environment: further environment variables of all processes.
    :param components: what runs. Default: all.
    """

    def __init__(
        self,
        folder: Path,
        dags: Path,
        environment: Mapping[str, str],
        components: tuple[Component, ...] = tuple(_COMMANDS),
    ) -> None:
        self.home = folder / "airflow"
        self.home.mkdir()
        self.logs = self.home / "logs"
        self.database = self.home / "airflow.db"
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        inherited = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
        self.environment = {
            **inherited,
            # Airflow starts its components by name, so they must be on the PATH.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)]),
            # The demo has the settings of the database.
            "PYTHONPATH": os.pathsep.join(map(str, [_HERE, _ROOT / "demo", _ROOT])),
            "FAULTS_FOLDER": str(folder),
            "NO_PROXY": "127.0.0.1,localhost",
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "6",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "sqlite_settings.CONNECT_ARGS",
            **environment,
        }
        self._session = requests.Session()
        self._session.trust_env = False
        self._processes: list[subprocess.Popen[bytes]] = []
        self._components: dict[Component, subprocess.Popen[bytes] | None] = dict.fromkeys(components)

    def __enter__(self) -> Self:
        try:
            self.start()
            if "api-server" in self._components:
                until(self._is_healthy, "Airflow to be healthy", every=1)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Create the database and start the components, without waiting for them."""
        migrate = ["airflow", "db", "migrate"]
        subprocess.run(migrate, env=self.environment, check=True, capture_output=True, timeout=600)
        for component in self._components:
            self.restart(component)

    def launch(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, so that it does not share signals with this program."""
        with (self.home / "airflow.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._processes.append(process)
        return process

    def restart(self, component: Component) -> None:
        """Start a component that is not running."""
        self._components[component] = self.launch(*_COMMANDS[component])

    def kill(self, component: Component) -> None:
        """Kill a component with all its processes."""
        _end(self._take(component))

    def terminate(self, component: Component) -> None:
        """Ask a component to end, and wait until it has."""
        process = self._take(component)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=600)
        _end(process)

    def _take(self, component: Component) -> subprocess.Popen[bytes]:
        process, self._components[component] = self._components[component], None
        assert process is not None
        return process

    def stop(self) -> None:
        """Stop all processes, including those that outlived their parent."""
        for process in self._processes:
            # SIGTERM would end the parent and leave its children running.
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
        for process in self._processes:
            _end(process)

    def check(self) -> None:
        """Raise an error if a component has ended although the test did not kill it."""
        for component, process in self._components.items():
            if process is not None and process.poll() is not None:
                lines = (self.home / "airflow.log").read_text(errors="replace").splitlines()[-15:]
                raise RuntimeError("\n".join([f"Airflow's {component} has ended:", *lines]))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call Airflow's public REST API, below ``/api/v2``."""
        response = None
        for _ in range(10):
            with suppress(requests.ConnectionError):
                if "Authorization" not in self._session.headers:
                    token = self._session.get(f"{self.url}/auth/token", timeout=60).json()["access_token"]
                    self._session.headers["Authorization"] = f"Bearer {token}"
                response = self._session.request(method, f"{self.url}/api/v2{path}", json=body, timeout=60)
                if response.status_code < 400:
                    return response.json() if response.content else None
                # SQLite allows one writer at a time, and Airflow's API does not wait for its turn.
                if "Database error" not in response.text:
                    break
            time.sleep(1)
        raise RuntimeError(f"{method} {path}: {response.text[:500] if response is not None else 'no response'}")

    def _is_healthy(self) -> bool:
        self.check()
        with suppress(requests.RequestException, ValueError):
            health = self._session.get(f"{self.url}/api/v2/monitor/health", timeout=30).json()
            return all(health[component]["status"] == "healthy" for component in _HEALTH)
        return False


class CeleryCluster(Airflow):
    """
    Airflow with CeleryExecutor, Redis, PostgreSQL and two workers; a worker that is killed is restarted.

    Needs the Debian packages ``redis-server`` and ``postgresql``, and ``apache-airflow[celery,postgres]``.
    """

    def __init__(self, folder: Path, dags: Path, environment: Mapping[str, str]) -> None:
        self._database_port, self._redis_port = free_ports(2)
        database = f"airflow@127.0.0.1:{self._database_port}/postgres"
        super().__init__(
            folder,
            dags,
            {
                "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
                "AIRFLOW__CORE__FERNET_KEY": "",
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}",
                "AIRFLOW__CELERY__BROKER_URL": f"redis://127.0.0.1:{self._redis_port}/0",
                "AIRFLOW__CELERY__RESULT_BACKEND": f"db+postgresql://{database}",
                **environment,
            },
        )
        # This setting applies to SQLite only.
        del self.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS"]
        self._stopping = threading.Event()
        # PostgreSQL refuses to run as root, and its own user must have access to the folder.
        self._postgres = Path(tempfile.mkdtemp(prefix="custody-faults-postgres-"))

    def start(self) -> None:
        """Start PostgreSQL and Redis, then Airflow."""
        as_user: list[str] = []
        if os.geteuid() == 0:
            as_user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(self._postgres, "postgres")
        data = str(self._postgres / "data")
        prepare = [*as_user, _program("initdb"), "-A", "trust", "-U", "airflow", "-D", data]
        subprocess.run(prepare, check=True, capture_output=True, cwd=self._postgres)
        address = ["-h", "127.0.0.1", "-p", str(self._database_port), "-k", str(self._postgres)]
        self.launch(*as_user, _program("postgres"), "-D", data, *address)
        until(lambda: _listens(self._database_port), "PostgreSQL")
        self.launch(_program("redis-server"), "--port", str(self._redis_port), "--bind", "127.0.0.1", "--save", "")
        super().start()
        for name in ("w1", "w2"):
            threading.Thread(target=self._keep_worker, args=(name,), daemon=True).start()

    def stop(self) -> None:
        """Stop all processes, and delete the database."""
        self._stopping.set()
        super().stop()
        shutil.rmtree(self._postgres, ignore_errors=True)

    def _keep_worker(self, name: str) -> None:
        while not self._stopping.is_set():
            # Without log servers: both workers would use the same port.
            command = ("airflow", "celery", "worker", "-H", f"{name}@%h", "--concurrency", "4", "--skip-serve-logs")
            self.launch(*command).wait()
            time.sleep(1)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started."""
    while victims := in_session(process.pid):
        kill(*victims)
        time.sleep(0.05)
    process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _program(name: str) -> str:
    """Return the path of a program, which on Debian may not be on PATH."""
    paths = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True))]
    found = next((path for path in paths if path), None)
    if found is None:
        raise RuntimeError(f"{name} is missing: apt-get install redis-server postgresql")
    return found
