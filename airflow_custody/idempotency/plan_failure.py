"""The error of a task that has executed only a part of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

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
    Return the error that a task that executes a plan ends with; None if all of the plan was executed.

    :param outcome: the outcome.
    :param places: the places of rows in the file, such as ``line 12``, by row key.
    :param counts: a summary of the outcome with numbers.
    :param has_store: whether a later try finds a record of this try.
    """
    stopped = outcome.stopped
    # Deletions do not count, because a later try may send them again.
    is_creation_unknown = any(not is_deletion_key(key) for key in outcome.unknown)
    # Deletions that only wait for failed rows are not left for another try.
    is_any_named = bool(outcome.unknown or outcome.refused)
    is_left = bool(outcome.left) and not (is_any_named and all(map(is_deletion_key, outcome.left)))
    if not is_any_named and not is_left and stopped is None:
        return None
    # Without a record, a later try can continue only if nothing was done, because anything that was done changes the
    # plan.
    can_go_on = has_store or not (outcome.created or is_creation_unknown or outcome.deleted)
    retryable = can_go_on and (is_left if stopped is None else stopped.retryable)
    kind: type[CustodyError]
    if is_creation_unknown and not retryable:
        kind = CustodyOutcomeUnknownError
    elif stopped is not None:
        kind = type(stopped)
    else:
        kind = CustodyConflictError if is_left else CustodyRequestError
    is_unknown = is_creation_unknown or (bool(outcome.unknown) and stopped is None and not is_left)

    rows = []
    for key, why in outcome.unknown.items():
        rows.append(lines(f"{_place(key, places)}: unknown: {why}", indent(outcome.advice.get(key, ""), "  ")))
    for key, why in outcome.refused.items():
        rows.append(f"{_place(key, places)}: {'not deleted' if is_deletion_key(key) else 'refused'}: {why}")
    if len(rows) > _MAX_ROWS:
        rows[_MAX_ROWS:] = [f"and {len(rows) - _MAX_ROWS} more: see the log"]

    advice = [stopped.advice if stopped else None]
    if is_creation_unknown:
        advice.append("Rows whose outcome is unknown are not sent again automatically.")
    if not can_go_on:
        advice.append("Start a new run: this Airflow keeps no record for a later try.")
    elif is_creation_unknown and not retryable:
        advice.append("Then clear this task.")
    elif stopped is None and not retryable:
        advice.append(
            "If rows are wrong, mark this task as success, so that the rest is signed; then correct the file, and "
            "start a new run. If the service is wrong, fix it, then clear this task."
        )
    if any(map(is_deletion_key, outcome.refused)):
        advice.append(f"{MARKED}.")

    reason = f": {stopped.reason}" if stopped else ""
    return kind(
        lines(f"not all of the plan was carried out ({counts}){reason}", *(indent(each, "  ") for each in rows)),
        code="outcome-unknown" if is_unknown else stopped.code if stopped else "plan-incomplete",
        retryable=retryable,
        status=stopped.status if stopped else None,
        retry_after=stopped.retry_after if stopped else None,
        advice=lines(*advice),
    )


def _place(key: str, places: Mapping[str, str]) -> str:
    return places.get(key) or f"request {deleted_id(key)}"
