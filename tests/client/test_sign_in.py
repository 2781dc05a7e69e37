"""Signing in with a password or an API key, over a real socket."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import requests

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyResponseError,
    CustodyServerError,
    WhitelistRequest,
)
from airflow_custody.client.sign_in import ApiKey, PasswordSignIn
from airflow_custody.sandbox import Sandbox

PASSWORD = "correct horse battery"
REQUEST = WhitelistRequest(label="Trésor", address="0x" + "ab" * 20, blockchain="ETH")
SIGN_IN = {"path": "/authentication/token"}
ROLES = ["TPUser", "WhitelistedAddressCreator"]


@pytest.fixture
def ann(sandbox: Sandbox) -> str:
    return sandbox.control.add_user("ann", ROLES, password=PASSWORD)


def client_of(sandbox: Sandbox, auth, **settings) -> CustodyClient:
    return CustodyClient(sandbox.url, auth=auth, **{"timeout": 2, "max_retries": 0, **settings})


@pytest.fixture
def client(sandbox: Sandbox, ann: str) -> Iterator[CustodyClient]:
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD)) as made:
        yield made


def sign_ins(sandbox: Sandbox) -> int:
    return len(sandbox.control.received(**SIGN_IN))


# --- a password --------------------------------------------------------------------------------------------


def test_one_token_serves_many_calls(sandbox: Sandbox, client: CustodyClient):
    assert sandbox.control.received() == []
    for _ in range(3):
        client.list_health_checks()
    client.create_whitelist_request(REQUEST)
    assert sign_ins(sandbox) == 1
    (call,) = sandbox.control.received(**SIGN_IN)
    assert "authorization" not in call["headers"]
    assert call["body"] == {"username": "ann", "password": PASSWORD}


def test_a_token_is_replaced_before_it_ends(sandbox: Sandbox, client: CustodyClient):
    sandbox.control.set_token_lifetime(2)
    client.list_health_checks()
    time.sleep(2.1)
    client.list_health_checks()
    assert sign_ins(sandbox) == 2
    assert {call["status"] for call in sandbox.control.received()} == {200}


@pytest.mark.parametrize(("lifetime", "margin"), [(1000, 60), (100, 10)])
def test_a_token_is_not_used_in_its_last_moments(sandbox: Sandbox, client, monkeypatch, lifetime: int, margin: int):
    sandbox.control.set_token_lifetime(lifetime)
    client.list_health_checks()
    now = time.time()
    for later, tokens in ((lifetime - margin - 5, 1), (lifetime - margin + 1, 2)):
        monkeypatch.setattr(
            "airflow_custody.client.sign_in.time", SimpleNamespace(time=lambda later=later: now + later)
        )
        client.list_health_checks()
        assert sign_ins(sandbox) == tokens


def test_an_old_token_that_was_refused_late_does_not_end_a_new_one(sandbox: Sandbox, ann: str):
    auth = PasswordSignIn("ann", PASSWORD)
    with client_of(sandbox, auth) as client:
        client.list_health_checks()
        old = auth(requests.Request("GET", sandbox.url).prepare())
        sandbox.control.revoke_tokens(ann)
        client.list_health_checks()
        # As a second thread, whose answer came later, would do.
        assert auth.renew(old)
        client.list_health_checks()
    assert sign_ins(sandbox) == 2


@pytest.mark.parametrize("call", ["read", "create"])
def test_a_token_that_is_not_accepted_any_more_is_replaced_once(sandbox: Sandbox, client, ann, call):
    client.list_health_checks()
    sandbox.control.revoke_tokens(ann)
    if call == "create":
        asked = []
        assert client.create_whitelist_request(REQUEST, before_send=lambda: asked.append(1)) == "3711"
        assert len(asked) == 2
        assert len(sandbox.control.whitelist_requests()) == 1
    else:
        client.list_health_checks()
    assert sign_ins(sandbox) == 2


def test_a_401_that_stays_does_not_become_a_loop(sandbox: Sandbox, client: CustodyClient):
    sandbox.control.order_fault("status", method="GET", path="/health", status=401, times=None)
    for _ in range(2):
        with pytest.raises(CustodyAuthenticationError, match="user name or the password"):
            client.list_health_checks()
    assert sign_ins(sandbox) == 3
    assert len(sandbox.control.received(path="/health")) == 4


@pytest.mark.parametrize("changes", [{"password": "other"}, {"totp": True}])
def test_a_sign_in_that_is_refused_says_what_to_do(sandbox: Sandbox, ann, client: CustodyClient, changes):
    sandbox.control.add_user("ann", ROLES, user_id=ann, **{"password": PASSWORD, **changes})
    with pytest.raises(CustodyAuthenticationError, match="one-time codes are not supported") as caught:
        client.list_health_checks()
    assert caught.value.operation == "sign in"
    assert PASSWORD not in str(caught.value)
    assert len(sandbox.control.received()) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"answer": "status", "status": 500}, CustodyServerError),
        ({"answer": "drop"}, CustodyConnectionError),
        ({"answer": "html"}, CustodyResponseError),
        ({"answer": "redirect", "location": "https://elsewhere.example/"}, CustodyResponseError),
        ({"answer": "status", "status": 200, "body": {}}, CustodyResponseError),
        ({"answer": "status", "status": 200, "body": {"result": "two words"}}, CustodyResponseError),
        ({"answer": "status", "status": 400, "body": PASSWORD}, Exception),
    ],
)
def test_bad_days_at_the_sign_in_send_nothing_else(sandbox: Sandbox, client: CustodyClient, fault, kind):
    sandbox.control.order_fault(**SIGN_IN, **fault)
    with pytest.raises(kind) as caught:
        client.create_whitelist_request(REQUEST)
    assert PASSWORD not in str(caught.value)
    assert "two words" not in str(caught.value)
    assert len(sandbox.control.received()) == 1
    assert client.create_whitelist_request(REQUEST) == "3711"


def test_threads_share_one_sign_in(sandbox: Sandbox, client: CustodyClient):
    threads = [threading.Thread(target=client.list_health_checks) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sign_ins(sandbox) == 1


def test_tokens_are_told_to_whoever_masks_them(sandbox: Sandbox, ann, caplog):
    caplog.set_level(logging.DEBUG)
    tokens: list[str] = []
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, on_token=tokens.append)) as client:
        client.list_health_checks()
        (token,) = tokens
        sandbox.control.order_fault("status", path="/health", status=400, body={"message": f"{token} {PASSWORD}"})
        with pytest.raises(Exception, match="400") as caught:
            client.list_health_checks()
    for told in (caplog.text, str(caught.value), repr(client)):
        assert token not in told
        assert PASSWORD not in told


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
def test_published_vectors(method, query, headers, body, signature, port):
    url = f"https://api.example.test{port}/api/rest/v1/wallets{query}"
    request = requests.Request(method, url, headers=headers, data=body).prepare()
    header = ApiKey("api-key-id", "0badc0de" * 4).authorization(request, nonce="nonce-1", timestamp=10)
    assert header == f"TPV1-HMAC-SHA256 ApiKey=api-key-id Nonce=nonce-1 Timestamp=10 Signature={signature}"


@pytest.fixture
def key(sandbox: Sandbox, ann: str) -> ApiKey:
    made = sandbox.control.add_api_key(ann)
    return ApiKey(made["id"], made["secret"])


def test_calls_are_signed(sandbox: Sandbox, key: ApiKey):
    with client_of(sandbox, key) as client:
        client.list_health_checks(tenant_id="1")
        number = client.create_whitelist_request(REQUEST)
        (found,) = client.find_whitelist_requests(query="Trésor", addresses=[REQUEST.address])
        assert found.id == number
        assert list(client.find_whitelist_requests(query="a b+c&d/ü", ids=["1", "2"])) == []
    calls = sandbox.control.received()
    assert {call["status"] for call in calls} == {200}
    assert ["content-type" in call["headers"] for call in calls] == [False, True, False, False]


def test_a_repeat_is_signed_anew(sandbox: Sandbox, key: ApiKey):
    sandbox.control.order_fault("status", path="/health", status=503, times=2, work=True)
    with client_of(sandbox, key, max_retries=2) as client:
        client.list_health_checks()
    calls = sandbox.control.received()
    assert [call["status"] for call in calls] == [503, 503, 200]
    assert len({call["headers"]["authorization"] for call in calls}) == 3


def test_a_wrong_key_or_clock_is_told(sandbox: Sandbox, key: ApiKey):
    sandbox.control.set_clock_offset(60)
    with client_of(sandbox, key) as client, pytest.raises(CustodyAuthenticationError, match="clock is wrong"):
        client.list_health_checks()
    wrong = ApiKey("unknown", "ab" * 32, origin="the drawer")
    with client_of(sandbox, wrong) as client, pytest.raises(CustodyAuthenticationError, match="the drawer"):
        client.list_health_checks()
    assert len(sandbox.control.received()) == 2


def test_the_secret_is_nowhere(sandbox: Sandbox, ann, caplog):
    caplog.set_level(logging.DEBUG)
    made = sandbox.control.add_api_key(ann)
    auth = ApiKey(made["id"], made["secret"])
    with client_of(sandbox, auth) as client:
        sandbox.control.order_fault("status", status=401, body={"message": f"no: {made['secret']}"})
        with pytest.raises(CustodyAuthenticationError) as caught:
            client.list_health_checks()
    for told in (caplog.text, str(caught.value), repr(client), repr(auth)):
        assert made["secret"] not in told


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
def test_what_can_not_work_is_refused_without_being_shown(make, setting):
    with pytest.raises(CustodyConfigurationError) as caught:
        make()
    assert caught.value.setting == setting
    assert "s3cret" not in str(caught.value)
