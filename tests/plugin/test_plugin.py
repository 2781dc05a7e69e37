"""The plugin: what every Airflow process imports of it, and the app that is made when somebody opens a page."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import tomli
from airflow_runs import AIRFLOW

from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.plugin import plugin
from airflow_custody.plugin.lazy import LazyApp
from airflow_custody.plugin.plugin import CustodyPlugin

ROOT = Path(__file__).parent.parent.parent
FRAME = "/plugin/custody" if AIRFLOW >= (3, 3) else ""

IMPORT = """
import json, sys, warnings
import airflow.plugins_manager
from airflow.providers.common.compat.sdk import AirflowPlugin, conf
before = set(sys.modules)
warnings.simplefilter("error")
import airflow_custody.plugin.plugin
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_it_imports_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, cwd=ROOT)
    ours = {"airflow_custody", "airflow_custody.plugin", "airflow_custody.plugin.lazy", "airflow_custody.plugin.plugin"}
    assert set(json.loads(done.stdout.splitlines()[-1])) <= ours


def test_airflow_finds_it() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["airflow.plugins"] == {"custody": "airflow_custody.plugin.plugin:CustodyPlugin"}


def test_what_it_tells_airflow() -> None:
    CustodyPlugin.validate()  # type: ignore[no-untyped-call]
    (app,) = CustodyPlugin.fastapi_apps
    (view,) = CustodyPlugin.external_views
    assert app["url_prefix"] == "/custody"
    assert (view["name"], view["href"], view["url_route"]) == ("Custody", "/custody/", "custody")
    folder = Path(plugin.__file__).parent
    assert all((folder / view[name].removeprefix("/custody/")).is_file() for name in ("icon", "icon_dark_mode"))
    if AIRFLOW >= (3, 1):
        from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

        assert ExternalViewResponse(**view).nav_top_level is True


@pytest.mark.parametrize(
    ("base_url", "path"),
    [("", ""), ("http://airflow.example.com", ""), ("https://example.com/team/airflow/", "/team/airflow")],
)
def test_below_the_path_of_airflows_address(base_url: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert plugin.base_path() == path


def test_the_options_are_described() -> None:
    options = get_provider_info()["config"]["custody"]["options"]
    assert {name: each["default"] for name, each in options.items()} == {"page": "True", "page_connections": ""}


SHOW = """
import json, types
from airflow_custody.plugin.links import CustodyRequestLink
from airflow_custody.plugin.plugin import CustodyPlugin

task = types.SimpleNamespace(custody_conn_id="custody_default", linked_request_ids=lambda: ["3711"])
link = CustodyRequestLink().get_link(task, ti_key=None)
print(json.dumps([len(CustodyPlugin.fastapi_apps), len(CustodyPlugin.external_views), link]))
"""


@pytest.mark.parametrize(
    ("value", "shown"),
    [("True", [1, 1, f"{FRAME}/custody/connections/custody_default/requests/3711"]), ("False", [0, 0, ""])],
)
def test_the_page_can_be_switched_off(value: str, shown: list[Any]) -> None:
    """Then there is no route, no entry in the navigation, and no link to it."""
    environment = {**os.environ, "AIRFLOW__CUSTODY__PAGE": value}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    assert json.loads(done.stdout.splitlines()[-1]) == shown


def test_the_app_is_made_once_and_not_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    calls: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope)

    def create() -> Any:
        made.append(threading.current_thread().name)
        return app

    module = types.ModuleType("made_late")
    module.create = create  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_late", module)
    lazy = LazyApp("made_late", "create")
    assert made == []

    async def ask() -> None:
        await asyncio.gather(*(lazy({"number": number}, None, None) for number in range(5)))  # type: ignore[arg-type]

    asyncio.run(ask())
    assert sorted(each["number"] for each in calls) == list(range(5))
    assert len(made) == 1
    assert made != [threading.current_thread().name]
