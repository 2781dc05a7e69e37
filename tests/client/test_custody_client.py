"""The client: its arguments, the hosts to which it sends its credentials, and the responses it accepts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.service.authorities import Authority
from support.whitelist.calls import REQUEST, create, read

from airflow_custody.client import (
    ApiKey,
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyRequestError,
    CustodyResponseError,
    PasswordSignIn,
    WhitelistRequest,
)
from airflow_custody.client.health.models import HealthReport
from airflow_custody.client.signers import PemSigner
from airflow_custody.sandbox import Sandbox

URL = "https://custody.example.com"
VARIABLES = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]


# --- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:1",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "https://x.example/a/",
        "https://custody",
    ],
)
def test_accepted(url: str) -> None:
    CustodyClient(url, "t0ken").close()


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        *(
            ({"base_url": url}, "base_url")
            for url in (
                "",
                "custody.example.com",
                "https://a..b",
                "https://user:s3cret@custody.example.com",
                "https://ann:s3cret@[custody",
                "https://custody.example.com?x=1",
                "https://custody.example.com\\@evil.example",
                "https://custody.example.com/api/rest/v1",
                "https://custody.example.com/a/../b",
                "http://custody.example.com",
                "http://127.0.0.1.evil.example",
            )
        ),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_response_bytes": 0}, "max_response_bytes"),
        ({"verify": "/no/such.pem"}, "verify"),
        ({"client_cert": "/no/such.pem"}, "client_cert"),
        ({"client_cert": ["a", "b", "c"]}, "client_cert"),
        # The setting contains the key itself instead of the key's path.
        *(({name: "-----BEGIN EC PRIVATE KEY-----\ns3cret\n"}, name) for name in ("verify", "client_cert")),
        ({"user_agent": "s3cret-\u20ac"}, "user_agent"),
        ({"proxy": "nonsense"}, "proxy"),
        # The token would travel in clear text.
        ({"base_url": "http://127.0.0.1:9", "proxy": "http://127.0.0.1:9"}, "proxy"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], setting: str) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyClient(**{"base_url": URL, "token": "t0ken", **settings})
    assert caught.value.setting == setting
    assert caught.value.code == "setting-wrong"
    assert "s3cret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        *(
            (lambda token=token: CustodyClient(URL, token), "token")
            for token in (None, "", "s3cret\nb", "s3cret b", "s3cret\x00", "s3cret-\u20ac", "Bearer s3cret")
        ),
        (lambda: CustodyClient(URL, "s3cret", auth=ApiKey("id", "ab")), "auth"),
        (lambda: ApiKey("", "ab"), "api_key_id"),
        (lambda: ApiKey("a\nb", "ab"), "api_key_id"),
        (lambda: ApiKey("id", ""), "secret"),
        (lambda: ApiKey("id", "s3cret-not-hex"), "secret"),
        (lambda: PasswordSignIn("", "s3cret"), "username"),
        (lambda: PasswordSignIn("ann", ""), "password"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused_and_not_quoted(make: Callable[[], object], setting: str) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        make()
    assert caught.value.setting == setting
    assert caught.value.code == "credentials-missing"
    assert "s3cret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_signing_key_in_place_of_its_path_is_refused_and_not_quoted() -> None:
    with pytest.raises(CustodyConfigurationError, match="the key itself") as caught:
        PemSigner.from_file("-----BEGIN EC PRIVATE KEY-----\ns3cret\n")
    assert "s3cret" not in str(caught.value)


# --- the proxy ---------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return an environment that names no proxy."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://127.0.0.1:9",
        "http://user:s3cret@[::1",
        "http://user:s3cret%E2%82%AC@proxy.invalid:1",
        *(f"http://user:12{sign}s3cret@proxy.invalid:1" for sign in "/?#"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_and_its_password_not_shown(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, proxy: str
) -> None:
    caplog.set_level(logging.DEBUG)
    for variable in [None, *VARIABLES]:
        place = f"the environment variable {variable}" if variable else "'proxy'"
        with environment.context() as patch:
            patch.setenv(variable or "unset", proxy)
            with pytest.raises(CustodyConfigurationError) as caught:
                CustodyClient(URL, "t0ken", proxy=None if variable else proxy)
        assert str(caught.value).startswith(f"{place} must be a URL")
        assert caught.value.code == "setting-wrong"
        assert caught.value.setting == (variable or "proxy")
        assert "s3cret" not in str(caught.value) + caplog.text
        assert caught.value.__context__ is None


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "localhost:9"])
def test_the_variable_that_names_the_proxy_is_named(environment: pytest.MonkeyPatch, proxy: str) -> None:
    for variable in VARIABLES:
        with environment.context() as patch:
            patch.setenv("no_proxy", "another.example.com")
            patch.setenv(variable, proxy)
            with CustodyClient(URL, "t0ken", max_retries=0) as client, pytest.raises(CustodyConnectionError) as caught:
                read(client)
        words = f"Check the environment variable {variable}, and that the proxy is up."
        assert caught.value.advice == words


def test_a_proxy_that_is_not_used_changes_nothing(environment: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
    # The proxy could read the token, because it is not reached by HTTPS.
    environment.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    environment.setenv("http_proxy", "http://user:s3cret@[::1")
    environment.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    environment.setenv("NO_PROXY", "127.0.0.1")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        assert client.list_health_checks()
    with (
        CustodyClient("https://127.0.0.1:9", "t0ken", max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        read(client)
    assert "proxy" not in str(caught.value)


# --- where the token goes ----------------------------------------------------------------------------------


def test_a_redirect_is_not_followed(sandbox: Sandbox, client: CustodyClient) -> None:
    with Sandbox() as other:
        sandbox.control.add_fault("redirect", location=f"{other.url}/api/rest/v1/health")
        with pytest.raises(CustodyResponseError, match=other.url):
            client.list_health_checks()
        assert other.control.request_log() == []


def test_an_expired_jwt_is_not_sent(sandbox: Sandbox) -> None:
    token = sandbox.control.add_token(roles=["TPUser"], jwt=True, expires_in=-60)
    with CustodyClient(sandbox.url, token) as client, pytest.raises(CustodyAuthenticationError, match="expired at"):
        client.list_health_checks()
    assert sandbox.control.request_log() == []


def test_netrc_does_not_replace_it(client: CustodyClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert client.list_health_checks()


def test_private_ca_and_client_certificate(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, bundle, certificate = authority
    both = str(Path(bundle).parent / "client.pem")
    with Sandbox(certfile=certificate, keyfile=certificate, client_ca=bundle) as sandbox:
        # A CA bundle from the environment does not replace the bundle that is set, and is not used if none is set.
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
        with CustodyClient(sandbox.url, sandbox.token, verify=bundle, client_cert=both) as client:
            assert client.list_health_checks()
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
        with (
            CustodyClient(sandbox.url, sandbox.token, client_cert=both) as client,
            pytest.raises(
                CustodyConnectionError, match=r"certificate .* was not accepted.*this request was not sent"
            ) as caught,
        ):
            create(client)
        assert not caught.value.retryable


# --- what it sends and reads -------------------------------------------------------------------------------


def test_health_entries(sandbox: Sandbox, client: CustodyClient) -> None:
    entry = {"tenantId": 1, "status": "Success", "report": {"results": {"ETH": "success"}}, "unknown": []}
    groups = {"hsm": {"healthChecks": [entry, {}]}, "empty": {}, "null": None}
    sandbox.control.set_health_response({"groups": groups})
    full, bare, unreadable = client.list_health_checks()
    assert full.tenant_id == "1"
    assert full.status == "Success"
    assert full.listed_under == "hsm"
    assert full.report == HealthReport(results={"ETH": "success"})
    assert full.last_update_date is None
    assert bare.status is None
    assert bare.report is None
    assert unreadable.listed_under == "null"
    assert unreadable.is_readable is False
    for response in ({}, {"groups": None}):
        sandbox.control.set_health_response(response)
        assert client.list_health_checks() == []


def test_the_health_of_a_tenant(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.configure(clock_offset=180)
    listing = client.list_health_checks("2")
    assert {check.tenant_id for check in listing} == {"2"}
    # The time on the service's clock decides which results have expired.
    assert listing.date is not None
    assert listing.date - datetime.now(timezone.utc) > timedelta(seconds=120)
    assert sandbox.control.request_log()[0]["query"] == {"tenantId": ["2"]}
    with pytest.raises(CustodyRequestError, match="tenant"):
        client.list_health_checks("")


def test_both_lists_pass_as_they_are(sandbox: Sandbox, client: CustodyClient) -> None:
    both: dict[str, Any] = {"linked_wallet_ids": ["1"], "linked_internal_address_ids": [2]}
    client.create_whitelist_request(WhitelistRequest(label="a", address=REQUEST.address, currency="eth", **both))
    assert sandbox.control.request_log()[0]["body"] == {
        "label": "a",
        "address": REQUEST.address,
        "currency": "eth",
        "linkedWalletIds": ["1"],
        "linkedInternalAddressIds": ["2"],
    }


def test_another_request_than_the_one_that_was_asked_for_is_refused(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_fault("status", status=200, body={"result": {"id": "1"}})
    with pytest.raises(CustodyResponseError, match="not this request"):
        client.get_whitelist_request("2")
