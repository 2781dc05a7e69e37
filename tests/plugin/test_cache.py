"""How the service is asked: at most once at a time, rarely, in few threads, and nobody waits for long."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow_runs import AIRFLOW
from clocks import Clock

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyServerError
from airflow_custody.plugin import cache
from airflow_custody.plugin.access import CustodyConnection, _digest
from airflow_custody.plugin.cache import LIFETIME, MAX_AGE, MAX_OTHERS, Question, Reading, Readings
from airflow_custody.plugin.threads import MAX_QUEUED_OF_ONE, MAX_THREADS


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def readings(clock: Clock) -> Readings:
    return Readings(clock=clock)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Return what a service that hangs waits for; it is open at the end."""
    event = threading.Event()
    yield event
    event.set()


def question(
    read: Callable[[CustodyClient], Any],
    conn_id: str = "custody_a",
    key: Any = "overview",
    *,
    password: str = "s",
    **extra: Any,
) -> Question[Any]:
    connection = Connection(
        conn_id=conn_id, conn_type="custody", host="https://a.example.com", password=password, extra=json.dumps(extra)
    )
    return Question(CustodyConnection(conn_id, connection, digest=_digest(connection)), key, read)


class Service:
    """Counts how often it is asked; waits for the gate if it has one."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.asked = 0
        self._gate = gate

    def __call__(self, client: CustodyClient) -> int:
        self.asked += 1
        if self._gate is not None:
            self._gate.wait(600)
        return self.asked


def ask(readings: Readings, *questions: Question[Any], budget: float = 10.0) -> list[Reading[Any]]:
    return asyncio.run(readings.read_all(questions, budget=budget))


def test_two_people_at_once_ask_once(readings: Readings) -> None:
    opened = threading.Event()
    service = Service(opened)

    async def two() -> list[list[Reading[Any]]]:
        threading.Timer(0.1, opened.set).start()
        return await asyncio.gather(*(readings.read_all([question(service)]) for _ in range(2)))

    assert asyncio.run(two()) == [[Reading(1)], [Reading(1)]]
    assert service.asked == 1


def test_asked_again_only_after_a_while(readings: Readings, clock: Clock) -> None:
    service = Service()
    assert ask(readings, question(service)) == [Reading(1)]
    clock.now += 14.9
    assert ask(readings, question(service)) == [Reading(1)]
    clock.now += 0.1
    assert ask(readings, question(service)) == [Reading(2)]


def test_nothing_that_was_read_is_shown_of_a_changed_connection(readings: Readings, clock: Clock) -> None:
    service = Service()
    assert ask(readings, question(service)) == [Reading(1)]
    for _ in range(3):
        (changed,) = ask(readings, question(service, timeout=7))
        assert (changed.value, changed.late) == (None, True)
        assert "was changed" in changed.problem
    assert ask(readings, question(service)) == [Reading(1)]
    clock.now += LIFETIME
    assert ask(readings, question(service, timeout=7)) == [Reading(2)]
    assert ask(readings, question(service))[0].value is None
    assert service.asked == 2


def test_nor_what_is_being_read_when_it_changes(readings: Readings, clock: Clock, gate: threading.Event) -> None:
    assert ask(readings, question(Service(gate)), budget=0.05) == [Reading(late=True)]
    begin = time.monotonic()
    assert "was changed" in ask(readings, question(Service(), timeout=7))[0].problem
    assert time.monotonic() - begin < 5
    clock.now += LIFETIME
    gate.set()
    assert ask(readings, question(Service(gate))) == [Reading(1)]
    # It began long enough ago.
    assert ask(readings, question(Service(), timeout=7)) == [Reading(1)]


def test_a_new_token_at_each_look_up_makes_no_reading_more(readings: Readings, clock: Clock) -> None:
    service = Service()
    for number in range(50):
        assert ask(readings, question(service, password=f"token-{number}")) == [Reading(1)]
        ask(readings, question(Service(), key=("request", number), password=f"token-{number}"))
    assert len([key for _, key in readings._entries if key == "overview"]) == 1
    assert len(readings._entries) == 1 + MAX_OTHERS
    clock.now += LIFETIME
    assert ask(readings, question(service, password="another")) == [Reading(2)]


def test_nor_does_an_extra_that_is_always_new(readings: Readings) -> None:
    service = Service()
    for number in range(50):
        ask(readings, question(service, note=number))
    assert service.asked == 1
    assert len(readings._entries) == 1


def test_a_service_that_hangs_is_shown_when_it_responds(readings: Readings, gate: threading.Event) -> None:
    slow = question(Service(gate))
    begin = time.monotonic()
    assert ask(readings, slow, question(Service(), "custody_b"), budget=0.2) == [Reading(late=True), Reading(1)]
    assert time.monotonic() - begin < 5
    gate.set()
    assert ask(readings, slow) == [Reading(1)]


def test_an_earlier_reading_is_shown_meanwhile(readings: Readings, clock: Clock, gate: threading.Event) -> None:
    ask(readings, question(Service()))
    clock.now += 100
    assert ask(readings, question(Service(gate)), budget=0.05) == [Reading(1, late=True)]
    clock.now += MAX_AGE
    assert ask(readings, question(Service(gate)), budget=0.05) == [Reading(late=True)]


def test_one_service_cannot_take_all_threads(readings: Readings, gate: threading.Event) -> None:
    hanging = [question(Service(gate), key=number) for number in range(MAX_OTHERS)]
    assert ask(readings, *hanging, question(Service(), "custody_b"), budget=1)[-1] == Reading(1)
    names = [each.name for each in threading.enumerate() if each.name == "custody-page"]
    assert 0 < len(names) <= MAX_THREADS
    gate.set()
    assert all(each.value for each in ask(readings, *hanging))


def test_threads_end_and_none_keeps_the_process_alive(readings: Readings, gate: threading.Event) -> None:
    ask(readings, question(Service(gate)), budget=0.01)
    threads = [each for each in threading.enumerate() if each.name == "custody-page"]
    assert [each.daemon for each in threads] == [True]
    gate.set()
    threads[0].join(600)
    assert not threads[0].is_alive()


def test_a_queue_is_only_its_own_connections(readings: Readings, clock: Clock, gate: threading.Event) -> None:
    for _ in range(2):
        hanging = [question(Service(gate), key=(clock.now, number)) for number in range(MAX_OTHERS)]
        refused = ask(readings, *hanging, budget=0.05)
        assert [each.late for each in refused] == [True] * MAX_OTHERS
        clock.now += LIFETIME
    problems = [each.problem for each in refused if each.problem]
    assert len(problems) == 2 * MAX_OTHERS - 1 - MAX_QUEUED_OF_ONE
    assert "Try again" in problems[0]
    # Neither the overview of this one, nor another connection has to wait.
    others = [question(Service()), *(question(Service(), f"custody_{number}") for number in range(20))]
    assert ask(readings, *others, budget=5) == [Reading(1)] * 21


def test_what_is_refused_shows_what_was_read_before_and_why(readings: Readings, clock: Clock) -> None:
    def fails(client: CustodyClient) -> None:
        raise CustodyServerError("away for maintenance")

    ask(readings, question(Service(), key=0), question(fails, key=1))
    clock.now += LIFETIME
    ask(readings, *(question(Service(), key=number) for number in range(2, MAX_OTHERS + 2)))
    shown, failed = ask(readings, question(Service(), key=0), question(Service(), key=1))
    assert (shown.value, shown.late, failed.value, failed.late) == (1, True, None, True)
    # That it has failed before is not how it is now.
    assert "the service was not asked" in shown.problem
    assert shown.problem == failed.problem


def test_readings_of_one_connection_are_bounded_in_time(readings: Readings, clock: Clock) -> None:
    service = Service()
    asked = [question(service, key=number) for number in range(MAX_OTHERS + 5)]
    made = [ask(readings, each)[0] for each in asked]
    assert service.asked == MAX_OTHERS
    assert {each.value for each in made[MAX_OTHERS:]} == {None}
    assert all("15 seconds" in each.problem and each.late for each in made[MAX_OTHERS:])
    assert ask(readings, question(Service()), question(Service(), "custody_b", key=1)) == [Reading(1), Reading(1)]
    clock.now += LIFETIME
    assert ask(readings, asked[-1])[0].value == MAX_OTHERS + 1


def test_old_readings_are_forgotten(readings: Readings, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_KEPT_OF_ONE", 5)
    monkeypatch.setattr(cache, "MAX_KEPT", 8)
    monkeypatch.setattr(cache, "MAX_OVERVIEWS", 3)
    ask(readings, question(Service()))
    for conn_id, number in ((conn_id, number) for conn_id in ("custody_a", "custody_b") for number in range(10)):
        ask(readings, question(Service(), conn_id, key=number))
    kept = list(readings._entries)
    assert [key for conn_id, key in kept if conn_id == "custody_b"] == [5, 6, 7, 8, 9]
    assert [key for conn_id, key in kept if conn_id == "custody_a"] == ["overview", 8, 9]
    for number in range(5):
        ask(readings, question(Service(), f"custody_{number}"))
    # As long as one may not be read again, it is kept.
    assert sum(key == "overview" for _, key in readings._entries) == 6
    clock.now += LIFETIME
    ask(readings, question(Service(), "custody_5"))
    assert [conn_id for conn_id, key in readings._entries if key == "overview"] == [
        "custody_3",
        "custody_4",
        "custody_5",
    ]
    clock.now += MAX_AGE + 1
    ask(readings, question(Service()))
    assert len(readings._entries) == 1
    assert not readings._begun


def test_what_breaks_badly_is_an_error_and_is_asked_again(
    readings: Readings, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class PanicError(BaseException):
        """As libraries raise that are written in Rust."""

    def breaks(client: CustodyClient) -> None:
        raise PanicError

    def cannot(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    assert "log of the API server" in ask(readings, question(breaks), budget=2)[0].problem
    clock.now += LIFETIME
    assert ask(readings, question(Service())) == [Reading(1)]
    clock.now += LIFETIME
    for conn_id, value in (("custody_a", 1), ("custody_b", None)):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", cannot)
            (found,) = ask(readings, question(Service(), conn_id), budget=2)
        assert (found.value, found.late) == (value, True)
        assert "No thread can be started" in found.problem
        # The service was not asked: it may be, at once.
        assert ask(readings, question(Service(), conn_id)) == [Reading(1)]
    assert "never retrieved" not in caplog.text


def test_one_that_never_comes_back_is_asked_again(
    readings: Readings, clock: Clock, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(readings, question(Service())) == [Reading(1)]
    clock.now += LIFETIME
    monkeypatch.setattr("airflow_custody.plugin.threads.GIVEN_UP_AFTER", 0.1)
    monkeypatch.setattr(readings._threads, "_slow_after", 0.05)
    (given_up,) = ask(readings, question(Service(gate)), budget=0.3)
    assert (given_up.value, given_up.late) == (1, True)
    assert "the reading was given up" in given_up.problem
    # Another that goes on is not given up.
    (going_on,) = ask(readings, question(Service(gate)), budget=0.01)
    assert going_on == Reading(1, late=True)


def test_one_that_was_never_read_has_not_changed(
    readings: Readings, clock: Clock, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(readings, question(Service(gate)), budget=0.01)
    monkeypatch.setattr("airflow_custody.plugin.threads.GIVEN_UP_AFTER", 0.0)
    assert "given up" in ask(readings, question(Service(gate)), budget=0.01)[0].problem
    monkeypatch.undo()
    assert ask(readings, question(Service())) == [Reading(1)]


def test_an_error_is_a_reading(readings: Readings, caplog: pytest.LogCaptureFixture) -> None:
    def fails(client: CustodyClient) -> None:
        raise CustodyServerError("away for maintenance")

    def breaks(client: CustodyClient) -> None:
        raise RuntimeError("secret")

    failed, broken, wrong = ask(
        readings,
        question(fails),
        question(breaks, key="other"),
        question(Service(), "custody_b", verify="/no/such/file.pem"),
    )
    assert "away for maintenance" in failed.problem
    assert "log of the API server" in broken.problem
    assert "secret" not in broken.problem
    assert "verify" in wrong.problem


@pytest.mark.parametrize("late", [False, True])
def test_a_connection_that_cannot_be_read(readings: Readings, late: bool) -> None:
    unreadable = Question(CustodyConnection("custody_a", problem="Not there.", late=late), "overview", Service())
    assert ask(readings, unreadable) == [Reading(problem="Not there.", late=late)]


def test_a_page_is_no_task_that_can_wait(readings: Readings) -> None:
    def settings(client: CustodyClient) -> tuple[float, int]:
        return client.settings.timeout, client.settings.max_retries

    given = ask(readings, question(settings, timeout=600, max_retries=9), question(settings, "custody_b", timeout=2))
    assert [each.value for each in given] == [(10.0, 0), (2.0, 0)]


def test_the_event_loop_goes_on(readings: Readings, gate: threading.Event) -> None:
    async def read_while_others_go_on() -> list[Reading[Any]]:
        reading = asyncio.create_task(readings.read_all([question(Service(gate))], budget=20))
        for _ in range(5):
            await asyncio.sleep(0.01)
        gate.set()
        return await reading

    # If nothing else went on, the gate would open too late.
    assert asyncio.run(read_while_others_go_on()) == [Reading(1)]


def test_who_leaves_cancels_nothing(readings: Readings) -> None:
    opened = threading.Event()
    service = Service(opened)

    async def leave_and_come_back() -> list[Reading[Any]]:
        leaving = asyncio.create_task(readings.read_all([question(service)]))
        await asyncio.sleep(0.05)
        leaving.cancel()
        threading.Timer(0.1, opened.set).start()
        return await readings.read_all([question(service)])

    assert asyncio.run(leave_and_come_back()) == [Reading(1)]


def test_a_mended_connection_does_not_wait_for_its_old_reading(
    readings: Readings, clock: Clock, gate: threading.Event
) -> None:
    ask(readings, question(Service(gate)), budget=0.05)
    assert "was changed" in ask(readings, question(Service(), timeout=7))[0].problem
    clock.now += LIFETIME
    assert ask(readings, question(Service(), timeout=7)) == [Reading(1)]
    # No more than two at once.
    clock.now += LIFETIME
    assert ask(readings, question(Service(gate), timeout=8), budget=0.05) == [Reading(late=True)]
    clock.now += LIFETIME
    assert "was changed" in ask(readings, question(Service(), timeout=9))[0].problem
    gate.set()
    ask(readings, question(Service(), timeout=8))
    clock.now += LIFETIME
    assert ask(readings, question(Service(), timeout=9)) == [Reading(1)]
