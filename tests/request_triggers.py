"""Triggers for whitelisting requests, run without a triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

from airflow.triggers.base import TriggerEvent

from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger


async def first(made: CustodyWhitelistRequestTrigger) -> dict[str, Any]:
    """Return the payload of a trigger's first event."""
    stream = cast(AsyncGenerator[TriggerEvent, None], made.run())
    try:
        payload: dict[str, Any] = (await anext(stream)).payload
        return payload
    finally:
        await stream.aclose()


async def events(*made: CustodyWhitelistRequestTrigger) -> list[dict[str, Any]]:
    """Return the payloads of triggers that run at once; afterwards, no poll runs any more."""
    found = await asyncio.gather(*map(first, made))
    assert SharedPoll.running() == 0
    return found
