"""Sending rows, in parallel: each batch is recorded before it is sent, and after."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
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
BATCH = 100
# When so many rows in a row got no response, what became of them is found out before others are sent.
MAX_LOST = 10
# So many refusals in a row that are not about the row mean that the next ones would come to the same.
_MAX_REFUSALS = 3
# How often a row is sent again that was refused for now.
_MAX_PAUSES = 20
# Consecutive recordings that may take longer than the fence.
_MAX_SLOW = 3
_SECONDS_BETWEEN_LOGS = 5.0
# Errors that, without a status, are raised before anything was sent.
_BEFORE_SENDING = (CustodyAuthenticationError, CustodyConfigurationError, CustodyRequestError)

Send = Callable[[str, Row, Callable[[], None]], Row]


class Fence:
    """
    A fence: a row is sent only if its batch was recorded a short time ago.

    A process that was stopped in between records it again, which fails if another try has taken over.

    :param record: records the batch. Only the thread that made the fence calls it.
    :param wake: makes that thread call :meth:`renew_if_needed`.
    """

    def __init__(self, record: Callable[[], None], wake: Callable[[], None]) -> None:
        self._record = record
        self._wake = wake
        self._owner = threading.get_ident()
        self._condition = threading.Condition()
        self._clocks: tuple[float, float] | None = None
        self._is_closed = False

    @property
    def is_recorded(self) -> bool:
        """Whether the batch was ever recorded."""
        return self._clocks is not None

    def _is_fresh(self) -> bool:
        if self._clocks is None:
            return False
        # The first does not count while the machine sleeps; the second may be set, in either direction.
        monotonic, wall = time.monotonic() - self._clocks[0], time.time() - self._clocks[1]
        return monotonic < FENCE and abs(wall) < FENCE

    def check(self) -> None:
        """
        Wait until the batch is recorded, if that was too long ago or never; called right before a row is sent.

        :raises CustodyError: if nothing may be sent any more.
        """
        with self._condition:
            while not (self._is_closed or self._is_fresh()):
                if threading.get_ident() == self._owner:
                    self.renew_if_needed()
                else:
                    self._wake()
                    self._condition.wait()
            if self._is_closed:
                raise CustodyError(
                    "this task has ended, or another try of it has taken over; nothing was sent",
                    code="task-stopped",
                    nothing_sent=True,
                    retryable=True,
                )

    def renew_if_needed(self) -> None:
        """Record the batch, unless that was a short time ago."""
        for _ in range(_MAX_SLOW):
            if self._is_fresh():
                return
            clocks = time.monotonic(), time.time()
            self._record()
            with self._condition:
                self._clocks = clocks
                self._condition.notify_all()
        if not self._is_fresh():
            raise CustodyError(
                f"writing to the task's state took longer than {FENCE:g} s, {_MAX_SLOW} times; nothing more was sent",
                code="task-stopped",
                nothing_sent=True,
                retryable=True,
            )

    def close(self) -> None:
        """Let nothing be sent any more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()


class Sender:
    """
    Sends rows in batches.

    :param store: what was sent.
    :param log: the task's log.
    :param look_up: called with the keys of a batch before it is sent; returns their rows: what is not ``sent`` is not.
    :param send: sends a row, and returns it as it is then. It must call the function that it is given right before the
        request leaves.
    :param plan: the hash of the plan that the rows are of. Default empty: a single row.
    :param max_parallel: maximum number of requests at once. Default 1.
    :param sent: called after each request that has left.
    :param done: called with each row that was sent or refused, in the thread that called :meth:`send`.
    """

    def __init__(
        self,
        store: Store,
        log: logging.Logger,
        *,
        look_up: Callable[[Sequence[str]], Mapping[str, Row]],
        send: Send,
        plan: str = "",
        max_parallel: int = 1,
        sent: Callable[[], object],
        done: Callable[[str, Row], object],
    ) -> None:
        self._store = store
        self._log = log
        self._look_up = look_up
        self._send_row = send
        self._plan = plan
        self._max_parallel = max_parallel
        self._sent = sent
        self._done = done
        self._not_before = 0.0
        self._refusals = 0
        self._lost = 0
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
        began = logged = time.monotonic()
        self._lost = 0
        with ThreadPoolExecutor(self._max_parallel, thread_name_prefix="custody-apply") as pool:
            for start in range(0, len(keys), BATCH):
                if self._is_over:
                    return
                try:
                    rows = self._look_up(keys[start : start + BATCH])
                except CustodyError as error:
                    self.stop(error)
                    return
                self._send_batch(rows, pool)
                done, now = start + len(rows), time.monotonic()
                if done < len(keys) and now - logged >= _SECONDS_BETWEEN_LOGS:
                    logged = now
                    rate = done / (now - began)
                    left = (len(keys) - done) / rate
                    self._log.info("%d of %s done, about %.0f s left.", done, count(len(keys), "row"), left)

    @property
    def _is_over(self) -> bool:
        return self.stopped is not None or self._lost >= MAX_LOST

    def _send_batch(self, rows: Mapping[str, Row], pool: ThreadPoolExecutor) -> None:
        """Record a batch, send it, and record what became of it."""
        batch = self._store.new_batch(rows, self._plan)
        events: SimpleQueue[tuple[str, Row | BaseException] | None] = SimpleQueue()
        fence = Fence(lambda: self._store.open(batch), lambda: events.put(None))
        to_send = [key for key, row in rows.items() if row.state == "sent"]
        outcomes = {key: row for key, row in rows.items() if row.state != "sent"}
        for key, row in outcomes.items():
            self._done(key, row)
        begun: set[str] = set()

        def work(key: str) -> None:
            begun.add(key)
            try:
                events.put((key, self._send(key, rows[key], fence)))
            except BaseException as error:
                events.put((key, error))

        try:
            if self._plan:
                fence.renew_if_needed()
            if self._max_parallel > 1:
                for key in to_send:
                    pool.submit(work, key)
            for key in to_send:
                if self._max_parallel == 1:
                    work(key)
                while (event := events.get()) is None:
                    # Only this thread writes to the task's state.
                    fence.renew_if_needed()
                key, outcome = event
                if isinstance(outcome, BaseException):
                    raise outcome
                outcomes[key] = outcome
                self._done(key, outcome)
        except BaseException as error:
            # What has not left yet may not leave any more; what has left is not forgotten.
            fence.close()
            self.stop(error if isinstance(error, CustodyError) else None)
            pool.shutdown(cancel_futures=True)
            while not events.empty():
                event = events.get()
                if event is not None and isinstance(event[1], Row):
                    outcomes[event[0]] = event[1]
            outcomes |= {key: rows[key].become("void") for key in to_send if key not in begun}
            with suppress(Exception):
                self._store.record(outcomes.items() if fence.is_recorded else ())
            raise
        # What never left is not worth a record.
        self._store.record(outcomes.items() if fence.is_recorded else ())

    def _send(self, key: str, row: Row, fence: Fence) -> Row:
        """Send one row, and return it as it is then: ``sent`` if nobody knows, ``void`` if it was not sent."""
        for _ in range(_MAX_PAUSES):
            while not self._is_over and (left := self._not_before - time.monotonic()) > 0:
                time.sleep(min(left, 0.5))
            if self._is_over:
                return row.become("void")
            try:
                outcome = self._send_once(key, row, fence)
            except CustodyError as error:
                self.errors[key] = error
                if error.operation is None and not error.nothing_sent:
                    # It is not about the request.
                    raise
                if not isinstance(error, CustodyRateLimitError) or not error.from_service:
                    return self._after_failure(row, error)
                seconds = 1.0 if error.retry_after is None else error.retry_after
                if seconds > MAX_RETRY_AFTER:
                    self.stop(error)
                self._not_before = max(self._not_before, time.monotonic() + max(seconds, 0.1))
            else:
                self._refusals = self._lost = 0
                return outcome
        self.stop(self.errors[key])
        return row.become("void")

    def _send_once(self, key: str, row: Row, fence: Fence) -> Row:
        may_have_left = False

        def before_send() -> None:
            nonlocal may_have_left
            fence.check()
            may_have_left = True

        try:
            return self._send_row(key, row, before_send)
        except BaseException as error:
            may_have_left = may_have_left and not _is_unsent(error)
            raise
        finally:
            # Also where the task was ended in the middle.
            if may_have_left:
                self._sent()

    def _after_failure(self, row: Row, error: CustodyError) -> Row:
        """Return a row that failed: nothing was sent, the service refused it, or nobody knows."""
        if _is_unsent(error):
            if isinstance(error, CustodyRequestError):
                return row.become("refused", sanitize(error.reason, 300))
            self.stop(error)
            return row.become("void")
        status = error.status or 0
        if 300 <= status < 500 and (error.status == 403 or not error.from_service):
            self._refusals += 1
            if self._refusals >= _MAX_REFUSALS:
                self.stop(error)
        if error.from_service and 400 <= status < 500:
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


def _is_unsent(error: BaseException) -> bool:
    """Tell whether an error was raised before anything was sent."""
    return isinstance(error, CustodyError) and (
        error.nothing_sent or (error.status is None and isinstance(error, _BEFORE_SENDING))
    )
