"""The poll of the journal of webhook calls that all watchers of a connection share, and what moves their cursors."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import ascii_lower
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers._waiting import within

try:
    from airflow.triggers.shared_stream import SharedStreamProducer
except ImportError:  # Before Airflow 3.3.
    SharedStreamProducer = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import AdvanceItem

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.webhooks.journal import CallCursor
    from airflow_custody.client.webhooks.models import WireWebhook
    from airflow_custody.client.webhooks.results import NewCalls

#: Maximum number of calls that one poll reads, and so what a watcher takes of a backlog at each poll.
MAX_CALLS_PER_POLL = 10_000
#: Seconds after which the webhooks are listed again, and reported if they may not write.
WEBHOOKS_REPORTED_EVERY = 3600.0

#: Seconds between Airflow's word that it has the events and the saving of a cursor; at most a poll's interval. Of a
#: watcher that was just removed, as its DAG was paused, Airflow drops the event and says the same. Then it ends it.
SAVE_DELAY = 2.0


log = logging.getLogger(__name__)


class Webhooks:
    """
    The webhooks of a connection: listed when somebody needs them, by one thread at a time.

    :ivar listed: the webhooks, as they were listed last.
    """

    def __init__(self) -> None:
        self.listed: tuple[WireWebhook, ...] = ()
        self._lock = threading.Lock()
        self._listed_at = float("-inf")
        # Webhooks that a listing did not show, although the journal had shown a call to them.
        self._gone: set[str] = set()

    def refresh(self, client: CustodyClient) -> None:
        """List the webhooks if that was long ago. A failure is no trouble: it is tried again as late."""
        with self._lock:
            if time.monotonic() - self._listed_at >= WEBHOOKS_REPORTED_EVERY:
                self._listed_at = time.monotonic()
                with suppress(CustodyError):
                    self._list(client)

    def types(self, client: CustodyClient, webhook_ids: Iterable[str]) -> dict[str, str]:
        """
        Return the types of the webhooks that there are, by id in lower case.

        :param client: lists them if one is not known yet.
        :param webhook_ids: ids of those that are asked for.
        :raises CustodyError: if they cannot be listed.
        """
        with self._lock:
            unknown = {ascii_lower(each) for each in webhook_ids} - self._types().keys() - self._gone
            if unknown:
                self._list(client)
                self._gone |= unknown - self._types().keys()
            return self._types()

    def _types(self) -> dict[str, str]:
        return {ascii_lower(each["id"]): each.get("type") or "" for each in self.listed}

    def _list(self, client: CustodyClient) -> None:
        self.listed = tuple(client.list_webhooks())
        self._gone.clear()


class Backlogs:
    """Readings that watchers make by themselves: those with the same cursor, after a restart say, read once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: dict[str, threading.Lock] = {}
        self._read: dict[str, NewCalls | CustodyError] = {}

    def read(
        self,
        client: CustodyClient,
        cursor: CallCursor | None,
        start: Literal["now", "beginning"],
        *,
        base_url_changed: bool = False,
    ) -> NewCalls:
        """
        Read what is new after a cursor, in a thread, or return what another watcher has read.

        :param client: reads it.
        :param cursor: the cursor; None: there is none.
        :param start: start without a cursor.
        :param base_url_changed: whether the cursor is of a journal that had another base URL.
        :raises CustodyError: if it cannot be read.
        """
        from airflow_custody.client.webhooks.base_url_change import read_after_base_url_change

        key = json.dumps([base_url_changed, None if cursor is None else cursor.to_json()])
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:
            if key not in self._read:
                try:
                    if cursor is not None and base_url_changed:
                        self._read[key] = read_after_base_url_change(client, cursor, limit=MAX_CALLS_PER_POLL)
                    else:
                        self._read[key] = client.read_webhook_calls(cursor, start=start, limit=MAX_CALLS_PER_POLL)
                except CustodyError as error:
                    self._read[key] = error
            found = self._read[key]
        if isinstance(found, CustodyError):
            raise found
        return found


@dataclass(eq=False)
class SharedReading:
    """
    The result of one poll of the journal, for all watchers.

    :param number: its number, from 1 on.
    :param service: names the service whose journal it is.
    :param known: the poll's cursor before; None: it is the first.
    :param new: the calls that were new to it.
    :param webhooks: the connection's webhooks.
    :param backlogs: further readings of the watchers.
    :param savers: for each watcher that has handed over all its events, what saves its cursor.
    """

    number: int
    service: str
    known: CallCursor | None
    new: NewCalls
    webhooks: Webhooks
    backlogs: Backlogs = field(default_factory=Backlogs)
    savers: dict[object, Callable[[], Awaitable[None]]] = field(default_factory=dict)


class JournalPoll:
    """
    The shared poll of the journal. Its own cursor starts at the present, and is nobody's but its own.

    :param custody_conn_id: id of the Airflow connection.
    :param poke_interval: seconds between two polls.
    """

    def __init__(self, custody_conn_id: str, poke_interval: float) -> None:
        self._custody_conn_id = custody_conn_id
        self._interval = poke_interval
        self._webhooks = Webhooks()
        self._service = ""
        self._cursor: CallCursor | None = None
        #: Number of readings that were given out.
        self.number = 0

    async def readings(self) -> AsyncIterator[SharedReading]:
        """
        Yield what each poll finds, also if that is nothing new.

        A failure is logged and waited out, also if waiting alone will not help: Airflow restarts a trigger each second.
        """
        while True:
            poll: SharedPoll[tuple[str, NewCalls]] = SharedPoll(
                object(), self._custody_conn_id, self._fetch, self._interval
            )
            with poll.subscribe(self) as results:
                while (result := await results.get()) is not None:
                    if isinstance(result, CustodyError):
                        self._log_failure(result)
                        continue
                    service, new = result
                    known = self._cursor if service == self._service else None
                    self._service, self._cursor = service, new.cursor
                    self.number += 1
                    yield SharedReading(self.number, service, known, new, self._webhooks)
            # The poll has died; a watch goes on.
            await asyncio.sleep(self._interval)

    def update(self, found: tuple[str, NewCalls]) -> tuple[str, NewCalls]:
        """Return what was found."""
        return found

    def _fetch(self, client: CustodyClient, subjects: Sequence[object]) -> tuple[str, NewCalls]:
        """Read what is new, in a thread."""
        service = service_of(client)
        cursor = self._cursor if service == self._service else None
        new = client.read_webhook_calls(cursor, limit=MAX_CALLS_PER_POLL)
        self._webhooks.refresh(client)
        return service, new

    def _log_failure(self, error: CustodyError | None) -> None:
        transient = error is not None and error.transient
        log.log(
            logging.WARNING if transient else logging.ERROR,
            "Webhook calls of connection %r cannot be read; it is tried again, and no watcher's cursor moves: %s",
            self._custody_conn_id,
            error,
        )


class JournalProducer(SharedStreamProducer):
    """
    The journal as a shared stream in Airflow's acknowledgement mode.

    A reading is acknowledged when every watcher that it was given to has passed on, and Airflow has the events that
    they fired in its database. Then the watchers' cursors are saved, and only then. A reading that somebody failed to
    acknowledge saves none: the next one's cursors cover it.

    :param custody_conn_id: id of the Airflow connection.
    :param poke_interval: seconds between two polls.
    """

    def __init__(self, custody_conn_id: str, poke_interval: float) -> None:
        self._poll = JournalPoll(custody_conn_id, poke_interval)
        self._save_delay = min(poke_interval, SAVE_DELAY)
        self._last_distrusted = 0
        self._closed = asyncio.Event()

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield each reading, as event and as what belongs to it."""
        try:
            while True:
                try:
                    async for reading in self._poll.readings():
                        yield reading, reading
                except Exception:
                    # Raising would end the watchers.
                    log.exception("The poll of webhook calls failed; it is started again")
                    await asyncio.sleep(1)
        finally:
            self._closed.set()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Save the cursors of the watchers whose events Airflow has in its database. Raises nothing."""
        savers: dict[object, Callable[[], Awaitable[None]]] = {}
        for item in batch:
            reading: SharedReading = item.broker_payload
            if not item.outcome.is_clean:
                # Somebody's events are in doubt, and nothing says whose. Readings that were given out already may
                # hold a cursor of the same watcher that covers those events; to a later one it does not come.
                self._last_distrusted = self._poll.number
            elif reading.number > self._last_distrusted:
                # One watcher's later cursor covers the earlier one.
                savers.update(reading.savers)
        if savers:
            with suppress(asyncio.TimeoutError):
                await within(self._save_delay, self._closed.wait())
        if savers and not self._closed.is_set():
            saving: asyncio.Future[Any] = asyncio.gather(*(save() for save in savers.values()), return_exceptions=True)
            closed: asyncio.Future[Any] = asyncio.ensure_future(self._closed.wait())
            # When the triggerer ends, nobody is there any more to say that a cursor was saved.
            await asyncio.wait({saving, closed}, return_when=asyncio.FIRST_COMPLETED)
            closed.cancel()
            saving.cancel()


def service_of(client: CustodyClient) -> str:
    """Return the name of a client's service, as it is stored."""
    from airflow_custody.client.webhooks.base_url_change import name_service

    return name_service(client.settings.base_url)
