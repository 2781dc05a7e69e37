"""The trigger of webhook calls: the events that it fires, and when its cursor moves."""

from __future__ import annotations

import asyncio
import random

import pytest
from support.airflow.airflow_runs import AIRFLOW

from airflow_custody.sandbox import Sandbox

if AIRFLOW < (3, 3):
    pytest.skip("Airflow cannot acknowledge events", allow_module_level=True)

from support.airflow.watcher_runs import (
    HOOK,
    OTHER_HOOK,
    Store,
    Triggerer,
    add_call,
    in_triggerers,
    next_polls,
    polls,
    until,
)

pytestmark = pytest.mark.usefixtures("connection")


@in_triggerers
async def test_fires_what_is_new_and_saves_its_cursor_when_airflow_has_it(sandbox: Sandbox) -> None:
    add_call(sandbox, "before")
    triggerer, store = await Triggerer.watching(confirms=False)
    assert store.known == {"before"}
    add_call(sandbox, "a")
    await until(lambda: triggerer.fired)
    ((_, payload, seq),) = triggerer.fired
    assert seq is not None
    assert payload["count"] == 1
    assert payload["calls"][0]["payload"] == {"of": "a"}
    assert payload["late_ids"] == []
    assert payload["gap"] == ""
    assert payload["more"] is False
    await next_polls(sandbox, 3)
    assert store.known == {"before"}
    triggerer.persist()
    await until(lambda: store.known == {"before", "a"})
    await next_polls(sandbox)
    assert triggerer.ids(1) == ["a"]
    assert triggerer.fired == []


@in_triggerers
async def test_all_watchers_of_a_connection_share_one_poll(sandbox: Sandbox) -> None:
    stores = {number: Store(str(number)) for number in range(1, 9)}
    triggerer = Triggerer()
    for number, store in stores.items():
        triggerer.start(number, store, webhook_ids=[HOOK if number % 2 else OTHER_HOOK], poke_interval=1.0)
    await until(lambda: all(store.values for store in stores.values()))
    sandbox.control.clear_request_log()
    add_call(sandbox, "a")
    add_call(sandbox, "b", OTHER_HOOK)
    await until(lambda: all(store.known == {"a", "b"} for store in stores.values()))
    # One watcher has found the calls. The other one may have been started since.
    assert polls(sandbox) <= 2
    assert [triggerer.ids(number) for number in stores] == [["a"], ["b"]] * 4


@in_triggerers
async def test_a_watcher_that_fails_keeps_its_cursor_and_the_others_go_on(sandbox: Sandbox) -> None:
    triggerer, good, bad = Triggerer(confirms=False, ack_timeout=0.6), Store("good"), Store("bad")
    triggerer.start(1, good, webhook_ids=[OTHER_HOOK])
    triggerer.start(2, bad)
    await until(lambda: good.values and bad.values)
    add_call(sandbox, "a")
    await until(lambda: triggerer.fired)
    # Readings after the one in doubt that both have passed: they hold cursors that know "a".
    await next_polls(sandbox, 3)
    await until(lambda: triggerer.failures)
    assert "did not finish processing" in str(triggerer.failures)
    await next_polls(sandbox, 3)
    assert bad.known == set()
    await until(lambda: good.known == {"a"})
    # Do what Airflow does: start the watcher again, with a cursor that has not moved.
    triggerer.confirms, triggerer.fired = True, []
    triggerer.start(2, bad)
    await until(lambda: triggerer.ids(2) == ["a"] and bad.known == {"a"})


@in_triggerers
async def test_a_watcher_that_is_removed_right_after_an_event_keeps_its_cursor(sandbox: Sandbox) -> None:
    triggerer, removed = await Triggerer.watching(Store("removed"), confirms=False)
    other = Store("other")
    triggerer.start(2, other)
    await until(lambda: other.values)
    add_call(sandbox, "a")
    await until(lambda: {trigger_id for trigger_id, _, _ in triggerer.fired} == {1, 2})
    await next_polls(sandbox)
    # When the watcher's DAG is paused, Airflow drops the event, confirms it nevertheless, and then ends the watcher.
    triggerer.persist()
    await triggerer.stop(1)
    await until(lambda: other.known == {"a"})
    assert removed.known == set()


@in_triggerers
async def test_an_event_fired_when_the_triggerer_ends_moves_no_cursor(sandbox: Sandbox) -> None:
    triggerer, store = await Triggerer.watching(confirms=False)
    # When the triggerer ends, its messages are no longer read. Then it stops its shared streams and forgets them.
    store.hangs = True
    groups = dict(triggerer.streams._groups)
    triggerer.streams._groups.clear()
    add_call(sandbox, "a")
    await until(lambda: triggerer.fired)
    # The event that no consumer receives counts as acknowledged.
    assert triggerer.fired[0][2] is None
    await next_polls(sandbox, 3)
    for group in groups.values():
        await group.stop()
    await triggerer.kill()
    assert store.known == set()


@pytest.mark.parametrize("seed", range(3))
@in_triggerers
async def test_each_call_is_fired_at_least_once_and_in_order(sandbox: Sandbox, seed: int) -> None:
    chance = random.Random(seed)
    stores = {1: Store("one"), 2: Store("two")}
    webhooks = {1: None, 2: [HOOK]}
    expected: dict[int, list[str]] = {1: [], 2: []}
    seen: dict[int, list[str]] = {1: [], 2: []}
    triggerer = Triggerer(confirms=False, ack_timeout=0.3)

    def start(number: int) -> None:
        triggerer.start(number, stores[number], webhook_ids=webhooks[number], poke_interval=0.02)

    async def start_again(all_of_them: bool) -> None:
        for number, task in list(triggerer.tasks.items()):
            if task.done() or all_of_them:
                await triggerer.stop(number)
                start(number)

    start(1)
    start(2)
    await until(lambda: all(store.values for store in stores.values()))
    for step in range(40):
        for each in range(chance.randrange(3)):
            call_id, hook = f"{seed}-{step}-{each}", chance.choice([HOOK, OTHER_HOOK])
            await asyncio.to_thread(add_call, sandbox, call_id, hook)
            for number in (1, 2) if hook == HOOK else (1,):
                expected[number].append(call_id)
        await asyncio.sleep(chance.random() * 0.06)
        what = chance.random()
        if what < 0.6:
            triggerer.persist(chance.choice([None, 1]))
        elif what < 0.75:
            for number in seen:
                seen[number] += triggerer.ids(number)
            await triggerer.kill()
            triggerer = Triggerer(confirms=False, ack_timeout=0.3)
            start(1)
            start(2)
        await start_again(what > 0.93)
    triggerer.confirms = True
    triggerer.persist()
    for _ in range(30_000):
        if all({*seen[number], *triggerer.ids(number)} >= {*expected[number]} for number in expected):
            break
        await start_again(False)
        await asyncio.sleep(0.02)
    for number in expected:
        got = [*seen[number], *triggerer.ids(number)]
        assert {*got} == {*expected[number]}
        # Each call appears first in the order in which the calls were created.
        assert list(dict.fromkeys(got)) == expected[number]
