"""Triggers, run without a triggerer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest
from airflow.triggers.base import BaseTrigger, TriggerEvent
from clocks import LateTime

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
    """Return a deadline that passes once the service has been called so often."""
    late = LateTime(lambda: len(sandbox.control.request_log()) >= calls)
    patch.setattr(_base, "time", late)
    return time.time() + 600


async def events(*made: BaseTrigger) -> list[dict[str, Any]]:
    """Return the payloads of triggers that run at once; afterwards, no poll runs any more."""
    found = await asyncio.gather(*map(first, made))
    assert SharedPoll.running() == 0
    return found


async def until(condition: Callable[[], object], within: float = 300.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
