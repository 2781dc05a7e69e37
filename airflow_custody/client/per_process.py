"""What a forked process makes anew, because two processes must not share it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


# Another one in each process: its number may be that of an earlier process.
_process = object()


def _is_forked() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_is_forked)


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
        self._values = {_process: make()}

    @property
    def value(self) -> T:
        """The value of this process."""
        process = _process
        value = self._values.get(process)
        # Of two threads that make one at the same time, both take the first.
        return self._values.setdefault(process, self._make()) if value is None else value
