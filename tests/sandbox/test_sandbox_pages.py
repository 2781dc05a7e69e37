"""Calls from web pages in a developer's browser are rejected."""

from __future__ import annotations

import pytest
import requests
from support.service.sandbox_api import ROOT, Api, refused

from airflow_custody.sandbox import Sandbox

JSON = {"Content-Type": "application/json"}
#: A method of the control, an operation of the service, and an operation that needs no token.
PATHS = ["/sandbox/private_keys", f"{ROOT}/users/me", f"{ROOT}/authentication/token"]


def post(sandbox: Sandbox, path: str, **headers: str) -> requests.Response:
    token = {"Authorization": f"Bearer {sandbox.token}"}
    return requests.post(f"{sandbox.url}{path}", data="{}", headers={**JSON, **token, **headers}, timeout=60)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host", ["evil.example:{}", "evil.example", "localhost.evil.example:{}", "10.0.0.1:{}", "0.0.0.0:{}", "[::", ""]
)
def test_a_name_that_was_rebound_to_this_machine(sandbox: Sandbox, path: str, host: str) -> None:
    message = refused(post(sandbox, path, Host=host.format(sandbox.port)), 421)
    assert "--allow-host" in message
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("host", ["localhost", "LocalHost:{}", "127.0.0.1:{}", "127.0.0.2", "[::1]:{}"])
def test_the_names_of_this_machine(sandbox: Sandbox, host: str) -> None:
    assert post(sandbox, "/sandbox/about", Host=host.format(sandbox.port)).ok


def test_names_are_allowed_by_the_one_who_starts_it() -> None:
    with Sandbox(host="localhost", allowed_hosts=["Custody-Sandbox"]) as sandbox:
        for host in ("localhost:80", "custody-sandbox:8080", "127.0.0.1"):
            assert post(sandbox, "/sandbox/about", Host=host).ok
        refused(post(sandbox, "/sandbox/about", Host="custody-sandbox.evil.example"), 421)


def test_on_all_addresses_an_address_is_enough_and_a_name_is_not() -> None:
    with Sandbox(host="0.0.0.0") as sandbox:
        for host in ("10.0.0.1:80", "[2001:db8::1]:80", "localhost"):
            assert post(sandbox, "/sandbox/about", Host=host).ok
        refused(post(sandbox, "/sandbox/about", Host="evil.example"), 421)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_a_page_of_another_site(sandbox: Sandbox, path: str, headers: dict[str, str]) -> None:
    assert "web pages" in refused(post(sandbox, path, **headers), 403)
    assert sandbox.control.request_log() == []


def test_a_call_that_a_user_makes_in_a_browser(sandbox: Sandbox) -> None:
    assert post(sandbox, "/sandbox/about", **{"Origin": sandbox.url, "Sec-Fetch-Site": "same-origin"}).ok
    assert post(sandbox, "/sandbox/about", **{"Sec-Fetch-Site": "none"}).ok


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_the_control_refuses_what_a_form_can_send(sandbox: Sandbox, content_type: str) -> None:
    message = refused(post(sandbox, "/sandbox/private_keys", **{"Content-Type": content_type}), 415)
    assert "Content-Type: application/json" in message


def test_the_control_accepts_json_with_parameters(sandbox: Sandbox) -> None:
    assert post(sandbox, "/sandbox/about", **{"Content-Type": "Application/JSON; charset=utf-8"}).ok


def test_no_get_changes_the_state_or_reads_the_control(api: Api, sandbox: Sandbox) -> None:
    number = api.create()
    for name in ("reset", "configure?version=3.15", "private_keys", "request_log", "about"):
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
            response = requests.request(method, f"{sandbox.url}/sandbox/{name}", headers=JSON, timeout=60)
            assert response.status_code == 405
            assert "access-control-allow-origin" not in response.headers
    assert api.get(f"/whitelists/addresses/{number}").ok
    assert sandbox.control.about()["version"] == "3.20"
