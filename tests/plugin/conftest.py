"""The pages of an Airflow, which each file of tests shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow_pages import Pages, serve


@pytest.fixture(scope="module")
def server(airflow_db: None) -> Iterator[Pages]:
    yield from serve()


@pytest.fixture
def pages(server: Pages) -> Pages:
    server.renew()
    return server
