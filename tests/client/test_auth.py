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
from calls import create, read
from clocks import Clock
from sign_ins import PASSWORD, REQUEST, ROLES, SIGN_IN, client_of, sign_ins

from airflow_custody.client import (
    ApiKey,
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyServerError,
    PasswordSignIn,
)
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
    # It is refused if another password has been set meanwhile: once.
    sandbox.control.add_user("ann", ROLES, user_id=ann, password="another")
    for _ in range(3):
        with pytest.raises(CustodyAuthenticationError, match="not sent again"):
            read(anns)
    assert sign_ins(sandbox) == 4


def test_a_late_refusal_of_an_old_token_does_not_replace_the_new_one(
    sandbox: Sandbox, anns: CustodyClient, ann: str
) -> None:
    read(anns)
    old = requests.Request("GET", sandbox.url).prepare()
    anns.auth.apply(old, anns._transport)
    sandbox.control.revoke_tokens(ann)
    read(anns)
    # As a second thread would do whose response came later.
    assert anns.auth.renew(old)
    read(anns)
    assert sign_ins(sandbox) == 2


def test_a_create_is_not_sent_again_after_a_gateways_401(sandbox: Sandbox, anns: CustodyClient) -> None:
    # The gateway may say so after the service has done the work.
    read(anns)
    sandbox.control.add_fault("html", method="POST", path="/whitelists/addresses", status=401, work=True)
    with pytest.raises(CustodyOutcomeUnknownError):
        create(anns)
    assert len(sandbox.control.whitelist_requests()) == 1
    read(anns)
    assert sign_ins(sandbox) == 2


def test_a_persistent_401_does_not_become_a_loop(sandbox: Sandbox, anns: CustodyClient, ann: str, clock: Clock) -> None:
    sandbox.control.add_fault("status", method="GET", path="/health", status=401, times=None)
    # Longer and longer pauses; in each of them, the token that is there is used.
    for pause, tokens in ((0, 2), (11, 3), (11, 3), (21, 4), (600, 5), (600, 6)):
        clock.now += pause
        for _ in range(5):
            with pytest.raises(CustodyAuthenticationError, match="user name or the password"):
                read(anns)
        assert sign_ins(sandbox) == tokens
    clock.now += 600
    sandbox.control.clear_faults()
    read(anns)
    sandbox.control.revoke_tokens(ann)
    read(anns)


# --- a clock that is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-3600, 3600])
def test_a_clock_that_is_wrong_does_not_sign_in_at_every_call(
    sandbox: Sandbox, anns: CustodyClient, ann: str, offset: float
) -> None:
    """A token that seems expired is used until it is refused."""
    sandbox.control.configure(clock_offset=offset)
    for tokens in (1, 2, 3):
        for _ in range(5):
            read(anns)
        assert sign_ins(sandbox) == tokens
        sandbox.control.revoke_tokens(ann)


# --- credentials that are refused are sent once ------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 423])
def test_refused_credentials_are_not_sent_again(sandbox: Sandbox, anns: CustodyClient, status: int) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=status)
    texts = []
    for call in (read, create) * 3:
        with pytest.raises(CustodyError, match="not sent again") as caught:
            call(anns)
        assert (caught.value.status, caught.value.from_service, caught.value.__context__) == (status, True, None)
        texts.append(str(caught.value))
    assert len(set(texts)) == 1
    # Only a 401 is about the name and the password.
    assert ("password is wrong, or" in texts[0]) is (status == 401)
    assert ("one-time codes are not supported" in texts[0]) is (status == 401)
    assert len(sandbox.control.request_log()) == 1
    # Nor by another client that signs in together with this one.
    other = PasswordSignIn("ann", PASSWORD, source="the drawer")
    other.account = anns.auth.account  # type: ignore[attr-defined]
    with client_of(sandbox, other) as client, pytest.raises(CustodyError, match="not sent again") as caught:
        read(client)
    assert ("come from the drawer" in str(caught.value)) is (status == 401)
    assert sign_ins(sandbox) == 1


@pytest.mark.parametrize(
    ("fault", "most"),
    [({"kind": "status", "status": 401}, 1), ({"kind": "drop"}, 2)],
    ids=["refused", "no response"],
)
def test_many_threads_do_not_sign_in_one_after_another(
    sandbox: Sandbox, anns: CustodyClient, fault: dict[str, Any], most: int
) -> None:
    sandbox.control.add_fault(**SIGN_IN, **fault, delay=0.2, times=None)
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
    assert 1 <= sign_ins(sandbox) <= most
    # One error that several threads raise would collect the traceback of each.
    assert len({id(error) for error in errors}) == 16


def test_who_cannot_sign_in_within_the_time_out_sends_nothing(sandbox: Sandbox, ann: str) -> None:
    auth = PasswordSignIn("ann", PASSWORD)
    with client_of(sandbox, auth, timeout=0.2) as client, auth.account.lock:
        with pytest.raises(CustodyConnectionError, match="another sign-in with this account is in flight") as caught:
            read(client)
        assert (caught.value.transient, caught.value.nothing_sent) == (True, True)
    assert sandbox.control.request_log() == []


# --- not now -----------------------------------------------------------------------------------------------

FAILURES: list[dict[str, Any]] = [
    {"kind": "drop"},
    {"kind": "normal", "delay": 3600},
    *({"kind": "status", "status": status} for status in (408, 429, 500, 503)),
    # A gateway's word, which says nothing about the password.
    *({"kind": "html", "status": status} for status in (200, 401, 423)),
    {"kind": "status", "status": 401, "body": {"message": "no"}},
    {"kind": "redirect", "location": "https://elsewhere.example/"},
    *({"kind": "status", "status": 200, "body": {"result": token}} for token in (None, "", "two words")),
    {"kind": "status", "status": 200, "body": {"result": "a.b.c", "error": "Locked", "message": "locked", "code": 9}},
]


@pytest.mark.parametrize("fault", FAILURES, ids=lambda fault: str(fault)[:90])
def test_a_service_that_cannot_sign_in_now_is_asked_again_after_pauses(
    sandbox: Sandbox, ann: str, clock: Clock, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(**SIGN_IN, **fault, times=None)
    timeout = 0.3 if "delay" in fault else 60
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD), timeout=timeout) as client:
        # Also if the service responds in the end, and nobody waits for it: a password is not sent at every call.
        for pause, calls in ((0, 2), (11, 3), (11, 3), (600, 4)):
            clock.now += pause
            texts = set()
            for call in (read, create) * 5:
                with pytest.raises(CustodyError) as caught:
                    call(client)
                assert caught.value.operation == "sign in"
                texts.add(str(caught.value))
            assert len(texts) == 1
            assert len(sandbox.control.request_log()) == sign_ins(sandbox) == calls
    sandbox.control.clear_faults()
    clock.now += 600
    with client_of(sandbox, client.auth) as client:  # type: ignore[arg-type]
        read(client)


@pytest.mark.parametrize(("retry_after", "pause"), [(30, 30), (5, 5), (7200, 600)])
def test_a_sign_in_waits_as_long_as_the_service_asks(
    sandbox: Sandbox, anns: CustodyClient, clock: Clock, retry_after: int, pause: int
) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=503, retry_after=retry_after)
    for seconds in (0, 0, pause - 1):
        clock.now += seconds
        with pytest.raises(CustodyError):
            read(anns)
    assert sign_ins(sandbox) == 1
    clock.now += 2
    read(anns)


def test_an_old_token_that_is_accepted_does_not_end_the_pauses(
    sandbox: Sandbox, anns: CustodyClient, clock: Clock
) -> None:
    sandbox.control.configure(token_lifetime=1000)
    read(anns)
    sandbox.control.add_fault("status", **SIGN_IN, status=500, times=None)
    clock.now += 950
    for _ in range(2):
        with pytest.raises(CustodyServerError):
            read(anns)
    for _ in range(10):
        read(anns)
    assert sign_ins(sandbox) == 3


def test_a_sign_in_that_was_not_sent_is_tried_again_at_once(sandbox: Sandbox, ann: str) -> None:
    auth = PasswordSignIn("ann", PASSWORD)
    with CustodyClient("http://127.0.0.1:9", auth=auth, timeout=60, max_retries=0) as client:
        for _ in range(5):
            with pytest.raises(CustodyConnectionError, match="nothing was sent"):
                read(client)
    with client_of(sandbox, auth) as client:
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
