"""Run watchers of webhook calls as Airflow's triggerer does, and keep the events that they fire."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar, ParamSpec

from airflow.triggers.shared_stream import SharedStreamManager
from support.airflow.request_triggers import Store as Store
from support.airflow.request_triggers import until as until

from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger

HOOK = "11111111-1111-4111-8111-111111111111"
OTHER_HOOK = "22222222-2222-4222-8222-222222222222"
P = ParamSpec("P")
_last = datetime.now(timezone.utc)


def add_call(sandbox: Sandbox, call_id: str, webhook_id: str = HOOK, **call: Any) -> None:
    """Add a call to the journal, dated later than the previous call."""
    global _last
    _last = max(datetime.now(timezone.utc), _last + timedelta(milliseconds=1))
    created = _last.isoformat()
    row = {"id": call_id, "webhookId": webhook_id, "eventId": f"event-{call_id}", "status": "success", **call}
    sandbox.control.add_webhook_call(**{"payload": json.dumps({"of": call_id}), "createdAt": created, **row})


class Triggerer:
    """
    Imitates Airflow's triggerer for watchers.

    Events that the watchers fire wait until they are persisted.

    :param confirms: whether events are persisted at once. Default True.
    :param ack_timeout: seconds after which a watcher fails if its events are not persisted. Default 300.
    """

    _alive: ClassVar[list[Triggerer]] = []

    def __init__(self, *, confirms: bool = True, ack_timeout: float = 300.0) -> None:
        self._alive.append(self)
        self.streams = SharedStreamManager(ack_timeout=ack_timeout)
        self.confirms = confirms
        self.fired: list[tuple[int, Any, int | None]] = []
        self.persisted: list[tuple[int, Any]] = []
        self.failures: list[BaseException] = []
        self.tasks: dict[int, asyncio.Task[None]] = {}

    @classmethod
    async def watching(
        cls, store: Store | None = None, *, confirms: bool = True, **arguments: Any
    ) -> tuple[Triggerer, Store]:
        """Start a watcher, the first of a new triggerer, and wait until its cursor is stored."""
        triggerer, store = cls(confirms=confirms), store or Store()
        triggerer.start(1, store, **arguments)
        await until(lambda: store.values)
        return triggerer, store

    def start(self, trigger_id: int, store: Store | None, **arguments: Any) -> CustodyWebhookCallTrigger:
        """Start a watcher."""
        trigger = CustodyWebhookCallTrigger(**{"poke_interval": 0.05, **arguments})
        trigger = CustodyWebhookCallTrigger(**json.loads(json.dumps(trigger.serialize()[1])))
        trigger.asset_state_store = store  # type: ignore[assignment]
        self.tasks[trigger_id] = asyncio.create_task(self._run(trigger_id, trigger))
        return trigger

    async def _run(self, trigger_id: int, trigger: CustodyWebhookCallTrigger) -> None:
        # The same steps as in TriggerRunner.run_trigger.
        key = trigger.shared_stream_key()
        assert key is not None
        try:
            stream = self.streams.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
            async for event in trigger.filter_shared_stream(stream):
                seq = self.streams.bind_pending_event(trigger_id=trigger_id, key=key)
                self.fired.append((trigger_id, event.payload, seq))
                if self.confirms:
                    asyncio.get_running_loop().call_soon(self.persist)
        except Exception as error:
            self.failures.append(error)
        finally:
            await self.streams.unsubscribe(trigger_id, key)

    def persist(self, number: int | None = None) -> None:
        """Persist the first fired events, by default all; tell the streams."""
        done, self.fired = self.fired[:number], self.fired[len(self.fired[:number]) :]
        for trigger_id, payload, _ in done:
            self.persisted.append((trigger_id, json.loads(json.dumps(payload, allow_nan=False))))
        self.streams.confirm_persisted(seq for _, _, seq in done if seq is not None)

    def ids(self, trigger_id: int) -> list[str]:
        """Return the ids of the calls that are persisted for a watcher."""
        return [each for mine, payload in self.persisted if mine == trigger_id for each in ids_of(payload)]

    async def stop(self, trigger_id: int) -> None:
        """End a watcher."""
        task = self.tasks.pop(trigger_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def kill(self) -> None:
        """End all watchers at once; events that were not persisted are lost."""
        self.fired, self.confirms = [], False
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self.fired, self.tasks = [], {}
        await self.streams.stop_all()
        self._alive.remove(self)

    @classmethod
    async def kill_all(cls) -> None:
        """Kill all triggerers that are alive."""
        for each in list(cls._alive):
            await each.kill()


def ids_of(payload: dict[str, Any]) -> list[str]:
    """Return the ids of the calls of an event."""
    return payload["call_ids"] if "call_ids" in payload else [call["id"] for call in payload["calls"]]


def in_triggerers(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """
    Turn an asynchronous test that uses triggerers into a normal test.

    At the end, the triggerers are killed. No poll may be left then.
    """

    @functools.wraps(test)
    def run_it(*fixtures: P.args, **named: P.kwargs) -> None:
        async def play() -> None:
            try:
                await asyncio.wait_for(test(*fixtures, **named), 600)
            finally:
                await Triggerer.kill_all()

        asyncio.run(play())
        assert len(SharedPoll._running) == 0

    return run_it


def polls(sandbox: Sandbox) -> int:
    """Return the number of requests for calls."""
    return len(sandbox.control.request_log(path="/webhooks/calls"))


async def next_polls(sandbox: Sandbox, number: int = 2) -> None:
    """Wait for this number of further polls."""
    before = await asyncio.to_thread(polls, sandbox)
    while await asyncio.to_thread(polls, sandbox) < before + number:
        await asyncio.sleep(0.01)
