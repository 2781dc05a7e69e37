"""Connections of a secrets backend that is slow: Airflow's own threads do not wait for it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from airflow_pages import Pages, text_of
from airflow_runs import AIRFLOW
from connections import connection_json

from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store")


def test_a_secrets_backend_that_hangs_hides_no_other(
    pages: Pages, connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models.connection import Connection

    asked: list[str] = []
    gate, get = threading.Event(), Connection.get_connection_from_secrets

    def slow(conn_id: str, team_name: str | None = None) -> Any:
        asked.append(conn_id)
        if conn_id == "custody_slow":
            gate.wait(120)
        return get(conn_id, team_name=team_name)

    monkeypatch.setattr(Connection, "get_connection_from_secrets", slow)
    assert "9 of 9 healthy" in text_of(pages.get("/custody/"))
    monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 0.0)
    monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "custody_slow")
    try:
        for path in ("", *(f"connections/custody_slow{end}" for end in ("", "/requests/1", "/requests?ids=1"))):
            page = pages.get(f"/custody/{path}")
            assert page.status_code == 200
            assert "No response" in page.text
            assert "has not responded yet" in page.text
        assert "9 of 9 healthy" in text_of(pages.get("/custody/"))
        assert asked.count("custody_slow") == 1
    finally:
        gate.set()


@pytest.mark.parametrize("typed", ["Bank_pw", "BANK_PW", "ban\u212a_pw", "bank_pw "])
def test_one_connection_has_one_id(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    from urllib.parse import quote

    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    monkeypatch.setenv("AIRFLOW_CONN_BANK_PW", connection_json(sandbox))
    monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "BANK_PW,Bank_pw,bank_pw")
    with create_session() as session:
        session.add(Connection("Bank_pw", "custody", host=sandbox.url, password=sandbox.token))
    try:
        for path in ("", "/requests/1", "/requests?ids=1"):
            assert pages.get(f"/custody/connections/{quote(typed)}{path}").status_code == 404
        assert sandbox.control.request_log() == []
        page = pages.get("/custody/").text
        link = 'href="/custody/connections/bank_pw"'
        assert (link in page, page.lower().count(link)) == (True, 1)
        assert pages.get("/custody/connections/bank_pw").status_code == 200
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == "Bank_pw").delete()


def test_what_is_not_listed_is_not_looked_up(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    asked: list[str] = []
    monkeypatch.setattr(Connection, "get_connection_from_secrets", lambda conn_id, **_: asked.append(conn_id))
    assert pages.get("/custody/connections/custody_elsewhere").status_code == 404
    assert asked == []
