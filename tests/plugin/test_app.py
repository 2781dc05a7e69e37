"""What all pages have in common."""

from __future__ import annotations

import json
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow_pages import Pages
from airflow_runs import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store")
HOST = "evil.example.com"


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
    response = pages.get(path, None, host=HOST)
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
    assert HOST not in pages.get(path, host=HOST).headers.get("location", "")


@pytest.mark.parametrize(
    "setting", ["timeout", "verify", "client_cert", "proxy", "max_retries", "superadmin_keys", "networks", "auth"]
)
def test_the_value_of_a_setting_is_not_shown(pages: Pages, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    broken = {"conn_type": "custody", "host": "https://127.0.0.1:9", "password": "p", "extra": {setting: "s3.cret "}}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_WRONG", json.dumps(broken))
    page = pages.get("/custody/connections/custody_wrong")
    assert f"A setting of the connection ({setting}) is missing or wrong. 'custody check' says why." in unescape(
        page.text
    )
    assert "s3.cret" not in page.text
