"""What becomes of rows that are sent, by how each one fails, and of those behind them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
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
GONE = CustodyConnectionError("no route", operation="send", nothing_sent=True)


class Things:
    """
    Things to send, each of which fails as a test says.

    :param fail: called with a row's key and how often it was sent; returns its failure.
    :param leaves: whether a request leaves before it fails.
    :param found: rows that are not sent, as they are found before.
    """

    def __init__(
        self,
        fail: Callable[[str, int], BaseException | None] = lambda key, number: None,
        *,
        leaves: bool = True,
        found: Mapping[str, Row] | None = None,
    ) -> None:
        self._fail, self._leaves, self._found = fail, leaves, found or {}
        self._lock = threading.Lock()
        #: The keys of what was sent, in order; and of the batches that were looked up.
        self.sent: list[str] = []
        self.batches: list[list[str]] = []
        self.described: list[tuple[str, str, CustodyError | None]] = []

    def prepare(self, keys: Sequence[str]) -> dict[str, Row]:
        self.batches.append([*keys])
        return {key: self._found.get(key, Row(state="sent")) for key in keys}

    def send(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        with self._lock:
            number = self.sent.count(key) + 1
            self.sent.append(key)
        failure = self._fail(key, number)
        if failure is None or self._leaves:
            before_send()
        if failure is not None:
            raise failure
        return row.become("created", f"id of {key}")

    def describe(self, key: str, row: Row, error: CustodyError | None) -> tuple[int, str]:
        self.described.append((key, row.state, error))
        return logging.INFO, ""


def sender_of(things: Things, *, max_parallel: int = 1, plan: str = "plan") -> tuple[Sender, Store, list[int]]:
    """Return a sender, its store, and how many requests have left, one by one."""
    store, left = Store(cast("Any", {"ti": FakeTaskInstance()})), list[int]()
    log = logging.getLogger("send")
    sender = Sender(
        store, log, things, plan=plan, max_parallel=max_parallel, report=lambda _, number: left.append(number)
    )
    return sender, store, left


def states_of(store: Store) -> list[str]:
    return [store.rows[key][1].state if key in store.rows else "none" for key in KEYS if key in store.rows]


@pytest.mark.parametrize("max_parallel", [1, 4])
@pytest.mark.parametrize("plan", ["plan", ""])
@pytest.mark.parametrize("number", [0, 1, MAX_BATCH, MAX_BATCH + 1, 2 * MAX_BATCH, 250])
def test_each_row_is_sent_once_in_batches(number: int, plan: str, max_parallel: int) -> None:
    things = Things()
    sender, store, left = sender_of(things, max_parallel=max_parallel, plan=plan)
    sent = sender.send(KEYS[:number])
    assert sorted(things.sent) == KEYS[:number]
    assert [len(each) for each in things.batches] == [
        min(MAX_BATCH, number - start) for start in range(0, number, MAX_BATCH)
    ]
    assert {key: row.detail for key, (_, row) in store.rows.items()} == {key: f"id of {key}" for key in KEYS[:number]}
    assert {batch.plan for batch, _ in store.rows.values()} <= {plan}
    assert left == [1] * number
    assert sent.stopped is None
    assert sent.errors == {}


def test_what_was_found_before_is_not_sent() -> None:
    found = {KEYS[1]: Row(state="found", detail="7"), KEYS[2]: Row(state="refused", detail="no")}
    things = Things(found=found)
    sender, store, _ = sender_of(things)
    sender.send(KEYS[:4])
    assert things.sent == [KEYS[0], KEYS[3]]
    assert states_of(store) == ["created", "found", "refused", "created"]
    # The line of the batch names the created rows.
    assert things.described == [(KEYS[1], "found", None), (KEYS[2], "refused", None)]


def test_a_batch_that_cannot_be_looked_up_stops_the_sending() -> None:
    things, error = Things(), CustodyServerError("away")
    sender, store, _ = sender_of(things)

    def prepare(keys: Sequence[str]) -> dict[str, Row]:
        if keys[0] != KEYS[0]:
            raise error
        return {key: Row(state="sent") for key in keys}

    things.prepare = prepare  # type: ignore[method-assign]
    sent = sender.send(KEYS)
    assert sent.stopped is error
    assert things.sent == KEYS[:MAX_BATCH]
    assert len(store.rows) == MAX_BATCH


# --- how a row fails ----------------------------------------------------------------------------------------

REFUSED, UNKNOWN, NONE_SENT = "refused", "sent", "void"
ERRORS: list[tuple[CustodyError, str, bool]] = [
    # The service's own refusal is one, and about this row alone.
    *(
        (kind("no", status=status, **OWN), REFUSED, False)
        for kind, status in (
            (CustodyRequestError, 400),
            (CustodyNotFoundError, 404),
            (CustodyConflictError, 409),
            (CustodyError, 499),
        )
    ),
    # Its credentials are not: nothing that follows would be accepted.
    (CustodyAuthenticationError("no", status=401, **OWN), NONE_SENT, True),
    # A role may be missing for this row only.
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
            # It may have been passed on.
            (CustodyRateLimitError, 429, GATEWAY, False),
        )
    ),
]


@pytest.mark.parametrize(("error", "state", "stops"), ERRORS, ids=repr)
def test_a_row_that_failed_after_it_left(error: CustodyError, state: str, stops: bool) -> None:
    things = Things(lambda key, _: error if key == KEYS[1] else None)
    sender, store, left = sender_of(things)
    sent = sender.send(KEYS[:3])
    assert states_of(store) == ["created", state, "void" if stops else "created"]
    assert sent.stopped is (error if stops else None)
    assert sent.errors == {KEYS[1]: error}
    assert left == [1] * (2 if stops else 3)
    assert store.rows[KEYS[1]][1].detail == (error.reason if state == REFUSED else "")


@pytest.mark.parametrize(
    ("error", "state", "stops"),
    [
        (CustodyRequestError("too long", operation="send"), REFUSED, False),
        (CustodyConnectionError("no route", operation="send", nothing_sent=True), NONE_SENT, True),
        (CustodyAuthenticationError("no token", operation="send"), NONE_SENT, True),
        (CustodyConfigurationError("no key", nothing_sent=True), NONE_SENT, True),
    ],
    ids=repr,
)
def test_a_row_that_never_left(error: CustodyError, state: str, stops: bool) -> None:
    # The transport may have begun to send, and still know that nothing has left.
    for leaves in {False, error.nothing_sent}:
        things = Things(lambda key, _: error if key == KEYS[1] else None, leaves=leaves)
        sender, store, left = sender_of(things)
        sent = sender.send(KEYS[:3])
        assert states_of(store) == ["created", state, "void" if stops else "created"]
        assert sent.stopped is (error if stops else None)
        assert left == [1] * (1 if stops else 2)


@pytest.mark.parametrize("error", [CustodyError("a mistake"), KeyboardInterrupt(), RuntimeError("a mistake")], ids=repr)
@pytest.mark.parametrize("max_parallel", [1, 3])
@pytest.mark.parametrize("plan", ["plan", ""])
def test_what_is_not_about_a_request_ends_the_task_and_is_recorded(
    error: BaseException, max_parallel: int, plan: str
) -> None:
    things = Things(lambda key, _: error if key == KEYS[0] else None)
    sender, store, left = sender_of(things, max_parallel=max_parallel, plan=plan)
    with pytest.raises(type(error)):
        sender.send(KEYS)
    # Its own outcome is unknown, and the others' is what it was; the second batch was not begun.
    assert store.rows[KEYS[0]][1].state == "sent"
    assert len(store.rows) == MAX_BATCH
    assert sum(row.state != "void" for _, row in store.rows.values()) == len(left)


@pytest.mark.parametrize("plan", ["plan", ""])
def test_a_plans_batch_is_recorded_before_anything_is_sent(plan: str) -> None:
    # A single row is recorded when its request leaves.
    error = CustodyConnectionError("no route", operation="send", nothing_sent=True)
    sender, store, _ = sender_of(Things(lambda *_: error, leaves=False), plan=plan)
    sent = sender.send(KEYS[:2])
    assert states_of(store) == (["void", "void"] if plan else [])
    assert sent.stopped is error


# --- many rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "stops_after"),
    [
        # Which other rows would be refused, too.
        *((CustodyError("no", status=status, **GATEWAY), 3) for status in (300, 302, 400, 499)),
        (CustodyPermissionError("no", status=403, **OWN), 3),
        # These are about each row.
        *((CustodyError("no", status=status, **OWN), None) for status in (400, 404, 499)),
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
    # One that is accepted in between begins anew.
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


@pytest.mark.parametrize("lost", [MAX_LOST - 1, MAX_LOST, MAX_LOST + 5])
def test_rows_are_not_sent_while_too_many_are_lost(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "MAX_BATCH", 50)
    error = CustodyOutcomeUnknownError("no response", **GATEWAY)
    things = Things(lambda key, number: error if int(key) < lost and number == 1 else None)
    sender, store, _ = sender_of(things)
    sent = sender.send(KEYS[:60])
    is_too_many = lost >= MAX_LOST
    assert sent.stopped is None
    assert len(things.sent) == (MAX_LOST if is_too_many else 60)
    assert states_of(store).count("sent") == min(lost, MAX_LOST)
    assert states_of(store).count("void") == (50 - MAX_LOST if is_too_many else 0)
    # Once it is known what became of these, the others are sent.
    sender.send(KEYS[20:60])
    assert {*KEYS[20:60]} <= {*things.sent}
    # One that gets a response in between begins anew.
    things = Things(lambda key, _: None if int(key) % MAX_LOST == MAX_LOST - 1 else error)
    sender, _, _ = sender_of(things)
    sent = sender.send(KEYS[:60])
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
    # It is not refused for now for ever.
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
        (CustodyOutcomeUnknownError, {"status": 503, **OWN}, 0),
        (CustodyRateLimitError, {"status": 429, "retry_after": MAX_RETRY_AFTER, **OWN}, MAX_RETRY_AFTER),
    ],
    ids=["429", "503", "503 for very long", "503 without a time", "429 for the longest time"],
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


def test_a_service_that_wants_too_long_a_pause_stops_the_sending(waits: SkippingTime) -> None:
    error = CustodyRateLimitError("later", status=429, retry_after=MAX_RETRY_AFTER + 1, **OWN)
    things = Things(lambda *_: error)
    sender, store, _ = sender_of(things)
    sent = sender.send(KEYS[:2])
    assert sent.stopped is error
    assert things.sent == KEYS[:1]
    assert states_of(store) == ["void", "void"]
    assert waits.skipped == 0


def test_a_task_that_was_stopped_sends_nothing_more() -> None:
    sender, _, _ = sender_of(things := Things(lambda *_: GONE))
    assert sender.send(KEYS).stopped is GONE
    # The first reason counts, in each further call.
    sender.is_stopped = lambda: True
    assert sender.send(KEYS).stopped is GONE
    assert things.sent == KEYS[:1]
    sender, _, _ = sender_of(things := Things())
    sender.is_stopped = lambda: True
    stopped = sender.send(KEYS).stopped
    assert stopped is not None
    assert (stopped.code, things.batches) == ("task-stopped", [])


# --- the fence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "recorded"),
    [
        ([0.0], 1),
        ([0.0, 0.0], 1),
        ([0.0, FENCE - 0.1], 1),
        ([0.0, FENCE], 2),
        ([0.0, 3.0, 3.0], 2),
        ([0.0, 6, 4, 2], 3),
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
        fence.check()
    assert len(records) == recorded


@pytest.mark.parametrize("stops_at", [0, 1, 2])
def test_a_fence_that_was_stopped_lets_nothing_through(stops_at: int) -> None:
    records = list[int]()
    fence = Fence(lambda: records.append(1), lambda: len(records) >= stops_at)
    for _ in range(stops_at - 1):
        fence.check()
        fence.recorded = None
    with pytest.raises(CustodyError) as caught:
        fence.check()
    assert len(records) == stops_at
    assert caught.value.code == "task-stopped"
    assert caught.value.nothing_sent
    assert caught.value.retryable
