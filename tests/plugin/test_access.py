"""Who may see what, and which connections there are to see: Airflow decides, at each request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.connections import connection_json
from support.browser.airflow_pages import Pages, text_of
from support.service.people import Person

from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store")
ONE = "/custody/connections/custody_default"
PATHS = ("/custody/", ONE, f"{ONE}/requests/3711", f"{ONE}/requests?ids=3711")
NONE = "There is no connection of type Custody that you may see."


@pytest.mark.parametrize(("user", "sees"), [("adam", True), ("olga", True), ("ulf", False), ("vera", False)])
def test_who_sees_connections(pages: Pages, connection: str, sandbox: Sandbox, user: str, sees: bool) -> None:
    sandbox.control.add_whitelist_requests([{"label": "Cold storage", "address": f"0x{1:040x}", "blockchain": "ETH"}])
    sandbox.control.clear_request_log()
    first, *others = (pages.get(path, user) for path in PATHS)
    assert first.status_code == 200
    assert ("custody_default" in first.text, NONE in first.text) == (sees, not sees)
    assert [each.status_code for each in others] == [200 if sees else 404] * 3
    assert [("Cold storage" in each.text) for each in (first, *others)] == [sees] * 4
    assert bool(sandbox.control.request_log()) is sees


def test_nobody_sees_anything(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    for path in (*PATHS, "/custody/connections/other"):
        page = pages.get(path, None)
        assert page.status_code == 401
        assert "Sign in to Airflow" in page.text
        assert "/auth/login" in page.text
        assert sandbox.url not in page.text
    assert sandbox.control.request_log() == []


def test_every_route_asks_airflow_who_it_is() -> None:
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.routing import APIRoute

    from airflow_custody.plugin import overview_page, request_page

    for page in (overview_page, request_page):
        routes = [each for each in page.router.routes if isinstance(each, APIRoute)]
        assert routes
        for route in routes:
            assert get_user in [each.call for each in route.dependant.dependencies]
            assert route.methods == {"GET"}


def test_a_viewer_sees_only_what_the_users_of_their_connections_see(
    pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    def only_ann(self: object, *, method: str, user: Any, details: Any = None) -> bool:
        return bool(user.username == "adam" or details.conn_id == "custody_ann")

    approver = json.loads(connection_json(sandbox)) | {"password": Person(sandbox, "ann", "approvers").token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_ANN", json.dumps(approver))
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_connection", only_ann)
    sandbox.control.add_webhook()
    # What the admin's connection reads is cached by then.
    page = pages.get("/custody/", "adam")
    assert page.text.count("<article") == page.text.count("1</b> of 1 delivering") == 1
    text = text_of(pages.get("/custody/", "olga"))
    assert "custody_ann Signed in user-101@example.test TPUser, WhitelistedAddressCreator, Whit" in text
    assert "9 of 9 healthy" in text
    # Nor is it said that a role is missing.
    assert not [word for word in ("webhook", "custody_default", "lacks a role") if word in text.casefold()]


# --- where connections come from -----------------------------------------------------------------------------


@pytest.fixture
def stored(sandbox: Sandbox, airflow_db: None) -> Iterator[None]:
    """Store connections to the service in Airflow's database, and one to another service."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    ids = ("custody_stored", "Bank_pw", "team/a#1")
    with create_session() as session:
        session.add_all(Connection(each, "custody", host=sandbox.url, password=sandbox.token) for each in ids)
        session.add(Connection("other_stored", "http", host="other.example.com"))
    yield
    with create_session() as session:
        session.query(Connection).filter(Connection.conn_id.in_([*ids, "other_stored"])).delete()


@pytest.mark.usefixtures("stored")
def test_a_connection_in_the_database(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(pages.get("/custody/"))
    assert "custody_stored" in text
    assert "The service is healthy: 9 of 9 checks are healthy" in text
    assert "other_stored" not in text
    assert pages.get("/custody/connections/other_stored", "adam").status_code == 404
    # A task would get this one.
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_STORED", json.dumps({"conn_type": "http", "host": "x"}))
    assert "custody_stored" not in text_of(pages.get("/custody/"))


@pytest.mark.usefixtures("stored")
def test_a_connection_whose_id_has_slashes(pages: Pages, sandbox: Sandbox) -> None:
    (number,) = sandbox.control.add_whitelist_requests([{"label": "L", "address": f"0x{7:040x}", "blockchain": "ETH"}])
    for path in (f"requests/{number}", f"requests?ids={number}"):
        response = pages.get(f"/custody/connections/team%2Fa%231/{path}")
        assert response.status_code == 200, response.text
        assert f"0x{7:040x}" in response.text
        assert 'href="/custody/connections/team%2Fa%231"' in response.text


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("typed", ["Bank_pw", "BANK_PW", "ban\u212a_pw", "bank_pw "])
def test_one_connection_has_one_id(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BANK_PW", connection_json(sandbox))
    monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "BANK_PW,Bank_pw,bank_pw")
    for path in ("", "/requests/1", "/requests?ids=1"):
        assert pages.get(f"/custody/connections/{quote(typed)}{path}").status_code == 404
    assert sandbox.control.request_log() == []
    page = pages.get("/custody/").text
    link = 'href="/custody/connections/bank_pw"'
    assert (link in page, page.lower().count(link)) == (True, 1)
    assert pages.get("/custody/connections/bank_pw").status_code == 200


def test_connections_that_are_named(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    asked: list[str] = []
    real = Connection.get_connection_from_secrets

    def from_a_backend(conn_id: str, **options: Any) -> Connection:
        asked.append(conn_id)
        if conn_id == "custody_vault":
            return Connection(conn_id, "custody", host=sandbox.url, password=sandbox.token)
        if conn_id == "custody_odd":
            raise RuntimeError("the backend's secret")
        return real(conn_id, **options)

    monkeypatch.setattr(Connection, "get_connection_from_secrets", from_a_backend)
    monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "custody_vault, custody_gone,custody_odd,")
    # One that is not named is not even looked up.
    assert pages.get("/custody/connections/not_named").status_code == 404
    assert asked == []
    page = pages.get("/custody/")
    text = text_of(page)
    assert "custody_vault" in text
    assert "custody_gone" in text
    assert "This connection is not defined, or its secrets backend cannot be read." in text
    assert "Something unexpected went wrong. The log of the API server says what." in text
    assert "the backend's secret" not in page.text
