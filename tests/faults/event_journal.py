"""The journal that the service writes while things break, and what Airflow has seen of it."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from event_names import HOOKS, WEBHOOKS
from scenario_run import Service


@dataclass(frozen=True)
class Call:
    """
    A call that the service has written.

    :param row: the fault during which it was written.
    :param webhook_id: its webhook.
    :param is_late: whether its time stamp is older than the time at which it was written.
    """

    row: str
    webhook_id: str
    is_late: bool


class Journal:
    """
    The service's journal of calls.

    :param service: the sandbox. While it is killed, calls wait to be written.
    :param seed: of the random moments.
    """

    def __init__(self, service: Service, seed: int) -> None:
        self.service = service
        self.calls: dict[str, Call] = {}
        self._seed = seed
        self._lock = threading.Lock()

    def write(self, row: str, number: int, *, seconds: float = 0.0, stamps: str = "") -> None:
        """
        Write calls at random moments.

        :param row: the fault during which they are written.
        :param number: how many.
        :param seconds: in about which time. Default: at once.
        :param stamps: ``late``: created earlier than calls that are known; ``equal``: several with one time stamp.
        """
        self._write(row, number, seconds, stamps, threading.Event())

    @contextmanager
    def writing(self, row: str, number: int, seconds: float) -> Iterator[None]:
        """
        Write calls while something happens.

        If that takes longer, the last third of them comes more slowly; if it takes less, the rest comes at the end.
        """
        failures: list[Exception] = []
        done = threading.Event()

        def write() -> None:
            try:
                self._write(row, number - number // 3, seconds, "", done)
                self._write(row, number // 3, 3 * seconds, "", done)
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if failures:
            raise failures[0]

    def _write(self, row: str, number: int, seconds: float, stamps: str, at_once: threading.Event) -> None:
        moments = random.Random(f"{self._seed} {number} calls of {row}")
        stamp = _now()
        for index in range(number):
            if seconds:
                at_once.wait(min(moments.expovariate(number / seconds), 4 * seconds / number))
            fields: dict[str, Any] = {"webhookId": moments.choice(HOOKS), "eventId": f"{row}, {index + 1}"}
            if stamps == "late":
                fields["createdAt"] = _now(-moments.uniform(1, 60))
            if stamps == "equal":
                stamp = stamp if index % 8 else _now()
                fields["createdAt"] = stamp
            with self._lock:
                (call_id,) = self.service.control.add_webhook_calls(1, payload=json.dumps({"row": row}), **fields)
                self.calls[call_id] = Call(row, fields["webhookId"], bool(stamps))

    def is_for(self, call_id: str, consumer: str) -> bool:
        """Tell whether a consumer is for a call's webhook."""
        return self.calls[call_id].webhook_id in WEBHOOKS[consumer]

    def kill_service(self, down: float) -> None:
        """Kill the service, and restart it with its state."""
        with self._lock:
            self.service.kill()
            time.sleep(down)
            self.service.start()


class Kills:
    """
    The processes that were killed.

    :param log: file that tells when.
    """

    def __init__(self, log: Path) -> None:
        self.numbers: dict[str, int] = {}
        self._log = log

    def add(self, what: str) -> None:
        """Add one."""
        self.numbers[what] = self.numbers.get(what, 0) + 1
        self.note(f"killed: {what}")

    def note(self, text: str) -> None:
        """Write to the log when something happened."""
        with self._log.open("a") as log:
            log.write(f"{_now()} {text}\n")


@dataclass
class Seen:
    """
    What one consumer has seen, by the asset events in Airflow's database.

    :param times: how often each call was seen, in the order of first appearance.
    :param disorder: in words, which call came after a later one.
    :param gaps: the gaps that events report.
    """

    times: dict[str, int] = field(default_factory=dict)
    disorder: dict[str, str] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    _newest: dict[str, str] = field(default_factory=dict)

    def add(self, event: dict[str, Any], calls: dict[str, Call]) -> None:
        """Add the event of a consumer; ``calls`` are those that were written."""
        if event["gap"]:
            self.gaps.append(event["gap"])
        # Of many calls, an event has only the ids.
        for call_id in event["call_ids"] if "call_ids" in event else [row["id"] for row in event["calls"]]:
            call = calls.get(call_id)
            if call_id not in self.times and call is not None and not call.is_late:
                # The ids are numbers that count up.
                newest = self._newest.get(call.webhook_id, call_id)
                if int(call_id) < int(newest):
                    self.disorder[call_id] = newest
                self._newest[call.webhook_id] = max(newest, call_id, key=int)
            self.times[call_id] = self.times.get(call_id, 0) + 1


def read_events(database: Path, calls: dict[str, Call]) -> dict[str, Seen]:
    """Return what each consumer has seen."""
    seen = {name: Seen() for name in WEBHOOKS}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        rows = connection.execute(
            "SELECT asset.uri, asset.name, asset_event.extra FROM asset_event "
            "JOIN asset ON asset.id = asset_event.asset_id ORDER BY asset_event.id"
        ).fetchall()
    for uri, name, extra in rows:
        event = json.loads(extra)
        event = event.get("payload", event)
        consumer = uri if uri in seen else name
        if consumer in seen:
            seen[consumer].add(event, calls)
    return seen


def _now(seconds: float = 0.0) -> str:
    time_ = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return time_.isoformat(timespec="microseconds").replace("+00:00", "Z")
