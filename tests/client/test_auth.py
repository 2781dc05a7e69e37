"""Tokens that are fetched with a password: kept for their life, replaced when it ends or they are refused."""

from __future__ import annotations

import threading

import pytest
import requests
from calls import create, read
from clocks import Clock
from sign_ins import PASSWORD, SIGN_IN, client_of, sign_ins

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyOutcomeUnknownError,
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


# By its own life, if the service says when that began: whatever anybody's clock says.
@pytest.mark.parametrize(("lifetime", "margin", "offset"), [(1000, 60, 0), (100, 10, 0), (600, 60, 86_400)])
def test_a_token_is_replaced_before_it_expires(
    sandbox: Sandbox, anns: CustodyClient, clock: Clock, lifetime: int, margin: int, offset: int
) -> None:
    sandbox.control.configure(token_lifetime=lifetime, token_has_iat=bool(offset), clock_offset=offset)
    for seconds, tokens in ((0, 1), (lifetime - margin - 5, 1), (lifetime - margin + 1, 2)):
        clock.now = seconds
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


@pytest.mark.parametrize("call", [read, create])
def test_a_revoked_token_is_replaced_once(sandbox: Sandbox, anns: CustodyClient, ann: str, call: object) -> None:
    read(anns)
    sandbox.control.revoke_tokens(ann)
    call(anns)  # type: ignore[operator]
    assert sign_ins(sandbox) == 2
    assert len(sandbox.control.whitelist_requests()) == int(call is create)


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


@pytest.mark.parametrize("has_iat", [False, True])
@pytest.mark.parametrize("offset", [-10 * 365 * 86_400, -3600, -1795, -1770, 3600])
def test_a_clock_that_is_wrong_does_not_sign_in_at_every_call(
    sandbox: Sandbox, anns: CustodyClient, caplog: pytest.LogCaptureFixture, has_iat: bool, offset: float
) -> None:
    sandbox.control.configure(clock_offset=offset, token_has_iat=has_iat)
    for _ in range(10):
        read(anns)
    assert sign_ins(sandbox) == 1
    seems_expired = offset < -1740 and not has_iat
    assert caplog.text.count("clock of this machine") == int(seems_expired)


def test_a_token_that_seems_expired_is_used_until_it_is_refused(
    sandbox: Sandbox, anns: CustodyClient, ann: str, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.control.configure(clock_offset=-3600)
    for tokens in (1, 2, 3):
        read(anns)
        assert sign_ins(sandbox) == tokens
        sandbox.control.revoke_tokens(ann)
    assert caplog.text.count("clock of this machine") == 1
