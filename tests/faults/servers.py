"""Airflow in separate processes, some of which the fault suite kills."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import requests

_COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


# From below the range that the system assigns to connections. Each is used for one server of a run: it may be long
# until that server listens.
_unused_ports = random.sample(range(20_000, 32_000), 12_000)


def free_ports(count: int) -> list[int]:
    """Return ports that are not in use, and that no other call returns."""
    ports: list[int] = []
    while len(ports) < count:
        port = _unused_ports.pop()
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


class Standalone:
    """
    Airflow as ``airflow standalone`` runs it, with LocalExecutor and SQLite; a context manager.

    :param home: an empty folder.
    :param dags: folder of the DAG files.
    :param environment: further environment variables of all processes.
    """

    def __init__(self, home: Path, dags: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self.log = home / "airflow.log"
        port, worker_log, trigger_log = free_ports(3)
        self.url = f"http://127.0.0.1:{port}"
        self.logs = home / "logs"
        inherited = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
        self.environment = {
            **inherited,
            # Airflow starts its components by name.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)]),
            "AIRFLOW_HOME": str(home),
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
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log),
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
        self._commands: dict[int, tuple[str, ...]] = {}

    def start(self) -> None:
        """Start all processes, without waiting for them."""
        self.launch("airflow", "standalone")

    def launch(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, so that it does not share signals with this program."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._processes.append(process)
        self._commands[process.pid] = command
        return process

    def __enter__(self) -> Standalone:
        try:
            self.start()
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all processes, including those that outlived their parent."""
        for process in self._processes:
            # SIGTERM would end the parent and leave its children running.
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
        sessions = {str(process.pid) for process in self._processes}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                # A process stays in the session it was started in, even if its parent ends or its name changes.
                session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
                if session in sessions:
                    os.kill(int(folder.name), signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def memory(self, component: str) -> float:
        """Return the memory of a component's processes in MiB, what they share counted once."""
        sessions = {str(pid) for pid, command in self._commands.items() if command[1:] == (component,)}
        total = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "stat").read_text().rpartition(")")[2].split()[3] in sessions:
                    total += int((folder / "smaps_rollup").read_text().split("Pss:")[1].split()[0])
        return total / 1024

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call Airflow's public REST API, below ``/api/v2``."""
        for attempt in range(10):
            last = attempt == 9
            try:
                if "Authorization" not in self._session.headers:
                    token = self._session.get(f"{self.url}/auth/token", timeout=30).json()["access_token"]
                    self._session.headers["Authorization"] = f"Bearer {token}"
                response = self._session.request(method, f"{self.url}/api/v2{path}", json=body, timeout=60)
            except requests.ConnectionError:
                if last:
                    raise
            else:
                if response.status_code < 400:
                    return response.json() if response.content else None
                # SQLite allows one writer at a time, and Airflow's API does not wait for its turn.
                if last or "Database error" not in response.text:
                    raise RuntimeError(f"{method} {path}: status {response.status_code}: {response.text[:500]}")
            time.sleep(1)
        raise AssertionError

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            if self._processes[0].poll() is not None:
                break
            with suppress(requests.RequestException, ValueError):
                health = self._session.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
                if all(health[component]["status"] == "healthy" for component in _COMPONENTS):
                    return
            time.sleep(1)
        lines = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"Airflow did not become healthy:\n{lines}")


class CeleryCluster(Standalone):
    """
    Airflow with CeleryExecutor, Redis, PostgreSQL and two workers; a worker that is killed is restarted.

    Needs the Debian packages ``redis-server`` and ``postgresql``, and ``apache-airflow[celery,postgres]``.
    """

    def __init__(self, home: Path, dags: Path, environment: Mapping[str, str]) -> None:
        self._database_port, self._redis_port = free_ports(2)
        database = f"airflow@127.0.0.1:{self._database_port}/postgres"
        super().__init__(
            home,
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
        # It applies to SQLite only.
        del self.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS"]
        self._stopping = threading.Event()
        self._database: Path | None = None

    def start(self) -> None:
        """Start PostgreSQL and Redis, then Airflow."""
        self._start_postgres()
        self.launch(_program("redis-server"), "--port", str(self._redis_port), "--bind", "127.0.0.1", "--save", "")
        subprocess.run(["airflow", "db", "migrate"], env=self.environment, check=True, capture_output=True, timeout=180)
        for component in ("api-server", "scheduler", "dag-processor", "triggerer"):
            self.launch("airflow", component)
        for name in ("w1", "w2"):
            threading.Thread(target=self._keep_worker, args=(name,), daemon=True).start()

    def stop(self) -> None:
        """Stop all processes, and delete the database."""
        self._stopping.set()
        super().stop()
        if self._database is not None:
            shutil.rmtree(self._database, ignore_errors=True)

    @contextmanager
    def held_store(self) -> Iterator[None]:
        """Let no write to the task state store come through."""
        import psycopg2  # type: ignore[import-untyped] # only there for Celery

        connection = psycopg2.connect(host="127.0.0.1", port=self._database_port, user="airflow", dbname="postgres")
        with closing(connection), connection, connection.cursor() as cursor:
            cursor.execute("LOCK TABLE task_state_store IN SHARE MODE")
            yield

    def _start_postgres(self) -> None:
        # PostgreSQL refuses to run as root, and its own user must have access to the folder.
        self._database = Path(tempfile.mkdtemp(prefix="custody-faults-postgres-"))
        as_user: list[str] = []
        if os.geteuid() == 0:
            as_user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(self._database, "postgres")
        data = str(self._database / "data")
        prepare = [*as_user, _program("initdb"), "-A", "trust", "-U", "airflow", "-D", data]
        subprocess.run(prepare, check=True, capture_output=True, cwd=self._database)
        address = ["-h", "127.0.0.1", "-p", str(self._database_port), "-k", str(self._database)]
        self.launch(*as_user, _program("postgres"), "-D", data, *address)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._database_port), timeout=1):
                return
            time.sleep(0.2)
        raise RuntimeError("PostgreSQL did not start")

    def _keep_worker(self, name: str) -> None:
        while not self._stopping.is_set():
            # Without log servers: both workers would use the same port.
            command = ("airflow", "celery", "worker", "-H", f"{name}@%h", "--concurrency", "4", "--skip-serve-logs")
            self.launch(*command).wait()
            time.sleep(1)


def _program(name: str) -> str:
    """Return the path of a program, which on Debian may not be on PATH."""
    paths = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True))]
    found = next((path for path in paths if path), None)
    if found is None:
        raise RuntimeError(f"{name} is missing: apt-get install redis-server postgresql")
    return found
