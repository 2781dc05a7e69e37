"""What a forked process makes anew, because two processes must not share it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """
    A value that a forked process has of its own, from its first use on.

    A lock would be inherited held, and the thread that would release it is not forked. Of connections, each process
    would read the other's responses.

    :param make: makes the value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # By process. What was inherited is kept: its end may reach the other process, as that of a connection would.
        self._values = {os.getpid(): make()}

    @property
    def value(self) -> T:
        """The value of this process."""
        process = os.getpid()
        value = self._values.get(process)
        # Of two threads that make one at the same time, both take the first.
        return self._values.setdefault(process, self._make()) if value is None else value
