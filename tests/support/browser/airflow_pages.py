"""Serve the Custody pages in Airflow's own app, and get them as its users."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

USERS = {"adam": "admin", "olga": "op", "ulf": "user", "vera": "viewer"}


class Pages:
    """
    The API server, called as one of its users.

    :param client: a client of the API server.
    :param mount: the mount of the Custody pages.
    """

    def __init__(self, client: Any, mount: Any) -> None:
        self._client = client
        self._mount = mount
        self._tokens: dict[str, str] = {}

    def renew(self) -> None:
        """Forget everything that was read from any service."""
        from airflow_custody.plugin.app import create_app

        self._mount.app = create_app()

    def get(self, path: str, user: str | None = "olga", **headers: str) -> Any:
        """
        Get a page.

        :param user: the user to sign in as. None: do not sign in.
        :param headers: headers, with underscores in place of hyphens in their names.
        """
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if user is not None:
            headers["Authorization"] = f"Bearer {self._token(user)}"
        return self._client.get(path, headers=headers)

    def _token(self, user: str) -> str:
        if user not in self._tokens:
            from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

            password = json.loads(Path(SimpleAuthManager.get_generated_password_file()).read_text())[user]
            response = self._client.post("/auth/token", json={"username": user, "password": password})
            self._tokens[user] = response.json()["access_token"]
        return self._tokens[user]


def text_of(response: Any) -> str:
    """Return the visible text of a page, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", response.text)).split())


def serve() -> Iterator[Pages]:
    """Serve the pages in Airflow's own app, in front of its catch-all route."""
    settings = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
    }
    with patch.dict("os.environ", settings):
        from airflow.api_fastapi.app import create_app
        from starlette.routing import Mount
        from starlette.testclient import TestClient

        async def not_yet(*_: Any) -> None:
            raise RuntimeError("call renew() first")

        app = create_app(apps="core")
        mount = Mount("/custody", app=not_yet)
        app.router.routes.insert(0, mount)
        with TestClient(app, base_url="http://airflow.example.com", raise_server_exceptions=False) as client:
            yield Pages(client, mount)
