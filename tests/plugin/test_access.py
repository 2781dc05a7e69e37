"""Who may read which connections (Airflow decides at each request), and where connections come from."""

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
NONE = "You cannot read any connection of type Custody."


@pytest.fixture
def address(connection: str, sandbox: Sandbox) -> None:
    """Let the service have one whitelisted address, with the label "Cold storage"."""
    sandbox.control.add_whitelist_requests([{"label": "Cold storage", "address": f"0x{1:040x}", "blockchain": "ETH"}])
    sandbox.control.clear_request_log()


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("user", ["adam", "olga"])
def test_admins_and_operators_read_connections(pages: Pages, path: str, user: str) -> None:
    page = pages.get(path, user)
    assert page.status_code == 200
    assert "Cold storage" in page.text


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("user", ["ulf", "vera"])
def test_users_and_viewers_read_no_connection(pages: Pages, sandbox: Sandbox, user: str) -> None:
    overview, *others = (pages.get(path, user) for path in PATHS)
    assert overview.status_code == 200
    assert NONE in overview.text
    assert "custody_default" not in overview.text
    for page in others:
        assert page.status_code == 404
        assert "Cold storage" not in page.text
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("path", [*PATHS, "/custody/connections/other"])
def test_without_signing_in_no_page_is_shown(pages: Pages, connection: str, sandbox: Sandbox, path: str) -> None:
    page = pages.get(path, None)
    assert page.status_code == 401
    assert "Sign in to Airflow" in page.text
    assert "/auth/login" in page.text
    assert sandbox.url not in page.text
    assert sandbox.control.request_log() == []


def test_a_page_shows_only_data_that_the_users_connections_can_read(
    pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    def only_ann(self: object, *, method: str, user: Any, details: Any = None) -> bool:
        return bool(user.username == "adam" or details.conn_id == "custody_ann")

    approver = json.loads(connection_json(sandbox)) | {"password": Person(sandbox, "ann", "approvers").token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_ANN", json.dumps(approver))
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_connection", only_ann)
    sandbox.control.add_webhook()
    # The admin opens the page first, so that the reading of the admin's connection is cached.
    page = pages.get("/custody/", "adam")
    assert page.text.count("<article") == 1
    assert page.text.count("1</b> of 1 delivering") == 1
    text = text_of(pages.get("/custody/", "olga"))
    assert "custody_ann Signed in user-101@example.test TPUser, WhitelistedAddressCreator, Whit" in text
    assert "9 of 9 healthy" in text
    for hidden in ("webhook", "custody_default", "lacks a role"):
        assert hidden not in text.casefold()


# --- where connections come from -----------------------------------------------------------------------------


@pytest.fixture
def stored(sandbox: Sandbox, airflow_db: None) -> Iterator[None]:
    """Store connections to the service in Airflow's database, and one to another service."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    ids = ("custody_stored", "Bank_pw", "team/a#1")
    with create_session() as session:
        for conn_id in ids:
            session.add(Connection(conn_id, "custody", host=sandbox.url, password=sandbox.token))
        session.add(Connection("other_stored", "http", host="other.example.com"))
    yield
    with create_session() as session:
        session.query(Connection).filter(Connection.conn_id.in_([*ids, "other_stored"])).delete()


@pytest.mark.usefixtures("stored")
def test_a_connection_in_the_database(pages: Pages) -> None:
    text = text_of(pages.get("/custody/"))
    assert "custody_stored" in text
    assert "The service is healthy: 9 of 9 checks are healthy" in text


@pytest.mark.usefixtures("stored")
def test_a_connection_of_another_type_is_not_found(pages: Pages) -> None:
    assert "other_stored" not in pages.get("/custody/").text
    assert pages.get("/custody/connections/other_stored", "adam").status_code == 404


@pytest.mark.usefixtures("stored")
def test_an_environment_variable_hides_a_connection_in_the_database(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task would get the connection in the variable, which has another type."""
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_STORED", json.dumps({"conn_type": "http", "host": "x"}))
    assert "custody_stored" not in text_of(pages.get("/custody/"))


@pytest.mark.usefixtures("stored")
def test_a_connection_whose_id_has_slashes(pages: Pages, sandbox: Sandbox) -> None:
    row = {"label": "L", "address": f"0x{7:040x}", "blockchain": "ETH"}
    (request_id,) = sandbox.control.add_whitelist_requests([row])
    response = pages.get(f"/custody/connections/team%2Fa%231/requests/{request_id}")
    assert response.status_code == 200, response.text
    assert f"0x{7:040x}" in response.text
    assert 'href="/custody/connections/team%2Fa%231"' in response.text


class TestOneConnectionHasOneId:
    @pytest.fixture(autouse=True)
    def spellings(self, stored: None, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        """Define one connection in a variable, in the database and in the option, each with another spelling."""
        monkeypatch.setenv("AIRFLOW_CONN_BANK_PW", connection_json(sandbox))
        monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "BANK_PW,Bank_pw,bank_pw")

    @pytest.mark.parametrize("path", ["Bank_pw", "BANK_PW/requests/1", "ban\u212a_pw", "bank_pw /requests?ids=1"])
    def test_another_spelling_is_not_found(self, pages: Pages, sandbox: Sandbox, path: str) -> None:
        assert pages.get(f"/custody/connections/{quote(path, safe='/?=')}").status_code == 404
        assert sandbox.control.request_log() == []

    def test_the_page_links_to_one_id(self, pages: Pages) -> None:
        page = pages.get("/custody/").text
        link = 'href="/custody/connections/bank_pw"'
        assert link in page
        assert page.lower().count(link) == 1
        assert pages.get("/custody/connections/bank_pw").status_code == 200


@pytest.fixture
def lookups(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Use a secrets backend, and return the list of ids that are looked up in it."""
    from airflow.models.connection import Connection

    found: list[str] = []
    real = Connection.get_connection_from_secrets

    def from_a_backend(conn_id: str, **options: Any) -> Connection:
        found.append(conn_id)
        if conn_id == "custody_vault":
            return Connection(conn_id, "custody", host=sandbox.url, password=sandbox.token)
        if conn_id == "custody_odd":
            raise RuntimeError("the backend's secret")
        return real(conn_id, **options)

    monkeypatch.setattr(Connection, "get_connection_from_secrets", from_a_backend)
    monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "custody_vault, custody_gone,custody_odd,")
    return found


def test_a_connection_that_no_option_names_is_not_looked_up(pages: Pages, lookups: list[str]) -> None:
    assert pages.get("/custody/connections/not_named").status_code == 404
    assert lookups == []


@pytest.mark.usefixtures("lookups")
def test_connections_in_a_secrets_backend_that_the_option_names(pages: Pages) -> None:
    page = pages.get("/custody/")
    text = text_of(page)
    assert "custody_vault" in text
    assert "custody_gone" in text
    assert "This connection is not defined, or its secrets backend cannot be read." in text
    assert "Unexpected error. See the log of the API server." in text
    assert "the backend's secret" not in page.text
