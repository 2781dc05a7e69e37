"""State that all sign-ins with the same name and password share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_custody.client.per_process import PerProcess

# Seconds between two attempts to acquire the lock.
_POLL_INTERVAL = 0.05


class SignInLock:
    """A lock that a thread which has died, or was not forked, does not keep."""

    def __init__(self) -> None:
        self._lock = PerProcess(threading.Lock)
        self._thread: threading.Thread | None = None
        # Whether that thread is within the block. A signal may end it before, or before it has released the lock.
        self._is_within = False

    @contextmanager
    def held(self, until: float) -> Iterator[bool]:
        """
        Hold the lock within the block.

        :param until: until when to wait for it, by the system's monotonic clock.
        :return: whether this thread has the lock; False: another one, or this one itself, still holds it.
        """
        is_mine = False
        while not is_mine and time.monotonic() < until:
            is_mine = self._acquire()
            if not is_mine:
                time.sleep(_POLL_INTERVAL)
        try:
            if is_mine:
                self._is_within = True
            yield is_mine
        finally:
            if is_mine:
                self._is_within = False
                self._thread = None

    def _acquire(self) -> bool:
        with self._lock.value:
            me = threading.current_thread()
            if self._is_within if self._thread is me else self._thread is not None and self._thread.is_alive():
                return False
            self._thread, self._is_within = me, False
            return True


class SharedSignIn:
    """The refusal of a name and a password, if any, shared by all sign-ins with them."""

    def __init__(self) -> None:
        #: The error of the sign-in; None: none was refused.
        self.error: Mapping[str, Any] | None = None
        #: Held while signing in: credentials that were refused once are not sent by those that wait.
        self.lock = SignInLock()
