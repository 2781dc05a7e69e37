"""Run triggers without a triggerer, and a state store for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, cast

import pytest
from airflow.triggers.base import BaseTrigger, TriggerEvent
from support.clocks import LateTime

from airflow_custody.client.webhooks.calls import CallCursor
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers import _base
from airflow_custody.triggers._base import SharedPoll


async def first(made: BaseTrigger) -> dict[str, Any]:
    """Return the payload of a trigger's first event."""
    stream = cast(AsyncGenerator[TriggerEvent, None], made.run())
    try:
        payload: dict[str, Any] = (await asyncio.wait_for(anext(stream), 600)).payload
        return payload
    finally:
        await stream.aclose()


def end_waits_after(patch: pytest.MonkeyPatch, sandbox: Sandbox, calls: int) -> float:
    """Return a deadline that passes after this number of calls."""
    late = LateTime(lambda: len(sandbox.control.request_log()) >= calls)
    patch.setattr(_base, "time", late)
    return time.time() + 600


async def events(*made: BaseTrigger) -> list[dict[str, Any]]:
    """
    Run triggers at the same time, and return their first payloads.

    Afterwards, no poll may be running.
    """
    found = await asyncio.gather(*map(first, made))
    assert len(SharedPoll._running) == 0
    return found


async def until(condition: Callable[[], object], within: float = 300.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


@contextlib.contextmanager
def no_more_threads() -> Iterator[None]:
    """
    Prevent new threads, as on a machine that has reached its limit.

    The stack size is set to more than any machine can provide.
    """
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


class Store:
    """
    An asset's state store, which keeps its values as JSON.

    ``hangs`` imitates a triggerer that is about to end: reads get no response, but writes still arrive.
    """

    def __init__(self, name: str = "calls") -> None:
        self.name = name
        self.values: dict[str, str] = {}
        self.error: Exception | None = None
        self.hangs = False

    def __repr__(self) -> str:
        return f"<Store {self.name}>"

    async def aget(self, key: str, default: Any = None) -> Any:
        while self.hangs:
            await asyncio.sleep(0.01)
        self._pass()
        return json.loads(self.values[key]) if key in self.values else default

    async def aset(self, key: str, value: Any) -> None:
        self._pass()
        self.values[key] = json.dumps(value, allow_nan=False)

    def _pass(self) -> None:
        if self.error is not None:
            raise self.error

    @property
    def cursor(self) -> dict[str, Any]:
        (value,) = self.values.values()
        cursor: dict[str, Any] = json.loads(value)["cursor"]
        return cursor

    @property
    def known(self) -> set[str]:
        """The ids of the calls that the stored cursor knows."""
        return {each for each, _ in CallCursor.from_json(self.cursor).seen} if self.values else set()
