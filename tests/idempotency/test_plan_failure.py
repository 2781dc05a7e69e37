"""The error of a task that has executed only a part of a plan."""

from __future__ import annotations

import pytest

from airflow_custody.client.errors import CustodyConnectionError, CustodyPermissionError
from airflow_custody.idempotency.create import Outcome
from airflow_custody.idempotency.deletions import deletion_key
from airflow_custody.idempotency.plan_failure import plan_failure

NEW_RUN = "Start a new run: this version of Airflow keeps no record for a later try."
CLEAR, FIX = "Then clear this task.", "If the service is wrong, fix it, then clear this task."
DELETION = deletion_key("7")
AWAY = CustodyConnectionError("away", retryable=True)
FORBIDDEN = CustodyPermissionError("no role")


@pytest.mark.parametrize(
    ("outcome", "has_store", "advice", "is_retryable"),
    [
        (Outcome(refused={"a": "no"}), True, FIX, False),
        (Outcome(refused={"a": "no"}), False, FIX, False),
        (Outcome(created={"b": "1"}, refused={"a": "no"}), False, NEW_RUN, False),
        (Outcome(deleted={DELETION: "7"}, refused={"a": "no"}), False, NEW_RUN, False),
        (Outcome(unknown={"a": "lost"}), True, CLEAR, False),
        (Outcome(unknown={"a": "lost"}), False, NEW_RUN, False),
        (Outcome(left=["a"]), True, "", True),
        (Outcome(left=["a"], stopped=FORBIDDEN), True, "", False),
        (Outcome(left=["a"], stopped=AWAY), True, "", True),
        (Outcome(left=["a"], stopped=AWAY), False, "", True),
        (Outcome(created={"b": "1"}, left=["a"], stopped=AWAY), True, "", True),
        (Outcome(created={"b": "1"}, left=["a"], stopped=AWAY), False, NEW_RUN, False),
    ],
    ids=[
        "refused",
        "refused, no store",
        "refused after a creation, no store",
        "refused after a deletion, no store",
        "unknown",
        "unknown, no store",
        "left, and nothing stopped it",
        "left, and an error stopped it that a retry repeats",
        "left",
        "left, no store",
        "left after a creation",
        "left after a creation, no store",
    ],
)
def test_whether_a_later_try_can_continue(outcome: Outcome, has_store: bool, advice: str, is_retryable: bool) -> None:
    error = plan_failure(outcome, {}, "", has_store=has_store)
    assert error is not None
    assert error.retryable is is_retryable
    given = error.advice or ""
    assert [each for each in (NEW_RUN, CLEAR, FIX) if each in given] == ([advice] if advice else [])


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(unknown={"a": "lost"}, left=["b"], stopped=AWAY), "outcome-unknown"),
        (Outcome(unknown={DELETION: "lost"}), "outcome-unknown"),
        (Outcome(unknown={DELETION: "lost"}, left=["b"], stopped=AWAY), AWAY.code),
        (Outcome(refused={"a": "no"}), "plan-incomplete"),
    ],
    ids=["a creation", "a deletion", "a deletion, and the service is away", "nothing"],
)
def test_the_code_says_whether_an_outcome_is_unknown(outcome: Outcome, code: str) -> None:
    error = plan_failure(outcome, {"a": "line 1"}, "", has_store=True)
    assert error is not None
    assert error.code == code


@pytest.mark.parametrize(("rows", "more"), [(100, 0), (101, 1)])
def test_at_most_a_hundred_rows_are_named(rows: int, more: int) -> None:
    refused = {str(number): f"reason {number}" for number in range(rows)}
    error = plan_failure(Outcome(refused=refused), dict.fromkeys(refused, "line 1"), "", has_store=True)
    assert error is not None
    _, *named = error.message.splitlines()
    assert named[:100] == [f"  line 1: refused: reason {number}" for number in range(min(rows, 100))]
    assert named[100:] == ([f"  and {more} more: see the log"] if more else [])


def test_a_plan_that_was_executed_is_no_failure() -> None:
    assert plan_failure(Outcome(created={"a": "1"}), {}, "", has_store=True) is None
