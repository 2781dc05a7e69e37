"""Sending rows, in parallel: each batch is recorded before it is sent, and after."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
)
from airflow_custody.client.http.transport import MAX_RETRY_AFTER
from airflow_custody.client.text import count, sanitize
from airflow_custody.idempotency.records import Row
from airflow_custody.idempotency.search import FENCE
from airflow_custody.idempotency.store import Store

#: Number of rows that are recorded and looked up together.
MAX_BATCH = 100
# When so many rows in a row got no response, what became of them is found out before others are sent.
MAX_LOST = 10
# So many refusals in a row that are not about the row mean that the next ones would come to the same.
_MAX_REFUSALS = 3
# How often a row is sent again that was refused for now.
_MAX_PAUSES = 20
_SECONDS_BETWEEN_LOGS = 5.0

Send = Callable[[str, Row, Callable[[], None]], Row]


class Fence:
    """
    A fence: a row is sent only if its batch was recorded a short time ago.

    A process that was stopped in between records it again, which fails if another try has taken over. The transport
    asks again if recording took too long.

    :param record: records the batch.
    :param is_stopped: tells whether nothing may be sent any more.
    """

    def __init__(self, record: Callable[[], object], is_stopped: Callable[[], bool]) -> None:
        self._record = record
        self._is_stopped = is_stopped
        self._lock = threading.Lock()
        #: When the batch was recorded last, by two clocks; None: never.
        self.recorded: tuple[float, float] | None = None

    def check(self) -> None:
        """
        Record the batch if that was too long ago, or never; called right before a row is sent.

        :raises CustodyError: if nothing may be sent any more.
        """
        with self._lock:
            # The first does not count while the machine sleeps; the second may be set, in either direction.
            clocks = time.monotonic(), time.time()
            is_fresh = self.recorded and all(abs(a - b) < FENCE for a, b in zip(clocks, self.recorded, strict=True))
            if not self._is_stopped() and not is_fresh:
                self._record()
                self.recorded = clocks
        if self._is_stopped():
            raise CustodyError(
                "the task was stopped, or another try of it has taken over; nothing was sent",
                code="task-stopped",
                nothing_sent=True,
                retryable=True,
            )


@dataclass(eq=False, repr=False)
class Sender:
    """
    Sends rows in batches.

    :param store: what was sent.
    :param log: the task's log.
    :param look_up: called with the keys of a batch before it is sent; returns their rows: what is not ``sent`` is not.
    :param send_row: sends a row, and returns it as it is then. It must call the function that it is given right before
        the request leaves.
    :param plan: the hash of the plan that the rows are of; empty: a single row.
    :param max_parallel: maximum number of requests at once.
    :param sent: called after each request that has left.
    :param done: called with each row that was sent or refused; maybe in a thread of its own.
    """

    store: Store
    log: logging.Logger
    _: KW_ONLY
    look_up: Callable[[Sequence[str]], Mapping[str, Row]]
    send_row: Send
    plan: str
    max_parallel: int
    sent: Callable[[], object]
    done: Callable[[str, Row], object]

    def __post_init__(self) -> None:
        self._not_before = 0.0
        self._refusals = 0
        #: The error that ended the sending early; None: none did.
        self.stopped: CustodyError | None = None
        #: The last error of each row, by its key.
        self.errors: dict[str, CustodyError] = {}

    def stop(self, error: CustodyError | None = None) -> None:
        """Send no row that has not left yet; may be called from a signal handler."""
        why = "the task was stopped before all rows were sent"
        self.stopped = self.stopped or error or CustodyConnectionError(why, code="task-stopped", retryable=True)

    def send(self, keys: Sequence[str]) -> None:
        """Send rows, until all are sent, or sending has stopped, or too many got no response."""
        logged = time.monotonic()
        self._lost = 0
        with ThreadPoolExecutor(self.max_parallel, thread_name_prefix="custody-apply") as pool:
            for start in range(0, len(keys), MAX_BATCH):
                if self._is_over:
                    return
                try:
                    rows = self.look_up(keys[start : start + MAX_BATCH])
                except CustodyError as error:
                    self.stop(error)
                    return
                self._send_batch(rows, pool)
                done, now = start + len(rows), time.monotonic()
                if done < len(keys) and now - logged >= _SECONDS_BETWEEN_LOGS:
                    logged = now
                    self.log.info("%d of %s done.", done, count(len(keys), "row"))

    @property
    def _is_over(self) -> bool:
        return self.stopped is not None or self._lost >= MAX_LOST

    def _send_batch(self, rows: Mapping[str, Row], pool: ThreadPoolExecutor) -> None:
        """Record a batch, send it, and record what became of it."""
        batch = self.store.new_batch(rows, self.plan)
        fence = Fence(partial(self.store.open, batch), lambda: self.stopped is not None)
        to_send = [key for key, row in rows.items() if row.state == "sent"]
        # What is not begun has no effect.
        outcomes = {key: row.become("void") if row.state == "sent" else row for key, row in rows.items()}
        for key, row in rows.items():
            if row.state != "sent":
                self.done(key, row)
        failures: list[BaseException] = []

        def work(keys: Iterator[str]) -> None:
            for key in keys:
                outcomes[key] = rows[key]
                try:
                    outcomes[key] = self._send(key, rows[key], fence)
                    self.done(key, outcomes[key])
                except BaseException as error:
                    end(error)

        def end(error: BaseException) -> None:
            # What has not left yet may not leave any more; what has left is not forgotten.
            self.stop()
            failures.append(error)

        try:
            if self.plan:
                fence.check()
            # All threads take their rows from the same iterator.
            keys = iter(to_send)
            if self.max_parallel > 1:
                wait([pool.submit(work, keys) for _ in range(self.max_parallel)])
            else:
                work(keys)
        except BaseException as error:
            end(error)
            pool.shutdown()
        with suppress(Exception) if failures else nullcontext():
            # What never left is not worth a record.
            self.store.record(outcomes.items() if fence.recorded else ())
        if failures:
            raise failures[0]

    def _send(self, key: str, row: Row, fence: Fence) -> Row:
        """Send one row, and return it as it is then: ``sent`` if nobody knows, ``void`` if it was not sent."""
        for _ in range(_MAX_PAUSES):
            while not self._is_over and (left := self._not_before - time.monotonic()) > 0:
                time.sleep(min(left, 0.5))
            if self._is_over:
                return row.become("void")
            if outcome := self._attempt(key, row, fence):
                return outcome
        self.stop(self.errors[key])
        return row.become("void")

    def _attempt(self, key: str, row: Row, fence: Fence) -> Row | None:
        """Send one row once; None: the service has no time for it now."""
        may_have_left = False

        def before_send() -> None:
            nonlocal may_have_left
            fence.check()
            may_have_left = True

        try:
            outcome = self.send_row(key, row, before_send)
        except CustodyError as error:
            self.errors[key] = error
            may_have_left = may_have_left and not error.nothing_sent
            if error.operation is None and not error.nothing_sent:
                # It is not about the request.
                raise
            if not isinstance(error, CustodyRateLimitError) or not error.from_service:
                return self._after_failure(row, error, may_have_left=may_have_left)
            seconds = error.retry_after or 1.0
            if seconds > MAX_RETRY_AFTER:
                self.stop(error)
            self._not_before = max(self._not_before, time.monotonic() + seconds)
            return None
        finally:
            # Also where the task was ended in the middle.
            if may_have_left:
                self.sent()
        self._refusals = self._lost = 0
        return outcome

    def _after_failure(self, row: Row, error: CustodyError, *, may_have_left: bool) -> Row:
        """Return a row that failed: nothing was sent, the service refused it, or nobody knows."""
        if not may_have_left:
            if isinstance(error, CustodyRequestError):
                return row.become("refused", sanitize(error.reason, 300))
            self.stop(error)
            return row.become("void")
        status = error.status or 0
        if 300 <= status < 500 and (error.status == 403 or not error.from_service):
            self._refusals += 1
            if self._refusals >= _MAX_REFUSALS:
                self.stop(error)
        if error.from_service and 400 <= status < 500 and not isinstance(error, CustodyOutcomeUnknownError):
            if isinstance(error, CustodyAuthenticationError):
                self.stop(error)
            if isinstance(error, (CustodyAuthenticationError, CustodyPermissionError)) and self.stopped:
                return row.become("void")
            return row.become("refused", sanitize(error.reason, 300))
        self._lost += 1
        if error.transient and not isinstance(error, CustodyRateLimitError):
            self.stop(error)
        if error.retry_after:
            self._not_before = time.monotonic() + min(error.retry_after, MAX_RETRY_AFTER)
        return row
