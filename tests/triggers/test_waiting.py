"""Waiting for something, for no more than so many seconds."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from airflow_custody.triggers._waiting import within


async def after(seconds: float, result: str | Exception = "done") -> str:
    await asyncio.sleep(seconds)
    if isinstance(result, Exception):
        raise result
    return result


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_returns_the_result(seconds: float | None) -> None:
    assert asyncio.run(within(seconds, after(0))) == "done"


def test_raises_what_is_raised() -> None:
    with pytest.raises(KeyError):
        asyncio.run(within(30, after(0, KeyError("x"))))


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_cancels_what_takes_too_long(seconds: float) -> None:
    async def scenario() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await within(seconds, after(60))
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("outcome", ["done", KeyError("x")], ids=repr)
@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_is_never_swallowed(turns: int, outcome: str | Exception) -> None:
    """Also where it arrives in the same turn of the event loop as the result."""

    async def scenario() -> None:
        loop, complaints = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        result: asyncio.Future[str] = loop.create_future()
        waiting = asyncio.create_task(endless(result))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if isinstance(outcome, Exception):
            result.set_exception(outcome)
        else:
            result.set_result(outcome)
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 600)
        assert complaints == []

    async def endless(result: asyncio.Future[str]) -> None:
        with contextlib.suppress(KeyError):
            await within(30, asyncio.ensure_future(result))
        await asyncio.sleep(3600)

    asyncio.run(scenario())
