"""The Airflow plugin. Every Airflow process imports this module, so it imports nothing heavy."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin, conf

from airflow_custody.plugin import PATH, App, Receive, Send


class LazyApp:
    """An ASGI app that imports and creates the real app at the first call."""

    def __init__(self) -> None:
        self._app: App | None = None
        self._lock = threading.Lock()

    def _make(self) -> App:
        from airflow_custody.plugin.app import create_app

        with self._lock:
            if self._app is None:
                self._app = create_app()
            return self._app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self._app is None:
            from asyncio import to_thread

            # Import in a thread, because the imports would block the event loop, which serves all of Airflow, for too
            # long.
            await to_thread(self._make)
        await (self._app or self._make())(scope, receive, send)


def base_path() -> str:
    """Return the path of ``[api] base_url``, without a slash at the end."""
    from urllib.parse import urlsplit

    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


class CustodyPlugin(AirflowPlugin):
    """
    The page **Custody** in the navigation of Airflow 3.

    Airflow 2 ignores these attributes and shows no page. The option ``[custody] page`` switches the page off.
    """

    name = "custody"
    fastapi_apps: list[Any] = []  # noqa: RUF012 - Airflow's class declares it so
    external_views: list[Any] = []  # noqa: RUF012
    if conf.getboolean("custody", "page", fallback=True):
        fastapi_apps = [{"name": "Custody", "url_prefix": PATH, "app": LazyApp()}]
        external_views = [
            {
                "name": "Custody",
                "href": f"{base_path()}{PATH}/",
                "destination": "nav",
                "nav_top_level": True,
                "url_route": "custody",
                "icon": f"{base_path()}{PATH}/static/custody.svg",
                "icon_dark_mode": f"{base_path()}{PATH}/static/custody-dark.svg",
            }
        ]
