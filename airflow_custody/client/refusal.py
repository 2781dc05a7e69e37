"""What several that sign in with the same name and password know together."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_custody.client.forks import PerProcess

# Seconds between two looks whether it is one's turn.
_LOOK = 0.05


class Turn:
    """What threads do one after another. One that has died, or that was not forked, holds up nobody."""

    def __init__(self) -> None:
        self._lock = PerProcess(threading.Lock)
        self._thread: threading.Thread | None = None
        # Whether that thread is within its turn. A signal may end it before, or before it has said that it is over.
        self._is_within = False

    @contextmanager
    def taken(self, until: float) -> Iterator[bool]:
        """
        Have the turn within the block.

        :param until: until when to wait for it, by the system's monotonic clock.
        :return: whether it is this thread's turn; False: another one, or this one itself, has not ended.
        """
        is_mine = False
        while not is_mine and time.monotonic() < until:
            is_mine = self._take()
            if not is_mine:
                time.sleep(_LOOK)
        try:
            if is_mine:
                self._is_within = True
            yield is_mine
        finally:
            if is_mine:
                self._is_within = False
                self._thread = None

    def _take(self) -> bool:
        with self._lock.value:
            me = threading.current_thread()
            if self._is_within if self._thread is me else self._thread is not None and self._thread.is_alive():
                return False
            self._thread, self._is_within = me, False
            return True


class Refusal:
    """That a service refused a name and a password, if it did. What signs in with the same shares it."""

    def __init__(self) -> None:
        #: The error of the sign-in; None: none was refused.
        self.error: Mapping[str, Any] | None = None
        #: Whose turn it is to sign in: what is refused once is not sent by those that wait.
        self.turn = Turn()
