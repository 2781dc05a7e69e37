"""Credentials that are refused are sent once, and a service that cannot sign in now is asked again after pauses."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sign_ins import PASSWORD, REQUEST, ROLES, SIGN_IN, client_of, sign_ins

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyResponseError,
    CustodyServerError,
    PasswordSignIn,
)
from airflow_custody.client.auth import Account
from airflow_custody.sandbox import Sandbox


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


@pytest.fixture
def in_flight(sandbox: Sandbox, ann: str) -> Iterator[Account]:
    """Return what is known of a wrong password that is in flight for ten seconds."""
    sandbox.control.add_fault("normal", **SIGN_IN, delay=10.0)
    shared, errors = Account(), []

    def sign_in() -> None:
        with pytest.raises(CustodyError) as caught, client_of(sandbox, sharing(shared), timeout=600) as client:
            client.list_health_checks()
        errors.append(type(caught.value))

    thread = threading.Thread(target=sign_in)
    thread.start()
    while not sign_ins(sandbox):
        time.sleep(0.01)
    yield shared
    thread.join()
    assert errors == [CustodyAuthenticationError]


def sharing(shared: Account, password: str = "wrong-password") -> PasswordSignIn:
    auth = PasswordSignIn("ann", password)
    auth.account = shared
    return auth


def test_who_cannot_sign_in_within_the_time_out_sends_nothing(sandbox: Sandbox, in_flight: Account) -> None:
    with client_of(sandbox, sharing(in_flight), timeout=0.2) as client, ThreadPoolExecutor(5) as pool:
        for call in [pool.submit(client.list_health_checks) for _ in range(5)]:
            with pytest.raises(
                CustodyConnectionError, match="another sign-in with this account is in flight"
            ) as caught:
                call.result()
            assert caught.value.transient
            assert caught.value.nothing_sent
        while in_flight.rejection is None:
            time.sleep(0.05)
        with pytest.raises(CustodyAuthenticationError, match="not sent again"):
            client.list_health_checks()
    assert sign_ins(sandbox) == 1


def test_a_password_whose_refusal_comes_too_late_is_not_sent_at_every_call(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.add_fault("normal", **SIGN_IN, delay=1.5, times=None)
    with client_of(sandbox, PasswordSignIn("ann", "wrong-password"), timeout=0.3) as client:
        for _ in range(20):
            with pytest.raises(CustodyConnectionError, match="no complete response"):
                client.list_health_checks()
    assert sign_ins(sandbox) == 2


def test_nor_does_anybody_wait_behind_another_for_longer(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.add_fault("normal", **SIGN_IN, delay=10, times=None)
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD), timeout=1) as client, ThreadPoolExecutor(6) as pool:
        for call in [pool.submit(client.list_health_checks) for _ in range(6)]:
            with pytest.raises(CustodyConnectionError):
                call.result()
    # Not one after another: after the second sign-in that fails there is a pause.
    assert sign_ins(sandbox) <= 2


def test_a_sign_in_takes_no_longer_than_the_only_try_that_needs_it(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.add_fault("normal", **SIGN_IN, delay=3600)
    with (
        client_of(sandbox, PasswordSignIn("ann", PASSWORD), timeout=3600) as client,
        pytest.raises(CustodyConnectionError),
    ):
        client.get_rules(only_try=0.3)


def test_a_call_within_a_sign_in_ends_with_the_time_out(sandbox: Sandbox, ann: str) -> None:
    errors: list[CustodyError] = []

    def call(token: str) -> None:
        with pytest.raises(CustodyConnectionError, match="another sign-in with this account is in flight") as caught:
            client.list_health_checks()
        errors.append(caught.value)

    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, on_token=call), timeout=0.5) as client:
        assert client.list_health_checks()
    assert len(errors) == 1


def test_what_on_token_raises_comes_out_unchanged(sandbox: Sandbox, ann: str) -> None:
    def refuse(token: str) -> None:
        raise ValueError("it cannot be masked")

    with (
        client_of(sandbox, PasswordSignIn("ann", PASSWORD, on_token=refuse)) as client,
        pytest.raises(ValueError, match="it cannot be masked"),
    ):
        client.list_health_checks()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_reads_no_response_of_the_other(sandbox: Sandbox, ann: str) -> None:
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD), timeout=600) as client:
        client.list_health_checks()
        child = os.fork()
        if not child:
            try:
                os._exit(int(any(client.get_current_user().get("id") != ann for _ in range(150))))
            finally:
                os._exit(1)
        for _ in range(150):
            assert client.list_health_checks()
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_inherits_no_lock(sandbox: Sandbox, ann: str) -> None:
    sandbox.control.add_fault("normal", **SIGN_IN, delay=2.0)
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD), timeout=600) as client:
        thread = threading.Thread(target=client.list_health_checks)
        thread.start()
        while not sign_ins(sandbox):
            time.sleep(0.01)
        child = os.fork()
        if not child:
            signal.alarm(600)
            try:
                os._exit(0 if client.list_health_checks() else 1)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
    assert sign_ins(sandbox) == 2


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 423])
def test_only_a_401_blames_the_name_and_the_password(sandbox: Sandbox, ann: str, status: int) -> None:
    sandbox.control.add_fault("status", **SIGN_IN, status=status)
    shared = Account()
    with client_of(sandbox, sharing(shared, PASSWORD)) as client:
        for _ in range(2):
            with pytest.raises(CustodyError, match="not sent again with the same settings") as caught:
                client.list_health_checks()
            assert f"status {status}" in str(caught.value)
            assert "password is wrong, or" not in str(caught.value)
    assert sign_ins(sandbox) == 1
    # As after a change of another setting.
    with client_of(sandbox, sharing(shared, PASSWORD)) as client:
        assert client.list_health_checks()


def test_a_new_password_is_a_new_chance(sandbox: Sandbox, ann: str) -> None:
    for password, accepted in (("wrong-password", False), (PASSWORD, True)):
        with client_of(sandbox, PasswordSignIn("ann", password)) as client:
            if accepted:
                assert client.list_health_checks()
            else:
                with pytest.raises(CustodyAuthenticationError):
                    client.list_health_checks()


def check_pauses(sandbox: Sandbox, check: Callable[[list[CustodyError]], None]) -> None:
    """Check that sign-ins that fail are followed by longer and longer pauses, and the errors of each twenty calls."""
    later = 0.0
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD, clock=lambda: time.monotonic() + later)) as client:

        def poll() -> int:
            errors = []
            for _ in range(20):
                with pytest.raises(CustodyError) as caught:
                    client.list_health_checks()
                errors.append(caught.value)
            check(errors)
            return sign_ins(sandbox)

        assert poll() == 2
        for pause, calls in ((11, 3), (11, 3), (600, 4)):
            later += pause
            assert poll() == calls
        sandbox.control.clear_faults()
        later += 600
        assert client.list_health_checks()


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
    def check(errors: list[CustodyError]) -> None:
        assert {error.status for error in errors} == {fault["status"]}

    sandbox.control.add_fault(**SIGN_IN, **fault, times=None)
    check_pauses(sandbox, check)


FAILURES: list[dict[str, Any]] = [
    {"kind": "drop"},
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
    def check(errors: list[CustodyError]) -> None:
        assert {error.operation for error in errors} == {"sign in"}
        assert len({str(error) for error in errors}) == 1

    sandbox.control.add_fault(**SIGN_IN, **fault, times=None)
    check_pauses(sandbox, check)


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
    sandbox.control.configure(token_lifetime=1000)
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


def test_a_sign_in_that_was_not_sent_is_tried_again_at_once(sandbox: Sandbox, ann: str) -> None:
    auth = PasswordSignIn("ann", PASSWORD)
    with CustodyClient("http://127.0.0.1:9", auth=auth, timeout=60, max_retries=0) as client:
        for _ in range(5):
            with pytest.raises(CustodyConnectionError, match="nothing was sent"):
                client.list_health_checks()
    with client_of(sandbox, auth) as client:
        assert client.list_health_checks()


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
