"""The page of all connections, and that of one, in Airflow's own app, for its users."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest
from airflow_pages import Pages, text_of
from airflow_runs import AIRFLOW
from clocks import Clock
from connections import connection_json

from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store")

HOSTILE = "<script>alert(1)</script><b>\u202egnp\u200b'\"&"
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"label": f"Supplier {number}", "address": f"0x{number:040x}", "blockchain": "ETH", **fields}


# --- who may see what ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "sees"), [("adam", True), ("olga", True), ("ulf", False), ("vera", False)])
def test_who_sees_connections(pages: Pages, connection: str, sandbox: Sandbox, user: str, sees: bool) -> None:
    page = pages.get("/custody/", user)
    assert page.status_code == 200
    assert ("custody_default" in page.text) is sees
    assert ("There is no connection of type Custody that you may see." in page.text) is not sees
    assert pages.get("/custody/connections/custody_default", user).status_code == (200 if sees else 404)
    assert bool(sandbox.control.request_log()) is sees


@pytest.mark.parametrize("path", ["/custody/", "/custody/connections/custody_default", "/custody/connections/other"])
def test_nobody_sees_anything(pages: Pages, connection: str, sandbox: Sandbox, path: str) -> None:
    page = pages.get(path, None)
    assert page.status_code == 401
    assert "Sign in to Airflow" in page.text
    assert "/auth/login" in page.text
    assert sandbox.url not in page.text
    assert sandbox.control.request_log() == []


def test_every_route_asks_airflow_who_it_is(pages: Pages) -> None:
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.routing import APIRoute

    from airflow_custody.plugin import overview_page

    routes = [each for each in overview_page.router.routes if isinstance(each, APIRoute)]
    assert routes
    for route in routes:
        assert get_user in [each.call for each in route.dependant.dependencies]
        assert route.methods == {"GET"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/custody/", 200),
        ("/custody/connections/unknown", 404),
        ("/custody/connections/a%00b", 404),
        (f"/custody/connections/{'a' * 251}", 404),
        ("/custody/nothing", 404),
        ("/custody/static/nothing.css", 404),
        ("/custody/static/../app.py", 404),
        ("/custody/static/custody.css", 200),
        ("/custody/static/custody.svg", 200),
    ],
)
def test_headers(pages: Pages, path: str, status: int) -> None:
    response = pages.get(path)
    assert response.status_code == status
    assert {name: response.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
    is_static = status == 200 and "static" in path
    assert response.headers["cache-control"] == ("public, max-age=300" if is_static else "no-store")
    if status == 404:
        assert 'href="/custody/static/custody.css"' in response.text


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_it_only_reads(pages: Pages, connection: str, method: str) -> None:
    response = getattr(pages._client, method)(
        "/custody/connections/custody_default", headers={"Authorization": f"Bearer {pages._token('adam')}"}
    )
    assert response.status_code == 405
    assert response.headers["content-security-policy"] == SECURITY_HEADERS["content-security-policy"]


def test_what_breaks_says_nothing_of_the_inside(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(user: object) -> None:
        raise RuntimeError("inner secret")

    monkeypatch.setattr("airflow_custody.plugin.overview_page.list_connections", breaks)
    page = pages.get("/custody/")
    assert page.status_code == 500
    assert "inner secret" not in page.text
    assert page.headers["content-security-policy"] == SECURITY_HEADERS["content-security-policy"]


# --- what it shows -------------------------------------------------------------------------------------------


def test_shows_a_service(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    control = sandbox.control
    control.update_health(component="hsm-2", status="failure")
    (signed,) = control.add_whitelist_requests([row(1, label="Cold storage")], signed=True)
    waiting = control.add_whitelist_requests([row(2), row(3)], status="pending")
    control.set_whitelist_age(waiting[1], 7 * 3600)
    control.add_webhook(url="https://hooks.example.com/custody?token=s3cr3t-token", status="disabled")
    page = pages.get("/custody/")
    text = text_of(page)
    assert "Trouble The service is not healthy (1 of 9 checks unhealthy): hsm / hsm-2 / connectivity" in text
    assert "its status is 'failure'" in text
    assert "Attention Webhook" in text
    assert text.index("Supplier 3") < text.index("Supplier 2"), "the oldest first"
    assert "7 h" in text
    assert "Cold storage" in text
    assert f"/custody/connections/custody_default/requests/{signed}" in page.text
    assert sandbox.token not in page.text
    assert "s3cr3t-token" not in page.text
    one = text_of(pages.get("/custody/connections/custody_default"))
    assert "vault" in one, "all checks, also the healthy ones"


def test_verified_where_keys_are_pinned(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.control.add_whitelist_requests([row(1)], signed=True)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection(pins=True))
    text = text_of(pages.get("/custody/"))
    assert "Verified" in text
    assert "Not verified" not in text


def test_what_other_people_wrote_is_text(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    sandbox.control.add_whitelist_requests([row(1, label=HOSTILE)], status="pending")
    sandbox.control.add_webhook(type=HOSTILE, url="javascript:alert(1)", status=HOSTILE)
    sandbox.control.update_health(component="hsm-2", status=HOSTILE)
    for path in ("/custody/", "/custody/connections/custody_default"):
        page = pages.get(path)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
        assert "U+202E" in page.text
        assert not set(page.text) & {"\u202e", "\u200b"}
        tags = set(re.findall(r"<([a-z0-9]+)", page.text))
        assert not tags & {"script", "style", "iframe", "img", "form", "object"}
        assert not re.findall(r"<[^>]*\s(?:style|on[a-z]+)=", page.text)
        assert not re.findall(r'href="(?!/)', page.text)


def test_no_connections(pages: Pages) -> None:
    assert "There is no connection of type Custody that you may see." in text_of(pages.get("/custody/", "adam"))


# --- services that do not do well ----------------------------------------------------------------------------


def test_one_of_two_is_broken(pages: Pages, connection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"conn_type": "custody", "host": "https://127.0.0.1:9", "password": "a-long-secret"}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_ZZZ", json.dumps(broken))
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_WRONG", json.dumps({**broken, "extra": {"timeout": "soon"}}))
    page = pages.get("/custody/")
    text = text_of(page)
    assert text.index("custody_wrong") < text.index("custody_zzz") < text.index("custody_default"), "trouble first"
    assert "Nothing of the service can be read" in text
    assert "timeout" in text
    assert "The service is healthy: 9 of 9 checks are healthy" in text
    assert "a-long-secret" not in page.text


def test_a_service_that_hangs(pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_custody.plugin.readings import Readings

    clock = Clock(1000.0)
    monkeypatch.setattr("airflow_custody.plugin.app.Readings", partial(Readings, clock))
    pages.renew()
    assert "Healthy The service is healthy: 9 of 9 checks are healthy" in text_of(pages.get("/custody/"))
    sandbox.control.add_fault(delay=3600, times=None)
    clock.now += 100
    monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 0.0)
    text = text_of(pages.get("/custody/"))
    assert "Healthy The service is healthy: 9 of 9 checks are healthy" in text
    assert "UTC , being read again" in text
    clock.now += 20
    text = text_of(pages.get("/custody/"))
    assert re.search(
        r"No response The service has not responded yet to a new reading: what is shown is \d+ .+ old\.", text
    )
    assert "9 of 9 healthy" in text
    # So does another service, and Airflow itself.
    with Sandbox() as other:
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_OTHER", connection_json(other))
        assert "The service is being read, and has not responded yet." in text_of(pages.get("/custody/"))
        monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 120.0)
        assert "9 of 9 healthy" in text_of(pages.get("/custody/connections/custody_other"))
    assert pages.get("/api/v2/version").status_code == 200
    # When its time-outs are over.
    clock.now += 90
    sandbox.control.clear_faults()
    sandbox.control.add_fault("drop", times=None)
    text = text_of(pages.get("/custody/connections/custody_default"))
    assert re.search(r"Trouble Nothing of the service can be read: .+ What is shown is \d+ .+ old\.", text)
    assert "9 of 9 healthy" in text


def test_a_reading_of_a_service_that_responds_to_nothing_ends_before_its_slot_is_given_away(
    pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_custody.overview.read import MAX_TIMEOUT
    from airflow_custody.plugin.readings import HUNG_AFTER

    monkeypatch.setattr("airflow_custody.overview.read.MAX_TIMEOUT", 0.2)
    sandbox.control.add_fault(delay=3600, times=None)
    assert "there was no complete response in time" in text_of(pages.get("/custody/"))
    # Each call once: another test's reading may still be under way.
    calls = {(call["path"], call["raw_query"]) for call in sandbox.control.request_log()}
    assert len(calls) * MAX_TIMEOUT < HUNG_AFTER


_WORD = "foreign-word"
_REQUESTS = ("/3711", "?ids=3711")
_FAULTS: list[dict[str, Any]] = [
    {"kind": "html", "body": f"<title>{_WORD}</title>"},
    {"kind": "redirect", "location": f"https://{_WORD}.example.com"},
    *(
        {"kind": "status", "status": status, "body": body}
        for status in (200, 400, 401, 403, 404, 409, 429, 500)
        for body in (_WORD, {"error": _WORD, "message": _WORD, "code": status, "error_code": _WORD}, {_WORD: [_WORD]})
    ),
]


@pytest.mark.parametrize("fault", _FAULTS, ids=str)
def test_no_word_of_a_foreign_host_is_shown(
    pages: Pages, connection: str, sandbox: Sandbox, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(times=None, **fault)
    for path in (
        "",
        "connections/custody_default",
        *(f"connections/custody_default/requests{end}" for end in _REQUESTS),
    ):
        page = pages.get(f"/custody/{path}")
        assert _WORD not in page.text, path
        assert "[custody/" in page.text or "no whitelisting request with this id" in page.text, path


def test_requests_whose_status_is_not_known(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    (identifier, _) = sandbox.control.add_whitelist_requests([row(1), row(2)])
    sandbox.control.set_whitelist_status(identifier, "<b>odd</b>")
    page = pages.get("/custody/")
    says = "(status not known): Its status, '<b>odd</b>', and where it is listed do not say whether it is in effect."
    assert f"Attention Whitelisting request {identifier} {says}" in text_of(page)
    assert "Status not known These requests are not pending" in text_of(page)
    assert f"{identifier} <b>odd</b>" in text_of(page)
    assert "<b>odd" not in page.text


def test_asked_at_most_once_in_a_while(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    pages.get("/custody/")
    asked = len(sandbox.control.request_log())
    for user in ("olga", "adam"):
        pages.get("/custody/", user)
        pages.get("/custody/connections/custody_default", user)
    assert len(sandbox.control.request_log()) == asked > 0


# --- where connections come from -----------------------------------------------------------------------------


def test_a_connection_in_the_database(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection("custody_stored", "custody", host=sandbox.url, password=sandbox.token))
        session.add(Connection("other_stored", "http", host="other.example.com"))
    try:
        text = text_of(pages.get("/custody/"))
        assert "custody_stored" in text
        assert "The service is healthy: 9 of 9 checks are healthy" in text
        assert "other_stored" not in text
        assert pages.get("/custody/connections/other_stored", "adam").status_code == 404
        # A task would get this one.
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_STORED", json.dumps({"conn_type": "http", "host": "x"}))
        assert "custody_stored" not in text_of(pages.get("/custody/"))
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id.endswith("_stored")).delete()


def test_connections_that_are_named(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    real = Connection.get_connection_from_secrets

    def from_a_backend(conn_id: str, **options: Any) -> Connection:
        if conn_id == "custody_vault":
            return Connection(conn_id, "custody", host=sandbox.url, password=sandbox.token)
        if conn_id == "custody_odd":
            raise RuntimeError("the backend's secret")
        return real(conn_id, **options)

    monkeypatch.setattr(Connection, "get_connection_from_secrets", from_a_backend)
    monkeypatch.setenv("AIRFLOW__CUSTODY__PAGE_CONNECTIONS", "custody_vault, custody_gone,custody_odd,")
    page = pages.get("/custody/")
    text = text_of(page)
    assert "custody_vault" in text
    assert "custody_gone" in text
    assert "This connection is not defined, or its secrets backend cannot be read." in text
    assert "Something unexpected went wrong. The log of the API server says what." in text
    assert "the backend's secret" not in page.text
    assert pages.get("/custody/connections/custody_gone").status_code == 200
    assert pages.get("/custody/connections/not_named").status_code == 404
