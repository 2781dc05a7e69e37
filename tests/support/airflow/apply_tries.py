"""Apply a whitelist plan over several tries of one task instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, execute
from support.airflow.task_tries import RowsStore, Task, failure_of, somebody_creates

from airflow_custody.client import CustodyError
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.sandbox import Sandbox

#: The rows of the file that most tests apply.
ROWS = range(1, 13)


def address(number: int) -> str:
    return f"0x{number:040x}"


def before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, work: Callable[[], object]) -> None:
    """Do something once, right before a method is called."""
    real, todo = getattr(owner, name), [work]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        while todo:
            todo.pop()()
        return real(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, method)


def effective(sandbox: Sandbox, number: int, **fields: Any) -> str:
    """Create a request that is listed as in effect, but is unsigned."""
    made = somebody_creates(sandbox, **{"label": f"Label {number}", "address": address(number), **fields})
    sandbox.control.set_whitelist_status(made, "APPROVED")
    return made


def write_rows(path: Path, numbers: Iterable[int], **fields: str | list[str]) -> str:
    """Write a whitelist file with a row for each number, and return its path."""
    more = "".join(f", {name}: {value!r}" for name, value in fields.items())
    rows = "".join(
        f"  - {{label: 'Label {each}', address: '{address(each)}', blockchain: ETH{more}}}\n" for each in numbers
    )
    path.write_text(f"version: 1\naddresses:\n{rows}")
    return str(path)


def plan(path: str | None = None, *, ti: Any = None, **arguments: Any) -> dict[str, Any]:
    """Plan, and return the XCom."""
    given = arguments if path is None else {"path": path, **arguments}
    operator = CustodyPlanWhitelistOperator
    result: dict[str, Any] = execute(lambda: operator(task_id="plan", **given), ti=ti or FakeTaskInstance())
    return result


def complete(applied: Any, plan_hash: str, store: RowsStore | None = None, try_number: int = 1) -> dict[str, Any]:
    """
    Run a try of a task that completes a plan, and return the XCom.

    :param applied: the XCom of the apply task.
    :param plan_hash: the plan's hash.
    :param store: the task's store. Default: none, which Airflow before 3.3 never has.
    :param try_number: the number of the try. Default 1.
    """
    context: dict[str, Any] = {"ti": FakeTaskInstance(try_number, 3)}
    if store is not None and AIRFLOW >= (3, 3):
        context["task_state_store"] = store
    operator = CustodyCompleteWhitelistPlanOperator
    result: dict[str, Any] = execute(
        lambda: operator(task_id="complete", applied=applied, plan_hash=plan_hash), **context
    )
    return result


class ApplyTask(Task):
    """A task instance that applies a plan, over several tries."""

    operator = CustodyApplyWhitelistPlanOperator

    def __init__(self, planned: dict[str, Any], store: RowsStore | None, **arguments: Any) -> None:
        # Airflow has a store since 3.3. On earlier versions, its variables in the database are used.
        super().__init__(store if AIRFLOW >= (3, 3) else None)
        given = {"plan": planned, "plan_hash": planned["plan_hash"], "lookup_wait": 0.3, "retries": 3}
        self.arguments = {**given, **arguments}

    @property
    def store(self) -> RowsStore:
        assert isinstance(self.given_store, RowsStore)
        return self.given_store

    def attempt(
        self, *, planned: dict[str, Any] | None = None, source: dict[str, Any] | None = None, **changes: Any
    ) -> dict[str, Any]:
        """
        Run a try, and return the XCom.

        :param planned: another approved plan. Default: the task's own.
        :param source: changes of the plan's settings, which Airflow's users can edit in the XCom. Default: none.
        :param changes: other arguments of the operator.
        """
        if planned is not None:
            changes = {"plan": planned, "plan_hash": planned["plan_hash"], **changes}
        if source is not None:
            given = self.arguments["plan"]
            changes = {"plan": {**given, "source": {**given["source"], **source}}, **changes}
        result: dict[str, Any] = super().attempt(**changes)
        return result

    def fails(self, **changes: Any) -> CustodyError:
        """Run a try that must fail, and return its error."""
        return failure_of(lambda: self.attempt(**changes))

    def dies_at(self, write: int, *, before: bool = True) -> None:
        """Run a try that is killed at a write to its store."""
        self.store.writes, self.store.dies_at, self.store.dies_before = 0, write, before
        with pytest.raises(RuntimeError, match="killed"):
            self.attempt()
        self.store.dies_at = None

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The requests that the last try pushed for the approvers."""
        requests: list[dict[str, Any]] = self.ti.pushed["requests"]
        return requests


def check_exactly(sandbox: Sandbox, numbers: Iterable[int], requests: list[dict[str, Any]] | None = None) -> None:
    """
    Check that there is exactly one request for each number.

    :param requests: requests that a task returned. Their ids must be those of requests with the same content.
    """
    made = {each["id"]: each for each in sandbox.control.whitelist_requests()}
    found = sorted(each["address"] for each in made.values())
    assert found == sorted(address(each) for each in numbers)
    for each in requests or ():
        assert made[each["id"]]["address"] == each["address"]
        assert made[each["id"]]["label"] == each["label"]
    if requests is not None:
        assert len({each["id"] for each in requests}) == len(requests)


def check_all(sandbox: Sandbox, task: ApplyTask) -> None:
    """
    Check that each row has one request, with the right id.

    There is also the request that existed before.
    """
    check_exactly(sandbox, [0, *ROWS], task.requests)
    assert len(task.requests) == len(ROWS)
