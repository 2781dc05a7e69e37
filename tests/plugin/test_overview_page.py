"""The page of all connections, and that of one, in Airflow's own app."""

from __future__ import annotations

import json
import re
from functools import partial
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.connections import connection_json
from support.browser.airflow_pages import Pages, text_of
from support.clocks import Clock

from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store")

HOSTILE = "<script>alert(1)</script><b>\u202egnp\u200b'\"&"
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
FOREIGN_HOST = "evil.example.com"
WELL = "The service is healthy: 9 of 9 checks are healthy"


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"label": f"Supplier {number}", "address": f"0x{number:040x}", "blockchain": "ETH", **fields}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/custody/", 200),
        ("/custody/connections/unknown", 404),
        ("/custody/connections/a%00b", 404),
        ("/custody/static/nothing.css", 404),
        ("/custody/static/../app.py", 404),
        ("/custody/static/custody.css", 200),
    ],
)
def test_headers(pages: Pages, path: str, status: int) -> None:
    response = pages.get(path)
    assert response.status_code == status
    assert {name: response.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
    is_static = status == 200 and "static" in path
    assert response.headers["cache-control"] == ("public, max-age=300" if is_static else "no-store")


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


def test_shows_a_service(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    control = sandbox.control
    control.update_health(component="hsm-2", status="failure")
    (signed,) = control.add_whitelist_requests([row(1)], signed=True)
    waiting = control.add_whitelist_requests([row(2), row(3)], status="pending")
    control.set_whitelist_age(waiting[1], 7 * 3600)
    control.add_webhook(url="https://hooks.example.com/custody?token=s3cr3t-token", status="disabled")
    page = pages.get("/custody/")
    text = text_of(page)
    assert "Trouble The service is not healthy (1 of 9 checks unhealthy): hsm / hsm-2 / connectivity" in text
    assert "Attention Webhook" in text
    assert "7 h" in text
    assert text.index("Supplier 3") < text.index("Supplier 2"), "the oldest first"
    assert f"/custody/connections/custody_default/requests/{signed}" in page.text
    assert not [secret for secret in (sandbox.token, "s3cr3t-token") if secret in page.text]
    asked = len(sandbox.control.request_log())
    assert "vault" in text_of(pages.get("/custody/connections/custody_default", "adam")), "also the healthy checks"
    # Once in a while, for all users.
    assert len(sandbox.control.request_log()) == asked > 0


def test_what_other_people_wrote_is_text(pages: Pages, connection: str, sandbox: Sandbox) -> None:
    (odd,) = sandbox.control.add_whitelist_requests([row(1, label=HOSTILE)])
    sandbox.control.add_whitelist_requests([row(1, label=HOSTILE)], status="pending")
    sandbox.control.set_whitelist_status(odd, HOSTILE)
    sandbox.control.add_webhook(type=HOSTILE, url="javascript:alert(1)", status=HOSTILE)
    sandbox.control.update_health(component="hsm-2", status=HOSTILE)
    for path in ("/custody/", "/custody/connections/custody_default"):
        page = pages.get(path)
        assert "Status not known These requests are not pending" in text_of(page)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
        assert "U+202E" in page.text
        assert not set(page.text) & {"\u202e", "\u200b"}
        tags = set(re.findall(r"<([a-z0-9]+)", page.text))
        assert not tags & {"script", "style", "iframe", "img", "form", "object"}
        assert not re.findall(r"<[^>]*\s(?:style|on[a-z]+)=", page.text)
        assert not re.findall(r'href="(?!/)', page.text)


# --- services that do not do well ----------------------------------------------------------------------------


def test_one_of_two_is_broken(pages: Pages, connection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"conn_type": "custody", "host": "https://127.0.0.1:9", "password": "a-long-secret"}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_ZZZ", json.dumps(broken))
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_WRONG", json.dumps({**broken, "extra": {"timeout": "soon"}}))
    page = pages.get("/custody/")
    text = text_of(page)
    assert text.index("custody_wrong") < text.index("custody_zzz") < text.index("custody_default"), "trouble first"
    assert "Nothing of the service can be read" in text
    assert WELL in text
    assert "a-long-secret" not in page.text


def test_a_service_that_hangs(pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_custody.plugin.readings import Readings

    clock = Clock(1000.0)
    monkeypatch.setattr("airflow_custody.plugin.app.Readings", partial(Readings, clock))
    pages.renew()
    assert f"Healthy {WELL}" in text_of(pages.get("/custody/"))
    sandbox.control.add_fault(delay=3600, times=None)
    monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 0.0)
    clock.now += 100
    assert re.search(rf"Healthy {WELL} .* UTC , being read again", text_of(pages.get("/custody/")))
    for end in ("/requests/1", "/requests?ids=1"):
        page = pages.get(f"/custody/connections/custody_default{end}")
        assert (page.status_code, "has not responded yet" in page.text) == (200, True)
    # Another service is read meanwhile, and Airflow itself responds.
    with Sandbox() as other:
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_OTHER", connection_json(other))
        monkeypatch.setattr("airflow_custody.plugin.readings.WAIT", 120.0)
        assert "9 of 9 healthy" in text_of(pages.get("/custody/connections/custody_other"))
    assert pages.get("/api/v2/version").status_code == 200


_WORD = "foreign-word"
_BODY = {"error": _WORD, "message": _WORD, "code": 5, "error_code": _WORD}


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "html", "body": f"<title>{_WORD}</title>"},
        {"kind": "html", "status": 404, "body": f"<title>{_WORD}</title>"},
        {"kind": "redirect", "location": f"https://{_WORD}.example.com"},
        *({"kind": "status", "status": status, "body": _BODY} for status in (200, 400, 401, 403, 404, 409, 429, 500)),
    ],
    ids=str,
)
def test_no_word_of_a_foreign_host_is_shown(
    pages: Pages, connection: str, sandbox: Sandbox, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(times=None, **fault)
    for end in ("", *(f"connections/custody_default{each}" for each in ("", "/requests/3711", "/requests?ids=3711"))):
        page = pages.get(f"/custody/{end}")
        assert _WORD not in page.text, end
        assert "[custody/" in page.text or "no whitelisting request with this id" in page.text, end


# --- where it is, and where its links lead --------------------------------------------------------------------


@pytest.mark.parametrize("base_url", ["https://airflow.example.com", "https://airflow.example.com/prod/", ""])
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/custody/", "/custody/"),
        ("/custody/connections/a%2Fb/requests?ids=1,2", "/custody/connections/a/b/requests?ids=1,2"),
    ],
)
def test_after_signing_in_airflows_own_address_is_shown(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, base_url: str, path: str, shown: str
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    response = pages.get(path, None, host=FOREIGN_HOST)
    assert response.status_code == 401
    (link,) = [each for each in response.text.split('"') if "next=" in each]
    assert parse_qs(urlsplit(unescape(link)).query)["next"] == [base_url.rstrip("/") + shown]


@pytest.mark.parametrize("path", ["/", "/connections/custody_default", "/connections/none"])
def test_a_page_outside_of_airflows_frame_leads_back(pages: Pages, connection: str, path: str) -> None:
    link = '<a href="/">Airflow</a>'
    assert link in pages.get(f"/custody{path}").text
    assert link not in pages.get(f"/custody{path}", sec_fetch_dest="iframe").text


def test_airflow_below_a_prefix(pages: Pages) -> None:
    from starlette.testclient import TestClient

    from airflow_custody.plugin.app import create_app

    client = TestClient(create_app(), root_path="/prod/custody")
    assert '<a href="/prod/">Airflow</a>' in client.get("/prod/custody/").text


@pytest.mark.parametrize("path", ["/custody", "/custody/static", "/custody/connections", "/custody/connections/"])
def test_no_redirect_leads_to_the_host_that_a_request_names(pages: Pages, path: str) -> None:
    pages._client.follow_redirects = False
    assert FOREIGN_HOST not in pages.get(path, host=FOREIGN_HOST).headers.get("location", "")


@pytest.mark.parametrize("setting", ["timeout", "proxy", "superadmin_keys", "auth"])
def test_the_value_of_a_setting_is_not_shown(pages: Pages, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    broken = {"conn_type": "custody", "host": "https://127.0.0.1:9", "password": "p", "extra": {setting: "s3.cret "}}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_WRONG", json.dumps(broken))
    page = pages.get("/custody/connections/custody_wrong")
    assert f"A setting of the connection ({setting}) is missing or wrong. 'custody check' says why." in unescape(
        page.text
    )
    assert "s3.cret" not in page.text
