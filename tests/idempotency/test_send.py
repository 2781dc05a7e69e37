"""The outcome of sent rows, for each kind of failure, and of the rows after them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from support.airflow.airflow_runs import FakeTaskInstance
from support.clocks import SkippingTime

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyServerError,
)
from airflow_custody.client.http.fence import FENCE
from airflow_custody.client.http.transport import MAX_RETRY_AFTER
from airflow_custody.idempotency import send
from airflow_custody.idempotency.send import MAX_BATCH, MAX_LOST, Fence, Sender
from airflow_custody.idempotency.store import Row, Store

KEYS = [f"{number:03d}" for number in range(250)]
OWN: dict[str, Any] = {"from_service": True, "operation": "send a thing"}
GATEWAY: dict[str, Any] = {"operation": "send a thing"}


class Things:
    """
    Things to send, each of which fails as a test says.

    :param fail: called with a row's key and how often it was sent; returns its failure.
    :param leaves: whether a request leaves before it fails.
    """

    def __init__(
        self, fail: Callable[[str, int], BaseException | None] = lambda key, number: None, *, leaves: bool = True
    ) -> None:
        self._fail, self._leaves = fail, leaves
        self._lock = threading.Lock()
        #: The keys of what was sent, in order.
        self.sent: list[str] = []

    def prepare(self, keys: Sequence[str]) -> dict[str, Row]:
        return {key: Row(state="sent") for key in keys}

    def send(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        with self._lock:
            self.sent.append(key)
        failure = self._fail(key, self.sent.count(key))
        if failure is None or self._leaves:
            before_send()
        if failure is not None:
            raise failure
        return row.become("created", f"id of {key}")

    def describe(self, key: str, row: Row, error: CustodyError | None) -> tuple[int, str]:
        return logging.INFO, ""


def sender_of(things: Things, *, max_parallel: int = 1, plan: str = "plan") -> tuple[Sender, Store, list[int]]:
    """Return a sender, its store, and how many requests have left, one by one."""
    store, left = Store(cast("Any", {"ti": FakeTaskInstance()})), list[int]()
    sender = Sender(
        store,
        logging.getLogger("send"),
        things,
        plan=plan,
        max_parallel=max_parallel,
        report=lambda _, number: left.append(number),
    )
    return sender, store, left


def states_of(store: Store) -> list[str]:
    return [store.rows[key][1].state for key in KEYS if key in store.rows]


# --- how a row fails ----------------------------------------------------------------------------------------

REFUSED, UNKNOWN, NONE_SENT = "refused", "sent", "void"
ERRORS: list[tuple[CustodyError, str, bool]] = [
    # Only the service's own refusal is a refusal, and it concerns this row only.
    *(
        (kind("no", status=status, **OWN), REFUSED, False)
        for kind, status in (
            (CustodyRequestError, 400),
            (CustodyNotFoundError, 404),
            (CustodyConflictError, 409),
            (CustodyError, 499),
        )
    ),
    # A refusal of the credentials does not concern the row: all following rows would be refused, too.
    (CustodyAuthenticationError("no", status=401, **OWN), NONE_SENT, True),
    # The missing role may concern this row only.
    (CustodyPermissionError("no", status=403, **OWN), REFUSED, False),
    # The outcome is unknown if the service may have done it, or a gateway refused.
    *(
        (kind("no", status=status, **facts), UNKNOWN, stops)
        for kind, status, facts, stops in (
            (CustodyOutcomeUnknownError, 408, OWN, False),
            (CustodyOutcomeUnknownError, None, GATEWAY, False),
            (CustodyOutcomeUnknownError, 500, OWN, False),
            (CustodyServerError, 500, OWN, True),
            (CustodyServerError, 502, GATEWAY, True),
            (CustodyConnectionError, None, GATEWAY, True),
            (CustodyError, 500, OWN, False),
            (CustodyError, 399, OWN, False),
            (CustodyRequestError, 400, GATEWAY, False),
            (CustodyAuthenticationError, 401, GATEWAY, False),
            (CustodyPermissionError, 403, GATEWAY, False),
            (CustodyResponseError, 302, GATEWAY, False),
            # The request may have been passed on to the service.
            (CustodyRateLimitError, 429, GATEWAY, False),
        )
    ),
]


NEVER_LEFT: list[tuple[CustodyError, str, bool]] = [
    (CustodyRequestError("too long", operation="send"), REFUSED, False),
    (CustodyConnectionError("no route", operation="send", nothing_sent=True), NONE_SENT, True),
    (CustodyAuthenticationError("no token", operation="send"), NONE_SENT, True),
    # The sign-in was refused, not the row.
    (CustodyRequestError("wrong password", status=400, **OWN), NONE_SENT, True),
    (CustodyConfigurationError("no key", nothing_sent=True), NONE_SENT, True),
]


@pytest.mark.parametrize(
    ("leaves", "error", "state", "stops"),
    [
        *((True, *each) for each in ERRORS),
        *((False, *each) for each in NEVER_LEFT),
        # The transport may have begun to send, and still know that the request has not left.
        *((True, *each) for each in NEVER_LEFT if each[0].nothing_sent),
    ],
    ids=repr,
)
def test_a_failed_row_is_recorded_by_its_error(leaves: bool, error: CustodyError, state: str, stops: bool) -> None:
    things = Things(lambda key, _: error if key == KEYS[1] else None, leaves=leaves)
    sender, store, left = sender_of(things)
    sent = sender.send(KEYS[:3])
    assert states_of(store) == ["created", state, "void" if stops else "created"]
    assert sent.stopped is (error if stops else None)
    assert sent.errors == {KEYS[1]: error}
    has_left = leaves and not error.nothing_sent
    assert len(left) == 1 + has_left + (not stops)
    assert store.rows[KEYS[1]][1].detail == (error.reason if state == REFUSED else "")


@pytest.mark.parametrize("error", [CustodyError("a mistake"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize(("plan", "max_parallel"), [("plan", 3), ("", 1)])
def test_an_error_that_is_not_about_a_request_ends_the_task_and_is_recorded(
    error: BaseException, plan: str, max_parallel: int
) -> None:
    things = Things(lambda key, _: error if key == KEYS[0] else None)
    sender, store, left = sender_of(things, max_parallel=max_parallel, plan=plan)
    with pytest.raises(type(error)):
        sender.send(KEYS)
    # The outcome of this row is unknown, the outcomes of the others do not change, and the second batch was not begun.
    assert store.rows[KEYS[0]][1].state == "sent"
    assert len(store.rows) == MAX_BATCH
    assert sum(row.state != "void" for _, row in store.rows.values()) == len(left)


# --- many rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "stops_after"),
    [
        # These refusals would also apply to other rows.
        *((CustodyError("no", status=status, **GATEWAY), 3) for status in (300, 499)),
        (CustodyPermissionError("no", status=403, **OWN), 3),
        # These refusals are about single rows.
        *((CustodyError("no", status=status, **OWN), None) for status in (400, 499)),
        *((CustodyError("no", status=status, **GATEWAY), None) for status in (None, 299, 500)),
    ],
    ids=repr,
)
def test_some_refusals_in_a_row_stop_the_sending(error: CustodyError, stops_after: int | None) -> None:
    things = Things(lambda *_: error)
    sender, _, _ = sender_of(things)
    sent = sender.send(KEYS[:6])
    assert len(things.sent) == (stops_after or 6)
    assert (sent.stopped is error) is (stops_after is not None)
    # An accepted row in between restarts the count.
    things = Things(lambda key, _: None if int(key) % 3 == 2 else error)
    sender, _, _ = sender_of(things)
    sent = sender.send(KEYS[:9])
    assert len(things.sent) == 9
    assert sent.stopped is None


def test_a_role_that_is_missing_at_last_refuses_no_row() -> None:
    error = CustodyPermissionError("no", status=403, **OWN)
    sender, store, _ = sender_of(Things(lambda *_: error))
    sender.send(KEYS[:4])
    assert states_of(store) == ["refused", "refused", "void", "void"]


def test_rows_are_not_sent_while_too_many_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "MAX_BATCH", 50)
    error = CustodyOutcomeUnknownError("no response", **GATEWAY)
    things = Things(lambda *_: error)
    sender, store, _ = sender_of(things)
    assert sender.send(KEYS[:60]).stopped is None
    assert len(things.sent) == MAX_LOST
    assert states_of(store) == ["sent"] * MAX_LOST + ["void"] * (50 - MAX_LOST)
    # When the outcome of these rows is known, the other rows are sent.
    sender.send(KEYS[50:60])
    assert things.sent[MAX_LOST:] == KEYS[50:60]
    # A row with a response in between restarts the count.
    things = Things(lambda key, _: None if int(key) % MAX_LOST == MAX_LOST - 1 else error)
    sender, _, _ = sender_of(things)
    sender.send(KEYS[:60])
    assert len(things.sent) == 60


def test_a_row_that_is_refused_for_now_is_sent_again(waits: SkippingTime) -> None:
    busy = CustodyRateLimitError("busy", status=429, **OWN)
    things = Things(lambda key, number: busy if key == KEYS[1] and number < 20 else None)
    sender, store, left = sender_of(things)
    sent = sender.send(KEYS[:3])
    assert states_of(store) == ["created"] * 3
    assert things.sent == [KEYS[0], *[KEYS[1]] * 20, KEYS[2]]
    assert waits.skipped == pytest.approx(19)
    assert left == [1] * 22
    # A row is not refused with 429 for ever.
    things = Things(lambda *_: busy)
    sender, store, _ = sender_of(things)
    sent = sender.send(KEYS[:3])
    assert things.sent == [KEYS[0]] * 20
    assert sent.stopped is busy
    assert states_of(store) == ["void"] * 3


@pytest.mark.parametrize(
    ("kind", "facts", "seconds"),
    [
        (CustodyRateLimitError, {"status": 429, "retry_after": 7.0, **OWN}, 7),
        (CustodyOutcomeUnknownError, {"status": 503, "retry_after": 7.0, **OWN}, 7),
        (CustodyOutcomeUnknownError, {"status": 503, "retry_after": 1e6, **OWN}, MAX_RETRY_AFTER),
        (CustodyRateLimitError, {"status": 429, "retry_after": MAX_RETRY_AFTER, **OWN}, MAX_RETRY_AFTER),
    ],
    ids=["429", "503", "503 for very long", "429 for the longest time"],
)
def test_the_service_says_when_to_send_again(
    waits: SkippingTime, kind: type[CustodyError], facts: dict[str, Any], seconds: float
) -> None:
    things = Things(lambda key, number: kind("later", **facts) if key == KEYS[0] and number == 1 else None)
    sender, store, _ = sender_of(things)
    sent = sender.send(KEYS[:2])
    assert sent.stopped is None
    assert store.rows[KEYS[1]][1].state == "created"
    assert waits.skipped == pytest.approx(seconds)


# --- the fence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "recorded"),
    [
        ([0.0, FENCE - 0.1], 1),
        ([0.0, FENCE], 2),
        ([0.0, 3.0, 3.0], 2),
    ],
    ids=str,
)
def test_a_batch_is_recorded_again_if_that_was_too_long_ago(
    waits: SkippingTime, steps: Sequence[float], recorded: int
) -> None:
    records = list[float]()
    fence = Fence(lambda: records.append(waits.monotonic()), lambda: False)
    for seconds in steps:
        waits.sleep(seconds)
        fence.ensure_recorded()
    assert len(records) == recorded


@pytest.mark.parametrize("stops_at", [0, 1])
def test_a_fence_that_was_stopped_lets_no_request_through(stops_at: int) -> None:
    records = list[int]()
    fence = Fence(lambda: records.append(1), lambda: len(records) >= stops_at)
    with pytest.raises(CustodyError) as caught:
        fence.ensure_recorded()
    # The task is stopped before the batch is recorded, or while it is being recorded.
    assert len(records) == stops_at
    assert caught.value.code == "task-stopped"
    assert caught.value.nothing_sent
    assert caught.value.retryable
