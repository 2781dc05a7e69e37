"""Clocks that tests set, and a ``time`` module whose waits take no time."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Clock:
    """
    A clock that stands still until a test turns it.

    :ivar now: what it shows, in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SkippingTime:
    """
    The module ``time`` for code that waits: whoever sleeps goes on at once, and only sleeping moves the clocks on.

    :ivar skipped: the seconds that were slept.
    """

    def __init__(self) -> None:
        self.skipped = 0.0
        # Whole seconds: sums of these and of what is slept are exact, so that a deadline is met to the point.
        self._started = float(int(time.monotonic())), time.time()
        self._lock = threading.Lock()
        self._due: list[tuple[float, Callable[[], object]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return self._started[0] + self.skipped

    def time(self) -> float:
        return self._started[1] + self.skipped

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        with self._lock:
            self.skipped += seconds
            due = [each for each in self._due if each[0] <= self.skipped]
            self._due = [each for each in self._due if each not in due]
        for _, action in due:
            action()
        time.sleep(0)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something once so much time was skipped from now on."""
        self._due.append((self.skipped + seconds, action))


class LateTime:
    """
    The module ``time``, an hour later as soon as a condition holds: a deadline passes when a test wants it to.

    :param is_late: the condition.
    """

    def __init__(self, is_late: Callable[[], bool]) -> None:
        self._is_late = is_late

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return time.time() + (3600 if self._is_late() else 0)


@contextlib.contextmanager
def skipping_waits() -> Iterator[SkippingTime]:
    """Let nothing wait that searches the service, or tries again: what it finds does not depend on real time."""
    from airflow_custody.client.http import transport

    skipping = SkippingTime()
    with pytest.MonkeyPatch.context() as patch:
        for module in _modules_that_wait():
            patch.setattr(module, "time", skipping)
        # Its deadlines are those of real connections.
        real = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=skipping.sleep)
        patch.setattr(transport, "time", real)
        yield skipping


@cache
def _modules_that_wait() -> list[ModuleType]:
    # Imported only now: Airflow reads its settings with it.
    package = importlib.import_module("airflow_custody.idempotency")
    names = [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]
    names += [
        f"airflow_custody.client.{each}" for each in ("delays", "whitelist.snapshot", "whitelist.signing.sending")
    ]
    found = map(importlib.import_module, names)
    return [each for each in found if hasattr(each, "time")]
