"""Calls that are signed with an API key."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from sign_ins import REQUEST, client_of

from airflow_custody.client import ApiKey, CustodyAuthenticationError
from airflow_custody.sandbox import Sandbox


@pytest.mark.parametrize(
    ("method", "query", "headers", "body", "signature"),
    [
        ("GET", "", {}, None, "aFKP2oy2IXAONlBbGQDvT8DVjryhl2J8ZAcLMADl0kE="),
        ("GET", "?limit=1&statuses=PENDING", {}, None, "3mX69Af51iO81BQ6NsBpnyNgVSvjfgSz9lu1a9q84+Q="),
        (
            "POST",
            "",
            {"Content-Type": "application/json; charset=utf-8"},
            b'{"walletId":"1"}',
            "JzsbyoTlQoN8QpG46w+qtPFFeXpIlS5Sn+Jlkutlz5A=",
        ),
    ],
)
@pytest.mark.parametrize("port", ["", ":443"])
def test_published_vectors(
    method: str, query: str, headers: dict[str, str], body: Any, signature: str, port: str
) -> None:
    url = f"https://api.example.test{port}/api/rest/v1/wallets{query}"
    request = requests.Request(method, url, headers=headers, data=body).prepare()
    header = ApiKey("api-key-id", "0badc0de" * 4).authorization(request, nonce="nonce-1", timestamp=10)
    assert header == f"TPV1-HMAC-SHA256 ApiKey=api-key-id Nonce=nonce-1 Timestamp=10 Signature={signature}"


@pytest.fixture
def key(sandbox: Sandbox, ann: str) -> ApiKey:
    made = sandbox.control.add_api_key(ann)
    return ApiKey(made["id"], made["secret"])


def test_calls_are_signed(sandbox: Sandbox, key: ApiKey) -> None:
    # A call that is repeated is signed again.
    sandbox.control.add_fault("status", path="/health", status=503, times=2, work=True)
    with client_of(sandbox, key, max_retries=2) as client:
        client.list_health_checks(tenant_id="1")
        number = client.create_whitelist_request(REQUEST)
        (found,) = client.find_whitelist_requests(query="Trésor", addresses=[REQUEST.address])
        assert found.id == number
        assert list(client.find_whitelist_requests(query="a b+c&d/ü", ids=["1", "2"])) == []
    calls = sandbox.control.request_log()
    assert [call["status"] for call in calls] == [503, 503, 200, 200, 200, 200]
    assert [call["method"] for call in calls if "content-type" in call["headers"]] == ["POST"]
    assert len({call["headers"]["authorization"] for call in calls}) == 6


def test_a_wrong_key_and_a_wrong_clock_are_reported(sandbox: Sandbox, key: ApiKey) -> None:
    sandbox.control.configure(clock_offset=60)
    with client_of(sandbox, key) as client, pytest.raises(CustodyAuthenticationError, match="clock is wrong"):
        client.list_health_checks()
    wrong = ApiKey("unknown", "ab" * 32, source="the drawer")
    with client_of(sandbox, wrong) as client, pytest.raises(CustodyAuthenticationError, match="the drawer"):
        client.list_health_checks()
    assert len(sandbox.control.request_log()) == 2
