"""Airflow's REST API, which the demo serves from a thread, and uses to respond to an approval."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import requests
from _environment import free_ports


class AirflowApi:
    """
    Airflow's REST API, called as one user.

    :param url: base URL of Airflow.
    :param token: the user's token.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {token}"

    def pending_approvals(self) -> list[dict[str, Any]]:
        """Return the approvals that Airflow is waiting for."""
        listing = self._call("GET", "/dags/~/dagRuns/~/hitlDetails", params={"response_received": "false"})
        listing.raise_for_status()
        return [each for each in listing.json()["hitl_details"] if each["task_instance"]["state"] == "awaiting_input"]

    def pending_approval(self) -> dict[str, Any]:
        """Wait until Airflow asks for an approval, and return the question."""
        question: dict[str, Any] = wait_for(self.pending_approvals)[0]
        return question

    def respond(self, question: dict[str, Any], option: str) -> int:
        """Respond as the button in Airflow's UI does, and return the HTTP status."""
        task = question["task_instance"]
        path = f"/dags/{task['dag_id']}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/-1/hitlDetails"
        return self._call("PATCH", path, json={"chosen_options": [option], "params_input": {}}).status_code

    def _call(self, method: str, path: str, **arguments: Any) -> requests.Response:
        return self._session.request(method, f"{self._url}/api/v2{path}", timeout=30, **arguments)


def serve_api(*users: str) -> list[AirflowApi]:
    """Serve Airflow's REST API from a thread, and sign each user in."""
    # Import Airflow only now, because it reads its environment when it is imported.
    import uvicorn
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    (port,) = free_ports(1)
    server = uvicorn.Server(uvicorn.Config(create_app(apps="core"), host="127.0.0.1", port=port, log_config=None))
    threading.Thread(target=server.run, daemon=True).start()
    manager = get_auth_manager()
    tokens = [manager.generate_jwt(SimpleAuthManagerUser(username=user, role="user")) for user in users]
    wait_for(lambda: server.started)
    return [AirflowApi(f"http://127.0.0.1:{port}", token) for token in tokens]


def wait_for(condition: Callable[[], Any]) -> Any:
    """
    Poll a condition until it is true, and return its value.

    There is no time-out here, because the whole demo has a time-out.
    """
    while not (value := condition()):
        time.sleep(0.2)
    return value
