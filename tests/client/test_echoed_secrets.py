"""A response that repeats a secret of the client is not used: nothing of it comes into a log, an XCom or an event."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_custody.client import (
    CustodyClient,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.sandbox import Sandbox, health_entry

TOKEN = 'tok-"s\u00e9cret"&12345-long'
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "html": lambda text: text.replace("&", "&amp;").replace('"', "&quot;"),
    "json": lambda text: json.dumps(text),
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
    for word in ("success", "tenantId", "whitelist"):
        client.auth.hide(word)
    assert client.list_health_checks()
    assert client.get_current_user()


def test_what_repeats_none_is_used(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.set_health([health_entry(report={"message": "100 % & \\ fine"})])
    assert len(client.list_health_checks()) == 1
