"""Promises to consumers of asset events: no event is skipped, and no event blocks the others."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset
from hypothesis import given
from hypothesis import strategies as st
from support.airflow.airflow_runs import FakeTaskInstance
from support.airflow.webhook_reads import TYPE, new_asset, write_calls

from airflow_custody.assets import UnhandledEvents, calls_of
from airflow_custody.client import CustodyClient, CustodyConfigurationError
from airflow_custody.sandbox import Sandbox

_FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Accessor:
    """The events of an inlet, in the form of Airflow 3.1 and later. Events with the same time come in random order."""

    def __init__(self, events: list[Any], fetched: list[int]) -> None:
        self._events = events
        self._limit: int | None = None
        self._fetched = fetched

    def after(self, after: str) -> Accessor:
        self._events = [each for each in self._events if each.timestamp >= datetime.fromisoformat(after)]
        return self

    def ascending(self, ascending: bool) -> Accessor:
        self._events = self._events if ascending else self._events[::-1]
        return self

    def limit(self, limit: int) -> Accessor:
        self._limit = limit
        return self

    def __iter__(self) -> Any:
        found = self._events[: self._limit]
        self._fetched.append(len(found))
        return iter(found)


class Inlets(dict[Asset, list[Any]]):
    """
    The inlets of a task.

    :param with_accessor: whether this is Airflow 3.1 or later.
    """

    def __init__(self, with_accessor: bool) -> None:
        super().__init__()
        self._with_accessor = with_accessor
        self.fetched: list[int] = []

    def __getitem__(self, asset: Asset) -> Any:
        events = sorted(self.get(asset, []), key=lambda each: each.timestamp)
        return Accessor(events, self.fetched) if self._with_accessor else events

    def add(
        self, asset: Asset, seconds: float, extra: Any = None, task_id: str | None = "task", dag_id: str = "dag"
    ) -> None:
        number = sum(map(len, self.values()))
        at = _FIRST + timedelta(seconds=seconds)
        source = {"source_dag_id": task_id and dag_id, "source_task_id": task_id}
        event = SimpleNamespace(id=number, extra=extra or {}, timestamp=at, **source)
        self.setdefault(asset, []).append(event)


@given(
    with_accessor=st.booleans(),
    portion=st.integers(1, 4),
    runs=st.lists(st.lists(st.integers(0, 59), max_size=12), min_size=1, max_size=5),
)
def test_each_event_is_handled_once_whatever_its_time_is(
    with_accessor: bool, portion: int, runs: list[list[int]]
) -> None:
    asset, handled, inlets = new_asset(), new_asset(), Inlets(with_accessor)
    seen: list[int] = []
    for number, times in enumerate(runs):
        for seconds in times:
            # An event of another run may appear up to a minute after a later event.
            inlets.add(asset, number * 30 + seconds / 2)
        events = UnhandledEvents(inlets, asset, handled, ti=FakeTaskInstance(), portion=portion)
        new = list(events)
        assert new == sorted(new, key=lambda each: each.timestamp)
        seen += [each.id for each in new]
        assert seen or events.place == {}
        if new:
            inlets.add(handled, number, events.place)
    assert sorted(seen) == [each.id for each in inlets.get(asset, [])]


@pytest.mark.parametrize("with_accessor", [True, False])
def test_events_that_somebody_else_emits_are_not_taken_for_the_place(with_accessor: bool) -> None:
    asset, handled, inlets = new_asset(), new_asset(), Inlets(with_accessor)
    inlets.add(asset, 1)
    inlets.add(handled, 1, {"until": _FIRST.isoformat(), "recent": "odd"})
    inlets.add(handled, 2, {"from_rest_api": True}, None)
    far = {"until": "9999-01-01T00:00:00+00:00", "recent": []}
    inlets.add(handled, 3, far, None)
    inlets.add(handled, 4, far, "task", "stranger")
    inlets.add(handled, 5, far, "stranger")
    assert len(list(UnhandledEvents(inlets, asset, handled, ti=FakeTaskInstance()))) == 1
    for number in range(500):
        inlets.add(handled, 9 + number, None, None)
    with pytest.raises(CustodyConfigurationError, match="Give this task its own asset"):
        UnhandledEvents(inlets, asset, handled, ti=FakeTaskInstance())


def test_a_renamed_task_continues_where_its_old_name_ended_only_if_told_to() -> None:
    asset, handled, inlets = new_asset(), new_asset(), Inlets(with_accessor=True)
    inlets.add(asset, 1)
    old = UnhandledEvents(inlets, asset, handled, ti=FakeTaskInstance())
    assert len(list(old)) == 1
    inlets.add(handled, 2, old.place)
    renamed: Any = SimpleNamespace(dag_id="dag", task_id="renamed")
    assert len(list(UnhandledEvents(inlets, asset, handled, ti=renamed))) == 1
    assert list(UnhandledEvents(inlets, asset, handled, ti=renamed, continue_from="dag/task")) == []
    # The task's own record is preferred to the record under its old name.
    inlets.add(handled, 3, {"until": _FIRST.isoformat(), "recent": []}, "renamed")
    inlets.add(handled, 4, old.place)
    assert len(list(UnhandledEvents(inlets, asset, handled, ti=renamed, continue_from="dag/task"))) == 1


def test_calls_of_an_event_that_has_ids_only(sandbox: Sandbox) -> None:
    webhook = sandbox.control.add_webhook(type=TYPE)["id"]
    write_calls(sandbox, webhook, 1, 2)
    event = SimpleNamespace(extra={"payload": {"call_ids": ["1", "gone"], "since": "2026-01-01T00:00:01Z"}})
    with CustodyClient(sandbox.url, sandbox.token) as client:
        known, gone = calls_of(event, client)
    assert (known["id"], known["payload"]) == ("1", {"requestId": "1"})
    assert gone == {"id": "gone"}


def test_calls_of_odd_events() -> None:
    client: Any = None
    for extra, ids in (
        (None, []),
        ({"calls": None}, []),
        ({"calls": ["text", {}, {"id": "1"}]}, ["1"]),
        ({"payload": {"calls": [{"id": "2"}]}, "from_trigger": True}, ["2"]),
        ({"payload": "text", "call_ids": 5}, []),
    ):
        assert [each["id"] for each in calls_of(SimpleNamespace(extra=extra), client)] == ids
