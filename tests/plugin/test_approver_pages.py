"""What the pages show by the connection of an approver: the same service, seen by a user with fewer roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from airflow_pages import Pages, serve
from airflow_runs import AIRFLOW
from connections import connection_json
from people import Person

from airflow_custody.sandbox import Sandbox

pytestmark = [
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no page, or keeps no state of tasks"),
    pytest.mark.usefixtures("connection"),
]
OF_ANN = "/custody/connections/custody_ann"


@pytest.fixture
def pages(airflow_db: None, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """Return the API server, with a connection of an approver."""
    shown = json.loads(connection_json(sandbox)) | {"password": Person(sandbox, "ann", "approvers").token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_ANN", json.dumps(shown))
    for server in serve():
        server.renew()
        yield server


def text_of(response: Any) -> str:
    """Return what a reader sees, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", response.text)).split())


def test_what_the_service_does_not_offer_is_no_trouble(pages: Pages) -> None:
    text = text_of(pages.get("/custody/"))
    for what in ("Webhooks", "The journal of webhook calls"):
        assert text.count(f"{what}: the service does not offer this, or not to the user of this connection.") == 1
    assert "Cannot be read." not in text
    assert "lacks a role" not in text
    assert "lacks a role" in text_of(pages.get(OF_ANN))
