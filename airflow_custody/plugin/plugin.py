"""The Airflow plugin. Every Airflow process imports it, so it imports next to nothing."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin, conf

from airflow_custody.plugin.lazy import LazyApp

#: Where the page is, below Airflow's own address.
PATH = "/custody"


def base_path() -> str:
    """Return the path of Airflow's own address (``[api] base_url``), without a slash at the end."""
    from urllib.parse import urlsplit

    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


class CustodyPlugin(AirflowPlugin):
    """
    The page **Custody** in the navigation of Airflow 3.

    Airflow 2 does not know these attributes, and shows nothing; nor is there anything if ``[custody] page`` is False.
    """

    name = "custody"
    fastapi_apps: list[Any] = []  # noqa: RUF012 - as in Airflow's own class
    external_views: list[Any] = []  # noqa: RUF012
    if conf.getboolean("custody", "page", fallback=True):
        fastapi_apps = [
            {"name": "Custody", "url_prefix": PATH, "app": LazyApp("airflow_custody.plugin.app", "create_app")}
        ]
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
