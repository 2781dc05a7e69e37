"""Create a whitelisting request over several tries of one task instance, with its task state store."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, execute, failing_at_once

from airflow_custody.client import CustodyClient, CustodyError, CustodyOutcomeUnknownError, WhitelistRequest
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

ADDRESS = "0x" + "ab" * 20
KEY = "custody_create_once"
LISTING = {"method": "GET", "path": "/whitelists/addresses"}
CREATE = {"method": "POST", "path": "/whitelists/addresses"}

needs_store = pytest.mark.skipif(AIRFLOW < (3, 3), reason="the task state store of Airflow 3.3")


class Store:
    """A task state store like Airflow's, which can be made to fail."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.retention: Any = None
        self.failure: Exception | None = None
        #: If `failure` is set, writes of this state fail. None: all writes fail, and reads return the default.
        self.fails_at: str | None = None
        self.states: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        return default if self.failure and not self.fails_at else json.loads(self.values.get(key, "null")) or default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        if self.failure and self.fails_at in (None, value["state"]):
            raise self.failure
        text = json.dumps(value, allow_nan=False)
        assert "null" not in text
        assert json.loads(text) == value
        self.states.append(value["state"])
        self.values[key], self.retention = text, retention

    @property
    def batch(self) -> tuple[str, dict[str, Any]]:
        """The last batch, and its key in the store."""
        head = json.loads(self.values[KEY])
        key = f"{KEY}_{head['batches'] - 1:04d}"
        return (key, json.loads(self.values[key])) if key in self.values else (KEY, head["batch"])

    @property
    def record(self) -> dict[str, Any]:
        """The record of the only row, and of its batch."""
        _, batch = self.batch
        return {**batch, **batch["rows"]["one"]}

    def forge(self, identifier: str, row: str = "one", **changes: Any) -> None:
        """
        Record in the last batch that a row's request was created.

        Airflow's users can change the record in this way.
        """
        key, batch = self.batch
        batch["rows"][row] |= {"state": "created", "detail": identifier, **changes}
        self._put(key, batch)

    def backdate(self, sent: datetime) -> None:
        """Change the time at which the last batch was recorded."""
        key, batch = self.batch
        batch["recorded_at"] = sent.isoformat()
        self._put(key, batch)

    def _put(self, key: str, batch: dict[str, Any]) -> None:
        self.values[key] = json.dumps(batch if key != KEY else {**json.loads(self.values[KEY]), "batch": batch})


class RowsStore(Store):
    """A store that can fail at a write, like a killed process."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        #: The number of the first write that fails; all later writes fail, too. None: no write fails.
        self.dies_at: int | None = None
        #: Whether the failure comes before the value is written, or after.
        self.dies_before = True

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self.writes += 1
        dies = self.dies_at is not None and self.writes >= self.dies_at
        if dies and self.dies_before:
            raise RuntimeError("killed")
        super().set(key, value, retention=retention)
        if dies:
            raise RuntimeError("killed")


class Task:
    """A task instance over several tries."""

    operator: type[Any] = CustodyCreateWhitelistRequestOperator

    def __init__(self, store: Store | None, **arguments: Any) -> None:
        self.given_store = store
        self.tries = 0
        self.max_tries = 3
        self.run = SimpleNamespace(clear_number=0, start_date=datetime.now(timezone.utc))
        self.ti = FakeTaskInstance()
        self.arguments: dict[str, Any] = {
            "label": "Treasury",
            "address": ADDRESS,
            "blockchain": "ETH",
            "lookup_wait": 0.3,
            "retries": 3,
            **arguments,
        }

    @property
    def store(self) -> Store:
        assert self.given_store is not None
        return self.given_store

    def attempt(self, **changes: Any) -> Any:
        """Run a try, and return what it returns."""
        self.tries += 1
        self.ti = FakeTaskInstance(self.tries, self.max_tries)
        context: dict[str, Any] = {"ti": self.ti, "dag_run": self.run}
        if self.given_store is not None:
            context["task_state_store"] = self.given_store
        arguments = {**self.arguments, **changes}
        return execute(lambda: self.operator(task_id="task", **arguments), **context)

    def clear(self) -> None:
        self.max_tries = self.tries + 3
        self.run.clear_number += 1

    def die_at(self, state: str) -> None:
        """
        Run a try that is killed right before it records a state.

        :param state: the state: ``begun``, ``sending`` or ``closed``.
        """
        self.store.failure, self.store.fails_at = RuntimeError("killed"), state
        with pytest.raises(RuntimeError, match="killed"):
            self.attempt()
        self.store.failure = None

    def refused(self, match: str = "", **changes: Any) -> str:
        with failing_at_once(match) as caught:
            self.attempt(**changes)
        assert isinstance(caught.value.error, CustodyOutcomeUnknownError)
        assert str(caught.value).count(f"\n{caught.value.error.advice or ''}") == 1
        return str(caught.value.error)


def somebody_creates(sandbox: Sandbox, **changes: Any) -> str:
    with CustodyClient(sandbox.url, sandbox.token) as client:
        return client.create_whitelist_request(
            WhitelistRequest(**{"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", **changes})
        )


def failure_of(work: Callable[[], object]) -> CustodyError:
    """Run a task that must fail, retryable or not; return its error."""
    with pytest.raises((CustodyError, CustodyFailException)) as caught:
        work()
    error = getattr(caught.value, "error", caught.value)
    assert isinstance(error, CustodyError)
    return error


def variable_in(message: str) -> str:
    return message.split("airflow variables set ")[1].split()[0]
