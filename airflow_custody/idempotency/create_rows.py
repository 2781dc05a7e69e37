"""One try of a task that creates many things, each at most once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.http.retries import MAX_RETRY_AFTER
from airflow_custody.client.text import count, sanitize
from airflow_custody.idempotency.create_once import Report, Timing, ignore_report
from airflow_custody.idempotency.lost_rows import LostRows, RowsCreation
from airflow_custody.idempotency.rows import Row, RowStore, Window
from airflow_custody.idempotency.send_limits import Fence, RateLimiter

#: Number of rows that are recorded and looked up together.
WINDOW = 50
# How often a row that came to nothing is sent again within one try, and how often one that was refused for now.
_MAX_ROUNDS = 5
_MAX_PAUSES = 20
# So many refusals in a row that are not about the row mean that the next ones would come to the same.
_MAX_REFUSALS = 3
# When so many rows in a row got no response, what became of them is found out before others are sent.
_MAX_LOST = 10
_SECONDS_BETWEEN_LOGS = 5.0
_SECONDS_BETWEEN_CHECKS = 20.0
# A request that differs in one of them is for another destination.
_ELSEWHERE = frozenset({"address", "blockchain", "network", "memo"})


@dataclass
class Outcome:
    """
    The outcome of the rows.

    :param created: the id of what was created, by the row's key.
    :param found: the id of what somebody else has asked for meanwhile, by the row's key.
    :param refused: why the service refused, by the row's key.
    :param unknown: why it cannot be known whether it was created, by the row's key.
    :param left: the keys of the rows that were not sent.
    :param stopped: the error that ended the sending early; None: none did.
    """

    created: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    stopped: CustodyError | None = None


class CreateRows:
    """
    Creates many things, each unless an earlier try of this task instance did.

    :param store: the record of each row; a plan has begun.
    :param creation: the objects to create.
    :param log: the task's log.
    :param max_parallel: maximum number of requests at once. Default 4.
    :param lookup_wait: seconds that the service may take to show what it created. Default 30.
    :param check: called before a window is sent; raises if this task must not send any more.
    :param timing: clocks and bounds.
    :param report: called with what became of creates. Default: nobody is told.
    """

    def __init__(
        self,
        store: RowStore,
        creation: RowsCreation,
        log: logging.Logger,
        *,
        max_parallel: int = 4,
        lookup_wait: float = DEFAULT_LOOKUP_WAIT,
        check: Callable[[], None] = lambda: None,
        timing: Timing | None = None,
        report: Report = ignore_report,
    ) -> None:
        self._store = store
        self._creation = creation
        self._log = log
        self._max_parallel = max_parallel
        self._check = check
        self._timing = timing or Timing()
        self._report = partial(report, creation.what)
        self._refusals = 0
        self._stopped: CustodyError | None = None
        self._rate_limiter = RateLimiter()
        self._checked = time.monotonic()
        # The row that each id belongs to.
        self._ids = {row.detail: key for key, (_, row) in store.log.rows().items() if row.state == "created"}
        #: The rows that were sent and may exist.
        self.lost = LostRows(
            store,
            creation,
            log,
            lookup_wait=lookup_wait,
            timing=self._timing,
            keep=self._check_sometimes,
            report=self._report,
        )

    def stop(self) -> None:
        """Send no row that has not left yet; may be called from a signal handler."""
        stopped = "the task was stopped before all rows were sent"
        self._stop(CustodyConnectionError(stopped, code="task-stopped", retryable=True))

    def settle(self, keys: Collection[str]) -> Outcome:
        """
        Find out what became of rows that were sent, and send nothing.

        :param keys: the rows' keys.
        :return: the outcome of each row.
        """
        self.lost.only(keys)
        self.lost.follow_overrides()
        self._resolve()
        return self._outcome(keys)

    def run(self, keys: Sequence[str]) -> Outcome:
        """
        Create what the rows ask for, unless it was created.

        :param keys: the rows' keys.
        :return: the outcome of each row.
        """
        began = time.monotonic()
        self._start = (began, self._store.log.done)
        self._logged = began
        self.lost.follow_overrides()
        todo = [key for key in keys if self._is_to_be_sent(key)]
        for _ in range(_MAX_ROUNDS):
            came_to_nothing = self._send_all(todo)
            came_to_nothing |= self._resolve()
            todo = [key for key in keys if key in came_to_nothing]
            if self._stopped or not todo:
                break
        return self._outcome(keys)

    def _is_to_be_sent(self, key: str) -> bool:
        known = self._store.log.row(key)
        if known is None:
            return True
        window, row = known
        # A person who clears the task has mended what the service refused.
        return row.state == "refused" and window.max_tries != self._store.task.max_tries

    def _outcome(self, keys: Collection[str]) -> Outcome:
        outcome = Outcome(stopped=self._stopped)
        rows = self._store.log.rows()
        for key in keys:
            if key in self.lost.unknown:
                outcome.unknown[key] = self.lost.unknown[key]
            elif key not in rows:
                outcome.left.append(key)
            elif rows[key][1].state == "sent":
                outcome.unknown[key] = "its response was lost, and the service could not be searched"
            else:
                state, detail = rows[key][1].state, rows[key][1].detail
                {"created": outcome.created, "found": outcome.found}.get(state, outcome.refused)[key] = detail
        return outcome

    def _resolve(self) -> set[str]:
        came_to_nothing = self.lost.resolve()
        self._stopped = self._stopped or self.lost.failure
        return came_to_nothing

    def _check_sometimes(self) -> None:
        """Check that this task may go on, while it does one thing for long."""
        if time.monotonic() - self._checked >= _SECONDS_BETWEEN_CHECKS:
            self._check_now()

    def _check_now(self) -> None:
        self._check()
        self._checked = time.monotonic()

    def _send_all(self, keys: Sequence[str]) -> set[str]:
        """Send rows, and return the keys of those that turned out to have come to nothing on the way."""
        came_to_nothing: set[str] = set()
        with ThreadPoolExecutor(self._max_parallel, thread_name_prefix="custody-apply") as pool:
            for start in range(0, len(keys), WINDOW):
                if self._stopped:
                    break
                self._check_now()
                try:
                    all_lost = self._send_window(pool, keys[start : start + WINDOW])
                except _LookupFailed as failure:
                    self._stopped = failure.error
                    break
                self._log_progress()
                if all_lost and len(all_lost) >= _MAX_LOST and not self._stopped:
                    # Before more is sent to a service that does not respond.
                    found_nothing = self._resolve()
                    came_to_nothing |= found_nothing
                    if found_nothing >= all_lost:
                        self._stopped = CustodyConnectionError(
                            f"the service responded to none of the last {count(len(all_lost), 'request')}, and none of "
                            "them had any effect",
                            code="no-response",
                            retryable=True,
                        )
        return came_to_nothing

    def _send_window(self, pool: ThreadPoolExecutor, keys: Sequence[str]) -> set[str]:
        """
        Look up some rows, write them down, send them, and write down what became of them.

        :return: the keys of those that were sent, if not one of them got a response.
        """
        known = self._look_up(keys)
        fence = Fence(self._timing)
        fence.start()
        window = self._store.open(known, _now())
        futures: dict[Future[Row | None], str] = {}
        try:
            for key, row in known.items():
                if row.state == "sent":
                    futures[pool.submit(self._send, key, row, fence)] = key
            self._wait(futures, fence, window)
        except BaseException:
            # Rows that have not left yet may not leave any more. Those that have left are not forgotten.
            fence.close()
            self._rate_limiter.stop()
            wait(futures)
            with suppress(Exception):
                ended = {key: each for each, key in futures.items() if each.exception() is None}
                self._store.record((window, key, each.result()) for key, each in ended.items())
            raise
        outcomes: dict[str, Row | None] = {**known, **{key: future.result() for future, key in futures.items()}}
        self._store.record((window, key, outcome) for key, outcome in outcomes.items())
        for key, outcome in outcomes.items():
            self._log_row(key, outcome)
        sent = {key: outcome for key in futures.values() if (outcome := outcomes[key]) is not None}
        return set(sent) if all(outcome.state == "sent" for outcome in sent.values()) else set()

    def _wait(self, futures: Mapping[Future[Row | None], str], fence: Fence, window: Window) -> None:
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.05, return_when=FIRST_COMPLETED)
            for each in done:
                if failure := each.exception():
                    raise failure
            # Only this thread writes to the task's state.
            fence.renew_if_needed(lambda: self._renew(window))
            self._check_sometimes()

    def _renew(self, window: Window) -> None:
        self._store.renew(window)
        self._check_now()

    def _look_up(self, keys: Sequence[str]) -> dict[str, Row]:
        """Return the rows as they are before they are sent: what others have asked for meanwhile is not sent."""
        try:
            found = self._creation.find(keys, thorough=False)
        except CustodyError as error:
            raise _LookupFailed(error) from None
        rows = {}
        for key in keys:
            before = self._creation.known_ids(key)
            new = [each for each in found[key].candidates if each.id not in before]
            same = [each.id for each in new if each.same]
            like = [each for each in new if not each.same and not _ELSEWHERE.intersection(each.differs)]
            if same:
                rows[key] = Row("found", same[0])
            elif like:
                why = f"somebody else has asked for the same destination meanwhile, {like[0].id}: {like[0].difference}"
                rows[key] = Row("refused", why)
            else:
                known = tuple(sorted({*before, *(each.id for each in new)}))
                rows[key] = Row("sent", "", known)
        return rows

    def _send(self, key: str, sent: Row, fence: Fence) -> Row | None:
        """
        Send one row, in a thread of its own.

        :param sent: its row if its outcome is not known.
        :return: its row now; None if it was not sent.
        """
        for _ in range(_MAX_PAUSES):
            if not self._rate_limiter.wait() or self._stopped:
                return None
            try:
                identifier = self._send_once(key, fence)
            except CustodyRateLimitError as error:
                goes_on = self._slow_down(error)
                if not error.from_service:
                    # A gateway may refuse what the service has taken.
                    return sent
                if not goes_on:
                    return None
            except CustodyOutcomeUnknownError as error:
                if error.retry_after:
                    self._rate_limiter.pause(min(error.retry_after, MAX_RETRY_AFTER))
                return sent
            except CustodyError as error:
                return self._after_failure(sent, error)
            else:
                self._refusals = 0
                if self._ids.setdefault(identifier, key) != key or identifier in sent.known_ids:
                    # It is the response to another request.
                    return sent
                return Row("created", identifier)
        self._stop(CustodyRateLimitError("the service refused a row for now too many times", retryable=True))
        return None

    def _send_once(self, key: str, fence: Fence) -> str:
        try:
            identifier = self._creation.send(key, fence.wait_for_record)
        except CustodyError as error:
            if not _is_unsent(error):
                self._report("sent", 1)
            raise
        self._report("sent", 1)
        return identifier

    def _after_failure(self, sent: Row, error: CustodyError) -> Row | None:
        """Return what is known of a row that failed: nothing was sent, it was refused, or nobody knows."""
        not_sent = _is_unsent(error)
        if not_sent and not isinstance(error, CustodyRequestError):
            self._stop(error)
            return None
        if isinstance(error, CustodyAuthenticationError):
            self._stop(error)
        elif isinstance(error, CustodyPermissionError) or not (error.from_service or not_sent):
            self._refusals += 1
            if self._refusals >= _MAX_REFUSALS:
                self._stop(error)
        if not (error.from_service or not_sent):
            return sent
        if isinstance(error, CustodyAuthenticationError) or (
            isinstance(error, CustodyPermissionError) and self._stopped is error
        ):
            return None
        return Row("refused", sanitize(error.reason, 300))

    def _stop(self, error: CustodyError) -> None:
        self._stopped = self._stopped or error
        self._rate_limiter.stop()

    def _slow_down(self, error: CustodyRateLimitError) -> bool:
        seconds = 1.0 if error.retry_after is None else error.retry_after
        if seconds > MAX_RETRY_AFTER:
            self._stop(error)
            return False
        self._rate_limiter.pause(max(seconds, 0.1))
        return True

    # --- the log -------------------------------------------------------------------------------------------

    def _log_row(self, key: str, row: Row | None) -> None:
        which = self._creation.which(key)
        if row is None:
            return
        if row.state == "created":
            self._log.info("Created %s %s for %s.", self._creation.what, row.detail, which)
        elif row.state == "refused":
            self._log.warning("Refused: %s: %s", which, row.detail)
        elif row.state == "found":
            self._log.warning(
                "Not sent: somebody else has asked for %s meanwhile: %s %s.", which, self._creation.what, row.detail
            )
        else:
            self._log.warning("The outcome of the %s for %s is unknown.", self._creation.what, which)

    def _log_progress(self) -> None:
        now = time.monotonic()
        began, done_before = self._start
        log = self._store.log
        if now - self._logged < _SECONDS_BETWEEN_LOGS and log.done < log.total:
            return
        self._logged = now
        rate = (log.done - done_before) / max(now - began, 0.001)
        left = f", about {(log.total - log.done) / rate:.0f} s left" if rate and log.done < log.total else ""
        self._log.info("%d of %s done (%.1f rows/s%s).", log.done, count(log.total, "row"), rate, left)


# Errors that, without a status, are raised before anything was sent.
_BEFORE_SENDING = (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyRequestError,
)


def _is_unsent(error: CustodyError) -> bool:
    """Tell whether an error was raised before anything was sent."""
    return error.nothing_sent or (error.status is None and isinstance(error, _BEFORE_SENDING))


class _LookupFailed(Exception):
    """Carries why the rows of a window could not be looked up; nothing of it was sent."""

    def __init__(self, error: CustodyError) -> None:
        super().__init__()
        self.error = error


def _now() -> datetime:
    return datetime.now(timezone.utc)
