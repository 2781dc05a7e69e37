"""How services are read: one read at a time for a connection, four in all, and nobody waits for what hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.clocks import Clock

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyConnectionError
from airflow_custody.plugin import readings as module
from airflow_custody.plugin.readings import (
    HUNG_AFTER,
    LIFETIME,
    MAX_QUEUED_OF_ONE,
    MAX_READS,
    ConnectionKey,
    Question,
    Reading,
    Readings,
)

#: Seconds that a busy machine may take.
PATIENCE = 120


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def readings(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Readings:
    for letter in "abcdefgh":
        connection = {"conn_type": "custody", "host": f"https://{letter}.example.com", "password": "a-secret"}
        monkeypatch.setenv(f"AIRFLOW_CONN_CUSTODY_{letter.upper()}", json.dumps(connection))
    return Readings(clock)


class Service:
    """A service that counts how often it is read, and hangs if it is told to."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.begun = threading.Semaphore(0)
        self.gate = threading.Event()
        self.reads = 0
        if not hangs:
            self.gate.set()

    def __call__(self, client: CustodyClient) -> int:
        self.reads += 1
        number = self.reads
        self.thread = threading.current_thread()
        self.begun.release()
        assert self.gate.wait(PATIENCE)
        return number

    def wait_until_read(self) -> None:
        assert self.begun.acquire(timeout=PATIENCE)


@pytest.fixture
def hanging() -> Iterator[Callable[[], Service]]:
    """Return what makes services that hang until the test ends."""
    made: list[Service] = []

    def make() -> Service:
        made.append(Service(hangs=True))
        return made[-1]

    yield make
    for each in made:
        each.gate.set()


def question(read: Callable[[CustodyClient], Any], letter: str = "a", subject: Any = "overview") -> Question[Any]:
    return Question(ConnectionKey(f"custody_{letter}", None), subject, read)


def values(found: list[Reading[Any]]) -> list[Any]:
    return [each.value for each in found]


def test_read_again_only_after_a_while(readings: Readings, clock: Clock) -> None:
    service = Service()
    for now, expected in ((1000.0, 1), (999.9 + LIFETIME, 1), (1000.0 + LIFETIME, 2)):
        clock.now = now
        (reading,) = readings.get(question(service))
        assert (reading.value, reading.awaited_for) == (expected, None)


def test_nobody_waits_for_what_hangs(
    readings: Readings, clock: Clock, hanging: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = readings.get(question(Service()))
    monkeypatch.setattr(module, "WAIT", 0.0)
    clock.now += 100
    service = hanging()
    assert readings.get(question(service))[0].awaited_for == 0
    service.wait_until_read()
    clock.now += 50
    (reading,) = readings.get(question(service))
    # The latest is shown.
    assert (reading.value, reading.read_at, reading.awaited_for) == (1, before.read_at, 50)
    assert service.reads == 1
    # Another service is read meanwhile.
    monkeypatch.setattr(module, "WAIT", PATIENCE)
    assert values(readings.get(question(Service(), "b"))) == [1]
    assert not service.gate.is_set()
    # Nor does the process wait that ends.
    assert all(each.daemon for each in threading.enumerate() if each.name == "custody-page")


def test_one_at_a_time_of_a_connection_and_four_in_all(
    readings: Readings, hanging: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    services = {each: hanging() for each in "abcde"}
    monkeypatch.setattr(module, "WAIT", 0.0)
    own = [question(services["a"], subject=number) for number in range(3)]
    others = [question(services[each], each) for each in "bcde"]
    readings.get(*own, *others)
    for each in "abcd":
        services[each].wait_until_read()
    assert [each.reads for each in services.values()] == [1, 1, 1, 1, 0]
    assert sum(each.name == "custody-page" for each in threading.enumerate()) >= MAX_READS
    for service in services.values():
        service.gate.set()
    monkeypatch.setattr(module, "WAIT", PATIENCE)
    assert values(readings.get(*own, *others)) == [1, 2, 3, 1, 1, 1, 1]


def test_what_hangs_gives_its_slot_away_and_takes_two_threads_at_most(
    readings: Readings, clock: Clock, hanging: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    services = [hanging() for _ in range(MAX_READS)]
    monkeypatch.setattr(module, "WAIT", 0.0)
    asked = [question(each, letter) for each, letter in zip(services, "abcd", strict=True)]
    readings.get(*asked)
    for each in services:
        each.wait_until_read()
    assert readings.get(question(Service(), "e"))[0].value is None
    clock.now += HUNG_AFTER
    monkeypatch.setattr(module, "WAIT", PATIENCE)
    assert values(readings.get(question(Service(), "e"))) == [1]
    # So may those that hang, and what comes late is not shown in place of what is newer.
    newer = Service()
    newer.reads = 6
    assert values(readings.get(question(newer, "a"))) == [7]
    services[0].gate.set()
    services[0].thread.join(PATIENCE)
    assert values(readings.get(question(newer, "a"))) == [7]
    # What always hangs is not read a third time.
    monkeypatch.setattr(module, "WAIT", 0.0)
    readings.get(asked[1])
    services[1].wait_until_read()
    clock.now += HUNG_AFTER
    assert values(readings.get(asked[1])) == [None]
    assert services[1].reads == 2


def test_the_queue_of_a_connection_is_bounded(
    readings: Readings, hanging: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = hanging()
    monkeypatch.setattr(module, "WAIT", 0.0)
    readings.get(*(question(service, subject=number) for number in range(2 * MAX_QUEUED_OF_ONE)))
    assert len(readings._queued) == MAX_QUEUED_OF_ONE
    monkeypatch.setattr(module, "WAIT", PATIENCE)
    assert values(readings.get(question(Service(), "b"))) == [1]


def test_old_readings_are_forgotten(readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 3)
    for number in range(5):
        readings.get(question(Service(), subject=number))
    assert [each.subject for each in readings._latest] == [2, 3, 4]


def test_the_latest_is_shown_although_later_reads_bring_nothing(
    readings: Readings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(client: CustodyClient) -> None:
        raise CustodyConnectionError("reset by peer", operation="list")

    (before,) = readings.get(question(Service()))
    for _ in range(3):
        clock.now += LIFETIME
        (reading,) = readings.get(question(fails))
        assert (reading.value, reading.read_at) == (1, before.read_at)
        assert "list failed: unreachable." in reading.problem
    clock.now += LIFETIME
    assert readings.get(question(Service()))[0].problem == ""
    monkeypatch.setattr(module, "MAX_AGE", timedelta(0))
    clock.now += LIFETIME
    assert values(readings.get(question(fails))) == [None]


def test_a_row_that_the_database_finds_by_another_casing(readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    row = Connection("CUSTODY_X", "custody", host="https://a.example.com", password="s")
    monkeypatch.setattr(Connection, "get_connection_from_secrets", lambda conn_id, team_name=None: row)
    service = Service()
    assert "not defined" in readings.get(question(service, "x"))[0].problem
    assert service.reads == 0
