"""The code on the page about creating at most once, executed as it is printed there, while things go wrong."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.sandbox import Sandbox

PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "at-most-once.md"
ROOT = "/api/rest/v1/whitelists/addresses"
POST = {"method": "POST", "path": "/whitelists/addresses"}
REQUEST = WhitelistRequest(label="Treasury", address=f"0x{7:040x}", blockchain="ETH").to_wire()


def pattern() -> dict[str, Any]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


class Store:
    """A store that outlives a try, with the methods of Airflow's task state store."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return copy.deepcopy(self.values.get(key))

    def set(self, key: str, value: Any) -> None:
        self.values[key] = copy.deepcopy(value)

    def delete(self, key: str) -> None:
        del self.values[key]


class KilledError(BaseException):
    """Raised when the worker is killed."""


class Task:
    """A task instance over its tries, against the sandbox, on a clock of its own."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.names = pattern()
        self.store = Store()
        self.now = 0.0
        self.killed_after_sending = False
        self.held_up = 0.0
        self.search_takes = 0.0
        self.sandbox = sandbox
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {sandbox.token}"

    def send(self, check_fence: Callable[[], None]) -> str:
        self.now += self.held_up
        check_fence()
        try:
            response = self.session.post(f"{self.sandbox.url}{ROOT}", json=REQUEST, timeout=5)
        except requests.ConnectTimeout:
            raise self.names["NotSent"] from None
        if self.killed_after_sending:
            raise KilledError
        response.raise_for_status()
        return str(response.json()["result"]["id"])

    def find(self) -> set[str]:
        query = {"includeForApproval": "true", "addresses": str(REQUEST["address"])}
        response = self.session.get(f"{self.sandbox.url}{ROOT}", params=query, timeout=5)
        response.raise_for_status()
        if self.search_takes:
            # The listing catches up before this stale response arrives.
            self.sandbox.control.configure(whitelist_lag=0)
            self.now, self.search_takes = self.now + self.search_takes, 0.0
        return {each["id"] for each in response.json().get("result", ())}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        # Here, the service really lists objects late.
        threading.Event().wait(0.02)

    def attempt(self, decision: str | None = None) -> str:
        create = self.names["create_at_most_once"]
        return str(create(self.store, self.send, self.find, decision, clock=lambda: self.now, sleep=self.sleep))


@pytest.fixture
def attempt_of(sandbox: Sandbox) -> Task:
    return Task(sandbox)


def ids(sandbox: Sandbox) -> list[str]:
    return [each["id"] for each in sandbox.control.whitelist_requests()]


@pytest.mark.parametrize("status", [None, 500, 502, 400])
def test_any_response_leaves_one_object(sandbox: Sandbox, attempt_of: Task, status: int | None) -> None:
    """None means that the response is lost; the others are errors after the work was done."""
    kind = {"kind": "drop"} if status is None else {"kind": "status", "status": status}
    sandbox.control.add_fault(**POST, **kind, work=True)
    assert [attempt_of.attempt()] == [attempt_of.attempt()] == ids(sandbox)


def test_a_listing_that_lags_is_waited_for(sandbox: Sandbox, attempt_of: Task) -> None:
    sandbox.control.configure(whitelist_lag=0.3)
    sandbox.control.add_fault(**POST, kind="drop", work=True)
    assert [attempt_of.attempt()] == ids(sandbox)
    assert attempt_of.now > 1


def test_a_search_that_began_too_early_proves_nothing(sandbox: Sandbox, attempt_of: Task) -> None:
    attempt_of.killed_after_sending = True
    with pytest.raises(KilledError):
        attempt_of.attempt()
    sandbox.control.configure(whitelist_lag=60)
    attempt_of.killed_after_sending, attempt_of.search_takes = False, 100
    assert [attempt_of.attempt()] == ids(sandbox)


def test_a_killed_task_finds_its_object(sandbox: Sandbox, attempt_of: Task) -> None:
    attempt_of.killed_after_sending = True
    with pytest.raises(KilledError):
        attempt_of.attempt()
    attempt_of.killed_after_sending = False
    assert [attempt_of.attempt()] == ids(sandbox)


def test_a_refused_create_is_sent_by_a_retry(sandbox: Sandbox, attempt_of: Task) -> None:
    sandbox.control.add_fault(**POST, kind="status", status=503, times=1)
    with pytest.raises(attempt_of.names["NotSent"], match="nothing was created") as caught:
        attempt_of.attempt()
    assert "503" in str(caught.value.__cause__)
    assert attempt_of.now > 65
    assert [attempt_of.attempt()] == ids(sandbox)


def test_a_suspended_task_sends_nothing(sandbox: Sandbox, attempt_of: Task) -> None:
    attempt_of.held_up = 6
    with pytest.raises(attempt_of.names["NotSent"], match="held up"):
        attempt_of.attempt()
    assert ids(sandbox) == []
    assert attempt_of.store.values == {}


def test_a_person_decides_between_two_candidates(sandbox: Sandbox, attempt_of: Task) -> None:
    sandbox.control.add_whitelist_requests([REQUEST])
    # A killed try left this record.
    attempt_of.store.set("record", {"id": None, "before": ids(sandbox), "decision": None})
    sandbox.control.add_whitelist_requests([REQUEST, REQUEST])
    for decision, reason in (
        (None, r"one of \['3712', '3713'\] may be this task's"),
        ("3711", "'3711' is not a new object"),
        ("Create", "'Create' is not a new object"),
    ):
        with pytest.raises(attempt_of.names["OutcomeUnknown"], match=reason):
            attempt_of.attempt(decision)
    assert len(ids(sandbox)) == 3
    # The record is kept for later tries that do not have the decision.
    assert [attempt_of.attempt("3712"), attempt_of.attempt()] == ["3712"] * 2


def test_a_decision_to_create_is_carried_out_once(sandbox: Sandbox, attempt_of: Task) -> None:
    attempt_of.store.set("record", {"id": None, "before": [], "decision": None})
    attempt_of.killed_after_sending = True
    with pytest.raises(KilledError):
        attempt_of.attempt("create")
    attempt_of.killed_after_sending = False
    assert [attempt_of.attempt("create"), attempt_of.attempt("create")] == ids(sandbox) * 2
