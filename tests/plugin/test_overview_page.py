"""The page of all services and the page of one connection, in Airflow's own app."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.browser.airflow_pages import Pages, text_of

from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store")

HOSTILE = "<script>alert(1)</script><b>\u202egnp\u200b'\"&"
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
FOREIGN_HOST = "evil.example.com"
HEALTHY = "The service is healthy: 9 of 9 checks are healthy"


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"label": f"Supplier {number}", "address": f"0x{number:040x}", "blockchain": "ETH", **fields}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/custody/", 200),
        ("/custody/connections/unknown", 404),
        ("/custody/static/../app.py", 404),
        ("/custody/static/custody.css", 200),
    ],
)
def test_headers(pages: Pages, path: str, status: int) -> None:
    response = pages.get(path)
    assert response.status_code == status
    assert SECURITY_HEADERS.items() <= dict(response.headers).items()
    is_static = status == 200 and "static" in path
    assert response.headers["cache-control"] == ("public, max-age=300" if is_static else "no-store")


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_the_page_only_reads(pages: Pages, connection: str, method: str) -> None:
    response = getattr(pages._client, method)(
        "/custody/connections/custody_default", headers={"Authorization": f"Bearer {pages._token('adam')}"}
    )
    assert response.status_code == 405
    assert response.headers["content-security-policy"] == SECURITY_HEADERS["content-security-policy"]


def test_an_unexpected_error_is_not_shown(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(user: object) -> None:
        raise RuntimeError("inner secret")

    monkeypatch.setattr("airflow_custody.plugin.overview_page.list_connections", breaks)
    page = pages.get("/custody/")
    assert page.status_code == 500
    assert "inner secret" not in page.text
    assert page.headers["content-security-policy"] == SECURITY_HEADERS["content-security-policy"]


class TestAServiceWithProblems:
    @pytest.fixture(autouse=True)
    def signed(self, connection: str, sandbox: Sandbox) -> str:
        """Prepare the service, and return the id of its request in effect."""
        control = sandbox.control
        control.update_health(component="hsm-2", status="failure")
        (signed,) = control.add_whitelist_requests([row(1)], signed=True)
        pending = control.add_whitelist_requests([row(2), row(3)], status="pending")
        control.set_whitelist_age(pending[1], 7 * 3600)
        control.add_webhook(url="https://hooks.example.com/custody?token=s3cr3t-token", status="disabled")
        return signed

    def test_a_request_has_a_link(self, pages: Pages, signed: str) -> None:
        assert f"/custody/connections/custody_default/requests/{signed}" in pages.get("/custody/").text

    def test_secrets_are_not_shown(self, pages: Pages, sandbox: Sandbox) -> None:
        page = pages.get("/custody/")
        assert "hooks.example.com" in page.text
        assert "s3cr3t-token" not in page.text
        assert sandbox.token not in page.text

    def test_the_service_is_read_once_for_all_pages_and_users(self, pages: Pages, sandbox: Sandbox) -> None:
        pages.get("/custody/", "olga")
        calls = len(sandbox.control.request_log())
        assert calls > 0
        page = pages.get("/custody/connections/custody_default", "adam")
        assert "vault" in text_of(page), "healthy checks are shown, too"
        assert len(sandbox.control.request_log()) == calls


@pytest.mark.parametrize("path", ["/custody/", "/custody/connections/custody_default"])
def test_text_from_outside_is_neither_markup_nor_a_link_nor_invisible(
    pages: Pages, connection: str, sandbox: Sandbox, path: str
) -> None:
    (unknown,) = sandbox.control.add_whitelist_requests([row(1, label=HOSTILE)])
    sandbox.control.add_whitelist_requests([row(1, label=HOSTILE)], status="pending")
    sandbox.control.set_whitelist_status(unknown, HOSTILE)
    sandbox.control.add_webhook(type=HOSTILE, url="javascript:alert(1)", status=HOSTILE)
    sandbox.control.update_health(component="hsm-2", status=HOSTILE)
    page = pages.get(path)
    assert "State unknown These requests are not pending" in text_of(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert not {*re.findall(r"<([a-z0-9]+)", page.text)} & {"script", "style", "iframe", "img", "object"}
    assert not re.findall(r"<[^>]*\s(?:style|on[a-z]+)=", page.text)
    assert not re.findall(r'href="(?!/)', page.text)
    assert "U+202E" in page.text
    assert not set(page.text) & {"\u202e", "\u200b"}


# --- services that do not respond as they should -------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/connections/custody_default/requests/1"])
def test_before_the_first_reading_a_page_says_so_and_loads_itself_again(
    pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    sandbox.control.add_fault(delay=3600, times=None)
    monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 0.0)
    page = pages.get(f"/custody{path}")
    assert page.status_code == 200
    assert "The service has not responded yet." in page.text
    assert HEALTHY not in page.text
    assert page.headers["refresh"] == "3"
    # Users who read with a screen reader or a magnifier can stop it.
    (stop,) = re.findall(r'href="([^"]*)">Stop</a>', page.text)
    page = pages.get(stop)
    assert "The service has not responded yet." in page.text
    assert "refresh" not in page.headers
    assert "Stop" not in text_of(page)
    assert "stay" not in page.text


def test_old_data_is_replaced_without_a_click(
    pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "refresh" not in pages.get("/custody/").headers
    monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 0.0)
    monkeypatch.setattr("airflow_custody.plugin.readings.LIFETIME", 0.0)
    monkeypatch.setattr("airflow_custody.plugin.readings.OLD_AFTER", timedelta(0))
    sandbox.control.add_fault(delay=3600, times=None)
    page = pages.get("/custody/")
    assert "No response" in text_of(page)
    assert page.headers["refresh"] == "3"


def test_nothing_pending_is_a_zero(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    text = text_of(pages.get("/custody/"))
    assert "WhitelistedAddressApprover, Admin 0 " in text
    sandbox.control.add_fault("status", status=500, path="/statistics", times=None)
    pages.renew()
    assert "WhitelistedAddressApprover, Admin unknown " in text_of(pages.get("/custody/"))


FOREIGN = "foreign-word"
FAULTS: dict[str, dict[str, Any]] = {
    "html": {"kind": "html", "body": f"<title>{FOREIGN}</title>"},
    "html-404": {"kind": "html", "status": 404, "body": f"<title>{FOREIGN}</title>"},
    "redirect": {"kind": "redirect", "location": f"https://{FOREIGN}.example.com"},
}
for status in (200, 401, 403, 404, 500):
    body = {"error": FOREIGN, "message": FOREIGN, "code": 5, "error_code": FOREIGN}
    FAULTS[f"json-{status}"] = {"kind": "status", "status": status, "body": body}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_no_part_of_a_response_from_another_host_is_shown(
    pages: Pages, connection: str, sandbox: Sandbox, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(times=None, **fault)
    one = "/custody/connections/custody_default"
    for path in ("/custody/", one, f"{one}/requests/3711", f"{one}/requests?ids=3711"):
        page = pages.get(path)
        assert FOREIGN not in page.text, path
        assert "[custody/" in page.text or "no whitelisting request with this id" in page.text, path


# --- addresses and links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("base_url", ["https://airflow.example.com", "https://airflow.example.com/prod/", ""])
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/custody/", "/custody/"),
        ("/custody/connections/a%2Fb/requests?ids=1,2", "/custody/connections/a/b/requests?ids=1,2"),
    ],
)
def test_signing_in_leads_back_to_the_page_below_airflows_own_url(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, base_url: str, path: str, shown: str
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    response = pages.get(path, None, host=FOREIGN_HOST)
    assert response.status_code == 401
    (link,) = re.findall(r'href="([^"]*next=[^"]*)"', response.text)
    assert parse_qs(urlsplit(unescape(link)).query)["next"] == [base_url.rstrip("/") + shown]


def test_a_page_outside_of_airflows_frame_links_to_airflow(pages: Pages) -> None:
    link = '<a href="/">Airflow</a>'
    assert link in pages.get("/custody/").text
    assert link not in pages.get("/custody/", sec_fetch_dest="iframe").text


def test_airflow_below_a_prefix(pages: Pages) -> None:
    from starlette.testclient import TestClient

    from airflow_custody.plugin.app import create_app

    client = TestClient(create_app(), root_path="/prod/custody")
    assert '<a href="/prod/">Airflow</a>' in client.get("/prod/custody/").text


@pytest.mark.parametrize("path", ["/custody", "/custody/static", "/custody/connections", "/custody/connections/"])
def test_no_redirect_leads_to_the_host_in_the_request(pages: Pages, path: str) -> None:
    pages._client.follow_redirects = False
    assert FOREIGN_HOST not in pages.get(path, host=FOREIGN_HOST).headers.get("location", "")


def test_the_value_of_a_setting_is_not_shown(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"proxy": "s3.cret "}
    broken = {"conn_type": "custody", "host": "https://127.0.0.1:9", "password": "p", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_WRONG", json.dumps(broken))
    page = pages.get("/custody/connections/custody_wrong")
    text = "A setting of the connection (proxy) is missing or wrong. Run 'custody check --conn-id custody_wrong' "
    assert f"{text}for details." in unescape(page.text)
    assert "s3.cret" not in page.text
