"""The plugin: the modules that it makes every Airflow process import, and the app, which the first request creates."""

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
from support.airflow.airflow_runs import AIRFLOW

from airflow_custody.plugin import plugin
from airflow_custody.plugin.plugin import CustodyPlugin, LazyApp

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
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    ours = {"airflow_custody", "airflow_custody.plugin", "airflow_custody.plugin.plugin"}
    assert set(json.loads(done.stdout.splitlines()[-1])) <= ours


def test_the_page_that_it_declares() -> None:
    CustodyPlugin.validate()  # type: ignore[no-untyped-call]
    (app,) = CustodyPlugin.fastapi_apps
    (view,) = CustodyPlugin.external_views
    assert (app["url_prefix"], view["href"]) == ("/custody", "/custody/")
    folder = Path(plugin.__file__).parent
    assert all((folder / view[icon].removeprefix("/custody/")).is_file() for icon in ("icon", "icon_dark_mode"))
    if AIRFLOW >= (3, 1):
        from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

        assert ExternalViewResponse(**view).nav_top_level is True


SHOW = """
import json, types
from airflow_custody.plugin.links import CustodyPageLink, CustodyRequestLink
from airflow_custody.plugin.plugin import CustodyPlugin

task = types.SimpleNamespace(custody_conn_id="custody_default", linked_request_ids=lambda: ["3711"])
links = [each().get_link(task, ti_key=None) for each in (CustodyPageLink, CustodyRequestLink)]
print(json.dumps({"apps": len(CustodyPlugin.fastapi_apps), "views": len(CustodyPlugin.external_views), "links": links}))
"""


def test_the_page_can_be_switched_off() -> None:
    environment = {**os.environ, "AIRFLOW__CUSTODY__PAGE": "False"}
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout.splitlines()[-1]) == {"apps": 0, "views": 0, "links": ["", ""]}


def test_the_app_is_created_once_and_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    calls: list[Any] = []

    async def app(*call: Any) -> None:
        calls.append(call)

    def create() -> Any:
        threads.append(threading.current_thread())
        return app

    async def call_twice() -> None:
        lazy: Any = LazyApp()
        await asyncio.gather(*(lazy({"number": number}, None, None) for number in range(2)))

    monkeypatch.setitem(sys.modules, "airflow_custody.plugin.app", types.SimpleNamespace(create_app=create))
    asyncio.run(call_twice())
    assert len(calls) == 2
    (thread,) = threads
    assert thread is not threading.current_thread()
