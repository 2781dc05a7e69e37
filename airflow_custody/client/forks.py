"""What a forked process makes anew, because two processes must not share it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class PerProcess(Generic[T]):
    """
    A value that a forked process has of its own.

    A lock would be inherited held, and the thread that would release it is not forked. Of connections, each process
    would read the other's responses.

    :param make: makes the value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # Kept: what is done at its end, such as to close a connection, may reach the other process.
        self._inherited: list[T] = []
        #: The value of this process.
        self.value = make()
        _ALL.add(self)

    def renew(self) -> None:
        """Make the value anew."""
        self._inherited.append(self.value)
        self.value = self._make()


_ALL: WeakSet[PerProcess[Any]] = WeakSet()


def _renew_all() -> None:
    for each in list(_ALL):
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
