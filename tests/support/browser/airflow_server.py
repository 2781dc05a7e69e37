"""Runs Airflow's API server in a separate process, for browsers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

USERS = {"admin": "admin", "viewer": "viewer"}
_PROGRAM = str(Path(sys.executable).parent / "airflow")


@dataclass(frozen=True)
class AirflowServer:
    """A running API server: its URL, its users' tokens and its environment."""

    url: str
    tokens: dict[str, str]
    environment: dict[str, str]

    @property
    def dags(self) -> Path:
        """The folder of its DAG files."""
        return Path(self.environment["AIRFLOW__CORE__DAGS_FOLDER"])

    def run(self, *arguments: str) -> None:
        """Run an Airflow command."""
        subprocess.run([_PROGRAM, *arguments], env=self.environment, check=True, capture_output=True, timeout=600)

    def get(self, path: str) -> Any:
        """Get a resource of the REST API."""
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        response = requests.get(f"{self.url}/api/v2{path}", headers=headers, timeout=300)
        response.raise_for_status()
        return response.json()


@contextmanager
def run_airflow(home: Path, variables: Mapping[str, str]) -> Iterator[AirflowServer]:
    """
    Run an API server with users, which allows testing connections.

    :param home: an empty folder.
    :param variables: environment variables, such as connections.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")},
        **variables,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_PROXY": "127.0.0.1",
    }
    (home / "simple_auth_manager_passwords.json.generated").write_text(json.dumps({name: name for name in USERS}))
    (home / "dags").mkdir()
    subprocess.run([_PROGRAM, "db", "migrate"], env=environment, check=True, capture_output=True, timeout=600)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([_PROGRAM, "api-server"], env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield AirflowServer(url, {name: _sign_in(url, name) for name in USERS}, environment)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(600)
            process.kill()


def _sign_in(url: str, user: str) -> str:
    deadline = time.monotonic() + 900
    while True:
        try:
            response = requests.post(f"{url}/auth/token", json={"username": user, "password": user}, timeout=10)
            response.raise_for_status()
            return str(response.json()["access_token"])
        except requests.RequestException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
