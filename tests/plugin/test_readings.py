"""How services are read: one read at a time for a connection, four in all, and no long wait for a read."""

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
from airflow_custody.plugin.page_hook import ConnectionKey
from airflow_custody.plugin.readings import LIFETIME, Query, Reading, Readings

#: Maximum time in seconds that a busy machine may need.
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


@pytest.fixture
def wait_again(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Do not wait for reads in routes, until the test calls this fixture."""
    monkeypatch.setattr(module, "WAIT", 0.0)
    return lambda: monkeypatch.setattr(module, "WAIT", PATIENCE)


class Service:
    """A service that counts its reads, and hangs if the test tells it to."""

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
    """Return a function that makes services which hang until the test ends."""
    made: list[Service] = []

    def make() -> Service:
        made.append(Service(hangs=True))
        return made[-1]

    yield make
    for service in made:
        service.gate.set()


def query(read: Callable[[CustodyClient], Any], letter: str = "a", subject: Any = "overview") -> Query[Any]:
    return Query(ConnectionKey(f"custody_{letter}", None), subject, read)


def values(found: list[Reading[Any]]) -> list[Any]:
    return [reading.value for reading in found]


@pytest.mark.parametrize(
    ("seconds", "reads"),
    [pytest.param(LIFETIME - 0.1, 1, id="current"), pytest.param(LIFETIME, 2, id="outdated")],
)
def test_a_reading_is_shown_for_its_lifetime(readings: Readings, clock: Clock, seconds: float, reads: int) -> None:
    service = Service()
    readings.get(query(service))
    clock.now += seconds
    (reading,) = readings.get(query(service))
    assert reading.value == reads
    assert not reading.is_awaited


def test_the_latest_reading_is_shown_while_a_read_hangs(
    readings: Readings, clock: Clock, hanging: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = readings.get(query(Service()))
    clock.now += LIFETIME
    service = hanging()
    monkeypatch.setattr(module, "WAIT", 0.0)
    for _ in range(2):
        (reading,) = readings.get(query(service))
        assert reading.value == 1
        assert reading.read_at == before.read_at
        assert reading.is_awaited
    service.wait_until_read()
    assert service.reads == 1
    # Meanwhile, the process can end.
    assert service.thread.daemon


def test_a_connection_is_read_once_at_a_time_and_does_not_keep_others_waiting(
    readings: Readings, hanging: Callable[[], Service], wait_again: Callable[[], None]
) -> None:
    service = hanging()
    queries = [query(service, subject=number) for number in range(10)]
    readings.get(*queries)
    service.wait_until_read()
    wait_again()
    assert values(readings.get(query(Service(), "b"))) == [1]
    assert service.reads == 1
    service.gate.set()
    assert sorted(values(readings.get(*queries))) == [*range(1, 11)]


def test_a_read_that_never_ends_is_given_up(
    readings: Readings, clock: Clock, hanging: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT", PATIENCE)
    monkeypatch.setattr(module, "MAX_DURATION", 0.1)
    stuck = [hanging() for _ in "abcd"]
    found = readings.get(*(query(service, letter) for service, letter in zip(stuck, "abcd", strict=True)))
    assert [each.problem for each in found] == ["Reading did not end. See the log of the API server."] * 4
    clock.now += LIFETIME
    monkeypatch.setattr(module, "MAX_DURATION", PATIENCE)
    # A read that hangs blocks neither its connection nor a place for another read.
    assert values(readings.get(*(query(Service(), letter) for letter in "abcde"))) == [1] * 5


def fails(client: CustodyClient) -> None:
    raise CustodyConnectionError("reset by peer", operation="list")


class TestAReadThatFails:
    def test_the_latest_value_is_shown(self, readings: Readings, clock: Clock) -> None:
        (before,) = readings.get(query(Service()))
        for _ in range(3):
            clock.now += LIFETIME
            (reading,) = readings.get(query(fails))
            assert reading.value == 1
            assert reading.read_at == before.read_at
            assert "list failed: unreachable." in reading.problem

    def test_the_problem_is_gone_after_a_success(self, readings: Readings, clock: Clock) -> None:
        readings.get(query(fails))
        clock.now += LIFETIME
        assert readings.get(query(Service()))[0].problem == ""

    def test_an_old_value_is_not_shown(self, readings: Readings, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        readings.get(query(Service()))
        monkeypatch.setattr(module, "MAX_AGE", timedelta(0))
        clock.now += LIFETIME
        assert values(readings.get(query(fails))) == [None]


def test_a_row_that_the_database_finds_by_an_id_in_another_case(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models.connection import Connection

    row = Connection("CUSTODY_X", "custody", host="https://a.example.com", password="s")
    monkeypatch.setattr(Connection, "get_connection_from_secrets", lambda conn_id, team_name=None: row)
    service = Service()
    assert "not defined" in readings.get(query(service, "x"))[0].problem
    assert service.reads == 0
