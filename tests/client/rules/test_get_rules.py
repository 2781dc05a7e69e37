"""Reading the rules in force, as the service reports them."""

from __future__ import annotations

from typing import Any

import pytest
from support.service.raw_server import raw_server

from airflow_custody.client import CustodyClient, CustodyConnectionError, CustodyResponseError
from airflow_custody.sandbox import Sandbox


@pytest.mark.parametrize(
    "rules",
    [
        {"rulesContainer": "AAAA", "rulesSignatures": [{"userId": "a", "signature": "s"}], "locked": True},
        {"rulesContainer": 5, "rulesSignatures": "junk", "creationDate": "2026-01-01T00:00:00Z"},
    ],
)
def test_the_rules_come_as_they_are_shown(sandbox: Sandbox, client: CustodyClient, rules: dict[str, Any]) -> None:
    sandbox.control.add_fault("status", status=200, body={"result": {**rules, "trails": [{"id": "1"}]}})
    assert client.get_rules() == rules


@pytest.mark.parametrize("body", [{}, {"result": None}, {"result": {"locked": True}}, {"result": []}])
def test_a_response_without_rules_is_no_response(sandbox: Sandbox, client: CustodyClient, body: Any) -> None:
    sandbox.control.add_fault("status", status=200, body=body)
    with pytest.raises(CustodyResponseError):
        client.get_rules()


def test_a_timeout_says_how_long_was_waited() -> None:
    with (
        raw_server(lambda stream: stream.recv(1)) as (url, received),  # type: ignore[arg-type]
        CustodyClient(url, "token", timeout=0.3, max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        client.get_rules()
    assert caught.value.message == f"no complete response from {url.partition('//')[2]} within 0.3 s"
    assert caught.value.advice == "If the service is only slow, increase 'timeout'."
    assert len(received) == 1
