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
    A clock that stands still until a test sets it.

    :ivar now: the clock's time, in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SkippingTime:
    """
    A ``time`` module whose ``sleep`` returns at once.

    Sleeping advances the module's clocks; nothing else does.

    :ivar skipped: number of seconds slept so far.
    """

    def __init__(self) -> None:
        self.skipped = 0.0
        # The monotonic clock starts at a whole second, so that adding slept seconds causes no rounding errors.
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
        """Call a function once this number of further seconds was skipped."""
        self._due.append((self.skipped + seconds, action))


class LateTime:
    """
    A ``time`` module that jumps an hour ahead when a condition holds.

    So a test decides when a deadline passes.

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
    """
    Skip the waits before retries and between searches of the service.

    The results of both do not depend on real time.
    """
    from airflow_custody.client.http import transport

    skipping = SkippingTime()
    with pytest.MonkeyPatch.context() as patch:
        for module in _modules_that_wait():
            patch.setattr(module, "time", skipping)
        # Skip only the transport's sleeps: its deadlines are for real connections.
        real = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=skipping.sleep)
        patch.setattr(transport, "time", real)
        yield skipping


@cache
def _modules_that_wait() -> list[ModuleType]:
    # Imported only now, because it imports Airflow, which then reads its settings.
    package = importlib.import_module("airflow_custody.idempotency")
    names = [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]
    names += [
        f"airflow_custody.client.{each}" for each in ("delays", "whitelist.snapshot", "whitelist.signing.sending")
    ]
    found = map(importlib.import_module, names)
    return [each for each in found if hasattr(each, "time")]
