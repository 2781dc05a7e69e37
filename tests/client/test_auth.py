"""Signing in with a password or an API key, over a real socket."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from airflow_custody.client import (
    ApiKey,
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
    CustodyResponseError,
    CustodyServerError,
    PasswordSignIn,
    WhitelistRequest,
)
from airflow_custody.sandbox import Sandbox

PASSWORD = "correct horse battery"
REQUEST = WhitelistRequest(label="Trésor", address="0x" + "ab" * 20, blockchain="ETH")
SIGN_IN = {"path": "/authentication/token"}
ROLES = ["TPUser", "WhitelistedAddressCreator"]


@pytest.fixture
def ann(sandbox: Sandbox) -> str:
    return sandbox.control.add_user("ann", ROLES, password=PASSWORD)


def client_of(sandbox: Sandbox, auth: PasswordSignIn | ApiKey, **settings: Any) -> CustodyClient:
    return CustodyClient(sandbox.url, auth=auth, **{"timeout": 2, "max_retries": 0, **settings})


@pytest.fixture
def client(sandbox: Sandbox, ann: str) -> Iterator[CustodyClient]:
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD)) as made:
        yield made


def sign_ins(sandbox: Sandbox) -> int:
    return len(sandbox.control.request_log(**SIGN_IN))


# --- a password --------------------------------------------------------------------------------------------


def test_one_token_serves_many_calls(sandbox: Sandbox, client: CustodyClient) -> None:
    assert sandbox.control.request_log() == []
    for _ in range(3):
        client.list_health_checks()
    client.create_whitelist_request(REQUEST)
    assert sign_ins(sandbox) == 1
    (call,) = sandbox.control.request_log(**SIGN_IN)
    assert "authorization" not in call["headers"]
    assert call["body"] == {"username": "ann", "password": "***"}


def test_a_token_is_replaced_before_it_expires(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.set_token_lifetime(2)
    sandbox.control.set_token_claims(has_iat=True)
    client.list_health_checks()
    time.sleep(2.1)
    client.list_health_checks()
    assert sign_ins(sandbox) == 2
    assert {call["status"] for call in sandbox.control.request_log()} == {200}


@pytest.mark.parametrize(("lifetime", "margin"), [(1000, 60), (100, 10)])
def test_a_token_is_not_used_shortly_before_it_expires(sandbox: Sandbox, ann: str, lifetime: int, margin: int) -> None:
    sandbox.control.set_token_lifetime(lifetime)
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:
        client.list_health_checks()
        for seconds, tokens in ((lifetime - margin - 5, 1), (lifetime - margin + 1, 2)):
            later = seconds
            client.list_health_checks()
            assert sign_ins(sandbox) == tokens


def test_a_late_refusal_of_an_old_token_does_not_replace_the_new_one(sandbox: Sandbox, ann: str) -> None:
    auth = PasswordSignIn("ann", PASSWORD)
    with client_of(sandbox, auth) as client:
        client.list_health_checks()
        old = auth(requests.Request("GET", sandbox.url).prepare())
        sandbox.control.revoke_tokens(ann)
        client.list_health_checks()
        # As a second thread would do whose response came later.
        assert auth.renew(old)
        client.list_health_checks()
    assert sign_ins(sandbox) == 2


@pytest.mark.parametrize("call", ["read", "create"])
def test_a_revoked_token_is_replaced_once(sandbox: Sandbox, client: CustodyClient, ann: str, call: str) -> None:
    client.list_health_checks()
    sandbox.control.revoke_tokens(ann)
    if call == "create":
        sends: list[int] = []
        assert client.create_whitelist_request(REQUEST, before_send=lambda: sends.append(1)) == "3711"
        assert len(sends) == 2
        assert len(sandbox.control.whitelist_requests()) == 1
    else:
        client.list_health_checks()
    assert sign_ins(sandbox) == 2


def test_a_create_is_not_sent_again_after_a_gateways_401(sandbox: Sandbox, client: CustodyClient) -> None:
    # The gateway may say so after the service has done the work.
    client.list_health_checks()
    sandbox.control.add_fault("html", method="POST", path="/whitelists/addresses", status=401, work=True)
    with pytest.raises(CustodyAuthenticationError):
        client.create_whitelist_request(REQUEST)
    assert len(sandbox.control.whitelist_requests()) == 1
    client.list_health_checks()
    assert sign_ins(sandbox) == 2


def test_a_persistent_401_does_not_become_a_loop(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.add_fault("status", method="GET", path="/health", status=401, times=None)
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:

        def poll(times: int) -> int:
            for _ in range(times):
                with pytest.raises(CustodyAuthenticationError, match="user name or the password"):
                    client.list_health_checks()
            return sign_ins(sandbox)

        assert poll(20) == 2
        assert len(sandbox.control.request_log(path="/health")) == 21
        # Longer and longer pauses; in each of them, the token that is there is used.
        for pause, tokens in ((11, 3), (11, 3), (21, 4), (600, 5), (600, 6)):
            later += pause
            assert poll(5) == tokens
        later += 600
        sandbox.control.clear_faults()
        client.list_health_checks()
        sandbox.control.revoke_tokens(ann)
        client.list_health_checks()


# --- wrong credentials are sent once -----------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 423])
def test_refused_credentials_are_not_sent_again(
    sandbox: Sandbox, client: CustodyClient, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=status)
    texts = []
    for call in (client.list_health_checks, lambda: client.create_whitelist_request(REQUEST)) * 3:
        with pytest.raises(CustodyError, match="not sent again") as caught:
            call()
        assert caught.value.status == status
        assert caught.value.from_service
        assert caught.value.__context__ is None
        texts.append(str(caught.value))
    assert len(set(texts)) == 1
    assert len(sandbox.control.request_log()) == 1


def test_refused_credentials_are_not_sent_again_after_a_time_of_success(
    sandbox: Sandbox, client: CustodyClient, ann: str
) -> None:
    client.list_health_checks()
    sandbox.control.add_user("ann", ROLES, user_id=ann, password="another")
    sandbox.control.revoke_tokens(ann)
    sandbox.control.clear_request_log()
    for _ in range(5):
        with pytest.raises(CustodyAuthenticationError):
            client.list_health_checks()
    assert sign_ins(sandbox) == 1


def test_many_threads_send_wrong_credentials_once(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.add_fault("normal", **SIGN_IN, delay=0.2, times=None)
    errors: list[CustodyError] = []
    with client_of(sandbox, PasswordSignIn("ann", "wrong-password")) as client:

        def call() -> None:
            try:
                client.list_health_checks()
            except CustodyError as error:
                errors.append(error)

        threads = [threading.Thread(target=call) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sign_ins(sandbox) == 1
    assert {type(error) for error in errors} == {CustodyAuthenticationError}
    assert len({id(error) for error in errors}) == 16


def test_a_new_password_is_a_new_chance(sandbox: Sandbox, ann: str) -> None:
    for password, accepted in (("wrong-password", False), (PASSWORD, True)):
        with client_of(sandbox, PasswordSignIn("ann", password)) as client:
            if accepted:
                assert client.list_health_checks()
            else:
                with pytest.raises(CustodyAuthenticationError):
                    client.list_health_checks()


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "html", "status": 401},
        {"kind": "html", "status": 403},
        {"kind": "status", "status": 401, "body": {"message": "no"}},
        {"kind": "status", "status": 401, "body": ""},
    ],
    ids=str,
)
def test_a_refusal_by_a_gateway_is_not_remembered_but_bounded(
    sandbox: Sandbox, ann: str, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(**SIGN_IN, **fault, times=None)
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:

        def poll() -> int:
            for _ in range(10):
                with pytest.raises(CustodyError) as caught:
                    client.list_health_checks()
                assert caught.value.status == fault["status"]
            return sign_ins(sandbox)

        assert poll() == 2
        for pause, calls in ((11, 3), (11, 3), (600, 4)):
            later += pause
            assert poll() == calls
        sandbox.control.clear_faults()
        later += 600
        assert client.list_health_checks()


FAILURES: list[dict[str, Any]] = [
    {"kind": "status", "status": 408},
    {"kind": "status", "status": 429},
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 503},
    {"kind": "html", "status": 404},
    {"kind": "html", "status": 423},
    {"kind": "html"},
    {"kind": "redirect", "location": "https://elsewhere.example/"},
    {"kind": "status", "status": 200, "body": {}},
    {"kind": "status", "status": 200, "body": {"result": "a.b.c", "error": "Locked", "message": "locked", "code": 9}},
]


@pytest.mark.parametrize("fault", FAILURES, ids=str)
def test_a_service_that_cannot_sign_in_now_is_asked_again_after_pauses(
    sandbox: Sandbox, ann: str, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(**SIGN_IN, **fault, times=None)
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:

        def poll() -> int:
            texts = set()
            for _ in range(20):
                with pytest.raises(CustodyError) as caught:
                    client.list_health_checks()
                assert caught.value.operation == "sign in"
                texts.add(str(caught.value))
            assert len(texts) == 1
            return sign_ins(sandbox)

        assert poll() == 2
        for pause, calls in ((11, 3), (11, 3), (600, 4)):
            later += pause
            assert poll() == calls
        sandbox.control.clear_faults()
        later += 600
        assert client.list_health_checks()


@pytest.mark.parametrize(("retry_after", "pause"), [(30, 30), (5, 5), (7200, 600)])
@pytest.mark.parametrize("status", [429, 503])
def test_a_sign_in_waits_as_long_as_the_service_asks(
    sandbox: Sandbox, ann: str, status: int, retry_after: int, pause: int
) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=status, retry_after=retry_after)
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:
        for seconds in (0, 0, pause - 1):
            later = seconds
            with pytest.raises(CustodyError):
                client.list_health_checks()
        assert sign_ins(sandbox) == 1
        later = pause + 1
        assert client.list_health_checks()


def test_an_old_token_that_is_accepted_does_not_end_the_pauses(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.set_token_lifetime(1000)
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:
        client.list_health_checks()
        sandbox.control.add_fault("status", **SIGN_IN, status=500, times=None)
        later = 950
        for _ in range(2):
            with pytest.raises(CustodyServerError):
                client.list_health_checks()
        for _ in range(10):
            client.list_health_checks()
        assert sign_ins(sandbox) == 3


def test_a_sign_in_without_a_response_is_tried_again(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_fault("drop", **SIGN_IN, times=4)
    for _ in range(4):
        with pytest.raises(CustodyConnectionError):
            client.list_health_checks()
    assert client.list_health_checks()


# --- a clock that is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("has_iat", [False, True])
@pytest.mark.parametrize("offset", [-10 * 365 * 86_400, -3600, -1800, -1795, -1770, 0, 3600])
def test_a_clock_that_is_wrong_does_not_sign_in_at_every_call(
    sandbox: Sandbox, client: CustodyClient, caplog: pytest.LogCaptureFixture, has_iat: bool, offset: float
) -> None:
    sandbox.control.set_token_claims(clock_offset=offset, has_iat=has_iat)
    for _ in range(10):
        client.list_health_checks()
    assert sign_ins(sandbox) == 1
    seems_expired = offset < -1740 and not has_iat
    assert caplog.text.count("clock of this machine") == int(seems_expired)


def test_a_token_that_seems_expired_is_used_until_it_is_refused(
    sandbox: Sandbox, client: CustodyClient, ann: str, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.control.set_token_claims(clock_offset=-3600)
    for tokens in (1, 2, 3):
        client.list_health_checks()
        assert sign_ins(sandbox) == tokens
        sandbox.control.revoke_tokens(ann)
    assert caplog.text.count("clock of this machine") == 1


def test_the_age_of_a_token_is_told_by_its_own_life(sandbox: Sandbox, ann: str) -> None:
    # Ten minutes, whatever anybody's clock says.
    sandbox.control.set_token_lifetime(600)
    sandbox.control.set_token_claims(clock_offset=86_400, has_iat=True)
    later = 0.0
    auth = PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later, wall_clock=lambda: 0.0)
    with client_of(sandbox, auth) as client:
        for seconds, tokens in ((0, 1), (530, 1), (545, 2)):
            later = seconds
            client.list_health_checks()
            assert sign_ins(sandbox) == tokens


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1, "iat": 5},
        {"exp": 5, "iat": 5},
        {"exp": 1e308, "iat": -1e308},
        {"exp": "soon"},
        {"exp": True, "iat": 1},
        {"exp": 10**400},
        {"iat": 1},
        [],
        None,
    ],
    ids=str,
)
def test_strange_claims_do_not_sign_in_at_every_call(sandbox: Sandbox, client: CustodyClient, claims: object) -> None:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    token = f"head.{payload}.signature"
    sandbox.control.add_fault("status", **SIGN_IN, status=200, body={"result": token}, times=None)
    sandbox.control.add_fault("status", path="/health", status=200, body={}, times=None)
    for _ in range(5):
        client.list_health_checks()
    assert sign_ins(sandbox) == 1


@pytest.mark.parametrize("changes", [{"password": "other"}, {"totp": True}])
def test_a_refused_sign_in_says_what_to_do(
    sandbox: Sandbox, ann: str, client: CustodyClient, changes: dict[str, Any]
) -> None:
    sandbox.control.add_user("ann", ROLES, user_id=ann, **{"password": PASSWORD, **changes})
    with pytest.raises(CustodyAuthenticationError, match="one-time codes are not supported") as caught:
        client.list_health_checks()
    assert caught.value.operation == "sign in"
    assert PASSWORD not in str(caught.value)
    assert len(sandbox.control.request_log()) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "status", "status": 500}, CustodyServerError),
        ({"kind": "drop"}, CustodyConnectionError),
        ({"kind": "html"}, CustodyResponseError),
        ({"kind": "redirect", "location": "https://elsewhere.example/"}, CustodyResponseError),
        ({"kind": "status", "status": 200, "body": {}}, CustodyResponseError),
        ({"kind": "status", "status": 200, "body": {"result": "two words"}}, CustodyResponseError),
        ({"kind": "status", "status": 400, "body": PASSWORD}, Exception),
    ],
)
def test_a_failed_sign_in_sends_nothing_else(
    sandbox: Sandbox, client: CustodyClient, fault: dict[str, Any], kind: type[Exception]
) -> None:
    sandbox.control.add_fault(**SIGN_IN, **fault)
    with pytest.raises(kind) as caught:
        client.create_whitelist_request(REQUEST)
    assert PASSWORD not in str(caught.value)
    assert "two words" not in str(caught.value)
    assert len(sandbox.control.request_log()) == 1
    assert client.create_whitelist_request(REQUEST) == "3711"


def test_threads_share_one_sign_in(sandbox: Sandbox, client: CustodyClient) -> None:
    threads = [threading.Thread(target=client.list_health_checks) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sign_ins(sandbox) == 1


def test_new_tokens_are_passed_to_on_token(sandbox: Sandbox, ann: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens: list[str] = []
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, on_token=tokens.append)) as client:
        client.list_health_checks()
        (token,) = tokens
        sandbox.control.add_fault("status", path="/health", status=400, body={"message": f"{token} {PASSWORD}"})
        with pytest.raises(Exception, match="400") as caught:
            client.list_health_checks()
    for text in (caplog.text, str(caught.value), repr(client)):
        assert token not in text
        assert PASSWORD not in text


# --- an API key --------------------------------------------------------------------------------------------


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
    with client_of(sandbox, key) as client:
        client.list_health_checks(tenant_id="1")
        number = client.create_whitelist_request(REQUEST)
        (found,) = client.find_whitelist_requests(query="Trésor", addresses=[REQUEST.address])
        assert found.id == number
        assert list(client.find_whitelist_requests(query="a b+c&d/ü", ids=["1", "2"])) == []
    calls = sandbox.control.request_log()
    assert {call["status"] for call in calls} == {200}
    assert ["content-type" in call["headers"] for call in calls] == [False, True, False, False]


def test_a_repeated_call_is_signed_again(sandbox: Sandbox, key: ApiKey) -> None:
    sandbox.control.add_fault("status", path="/health", status=503, times=2, work=True)
    with client_of(sandbox, key, max_retries=2) as client:
        client.list_health_checks()
    calls = sandbox.control.request_log()
    assert [call["status"] for call in calls] == [503, 503, 200]
    assert len({call["headers"]["authorization"] for call in calls}) == 3


def test_a_wrong_key_and_a_wrong_clock_are_reported(sandbox: Sandbox, key: ApiKey) -> None:
    sandbox.control.set_clock_offset(60)
    with client_of(sandbox, key) as client, pytest.raises(CustodyAuthenticationError, match="clock is wrong"):
        client.list_health_checks()
    wrong = ApiKey("unknown", "ab" * 32, source="the drawer")
    with client_of(sandbox, wrong) as client, pytest.raises(CustodyAuthenticationError, match="the drawer"):
        client.list_health_checks()
    assert len(sandbox.control.request_log()) == 2


def test_the_secret_never_leaks(sandbox: Sandbox, ann: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = sandbox.control.add_api_key(ann)
    auth = ApiKey(made["id"], made["secret"])
    with client_of(sandbox, auth) as client:
        sandbox.control.add_fault("status", status=401, body={"message": f"no: {made['secret']}"})
        with pytest.raises(CustodyAuthenticationError) as caught:
            client.list_health_checks()
    for text in (caplog.text, str(caught.value), repr(client), repr(auth)):
        assert made["secret"] not in text


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (lambda: ApiKey("", "ab"), "api_key_id"),
        (lambda: ApiKey("a b", "ab"), "api_key_id"),
        (lambda: ApiKey("a\nb", "ab"), "api_key_id"),
        (lambda: ApiKey("id", ""), "secret"),
        (lambda: ApiKey("id", "s3cret-not-hex"), "secret"),
        (lambda: PasswordSignIn("", "x"), "username"),
        (lambda: PasswordSignIn("ann", ""), "password"),
        (lambda: CustodyClient("https://custody.example.com"), "token"),
        (lambda: CustodyClient("https://custody.example.com", "t", auth=ApiKey("id", "ab")), "auth"),
    ],
)
def test_invalid_credentials_are_refused_and_not_quoted(make: Callable[[], object], setting: str) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        make()
    assert caught.value.setting == setting
    assert "s3cret" not in str(caught.value)
