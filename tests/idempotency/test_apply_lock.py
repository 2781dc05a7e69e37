"""Taking turns: at most one task at a time applies plans at a service."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import FakeTaskInstance, new_dag, run_dag
from apply_tries import check_exactly, write_rows
from clocks import skipping_waits

from airflow_custody.client.errors import CustodyConflictError, CustodyError
from airflow_custody.idempotency import apply_lock
from airflow_custody.idempotency.apply_lock import ApplyLock
from airflow_custody.idempotency.create_once import Timing
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

LOG = logging.getLogger(__name__)
SERVICE = "https://custody.example.com"
HOLDER = {"dag_id": "other", "run_id": "one", "task_id": "apply", "map_index": -1, "token": "t", "beat": 3}


class Variables:
    """Airflow's variables, in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.write_takes = 0.0
        self.fails = False

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        time.sleep(self.write_takes)
        self.values[name] = value

    def delete(self, name: str) -> None:
        if self.fails:
            raise RuntimeError("no database")
        del self.values[name]


@pytest.fixture(autouse=True)
def waits() -> None:
    """Let waits take their time: here, one task waits while another works."""


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    found = Variables()
    monkeypatch.setattr(apply_lock, "Variable", found)
    monkeypatch.setattr(apply_lock, "_has_variables", lambda: True)
    monkeypatch.setattr(apply_lock, "_POLL_INTERVAL", 0.02)
    monkeypatch.setattr(apply_lock, "MAX_SILENCE", 300.0)
    monkeypatch.setattr(apply_lock, "SETTLE", 0.05)
    return found


class OtherTask(FakeTaskInstance):
    """A task instance of some run, which knows the states of others."""

    def __init__(self, run_id: str, states: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.run_id = run_id
        self.states = states if states is not None else {}

    def get_task_states(self, **asked: Any) -> dict[str, Any]:
        return {run: {"apply": state} for run, state in self.states.items() if run in asked["run_ids"]}


def lock(run_id: str = "two", states: dict[str, Any] | None = None, **options: Any) -> ApplyLock:
    context: Any = {"ti": OtherTask(run_id, states)}
    return ApplyLock(context, SERVICE, LOG, **options)


def test_a_turn_is_given_back(variables: Variables) -> None:
    one = lock()
    with one.held():
        assert json.loads(variables.values[one.variable])["run_id"] == "two"
        one.renew()
        assert json.loads(variables.values[one.variable])["beat"] == 1
        one.is_settled = True
    assert variables.values == {}


@pytest.mark.parametrize("write_takes", [0.0, 0.03])
def test_tasks_take_turns(variables: Variables, write_takes: float) -> None:
    variables.write_takes = write_takes
    inside: list[str] = []
    most: list[int] = []
    running = dict.fromkeys(map(str, range(4)), "running")

    def work(run_id: str) -> None:
        one = lock(run_id, running)
        with one.held():
            inside.append(run_id)
            most.append(len(inside))
            one.renew()
            time.sleep(0.02)
            one.is_settled = True
            inside.remove(run_id)

    threads = [threading.Thread(target=work, args=(each,)) for each in running]
    for each in threads:
        each.start()
    for each in threads:
        each.join(600)
    assert most == [1, 1, 1, 1]


def test_whoever_writes_late_waits_until_the_other_has_noticed(variables: Variables) -> None:
    variables.write_takes = 0.2
    started = time.monotonic()
    with lock(under_way=0.4).held():
        assert time.monotonic() - started > 0.2 + 0.2 + 0.4


@pytest.mark.parametrize("state", ["success", "failed", "up_for_retry", "scheduled", "queued", None])
def test_a_task_that_is_dead_is_not_waited_for(variables: Variables, state: str | None) -> None:
    one = lock(states={"one": state}, under_way=0.2)
    variables.values[one.variable] = json.dumps(HOLDER)
    started = time.monotonic()
    with one.held():
        # What it has sent may be listed only now.
        assert time.monotonic() - started > 0.2


def test_a_task_whose_run_was_deleted_is_not_waited_for(variables: Variables) -> None:
    one = lock(states={})
    variables.values[one.variable] = json.dumps(HOLDER)
    with one.held():
        pass


@pytest.mark.parametrize("text", [json.dumps(HOLDER), "{", "[]", "7", "somebody"])
def test_who_is_silent_is_no_reason_to_go_on(variables: Variables, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_lock, "MAX_SILENCE", 0.3)
    one = lock(states={"one": "running"})
    variables.values[one.variable] = text
    with pytest.raises(CustodyConflictError) as caught, one.held():
        raise AssertionError
    assert caught.value.retryable
    assert f"airflow variables delete {one.variable}" in str(caught.value)
    assert variables.values[one.variable] == text


def test_who_gives_signs_of_life_is_waited_for(variables: Variables) -> None:
    one = lock(states={"one": "running"})
    variables.values[one.variable] = json.dumps(HOLDER)

    def live() -> None:
        for beat in range(8):
            time.sleep(0.1)
            variables.values[one.variable] = json.dumps({**HOLDER, "beat": beat})
        del variables.values[one.variable]

    thread = threading.Thread(target=live)
    thread.start()
    started = time.monotonic()
    with one.held():
        assert time.monotonic() - started > 0.7
    thread.join()


def test_without_task_states_only_a_sign_of_life_counts(variables: Variables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_lock, "MAX_SILENCE", 0.3)
    one = ApplyLock({"ti": FakeTaskInstance()}, SERVICE, LOG)  # type: ignore[typeddict-item]
    variables.values[one.variable] = json.dumps(HOLDER)
    with pytest.raises(CustodyConflictError), one.held():
        raise AssertionError
    variables.values[one.variable] = json.dumps({**HOLDER, "ended": True})
    with one.held():
        pass


def test_the_next_try_of_the_same_task_goes_on_at_once(variables: Variables) -> None:
    one = lock(states={"two": "running"}, under_way=3600)
    variables.values[one.variable] = json.dumps({**HOLDER, "dag_id": "dag", "run_id": "two", "task_id": "task"})
    with one.held():
        pass


@pytest.mark.parametrize("text", [None, json.dumps(HOLDER), "?"])
def test_who_has_lost_the_turn_stops_and_leaves_it_alone(variables: Variables, text: str | None) -> None:
    one = lock()

    def lose() -> None:
        one.renew()
        variables.values.pop(one.variable)
        if text is not None:
            variables.values[one.variable] = text
        one.renew()

    with pytest.raises(CustodyError, match="another task applies a plan") as caught, one.held():
        lose()
    assert caught.value.retryable
    assert variables.values.get(one.variable) == text


def test_who_fails_in_the_middle_lets_the_next_one_wait(variables: Variables) -> None:
    one = lock()

    def fail() -> None:
        one.renew()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), one.held():
        fail()
    assert json.loads(variables.values[one.variable])["ended"] is True
    with pytest.raises(KeyboardInterrupt), lock("three").held():
        # Nothing was sent.
        raise KeyboardInterrupt
    assert variables.values == {}


def test_a_turn_that_cannot_be_given_back_is_no_failure(variables: Variables, caplog: pytest.LogCaptureFixture) -> None:
    variables.fails = True
    with lock().held():
        pass
    assert "could not be given back: RuntimeError" in caplog.text


def test_services_have_turns_of_their_own() -> None:
    context: Any = {"ti": FakeTaskInstance()}
    one, two = (ApplyLock(context, f"https://{each}.example", LOG) for each in ("one", "two"))
    assert one.variable != two.variable


# --- in real runs -------------------------------------------------------------------------------------------------


class QuickApply(CustodyApplyWhitelistPlanOperator):
    create_timing = Timing(fence=60.0)


def apply_dag(path: str) -> Any:
    with new_dag() as dag:
        plan = CustodyPlanWhitelistOperator(task_id="plan", path=path)
        QuickApply(task_id="apply", path=path, plan_hash=plan.output["plan_hash"], lookup_wait=0.3)  # type: ignore[index]
    return dag


def test_a_run_takes_its_turn_and_gives_it_back(
    sandbox: Sandbox, connection: str, airflow_db: None, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "rows.yaml", range(1, 4))
    with skipping_waits():
        run = run_dag(apply_dag(path))
    assert run.state == "success"
    check_exactly(sandbox, range(1, 4), run.pushed("apply", "requests"))
    assert run.xcom("plan")["plan_hash"] == run.pushed("plan", "plan_hash")
    assert stored(variable_of(sandbox)) is None


def variable_of(sandbox: Sandbox) -> str:
    return ApplyLock({"ti": FakeTaskInstance()}, sandbox.url, LOG).variable  # type: ignore[typeddict-item]


def stored(name: str) -> str | None:
    """Return an Airflow variable, outside of a task."""
    from airflow.models.variable import Variable as Model

    try:
        value: str | None = Model.get(name, default_var=None)
    except TypeError:
        value = Model.get(name, default=None)  # type: ignore[call-arg]
    return value
