"""The journal that the service writes during the faults, and the calls that Airflow has seen of it."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import Service

#: Id of the Airflow connection.
CONNECTION = "events"
HOOKS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
# The consumers, by their assets: two watchers and the reading task.
FIRST, SECOND = "calls_first", "calls_second"
READ = f"custody://{CONNECTION}/webhook-calls"
#: The webhooks whose calls each consumer reads.
WEBHOOKS = {FIRST: HOOKS[:1], SECOND: HOOKS[1:], READ: HOOKS}
#: Name of the file with the ids of the reading task's process and of its supervisor's.
PID_FILE = "read.pid"
#: How many calls are written per second during a fault.
CALLS_PER_SECOND = 3.0


@dataclass(frozen=True)
class Call:
    """
    A call that the service has written.

    :param fault: the fault during which it was written.
    :param webhook_id: its webhook.
    """

    fault: str
    webhook_id: str

    def is_for(self, consumer: str) -> bool:
        """Tell whether a consumer reads the call's webhook."""
        return self.webhook_id in WEBHOOKS[consumer]


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
        self._moments = random.Random(f"{seed} journal")
        self._lock = threading.Lock()

    def write(self, fault: str) -> None:
        """Write a call."""
        with self._lock:
            webhook_id = self._moments.choice(HOOKS)
            payload = json.dumps({"fault": fault})
            (call_id,) = self.service.control.add_webhook_calls(1, payload=payload, webhookId=webhook_id)
            self.calls[call_id] = Call(fault, webhook_id)

    @contextmanager
    def written(self, fault: str) -> Iterator[None]:
        """Write calls at random moments, during a fault."""
        done = threading.Event()
        moments = random.Random(f"{self._seed} {fault}")

        def write() -> None:
            while not done.wait(min(moments.expovariate(CALLS_PER_SECOND), 2.0)):
                self.write(fault)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                yield
            finally:
                done.set()
        writing.result()

    def cut_off(self, fault: str, number: int, kept: int) -> None:
        """Write calls, of which the service keeps the last ones only."""
        for _ in range(number):
            self.write(fault)
        self.service.control.configure(calls={"max_number": kept})
        for call_id in [*self.calls][-number:-kept]:
            del self.calls[call_id]

    def kill_service(self, down: float) -> None:
        """Kill the service, and restart it with its state."""
        with self._lock:
            self.service.kill()
            time.sleep(down)
            self.service.start()


@dataclass
class Seen:
    """
    What one consumer has seen, by the asset events in Airflow's database.

    :param times: how often each call was seen, in the order of first appearance.
    :param disorder: in words, which call came after a later one.
    :param gaps: the gaps that events report.
    """

    times: Counter[str] = field(default_factory=Counter)
    disorder: dict[str, str] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    _newest: dict[str, str] = field(default_factory=dict)

    def add(self, event: dict[str, Any], calls: dict[str, Call]) -> None:
        """Add the event of a consumer; ``calls`` are those that were written."""
        if event["gap"]:
            self.gaps.append(event["gap"])
        # If there are many calls, the event only has their ids.
        for call_id in event["call_ids"] if "call_ids" in event else [call["id"] for call in event["calls"]]:
            call = calls.get(call_id)
            if call_id not in self.times and call is not None:
                # The ids are increasing numbers.
                newest = self._newest.get(call.webhook_id, call_id)
                if int(call_id) < int(newest):
                    self.disorder[call_id] = newest
                self._newest[call.webhook_id] = max(newest, call_id, key=int)
            self.times[call_id] += 1


def started_dags(database: Path) -> set[str]:
    """Return the ids of the DAGs that have runs."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        return {dag_id for (dag_id,) in connection.execute("SELECT dag_id FROM dag_run")}


def read_events(database: Path, calls: dict[str, Call]) -> dict[str, Seen]:
    """Return the calls that each consumer has seen."""
    seen = {name: Seen() for name in WEBHOOKS}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        rows = connection.execute(
            "SELECT asset.uri, asset.name, asset_event.extra FROM asset_event "
            "JOIN asset ON asset.id = asset_event.asset_id ORDER BY asset_event.id"
        ).fetchall()
    for uri, name, extra in rows:
        event = json.loads(extra)
        consumer = uri if uri in seen else name
        if consumer in seen:
            seen[consumer].add(event.get("payload", event), calls)
    return seen
