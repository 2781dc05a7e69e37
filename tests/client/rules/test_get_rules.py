"""The rules in force, as the service shows them."""

from __future__ import annotations

from typing import Any

import pytest
from raw_server import raw_server

from airflow_custody.client import CustodyClient, CustodyConnectionError, CustodyNotFoundError, CustodyResponseError
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Any:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


def respond(sandbox: Sandbox, body: Any, status: int = 200) -> None:
    sandbox.control.add_fault("status", status=status, body=body, method="GET", path="/rules")


@pytest.mark.parametrize(
    "rules",
    [
        {"rulesContainer": "AAAA", "rulesSignatures": [{"userId": "a", "signature": "s"}], "locked": True},
        {"rulesContainer": 5, "rulesSignatures": "junk", "creationDate": "2026-01-01T00:00:00Z"},
    ],
)
def test_the_rules_come_as_they_are_shown(sandbox: Sandbox, client: CustodyClient, rules: dict[str, Any]) -> None:
    respond(sandbox, {"result": {**rules, "trails": [{"id": "1"}]}})
    assert client.get_rules() == rules
    assert sandbox.control.request_log()[-1]["query"] == {}


@pytest.mark.parametrize("body", [{}, {"result": None}, {"result": {"locked": True}}, {"result": []}, []])
def test_a_response_without_rules_is_no_response(sandbox: Sandbox, client: CustodyClient, body: Any) -> None:
    respond(sandbox, body)
    with pytest.raises(CustodyResponseError):
        client.get_rules()


def test_a_service_that_does_not_offer_them(sandbox: Sandbox, client: CustodyClient) -> None:
    respond(sandbox, {"error": "NotFound", "message": "not found", "code": 404}, 404)
    with pytest.raises(CustodyNotFoundError) as caught:
        client.get_rules()
    assert caught.value.not_offered
    assert "may not offer this operation" in str(caught.value)


@pytest.mark.parametrize(
    ("timeout", "only_try", "advice"),
    [
        (30, 0.3, None),
        (0.3, 30, "If the service is only slow, raise 'timeout'."),
        (0.3, None, "If the service is only slow, raise 'timeout'."),
    ],
)
def test_a_timeout_says_how_long_was_waited(timeout: float, only_try: float | None, advice: str | None) -> None:
    with (
        raw_server(lambda stream: stream.recv(1)) as (url, received),  # type: ignore[arg-type]
        CustodyClient(url, "token", timeout=timeout, max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        client.get_rules(only_try=only_try)
    assert caught.value.message == f"no complete response from {url.partition('//')[2]} within 0.3 s"
    assert (caught.value.advice, len(received)) == (advice, 1)
