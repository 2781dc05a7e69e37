"""Send rows in parallel. Each batch is recorded before and after it is sent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Protocol

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
)
from airflow_custody.client.http.fence import Moment, is_too_old
from airflow_custody.client.http.transport import MAX_RETRY_AFTER
from airflow_custody.client.text import count, name_some, sanitize
from airflow_custody.idempotency.search import Report
from airflow_custody.idempotency.store import Row, Store

#: Maximum number of rows that are recorded and looked up together.
MAX_BATCH = 100
# After this many lost responses in a row, search the service for the outcomes before sending more rows.
MAX_LOST = 10
# Stop after this many refusals in a row that are not about the row itself.
_MAX_REFUSALS = 3
# Stop sending after this many rate-limit rejections (429) of one row.
_MAX_RATE_LIMITED = 20


class Job(Protocol):
    """The operation for each row: a creation or a deletion."""

    def prepare(self, keys: Sequence[str]) -> Mapping[str, Row]:
        """
        Return the records of a batch's rows before they are sent.

        Only rows in the state ``sent`` (about to be sent) are sent.
        """

    def send(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        """Send a row and return its new record; call ``before_send`` right before the request leaves."""

    def describe(self, key: str, row: Row, error: CustodyError | None) -> tuple[int, str]:
        """Return log level and text for the outcome of a row. An empty text is not logged."""


@dataclass
class Sent:
    """
    The result of sending rows.

    :param rows: the record of each row that was prepared, by its key.
    :param errors: the last error of each row, by its key.
    :param stopped: the error that ended the sending early; None if there was none.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    errors: dict[str, CustodyError] = field(default_factory=dict)
    stopped: CustodyError | None = None


class Fence:
    """
    A fence: a row is sent only if its batch was recorded recently.

    If the process was suspended since the batch was recorded, the batch is recorded again, which fails if another try
    has taken over. If recording takes too long, the transport calls the fence again.

    :param record: records the batch.
    :param is_stopped: returns whether sending has been stopped.
    """

    def __init__(self, record: Callable[[], object], is_stopped: Callable[[], bool]) -> None:
        self._record = record
        self._is_stopped = is_stopped
        self._lock = threading.Lock()
        #: When the batch was last recorded; None: it was not recorded yet.
        self.recorded: Moment | None = None

    def ensure_recorded(self) -> None:
        """
        Record the batch if it was never recorded, or was recorded too long ago. Call this right before sending a row.

        :raises CustodyError: if sending has been stopped.
        """
        with self._lock:
            now = time.monotonic(), time.time()
            is_fresh = self.recorded is not None and not is_too_old(self.recorded, now)
            if not self._is_stopped() and not is_fresh:
                self._record()
                self.recorded = now
        if self._is_stopped():
            raise CustodyError(
                "the task was stopped, or another try of it has taken over; this request was not sent",
                code="task-stopped",
                nothing_sent=True,
                retryable=True,
            )


class _Window:
    """
    A batch that is being sent.

    :param rows: its rows.
    :param fence: its fence.
    """

    def __init__(self, rows: Mapping[str, Row], fence: Fence) -> None:
        self.rows = rows
        self.fence = fence
        #: The keys of the rows that no thread has begun to send.
        self.keys = iter([key for key, row in rows.items() if row.state == "sent"])
        #: The outcome of each row. It is ``void`` (no effect) until a thread begins to send the row.
        self.outcomes = {key: row.become("void") if row.state == "sent" else row for key, row in rows.items()}
        self.failures: list[BaseException] = []


@dataclass(eq=False, repr=False)
class Sender:
    """
    Sends rows in batches.

    :param store: the record of what was sent.
    :param log: the task's log.
    :param job: the operation for each row.
    :param plan: the hash of the rows' plan; empty: there is only a single row.
    :param max_parallel: maximum number of requests at once. Default 1.
    :param report: called after each request that was sent.
    :param is_stopped: returns whether the user has stopped the task. Default: users cannot stop it.
    """

    store: Store
    log: logging.Logger
    job: Job
    _: KW_ONLY
    plan: str
    max_parallel: int = 1
    report: Report
    is_stopped: Callable[[], bool] = bool

    def __post_init__(self) -> None:
        self._not_before = 0.0
        self._refusals = 0
        self._lost = 0
        self._stopped: CustodyError | None = None
        self._errors: dict[str, CustodyError] = {}

    def send(self, keys: Sequence[str]) -> Sent:
        """
        Send rows until all are sent, sending has stopped, or too many responses are lost.

        Once sending has stopped, further calls send nothing.

        :param keys: the rows' keys.
        :return: what was sent, with the errors of all calls.
        """
        self._lost = 0
        outcomes: dict[str, Row] = {}
        with ThreadPoolExecutor(self.max_parallel, thread_name_prefix="custody-apply") as pool:
            for start in range(0, len(keys), MAX_BATCH):
                if self._is_over:
                    break
                try:
                    rows = self.job.prepare(keys[start : start + MAX_BATCH])
                except CustodyError as error:
                    self._stop(error)
                    break
                sent = self._send_batch(rows, pool)
                outcomes |= sent
                if self.plan:
                    # One line for a batch, because there may be thousands of rows.
                    made = [row.detail for row in sent.values() if row.state == "created"]
                    created = f", created in this batch: {name_some(made, 40)}" if made else ""
                    self.log.info("%d of %s done%s.", start + len(rows), count(len(keys), "row"), created)
        return Sent(outcomes, {**self._errors}, self._stopped)

    def _stop(self, error: CustodyError | None = None) -> None:
        """
        Stop sending: rows that were not sent yet stay unsent.

        :param error: the reason; if there are several, the first one is kept. Default None: the task was stopped.
        """
        why = "the task was stopped before all rows were sent"
        self._stopped = self._stopped or error or CustodyConnectionError(why, code="task-stopped", retryable=True)

    def _is_stopped(self) -> bool:
        if self.is_stopped():
            self._stop()
        return self._stopped is not None

    @property
    def _is_over(self) -> bool:
        return self._is_stopped() or self._lost >= MAX_LOST

    def _send_batch(self, rows: Mapping[str, Row], pool: ThreadPoolExecutor) -> Mapping[str, Row]:
        """Record a batch, send it, record the outcomes, and return them."""
        batch = self.store.new_batch(rows, self.plan)
        fence = Fence(partial(self.store.open, batch), self._is_stopped)
        window = _Window(rows, fence)
        for key, row in rows.items():
            if row.state != "sent":
                self._log_row(key, row)
        try:
            if self.plan:
                fence.ensure_recorded()
            if self.max_parallel > 1:
                wait([pool.submit(self._work, window) for _ in range(self.max_parallel)])
            else:
                self._work(window)
        except BaseException as error:
            self._end(window, error)
            pool.shutdown()
        with suppress(Exception) if window.failures else nullcontext():
            # If the batch was never recorded, none of its rows was sent, so there is nothing to record.
            self.store.record(window.outcomes.items() if fence.recorded else ())
        if window.failures:
            raise window.failures[0]
        return window.outcomes

    def _work(self, window: _Window) -> None:
        """Send rows of a batch one after another; several threads run this at once."""
        for key in window.keys:
            row = window.rows[key]
            # From now on, the row's outcome is unknown: its record is in the state ``sent``.
            window.outcomes[key] = row
            try:
                window.outcomes[key] = self._send(key, row, window.fence)
                self._log_row(key, window.outcomes[key])
            except BaseException as error:
                self._end(window, error)

    def _end(self, window: _Window, error: BaseException) -> None:
        # Rows that were not sent stay unsent. Rows that were sent stay recorded as sent.
        self._stop()
        window.failures.append(error)

    def _log_row(self, key: str, row: Row) -> None:
        if self.plan and row.state == "created":
            # The log entry of the batch names it.
            return
        level, text = self.job.describe(key, row, self._errors.get(key))
        if text:
            self.log.log(level, "%s", text)

    def _send(self, key: str, row: Row, fence: Fence) -> Row:
        """Send one row and return its record: ``sent`` if its outcome is unknown, ``void`` if it was not sent."""
        for _ in range(_MAX_RATE_LIMITED):
            while not self._is_over and (left := self._not_before - time.monotonic()) > 0:
                time.sleep(min(left, 0.5))
            if self._is_over:
                return row.become("void")
            if outcome := self._attempt(key, row, fence):
                return outcome
        self._stop(self._errors[key])
        return row.become("void")

    def _attempt(self, key: str, row: Row, fence: Fence) -> Row | None:
        """Send one row once, and return its record; None: the service limits the rate, so try again later."""
        may_have_left = False

        def before_send() -> None:
            nonlocal may_have_left
            fence.ensure_recorded()
            may_have_left = True

        try:
            outcome = self.job.send(key, row, before_send)
        except CustodyError as error:
            self._errors[key] = error
            may_have_left = may_have_left and not error.nothing_sent
            if error.operation is None and not error.nothing_sent:
                # The error comes from recording the batch, not from this request, so it says nothing about the row.
                raise
            if not isinstance(error, CustodyRateLimitError) or not error.from_service:
                return self._after_failure(row, error, may_have_left=may_have_left)
            seconds = error.retry_after or 1.0
            if seconds > MAX_RETRY_AFTER:
                self._stop(error)
            self._not_before = max(self._not_before, time.monotonic() + seconds)
            return None
        finally:
            # Report the sending even if the task was interrupted.
            if may_have_left:
                self.report("sent", 1)
        self._refusals = self._lost = 0
        return outcome

    def _after_failure(self, row: Row, error: CustodyError, *, may_have_left: bool) -> Row:
        """Return the record of a row whose sending failed: not sent (``void``), refused, or unknown (``sent``)."""
        refused = row.become("refused", sanitize(error.reason, 300))
        if not may_have_left and isinstance(error, CustodyRequestError) and error.status is None:
            return refused
        if not may_have_left:
            # If the error has a status, it comes from another call, such as signing in.
            self._stop(error)
            return row.become("void")
        if error.status in range(300, 500) and (error.status == 403 or not error.from_service):
            # Such refusals are not about the row itself.
            self._refusals += 1
            if self._refusals >= _MAX_REFUSALS:
                self._stop(error)
        if _is_refusal(error):
            if isinstance(error, CustodyAuthenticationError):
                self._stop(error)
            is_about_user = self._stopped and isinstance(error, (CustodyAuthenticationError, CustodyPermissionError))
            return row.become("void") if is_about_user else refused
        self._lost += 1
        if error.transient and not isinstance(error, CustodyRateLimitError):
            self._stop(error)
        if error.retry_after:
            self._not_before = time.monotonic() + min(error.retry_after, MAX_RETRY_AFTER)
        return row


def _is_refusal(error: CustodyError) -> bool:
    """Tell whether the service itself refused the request. Such a request had no effect."""
    is_own = error.from_service and error.status in range(400, 500)
    return is_own and not isinstance(error, CustodyOutcomeUnknownError)
