"""
The trigger behind the deferrable mode of the sensor for whitelisting requests.

Published knowledge, not part of the given interface.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

from airflow_custody.client.errors import CustodyConflictError, CustodyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.polling import after_error, event, first_event, pause, unforeseen

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.client.progress import Listed


@dataclass(frozen=True)
class Look:
    """Hold what one poll brought for one request: where it is listed, or the error it ended in."""

    listed: Listed | None = None
    error: CustodyError | None = None


class CustodyWhitelistRequestTrigger(BaseTrigger):
    """
    Poll until a whitelisting request has taken effect.

    Fires once: ``{"status": "effective", "result": ...}``, ``{"status": "timeout", "message": ...}`` or
    ``{"status": "error", "error": ...}``, the last also when it was rejected or is gone. A connection failure, a 5xx or
    a 429 is logged, and polls become rarer until the service answers again.

    All triggers of one connection and interval in a triggerer share one poll, on every version of Airflow: two
    calls for each hundred requests, and one more when some have taken effect.

    :param request_id: the request's id.
    :param effective_statuses: see the sensor.
    :param rejected_statuses: see the sensor.
    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param poke_interval: seconds between two polls. Default 60.
    :param deadline: Unix time in seconds after which the wait times out. None (default): no end.
    """

    def __init__(
        self,
        *,
        request_id: str,
        effective_statuses: Iterable[str] | None = None,
        rejected_statuses: Iterable[str] = ("rejected",),
        custody_conn_id: str = CustodyHook.default_conn_name,
        poke_interval: float = 60.0,
        deadline: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.request_id = str(request_id)
        self.effective_statuses = None if effective_statuses is None else list(effective_statuses)
        self.rejected_statuses = list(rejected_statuses)
        self.custody_conn_id = custody_conn_id
        self.poke_interval = poke_interval
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        names = (
            "request_id",
            "effective_statuses",
            "rejected_statuses",
            "custody_conn_id",
            "poke_interval",
            "deadline",
        )
        path = f"{CustodyWhitelistRequestTrigger.__module__}.{CustodyWhitelistRequestTrigger.__qualname__}"
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for what the shared poll brings for this request."""
        poll = _SharedPoll.of(self.custody_conn_id, float(self.poke_interval))
        with poll.watching(self.request_id) as looks:
            yield await first_event(
                looks, self._meaning, deadline=self.deadline, interval=float(self.poke_interval), log=self.log
            )

    def _meaning(self, look: Look) -> TriggerEvent | str:
        from airflow_custody.client.progress import judge_progress

        if look.listed is None:
            return after_error(look.error or CustodyError("nothing was seen", retryable=True))
        progress = judge_progress(
            look.listed, effective_statuses=self.effective_statuses, rejected_statuses=self.rejected_statuses
        )
        words = progress.summary(self.request_id)
        if progress.state == "waiting":
            return words
        if progress.state == "effective":
            return event("effective", result=progress.to_json(self.request_id))
        return event("error", error=CustodyConflictError(words).to_json())


class _SharedPoll:
    """Ask for all requests that triggers of this process wait for, together."""

    _running: dict[tuple[int, str, float], _SharedPoll] = {}  # noqa: RUF012 - one registry for the process

    def __init__(self, key: tuple[int, str, float]) -> None:
        self._key = key
        self._hook = CustodyHook(key[1])
        self._waiting: dict[str, set[asyncio.Queue[Look]]] = {}
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, custody_conn_id: str, interval: float) -> _SharedPoll:
        """Return the poll of a connection and interval in this event loop."""
        key = (id(asyncio.get_running_loop()), custody_conn_id, interval)
        return cls._running.setdefault(key, cls(key))

    @contextlib.contextmanager
    def watching(self, request_id: str) -> Any:
        """Yield the looks at one request, for as long as somebody wants them."""
        queue: asyncio.Queue[Look] = asyncio.Queue()
        self._waiting.setdefault(request_id, set()).add(queue)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._poll())
        try:
            yield _taken_from(queue)
        finally:
            self._waiting[request_id].discard(queue)
            if not self._waiting[request_id]:
                del self._waiting[request_id]
            if not self._waiting:
                self._task.cancel()
                self._running.pop(self._key, None)

    async def _poll(self) -> None:
        polls = failures = 0
        try:
            # Whoever else starts at the same time is asked for as well.
            await asyncio.sleep(0.1)
            while True:
                asked = {each: list(queues) for each, queues in self._waiting.items()}
                # The same client as in every other mode, in a thread.
                looks = await asyncio.to_thread(_look, self._hook, list(asked))
                polls += 1
                error = next((look.error for look in looks.values() if look.error), None)
                failures = failures + 1 if error else 0
                for each, queues in asked.items():
                    for queue in queues:
                        queue.put_nowait(looks[each])
                await asyncio.sleep(pause(self._key[2], {}, polls, failures, error))
        finally:
            self._hook.close()


async def _taken_from(queue: asyncio.Queue[Look]) -> AsyncIterator[Look]:
    while True:
        yield await queue.get()


def _look(hook: CustodyHook, ids: list[str]) -> dict[str, Look]:
    """Look where requests are listed, in a worker thread."""
    from airflow_custody.client.progress import find_listed

    try:
        found = find_listed(hook.get_conn(), ids)
    except CustodyError as error:
        return dict.fromkeys(ids, Look(error=error))
    except Exception as exception:
        return dict.fromkeys(ids, Look(error=unforeseen(exception, "look at whitelisting requests")))
    return {each: Look(listed=listed) for each, listed in found.items()}
