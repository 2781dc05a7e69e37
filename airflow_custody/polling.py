"""What all triggers share: how often they ask, and what ends a wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from airflow.triggers.base import TriggerEvent

from airflow_custody.client.errors import TRANSIENT_ERRORS, CustodyError

Look = TypeVar("Look")

# While the service fails, polls become rarer up to this many seconds (or the interval, if that is longer).
_LONGEST_BACKOFF = 300.0
_LONGEST_RETRY_AFTER = 3600.0


def event(status: str, **facts: Any) -> TriggerEvent:
    """Return an event of a trigger: plain JSON with a status."""
    return TriggerEvent({"status": status, **facts})  # type: ignore[no-untyped-call]


def after_error(error: CustodyError) -> TriggerEvent | str:
    """Return the event that an error ends a wait with; of one that a wait sits out, what it says."""
    if isinstance(error, TRANSIENT_ERRORS) and error.retryable:
        return str(error)
    return event("error", error=error.to_json())


def unforeseen(exception: Exception, operation: str) -> CustodyError:
    """Wrap what is not an error of ours, say of a secrets backend: the task's retries may mend it."""
    return CustodyError(f"{type(exception).__name__}: {exception}", operation=operation, retryable=True)


async def first_event(
    looks: AsyncIterator[Look],
    meaning: Callable[[Look], TriggerEvent | str],
    *,
    deadline: float | None,
    interval: float,
    log: Any,
) -> TriggerEvent:
    """
    Wait until a look ends the wait.

    :param looks: one look after the other.
    :param meaning: returns the event a look ends the wait with, or what was seen.
    :param deadline: Unix time after which the wait times out; None: no end.
    :param interval: seconds between two looks.
    :param log: where to tell what was seen.
    :return: the event: what ``meaning`` returned, ``timeout`` or ``error``.
    """
    seen = "the service has not been looked at yet"
    while True:
        # As in poke mode, the first look after the deadline still counts; should none come, the wait ends.
        patience = None if deadline is None else max(0.0, deadline - time.time()) + interval + 1.0
        try:
            look = await asyncio.wait_for(anext(looks), patience)
        except asyncio.TimeoutError:
            return event("timeout", message=seen)
        except Exception as exception:
            return event("error", error=unforeseen(exception, "wait").to_json())
        found = meaning(look)
        if isinstance(found, TriggerEvent):
            return found
        seen = found
        log.info("Not yet: %s", seen)
        if deadline is not None and time.time() > deadline:
            return event("timeout", message=seen)


def pause(interval: float, settings: Mapping[str, Any], polls: int, failures: int, error: CustodyError | None) -> float:
    """
    Return the seconds until the next poll.

    :param interval: seconds between two polls when all is well.
    :param settings: ``exponential_backoff``, ``max_wait`` and ``deadline`` of the trigger, as far as they are set.
    :param polls: number of polls so far.
    :param failures: how many of the last ones failed.
    :param error: what the last one failed with.
    """
    seconds = interval
    if settings.get("exponential_backoff"):
        seconds = interval * 2.0 ** min(polls - 1, 30)
        seconds = min(seconds, settings.get("max_wait") or float("inf"))
        if settings.get("deadline"):
            seconds = max(interval, min(seconds, settings["deadline"] - time.time()))
    if failures > 1:
        seconds = max(seconds, min(interval * 2.0 ** min(failures - 1, 30), max(interval, _LONGEST_BACKOFF)))
    if error is not None and error.retry_after:
        seconds = max(seconds, min(error.retry_after, _LONGEST_RETRY_AFTER))
    return seconds
