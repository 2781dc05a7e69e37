"""A response that repeats a secret of the client is not used: nothing of it comes into a log, an XCom or an event."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_forms import FORMS as ECHOES

from airflow_custody.client import (
    CustodyClient,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.sandbox import Sandbox, health_entry

TOKEN = 'tok-"s\u00e9cret"&12345-long'
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "html": lambda text: text.replace("&", "&amp;").replace('"', "&quot;"),
    "json": lambda text: json.dumps(text),
    "wrapped": lambda text: f"{text[:12]}\r\n {text[12:]}",
    "base64, wrapped": lambda text: base64.encodebytes(b"x" * 45 + text.encode()).decode(),
}


@pytest.fixture
def client(sandbox: Sandbox) -> Any:
    token = sandbox.token
    sandbox_client = CustodyClient(sandbox.url, token)
    sandbox_client.auth.hide(TOKEN)
    with sandbox_client:
        yield sandbox_client


@pytest.mark.parametrize("form", FORMS)
def test_a_health_listing(sandbox: Sandbox, client: CustodyClient, form: str) -> None:
    echo = FORMS[form](TOKEN)
    sandbox.control.set_health([health_entry(report={"error": f"401 for Bearer {echo}"})])
    with pytest.raises(CustodyResponseError, match="repeats a secret") as caught:
        client.list_health_checks()
    assert "12345" not in f"{caught.value} {caught.value.to_json()}"


@pytest.mark.parametrize("form", FORMS)
def test_the_id_of_a_request_that_was_created(sandbox: Sandbox, client: CustodyClient, form: str) -> None:
    body = {"result": {"id": FORMS[form](TOKEN)}}
    sandbox.control.add_fault("status", method="POST", status=200, body=body)
    with pytest.raises(CustodyOutcomeUnknownError, match="repeats a secret"):
        client.create_whitelist_request(WhitelistRequest(label="L", address="0x" + "ab" * 20, blockchain="ETH"))


def test_the_status_of_a_request(sandbox: Sandbox, client: CustodyClient) -> None:
    number = client.create_whitelist_request(WhitelistRequest(label="L", address="0x" + "ab" * 20, blockchain="ETH"))
    sandbox.control.set_whitelist_status(number, f"{TOKEN}")
    with pytest.raises(CustodyResponseError, match="repeats a secret"):
        client.get_whitelist_request(number)


def test_a_password_that_is_a_word_of_the_service_stops_nothing(sandbox: Sandbox, client: CustodyClient) -> None:
    for word in ("success", "tenantId", "whitelist", "12345678"):
        client.auth.hide(word)
    assert client.list_health_checks()
    assert client.get_current_user()


@pytest.mark.parametrize("password", ["hunter2-pw12", "hunter2!", "correct horse"])
def test_a_password_that_is_no_word_is_found_although_it_is_short(
    sandbox: Sandbox, client: CustodyClient, password: str
) -> None:
    client.auth.hide(password)
    sandbox.control.set_health([health_entry(report={"error": f"no {password}"})])
    with pytest.raises(CustodyResponseError, match="repeats a secret") as caught:
        client.list_health_checks()
    assert password not in f"{caught.value} {caught.value.to_json()}"


@pytest.mark.parametrize(("echo", "is_echo"), [("ABCD", False), ("%41%42%43%44", True)])
def test_a_password_counts_as_long_as_the_form_that_is_searched_for(
    sandbox: Sandbox, client: CustodyClient, echo: str, is_echo: bool
) -> None:
    client.auth.hide("%41%42%43%44")
    # The percent sign has the response unescaped.
    sandbox.control.set_health([health_entry(report={"error": f"100 % of {echo}"})])
    if is_echo:
        with pytest.raises(CustodyResponseError, match="repeats a secret"):
            client.list_health_checks()
    else:
        assert client.list_health_checks()


@pytest.mark.parametrize("echo", ["hunter2!", "aHVudGVyMiE=", "hunter2&#33;"])
def test_a_password_that_is_long_enough_once_it_is_unescaped(
    sandbox: Sandbox, client: CustodyClient, echo: str
) -> None:
    client.auth.hide("hunter2%21" if echo != "aHVudGVyMiE=" else "hunter2!")
    sandbox.control.set_health([health_entry(report={"error": f"no {echo}"})])
    with pytest.raises(CustodyResponseError, match="repeats a secret"):
        client.list_health_checks()


@given(
    # Of characters that turn up nowhere by chance, however they are unescaped.
    st.text(st.sampled_from("\"\\&<>%+/ \u00e9\u20ac\U0001f600'=;#ux41qjzQJZ"), min_size=16, max_size=40),
    st.sampled_from([form for form in ECHOES if not any(each in form for each in ("URL", "HTML", "Latin"))]),
    st.integers(1, 2),
)
def test_a_long_response(secret: str, form: str, depth: int) -> None:
    """A listing of any length is searched for secrets as JSON writes them, also within the JSON of a payload."""
    auth = Authentication(source="a test")
    auth.hide(f"t0ken-{secret}")
    echo = ECHOES[form](f"t0ken-{secret}")
    for _ in range(depth):
        echo = json.dumps({"payload": echo})
    padding = json.dumps("x" * 70_000)
    assert auth.is_echoed_in(f'{{"result": [{padding}, {echo}]}}'.encode())
    assert not auth.is_echoed_in(f'{{"result": [{padding}, "t0ken"]}}'.encode())


def test_a_long_response_with_many_tokens_costs_little() -> None:
    auth = Authentication(source="a test")
    for number in range(200):
        auth.hide_token(f"eyJhbGciOiJIUzI1NiJ9.{number:0900}.abc/def+")
    body = json.dumps({"result": [{"label": "caf\u00e9", "payload": json.dumps({"a": "b/c"})}] * 20_000}).encode()
    started = time.process_time()
    assert not auth.is_echoed_in(body)
    assert time.process_time() - started < 2


def test_what_repeats_none_is_used(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.set_health([health_entry(report={"message": "100 % & \\ fine"})])
    assert len(client.list_health_checks()) == 1


@pytest.mark.parametrize("echo", ["t0ken<secret-half", "t0ken&lt;secret-half"])
def test_the_title_of_a_page_has_no_part_of_a_token(sandbox: Sandbox, echo: str) -> None:
    """A title ends at the next tag, and a token may look as if it had one."""
    page = f"<html><title>No: {echo}</title></html>"
    sandbox.control.add_fault("html", status=404, body=page)
    with CustodyClient(sandbox.url, "t0ken<secret-half") as client, pytest.raises(CustodyError) as caught:
        client.list_health_checks()
    assert "a web page, 'No: " in str(caught.value)
    assert "t0ken" not in str(caught.value)
    assert "secret-half" not in str(caught.value)
