"""Connections of a secrets backend that is slow: Airflow's own threads do not wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from airflow_pages import Pages
from airflow_runs import AIRFLOW
from connections import connection_json

from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store")


@pytest.fixture
def pages(server: Pages, monkeypatch: pytest.MonkeyPatch) -> Pages:
    from airflow_custody.plugin import access

    monkeypatch.setattr(access, "_look_ups", access._LookUps())
    monkeypatch.setattr(access, "BUDGET", 0.3)
    server.renew()
    return server


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A backend that hangs for the connection ``custody_slow``; return what it was asked for."""
    from airflow.models.connection import Connection

    gate = threading.Event()
    asked: list[str] = []
    get = Connection.get_connection_from_secrets

    def slow(conn_id: str, team_name: str | None = None) -> Any:
        asked.append(conn_id)
        if conn_id.startswith("custody_slow"):
            gate.wait(600)
        return get(conn_id, team_name=team_name)

    monkeypatch.setattr(Connection, "get_connection_from_secrets", slow)
    yield asked
    gate.set()


def test_one_that_hangs_hides_no_other(
    pages: Pages, connection: str, backend: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "custody_slow")
    page = pages.get("/custody/")
    assert page.text.count("a secrets backend is slow or does not respond") == 1
    assert "No response" in page.text
    assert 'id="card-custody_default"' in page.text
    for path in ("", "/requests/1", "/requests?ids=1"):
        page = pages.get(f"/custody/connections/custody_slow{path}")
        assert page.status_code == 200
        assert "a secrets backend is slow or does not respond" in page.text
    assert backend.count("custody_slow") == 1


def test_airflows_own_threads_are_free(pages: Pages, backend: list[str]) -> None:
    import anyio.to_thread

    from airflow_custody.plugin.access import find_connection

    class Anybody:
        pass

    async def ask() -> tuple[list[Any], float]:
        questions = [find_connection(user, f"custody_slow{number}") for number in range(100)]
        asking = asyncio.gather(*questions)
        await asyncio.sleep(0.2)
        begin = time.monotonic()
        await anyio.to_thread.run_sync(lambda: None)
        took = time.monotonic() - begin
        return await asking, took

    user: Any = Anybody()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_custody.plugin.access._readable", lambda user, conn_id: [(conn_id, None)])
        found, took = asyncio.run(ask())
    assert took < 10
    assert all(each.late for each in found)
    assert sum(each.name == "custody-connections" for each in threading.enumerate()) <= 16


def test_after_an_outage_that_swallowed_all_calls(backend: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    from airflow_custody.plugin import access
    from airflow_custody.plugin.threads import MAX_THREADS, Threads

    def get(conn_id: str, team_name: str | None = None) -> Any:
        if outage:
            gate.wait(600)
        return Connection(conn_id=conn_id, conn_type="custody", host="https://a.example.com", password="s")

    def find() -> int:
        """Return how many connections can be read."""
        return sum(each is not None and not each.late for each in asyncio.run(look_ups.find(ids)))

    outage, gate, added = False, threading.Event(), 0.0
    ids: list[tuple[str, str | None]] = [(f"custody_{number}", None) for number in range(20)]
    look_ups = access._LookUps()
    look_ups._threads = Threads("custody-connections", slow_after=0.1, clock=lambda: time.monotonic() + added)
    monkeypatch.setattr(Connection, "get_connection_from_secrets", get)
    monkeypatch.setattr(access, "BUDGET", 1.0)
    try:
        assert find() == len(ids)
        outage = True
        assert find() == 0
        outage, added = False, 60.0
        # Not all threads had a call that hangs, where the machine was slow to begin them.
        assert len(ids) - MAX_THREADS <= find() <= len(ids)
        assert find() == len(ids)
    finally:
        gate.set()


def test_what_cannot_be_looked_up_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_custody.plugin import access

    class PanicError(BaseException):
        """As libraries raise that are written in Rust."""

    def panics(conn_id: str, team: str | None) -> None:
        raise PanicError

    monkeypatch.setattr(access, "_read", panics)
    look_ups = access._LookUps()
    for _ in range(2):
        (found,) = asyncio.run(look_ups.find([("custody_a", None)]))
        assert found is not None
        assert (found.problem, found.late) == (
            "This connection cannot be read. The log of the API server says why.",
            True,
        )
    monkeypatch.setattr("airflow_custody.plugin.threads.MAX_QUEUED_OF_ONE", 0)
    (found,) = asyncio.run(look_ups.find([("custody_b", None)]))
    assert found is not None
    assert "Try again in a minute" in found.problem


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
        assert ('id="card-bank_pw"' in page, page.lower().count('id="card-bank_pw')) == (True, 1)
        assert pages.get("/custody/connections/bank_pw").status_code == 200
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == "Bank_pw").delete()


def test_a_row_that_the_database_finds_by_another_casing(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    from airflow_custody.plugin import access

    row = Connection("bank", "custody", host="https://a.example.com", password="s")
    monkeypatch.setattr(Connection, "get_connection_from_secrets", lambda conn_id, team_name=None: row)
    assert access._read("Bank", None) is None
    assert access._read("bank", None) is not None


def test_what_is_not_listed_is_not_looked_up(pages: Pages, backend: list[str]) -> None:
    assert pages.get("/custody/connections/custody_elsewhere").status_code == 404
    assert "custody_elsewhere" not in backend
