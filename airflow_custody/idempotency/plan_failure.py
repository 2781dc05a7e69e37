"""The error of a task that has executed only part of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import indent
from typing import Any

from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.text import lines
from airflow_custody.idempotency.create import Outcome
from airflow_custody.idempotency.deletions import MARKED, deleted_id, is_deletion_key

_MAX_ROWS = 100


def plan_failure(outcome: Outcome, places: Mapping[str, str], counts: str, *, has_store: bool) -> CustodyError | None:
    """
    Return the error for a task that has executed only part of a plan; None if it has executed all of the plan.

    :param outcome: the outcome of the plan's rows.
    :param places: the places of rows in the file, such as ``line 12``, by row key.
    :param counts: a summary of the outcome with numbers.
    :param has_store: whether a later try finds a record of this try.
    """
    stopped = outcome.stopped
    is_left = _is_left(outcome)
    if not (outcome.unknown or outcome.refused or is_left or stopped):
        return None
    # An unknown deletion does no harm, because a later try may send it again.
    is_creation_unknown = any(not is_deletion_key(key) for key in outcome.unknown)
    # Without a record, a later try plans again. It gets the approved plan again only if nothing was done.
    can_go_on = has_store or not (outcome.created or is_creation_unknown or outcome.deleted)
    retryable = can_go_on and (is_left if stopped is None else stopped.retryable)
    kind, facts = _kind_and_facts(outcome, is_left=is_left, is_creation_unknown=is_creation_unknown)
    if is_creation_unknown and not retryable:
        kind = CustodyOutcomeUnknownError
    reason = "" if stopped is None else f": {stopped.reason}"
    rows = [indent(each, "  ") for each in _rows(outcome, places)]
    if len(rows) > _MAX_ROWS:
        rows[_MAX_ROWS:] = [f"  and {len(rows) - _MAX_ROWS} more: see the log"]
    advice = _advice(outcome, is_unknown=is_creation_unknown, can_go_on=can_go_on, retryable=retryable)
    text = f"not all of the plan was carried out ({counts}){reason}"
    return kind(lines(text, *rows), retryable=retryable, advice=lines(*advice), **facts)


def _kind_and_facts(
    outcome: Outcome, *, is_left: bool, is_creation_unknown: bool
) -> tuple[type[CustodyError], dict[str, Any]]:
    """Return the error's type, unless a user must find out an outcome; and the error's code, status and delay."""
    stopped = outcome.stopped
    if stopped is None:
        code = "outcome-unknown" if is_creation_unknown or (outcome.unknown and not is_left) else "plan-incomplete"
        return CustodyConflictError if is_left else CustodyRequestError, {"code": code}
    code = "outcome-unknown" if is_creation_unknown else stopped.code
    return type(stopped), {"code": code, "status": stopped.status, "retry_after": stopped.retry_after}


def _is_left(outcome: Outcome) -> bool:
    """Tell whether another try would have work to do. Deletions that only wait for failed rows do not count."""
    is_waiting = bool(outcome.unknown or outcome.refused) and all(map(is_deletion_key, outcome.left))
    return bool(outcome.left) and not is_waiting


def _rows(outcome: Outcome, places: Mapping[str, str]) -> Iterator[str]:
    for key, why in outcome.unknown.items():
        yield lines(f"{_place(key, places)}: unknown: {why}", indent(outcome.advice.get(key, ""), "  "))
    for key, why in outcome.refused.items():
        yield f"{_place(key, places)}: {'not deleted' if is_deletion_key(key) else 'refused'}: {why}"


def _advice(outcome: Outcome, *, is_unknown: bool, can_go_on: bool, retryable: bool) -> Iterator[str | None]:
    yield outcome.stopped.advice if outcome.stopped else None
    if is_unknown:
        yield "Rows whose outcome is unknown are not sent again automatically."
    if not can_go_on:
        yield "Start a new run: this version of Airflow keeps no record for a later try."
    elif is_unknown and not retryable:
        yield "Then clear this task."
    elif outcome.stopped is None and not retryable:
        yield (
            "If the refused rows are wrong, mark this task as success, so that the created requests are signed; then "
            "correct the file, and start a new run. If the service is wrong, fix it, then clear this task."
        )
    if any(map(is_deletion_key, outcome.refused)):
        yield f"{MARKED}."


def _place(key: str, places: Mapping[str, str]) -> str:
    return places.get(key) or f"request {deleted_id(key)}"
