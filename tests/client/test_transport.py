"""What is retried within one call, what is not, and what must never be quoted."""

from __future__ import annotations

import logging
import math
import os
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from calls import create, read
from hypothesis import given
from hypothesis import strategies as st
from raw_server import raw_server

from airflow_custody.client import (
    ClientSettings,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
    CustodyResponseError,
    PasswordSignIn,
)
from airflow_custody.client.http.responses import parse_retry_after
from airflow_custody.sandbox import Sandbox

PROXY_PASSWORD = "proxy-s3cret"


def refuse_tunnel(stream: socket.socket) -> None:
    stream.sendall(b"HTTP/1.1 407 Denied " + PROXY_PASSWORD.encode() + b"\r\nContent-Length: 0\r\n\r\n")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "; retry " in record.getMessage()]


@pytest.fixture(autouse=True)
def log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("retry_after", [None, 0])
def test_an_overloaded_service_is_not_asked_again_at_once(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture, retry_after: int | None
) -> None:
    sandbox.control.add_fault("status", status=503, times=2, **({} if retry_after is None else {"retry_after": 0}))
    with CustodyClient(sandbox.url, sandbox.token, max_retries=2) as client:
        client.list_health_checks()
    first, second = lines(caplog)
    assert first.endswith("retry 1 of 2 now")
    assert " in 1." in second


@pytest.mark.parametrize("call", [create, read])
def test_a_refused_connection_is_retried_whatever_is_sent(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    with (
        CustodyClient("http://127.0.0.1:9", "t0ken", max_retries=1) as client,
        pytest.raises(CustodyConnectionError, match="nothing was sent"),
    ):
        call(client)
    assert len(lines(caplog)) == 1


# --- secrets -----------------------------------------------------------------------------------------------


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_no_proxy_password_in_a_repr() -> None:
    settings = ClientSettings("https://custody.example.com", proxy=f"http://user:{PROXY_PASSWORD}@proxy.example.com")
    assert PROXY_PASSWORD not in repr(settings)
    with CustodyClient("https://custody.example.com", "t0ken", proxy=settings.proxy) as client:
        assert PROXY_PASSWORD not in repr(client.settings)
        assert PROXY_PASSWORD not in repr(client)


def test_no_proxy_password_in_an_error_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with raw_server(refuse_tunnel) as (url, _):
        proxy = f"http://user:{PROXY_PASSWORD}@{urlsplit(url).netloc}"
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=proxy, max_retries=1) as client,
            pytest.raises(CustodyError) as caught,
        ):
            read(client)
    assert PROXY_PASSWORD not in str(caught.value)
    assert PROXY_PASSWORD not in caplog.text


MALFORMED = [
    f"http://user:{PROXY_PASSWORD}@[::1",
    f"http://user:{PROXY_PASSWORD}@proxy.invalid:99999",
    f"http://user:{PROXY_PASSWORD}\u2100@proxy.invalid:1",
    *(f"http://user:12{sign}{PROXY_PASSWORD}@proxy.invalid:1" for sign in "/?#"),
]


@pytest.mark.parametrize("proxy", MALFORMED)
def test_no_password_of_a_malformed_proxy(
    clean_environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, proxy: str
) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyClient("https://custody.example.com", "t0ken", proxy=proxy)
    assert PROXY_PASSWORD not in str(caught.value)
    clean_environment.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyClient("https://custody.example.com", "t0ken")
    assert PROXY_PASSWORD not in str(caught.value)
    assert PROXY_PASSWORD not in caplog.text


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "ftp://127.0.0.1:9", "http://"])
def test_a_proxy_of_the_environment_is_checked_as_the_setting_is(
    clean_environment: pytest.MonkeyPatch, variable: str, proxy: str
) -> None:
    clean_environment.setenv(variable, proxy)
    with pytest.raises(
        CustodyConfigurationError, match=f"^the environment variable {variable} must be a URL"
    ) as caught:
        CustodyClient("https://custody.example.com", "t0ken")
    assert (caught.value.code, caught.value.setting) == ("setting-wrong", variable)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize(
    ("proxy", "advice"),
    [
        ("http://127.0.0.1:9", "The port may be wrong, or the proxy is down: check {}."),
        ("localhost:9", "The port may be wrong, or the proxy is down: check {}."),
        ("http://{}", "Begin {} with https://, or give the port that speaks HTTP."),
    ],
    ids=["down", "without a scheme", "wrong scheme"],
)
def test_the_variable_that_names_the_proxy_is_named(
    clean_environment: pytest.MonkeyPatch, variable: str, proxy: str, advice: str
) -> None:
    with raw_server(lambda stream: stream.sendall(b"\x15\x03\x01\x00\x02\x02\x46")) as (url, _):
        # Which one counts is what the standard library says.
        clean_environment.setenv("no_proxy", "another.example.com")
        clean_environment.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        clean_environment.setenv(variable, proxy.format(urlsplit(url).netloc))
        with (
            CustodyClient(
                "https://custody.example.com", "t0ken", max_retries=0, source="the connection 'bank'"
            ) as client,
            pytest.raises(CustodyConnectionError) as caught,
        ):
            read(client)
    assert caught.value.advice == advice.format(f"the environment variable {variable}")


def test_a_proxy_that_is_not_used_changes_nothing(clean_environment: pytest.MonkeyPatch) -> None:
    clean_environment.setenv("HTTP_PROXY", MALFORMED[0])
    clean_environment.setenv("NO_PROXY", "localhost")
    with (
        CustodyClient("https://127.0.0.1:9", "t0ken", max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        read(client)
    assert "through the proxy" not in str(caught.value)
    assert client.auth.redact("no route to localhost") == "no route to localhost"


def test_a_token_that_was_replaced_is_still_redacted(sandbox: Sandbox) -> None:
    ann = sandbox.control.add_user("ann", ["TPUser"], password="ann-s-password")
    tokens: list[str] = []
    with CustodyClient(sandbox.url, auth=PasswordSignIn("ann", "ann-s-password", on_token=tokens.append)) as client:
        read(client)
        sandbox.control.revoke_tokens(ann)
        read(client)
        first, second = tokens
        assert client.auth.redact(f"{first} and {second} and ann-s-password") == "*** and *** and ***"


# --- how long to wait --------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["nan", "inf", "-inf", "-1", "1e3", "", "9" * 400, "9" * 5000, "\u0663"])
def test_a_retry_after_that_is_no_number_of_seconds_is_none(header: str) -> None:
    seconds = parse_retry_after(header)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)


@given(st.text(max_size=40))
def test_any_retry_after_is_a_number_of_seconds_or_none(header: str) -> None:
    seconds = parse_retry_after(header)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf"), -1, -0.5])
def test_an_error_carries_no_strange_retry_after(seconds: float) -> None:
    error = CustodyError("busy", retry_after=seconds)
    assert error.retry_after is None
    assert CustodyError.from_json({"message": "busy", "retry_after": seconds}).retry_after is None


# --- whose response is it? ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["{}".encode("utf-16"), b"\xef\xbb\xbf{}", b"{", b"NaN", b"[]", b'{"a": "\\ud800"}'], ids=repr
)
def test_only_json_in_utf_8_is_the_services(body: bytes) -> None:
    def respond(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with (
        raw_server(respond) as (url, _),
        CustodyClient(url, "t0ken", max_retries=0) as client,
        pytest.raises(CustodyResponseError, match="not a response of the custody service"),
    ):
        client.delete_webhook("00000000-0000-0000-0000-000000000000")
