"""Signing in with a password, over a real socket."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import requests
from sign_ins import PASSWORD, REQUEST, SIGN_IN, client_of, sign_ins

from airflow_custody.client import (
    ApiKey,
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
    PasswordSignIn,
)
from airflow_custody.sandbox import Sandbox


def test_one_token_serves_many_calls(sandbox: Sandbox, client: CustodyClient) -> None:
    assert sandbox.control.request_log() == []
    for _ in range(3):
        client.list_health_checks()
    client.create_whitelist_request(REQUEST)
    assert sign_ins(sandbox) == 1
    (call,) = sandbox.control.request_log(**SIGN_IN)
    assert "authorization" not in call["headers"]
    assert call["body"] == {"username": "ann", "password": "***"}


def test_a_token_is_replaced_before_it_expires(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.configure(token_lifetime=1000, token_has_iat=True)
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:
        client.list_health_checks()
        later = 1001.0
        client.list_health_checks()
    assert sign_ins(sandbox) == 2
    assert {call["status"] for call in sandbox.control.request_log()} == {200}


@pytest.mark.parametrize(("lifetime", "margin"), [(1000, 60), (100, 10)])
def test_a_token_is_not_used_shortly_before_it_expires(sandbox: Sandbox, ann: str, lifetime: int, margin: int) -> None:
    sandbox.control.configure(token_lifetime=lifetime)
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
        old = requests.Request("GET", sandbox.url).prepare()
        auth.apply(old, client._transport)
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
    with pytest.raises(CustodyOutcomeUnknownError):
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
        (lambda: CustodyClient("https://custody.example.com", "s3cret" * 11_000), "token"),
        (lambda: CustodyClient("https://custody.example.com", "t", auth=ApiKey("id", "ab")), "auth"),
    ],
)
def test_invalid_credentials_are_refused_and_not_quoted(make: Callable[[], object], setting: str) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        make()
    assert caught.value.setting == setting
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("length", "is_taken"), [(65_536, True), (65_537, False), (2_000_000, False)])
def test_a_token_of_the_service_is_taken_up_to_a_length(
    sandbox: Sandbox, client: CustodyClient, length: int, is_taken: bool
) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=200, body={"result": "t" * length})
    # What a server makes of such a header is not asked here.
    sandbox.control.add_fault("status", path="/health", status=200, body={})
    started = time.process_time()
    if is_taken:
        with suppress(CustodyError):
            client.list_health_checks()
        assert client.auth._token == "t" * length  # type: ignore[attr-defined]
    else:
        with pytest.raises(CustodyResponseError, match="it has no usable token"):
            client.list_health_checks()
    assert time.process_time() - started < 3


# --- a clock that is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("has_iat", [False, True])
@pytest.mark.parametrize("offset", [-10 * 365 * 86_400, -3600, -1800, -1795, -1770, 0, 3600])
def test_a_clock_that_is_wrong_does_not_sign_in_at_every_call(
    sandbox: Sandbox, client: CustodyClient, caplog: pytest.LogCaptureFixture, has_iat: bool, offset: float
) -> None:
    sandbox.control.configure(clock_offset=offset, token_has_iat=has_iat)
    for _ in range(10):
        client.list_health_checks()
    assert sign_ins(sandbox) == 1
    seems_expired = offset < -1740 and not has_iat
    assert caplog.text.count("clock of this machine") == int(seems_expired)


def test_a_token_that_seems_expired_is_used_until_it_is_refused(
    sandbox: Sandbox, client: CustodyClient, ann: str, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.control.configure(clock_offset=-3600)
    for tokens in (1, 2, 3):
        client.list_health_checks()
        assert sign_ins(sandbox) == tokens
        sandbox.control.revoke_tokens(ann)
    assert caplog.text.count("clock of this machine") == 1


def test_the_age_of_a_token_is_told_by_its_own_life(sandbox: Sandbox, ann: str) -> None:
    # Ten minutes, whatever anybody's clock says.
    sandbox.control.configure(token_lifetime=600)
    sandbox.control.configure(clock_offset=86_400, token_has_iat=True)
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
