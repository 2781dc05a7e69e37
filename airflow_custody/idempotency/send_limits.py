"""Limits on sending rows that all threads share: the rate that the service asks for, and the fence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from airflow_custody.client.errors import CustodyError
from airflow_custody.idempotency.create_once import Timing

# Consecutive renewals that may take longer than the fence.
_MAX_SLOW_RENEWALS = 3


class RateLimiter:
    """A rate limiter: a delay that the service asks of one thread holds for all."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._not_before = 0.0
        self._ended = False

    def wait(self) -> bool:
        """Wait until the next row may be sent; False if none may be sent any more."""
        with self._condition:
            while not self._ended and (left := self._not_before - time.monotonic()) > 0:
                self._condition.wait(left)
            return not self._ended

    def pause(self, seconds: float) -> None:
        """Send no row for a number of seconds."""
        with self._condition:
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    def stop(self) -> None:
        """Send no row any more."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()


class Fence:
    """
    A fence: a row is sent only if its window was recorded a short time ago.

    A process that was stopped in between records it again, which fails if another try has taken over.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._condition = threading.Condition()
        self._asked: tuple[float, ...] = ()
        self._is_needed = False
        self._is_closed = False
        self._slow = 0

    def start(self) -> None:
        """Begin the time in which rows may be sent. Call it before the window is recorded."""
        self._asked = self._timing.clocks()

    def wait_for_record(self) -> None:
        """
        Wait until the window is recorded again, if that was too long ago.

        :raises CustodyError: if it cannot be recorded any more; nothing may be sent.
        """
        with self._condition:
            while not self._is_closed:
                if self._elapsed_since(self._asked) < self._timing.fence:
                    return
                self._is_needed = True
                self._condition.wait()
        raise CustodyError(
            "this task has ended, or another try of it has taken over", code="task-stopped", nothing_sent=True
        )

    def renew_if_needed(self, renew: Callable[[], None]) -> None:
        """
        Record the window again if a row waits for it; in the thread that may write.

        :raises CustodyError: if recording takes longer than the fence each time.
        """
        if not self._is_needed:
            return
        asked = self._timing.clocks()
        renew()
        self._slow = self._slow + 1 if self._elapsed_since(asked) >= self._timing.fence else 0
        if self._slow >= _MAX_SLOW_RENEWALS:
            raise CustodyError(
                f"writing to the task's state took longer than {self._timing.fence:g} s, {self._slow} times in a row; "
                "nothing more was sent",
                code="task-stopped",
                retryable=True,
            )
        with self._condition:
            self._asked, self._is_needed = asked, False
            self._condition.notify_all()

    def _elapsed_since(self, asked: tuple[float, ...]) -> float:
        return max(now - then for then, now in zip(asked, self._timing.clocks(), strict=True))

    def close(self) -> None:
        """Let no row be sent any more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
