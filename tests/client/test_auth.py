"""
Ways to authenticate.

Tokens that are fetched with a password are kept for their life, and replaced when it ends or they are refused; API keys
sign each call.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests
from support.clocks import Clock
from support.service.sign_ins import PASSWORD, REQUEST, ROLES, SIGN_IN, client_of, sign_ins
from support.whitelist.calls import create, read

from airflow_custody.client import (
    ApiKey,
    CustodyAuthenticationError,
    CustodyClient,
    CustodyError,
    CustodyOutcomeUnknownError,
    PasswordSignIn,
)
from airflow_custody.client.auth import BearerToken
from airflow_custody.sandbox import Sandbox


def test_one_token_serves_many_calls(sandbox: Sandbox, anns: CustodyClient) -> None:
    assert sandbox.control.request_log() == []
    threads = [threading.Thread(target=read, args=(anns,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    create(anns)
    (call,) = sandbox.control.request_log(**SIGN_IN)
    assert "authorization" not in call["headers"]
    assert call["body"] == {"username": "ann", "password": "***"}
    assert {each["status"] for each in sandbox.control.request_log()} == {200}


def test_a_token_is_replaced_before_it_expires(sandbox: Sandbox, anns: CustodyClient, clock: Clock) -> None:
    sandbox.control.configure(token_lifetime=1000)
    for seconds, tokens in ((0, 1), (920, 1), (40, 2)):
        clock.now += seconds
        read(anns)
        assert sign_ins(sandbox) == tokens


def test_new_tokens_are_passed_to_on_token_and_all_are_redacted(sandbox: Sandbox, ann: str) -> None:
    tokens: list[str] = []
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, on_token=tokens.append)) as client:
        read(client)
        sandbox.control.revoke_tokens(ann)
        read(client)
        first, second = tokens
        assert client.auth.redact(f"{first} and {second} and {PASSWORD}") == "*** and *** and ***"


# --- tokens that are refused -------------------------------------------------------------------------------


def test_a_revoked_token_is_replaced_once(sandbox: Sandbox, anns: CustodyClient, ann: str) -> None:
    for call, tokens in ((read, 1), (read, 2), (create, 3)):
        call(anns)
        assert sign_ins(sandbox) == tokens
        sandbox.control.revoke_tokens(ann)
    assert len(sandbox.control.whitelist_requests()) == 1
    # If another password has been set meanwhile, it is sent, and may be refused once.
    sandbox.control.add_user("ann", ROLES, user_id=ann, password="another")
    for _ in range(3):
        with pytest.raises(CustodyAuthenticationError, match="does not send the same credentials again"):
            read(anns)
    assert sign_ins(sandbox) == 4


def test_a_create_is_not_sent_again_after_a_gateways_401(sandbox: Sandbox, anns: CustodyClient) -> None:
    # A gateway may return this after the service has done the work.
    read(anns)
    sandbox.control.add_fault("html", method="POST", path="/whitelists/addresses", status=401, work=True)
    with pytest.raises(CustodyOutcomeUnknownError):
        create(anns)
    assert len(sandbox.control.whitelist_requests()) == 1
    read(anns)
    assert sign_ins(sandbox) == 2


def test_a_persistent_401_does_not_become_a_loop(sandbox: Sandbox, anns: CustodyClient) -> None:
    sandbox.control.add_fault("status", method="GET", path="/health", status=401, times=None)
    for calls in range(1, 4):
        with pytest.raises(CustodyAuthenticationError, match="user name or the password"):
            read(anns)
        # For each call, at most one new token is fetched, and the call is sent at most twice.
        assert len(sandbox.control.request_log(method="GET")) == 2 * calls
        assert sign_ins(sandbox) <= 1 + calls
    sandbox.control.clear_faults()
    read(anns)


# --- a clock that is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-3600, 3600])
def test_a_clock_that_is_wrong_does_not_sign_in_at_every_call(
    sandbox: Sandbox, anns: CustodyClient, ann: str, offset: float
) -> None:
    """A token that seems to have expired is used until the service refuses it."""
    sandbox.control.configure(clock_offset=offset)
    for tokens in (1, 2, 3):
        for _ in range(5):
            read(anns)
        assert sign_ins(sandbox) == tokens
        sandbox.control.revoke_tokens(ann)


# --- a client does not send refused credentials again ----------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 423])
def test_refused_credentials_are_not_sent_again(sandbox: Sandbox, anns: CustodyClient, status: int) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=status)
    texts = []
    for call in (read, create) * 3:
        with pytest.raises(CustodyError, match="This client does not send the same credentials again") as caught:
            call(anns)
        assert caught.value.status == status
        assert caught.value.from_service is True
        assert caught.value.__context__ is None
        texts.append(str(caught.value))
    assert len(set(texts)) == 1
    # Only a 401 is about the name and the password.
    assert ("the password (from " in texts[0]) is (status == 401)
    assert ("one-time codes are not supported" in texts[0]) is (status == 401)
    assert len(sandbox.control.request_log()) == 1
    # Another client, such as that of a task's next try, tries the password once.
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD)) as client:
        read(client)


def test_many_threads_send_what_is_refused_once(sandbox: Sandbox, anns: CustodyClient) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=401, delay=0.2, times=None)
    errors: list[CustodyError] = []

    def call() -> None:
        with pytest.raises(CustodyError) as caught:
            read(anns)
        errors.append(caught.value)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sign_ins(sandbox) == 1
    assert len(errors) == 16


FAILURES: list[dict[str, Any]] = [
    {"kind": "drop"},
    *({"kind": "status", "status": status} for status in (429, 503)),
    # A refusal by a gateway says nothing about the password.
    *({"kind": "html", "status": status} for status in (200, 401)),
    {"kind": "status", "status": 401, "body": {"message": "no"}},
    *({"kind": "status", "status": 200, "body": {"result": token}} for token in ("", "two words")),
    {"kind": "status", "status": 200, "body": {"result": "a.b.c", "error": "Locked", "message": "locked", "code": 9}},
]


@pytest.mark.parametrize("fault", FAILURES, ids=lambda fault: str(fault)[:90])
def test_after_another_failure_the_next_request_signs_in(
    sandbox: Sandbox, anns: CustodyClient, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(**SIGN_IN, **fault, times=2)
    for call in (read, create):
        with pytest.raises(CustodyError) as caught:
            call(anns)
        assert caught.value.operation == "sign in"
        assert "not send the same credentials again" not in str(caught.value)
    read(anns)
    assert sign_ins(sandbox) == 3


def test_white_space_around_credentials_is_not_sent(sandbox: Sandbox, ann: str) -> None:
    key = sandbox.control.add_api_key(ann)
    ways = [
        BearerToken(f" {sandbox.token}\r\n"),
        ApiKey(f"{key['id']}\n", f" {key['secret']}\n"),
        PasswordSignIn("ann\n", f"{PASSWORD}\r\n"),
    ]
    for auth in ways:
        with CustodyClient(sandbox.url, auth=auth, timeout=60, max_retries=0) as client:
            read(client)
    # A blank may be part of a password.
    with client_of(sandbox, PasswordSignIn("ann", f"{PASSWORD} ")) as client, pytest.raises(CustodyAuthenticationError):
        read(client)


# --- API keys ----------------------------------------------------------------------------------------------------


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
    ids=["GET", "GET with a query", "POST"],
)
def test_published_vectors(method: str, query: str, headers: dict[str, str], body: Any, signature: str) -> None:
    url = f"https://api.example.test:443/api/rest/v1/wallets{query}"
    request = requests.Request(method, url, headers=headers, data=body).prepare()
    header = ApiKey("api-key-id", "0badc0de" * 4).authorization(request, nonce="nonce-1", timestamp=10)
    assert header == f"TPV1-HMAC-SHA256 ApiKey=api-key-id Nonce=nonce-1 Timestamp=10 Signature={signature}"


@pytest.fixture
def key(sandbox: Sandbox, ann: str) -> ApiKey:
    made = sandbox.control.add_api_key(ann)
    return ApiKey(made["id"], made["secret"])


def test_calls_are_signed(sandbox: Sandbox, key: ApiKey) -> None:
    # A repeated call is signed again.
    sandbox.control.add_fault("status", path="/health", status=503, times=2, work=True)
    with client_of(sandbox, key, max_retries=2) as client:
        client.list_health_checks(tenant_id="1")
        number = client.create_whitelist_request(REQUEST)
        (found,) = client.find_whitelist_requests(addresses=[REQUEST.address, "Trésor"])
        assert found.id == number
        assert list(client.find_whitelist_requests(addresses=["a b+c&d/ü"], ids=["1", "2"])) == []
    calls = sandbox.control.request_log()
    assert [call["status"] for call in calls] == [503, 503, 200, 200, 200, 200]
    assert [call["method"] for call in calls if "content-type" in call["headers"]] == ["POST"]
    assert len({call["headers"]["authorization"] for call in calls}) == 6


def test_a_wrong_key_and_a_wrong_clock_are_reported(sandbox: Sandbox, key: ApiKey) -> None:
    sandbox.control.configure(clock_offset=60)
    with (
        client_of(sandbox, key) as client,
        pytest.raises(CustodyAuthenticationError, match=r"clock is wrong: .* a gateway changes"),
    ):
        client.list_health_checks()
    wrong = ApiKey("unknown", "ab" * 32, source="the drawer")
    with client_of(sandbox, wrong) as client, pytest.raises(CustodyAuthenticationError, match="the drawer"):
        client.list_health_checks()
    assert len(sandbox.control.request_log()) == 2
