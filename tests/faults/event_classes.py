"""What the DAGs of the event faults are made of: a task that can be killed, and a watcher that does it wrong."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from event_names import PID_FILE, TOO_EARLY_FILE

from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.hooks.custody import CustodyHook

FOLDER = Path(os.environ.get("FAULTS_FOLDER", "."))
#: Seconds. They make it likelier that a process is killed after it has read and before Airflow has the event.
READ_PAUSE = 0.5
TOO_EARLY_PAUSE = 1.0


class ReadOperator(CustodyReadWebhookCallsOperator):
    """The reading operator, which says in which process it runs, and takes a little longer."""

    def _run(self, context: Any, hook: CustodyHook) -> dict[str, Any]:
        written = (FOLDER / PID_FILE).with_suffix(".new")
        written.write_text(f"{os.getpid()} {os.getppid()}")
        written.replace(FOLDER / PID_FILE)
        try:
            return super()._run(context, hook)
        finally:
            time.sleep(READ_PAUSE)


class TooEarlyTrigger(CustodyWebhookCallTrigger):
    """The trigger, done wrong: it saves its cursor before Airflow has the events."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", super().serialize()[1]

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        from airflow.triggers.base import TriggerEvent

        watcher = self._watcher()
        try:
            async for reading in shared_stream:
                payloads = await watcher.take(reading)
                watcher.handed_over(reading)
                for save in reading.savers.values():
                    await save()
                reading.savers.clear()
                if payloads:
                    (FOLDER / TOO_EARLY_FILE).touch()
                    await asyncio.sleep(TOO_EARLY_PAUSE)
                for payload in payloads:
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                (FOLDER / TOO_EARLY_FILE).unlink(missing_ok=True)
        finally:
            watcher.close()
