"""What several that sign in with the same name and password know together."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

# Seconds between two looks whether it is one's turn.
_LOOK = 0.05


class ThreadLock:
    """A lock that a forked process does not inherit held: the thread that would release it does not run there."""

    def __init__(self) -> None:
        self.renew()
        _LOCKS.add(self)

    def renew(self) -> None:
        """Take a new lock, which nobody holds."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_LOCKS: WeakSet[ThreadLock] = WeakSet()


def _renew_locks() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class Refusal:
    """That a service refused a name and a password, if it did. What signs in with the same shares it."""

    def __init__(self) -> None:
        #: The error of the sign-in; None: none was refused.
        self.error: Mapping[str, Any] | None = None
        self._lock = ThreadLock()
        #: The thread whose turn it is. One that has died, or that did not come along into a fork, is not alive.
        self._thread: threading.Thread | None = None

    @contextmanager
    def turn(self, until: float) -> Iterator[bool]:
        """
        Sign in within the block, one after another: what is refused once is not sent by those that wait.

        :param until: until when to wait for the turn, by the system's monotonic clock.
        :return: whether it is this thread's turn; False: another one has not ended, and nothing may be sent.
        """
        has_turn = self._take_turn()
        while not has_turn and time.monotonic() < until:
            time.sleep(_LOOK)
            has_turn = self._take_turn()
        try:
            yield has_turn
        finally:
            if has_turn:
                self._thread = None

    def _take_turn(self) -> bool:
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._thread = threading.current_thread()
            return True
