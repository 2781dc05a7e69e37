"""Credentials that are refused are sent once, and a service that cannot sign in now is asked again after pauses."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from calls import create, read
from clocks import Clock
from sign_ins import PASSWORD, ROLES, SIGN_IN, client_of, sign_ins

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyServerError,
    PasswordSignIn,
)
from airflow_custody.sandbox import Sandbox


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 423])
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
    assert len(sandbox.control.request_log()) == 1
    # As after a change of another setting.
    other = PasswordSignIn("ann", PASSWORD)
    other.account = anns.auth.account  # type: ignore[attr-defined]
    with client_of(sandbox, other) as client:
        if status == 401:
            with pytest.raises(CustodyAuthenticationError, match="not sent again"):
                read(client)
        else:
            read(client)
    assert sign_ins(sandbox) == 1 + (status != 401)


@pytest.mark.parametrize("changes", [{"password": "another"}, {"totp": True}])
@pytest.mark.parametrize("has_token", [False, True])
def test_a_refused_sign_in_says_what_to_do(
    sandbox: Sandbox, ann: str, anns: CustodyClient, changes: dict[str, Any], has_token: bool
) -> None:
    if has_token:
        read(anns)
    sandbox.control.add_user("ann", ROLES, user_id=ann, **{"password": PASSWORD, **changes})
    sandbox.control.revoke_tokens(ann)
    sandbox.control.clear_request_log()
    for _ in range(5):
        with pytest.raises(CustodyAuthenticationError, match="one-time codes are not supported") as caught:
            read(anns)
        assert caught.value.operation == "sign in"
        assert PASSWORD not in str(caught.value)
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
    in_flight = "another sign-in with this account is in flight"
    with client_of(sandbox, auth, timeout=0.2) as client, auth.account.lock:
        with pytest.raises(CustodyConnectionError, match=in_flight) as caught:
            read(client)
        assert (caught.value.transient, caught.value.nothing_sent) == (True, True)
    with client_of(sandbox, auth, timeout=3600) as client:
        with auth.account.lock, pytest.raises(CustodyConnectionError, match=in_flight):
            client.get_rules(only_try=0.2)
        sandbox.control.add_fault("normal", **SIGN_IN, delay=3600)
        with pytest.raises(CustodyConnectionError, match="no complete response"):
            client.get_rules(only_try=0.2)
    assert {each["path"] for each in sandbox.control.request_log()} == {"/api/rest/v1/authentication/token"}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_inherits_no_lock(sandbox: Sandbox, ann: str) -> None:
    auth = PasswordSignIn("ann", PASSWORD)
    with client_of(sandbox, auth, timeout=600) as client, auth.account.lock:
        child = os.fork()
        if not child:
            signal.alarm(600)
            try:
                os._exit(0 if client.list_health_checks() else 1)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


# --- not now -----------------------------------------------------------------------------------------------

FAILURES: list[dict[str, Any]] = [
    {"kind": "drop"},
    {"kind": "normal", "delay": 3600},
    *({"kind": "status", "status": status} for status in (408, 429, 500, 503)),
    # A gateway's word, which says nothing about the password.
    *({"kind": "html", "status": status} for status in (200, 401, 403, 404, 423)),
    {"kind": "status", "status": 401, "body": {"message": "no"}},
    {"kind": "status", "status": 401, "body": ""},
    {"kind": "redirect", "location": "https://elsewhere.example/"},
    *(
        {"kind": "status", "status": 200, "body": {"result": token}}
        for token in (None, "", 3, "two words", "t" * 65_537)
    ),
    {"kind": "status", "status": 200, "body": {"result": "a.b.c", "error": "Locked", "message": "locked", "code": 9}},
]


@pytest.mark.parametrize("fault", FAILURES, ids=lambda fault: str(fault)[:90])
def test_a_service_that_cannot_sign_in_now_is_asked_again_after_pauses(
    sandbox: Sandbox, ann: str, clock: Clock, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(**SIGN_IN, **fault, times=None)
    timeout = 0.3 if "delay" in fault else 60
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=clock), timeout=timeout) as client:
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
        clock.now = seconds
        with pytest.raises(CustodyError):
            read(anns)
    assert sign_ins(sandbox) == 1
    clock.now = pause + 1
    read(anns)


def test_an_old_token_that_is_accepted_does_not_end_the_pauses(
    sandbox: Sandbox, anns: CustodyClient, clock: Clock
) -> None:
    sandbox.control.configure(token_lifetime=1000)
    read(anns)
    sandbox.control.add_fault("status", **SIGN_IN, status=500, times=None)
    clock.now = 950
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
