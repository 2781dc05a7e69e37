"""Airflow's app with the pages, shared by the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.browser.airflow_pages import Pages, serve


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for readings as long as a busy machine may need. Tests of reads that hang shorten this time."""
    if AIRFLOW >= (3, 1):
        monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 120.0)


@pytest.fixture(scope="module")
def server(airflow_db: None) -> Iterator[Pages]:
    yield from serve()


@pytest.fixture
def pages(server: Pages) -> Pages:
    server.renew()
    return server
