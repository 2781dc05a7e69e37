"""Waiting for something, for no more than so many seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(seconds: float | None, awaitable: Awaitable[T]) -> T:
    """
    Return the result of an awaitable, or cancel it after some seconds.

    Before Python 3.12 ``asyncio.wait_for`` swallows a cancellation that arrives together with the result. Airflow
    cancels a trigger once: it would go on for good.

    An awaitable that swallows its cancellation is waited for, however long it takes: give it none that does. A thread
    (``asyncio.to_thread``) cannot be ended: it goes on, and what it returns is dropped.

    :param seconds: time limit; None: no limit.
    :raises asyncio.TimeoutError: if it takes longer.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            # Where this is cancelled nobody asks for it, and asyncio would complain.
            task.exception()
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()
