"""Texts of the operators that plan and apply: on a plan, and on its outcome."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.text import ascii_lower, count, sanitize
from airflow_custody.client.whitelist.batches import name_some

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.file import WhitelistFile
    from airflow_custody.client.whitelist.plan import State, WhitelistPlan
    from airflow_custody.idempotency.apply_plan import Applied, PlanChangedError

_MAX_NAMED = 10
_MAX_LINES = 100
_UNVERIFIED: tuple[State, ...] = ("unverified",)


def unverified_text(plan: WhitelistPlan) -> str:
    """Describe the rows that do not verify; empty if all do, or nothing is verified."""
    if not plan.counts["unverified"]:
        return ""
    return (
        f"Signatures do not prove what the service shows: {changes_text(plan, _UNVERIFIED)}. Nothing is done about "
        f"these rows. {advice_text(plan)}"
    )


def marked_text(plan: WhitelistPlan, known_statuses: Collection[str]) -> str:
    """
    Return what to do about requests that the service may list because they were deleted; empty if there are none.

    :param plan: the plan.
    :param known_statuses: status words that mean something else.
    """
    known = {"", *map(ascii_lower, known_statuses)}
    words = {row.status: None for row in plan.with_action("delete") if ascii_lower(row.status) not in known}
    if not words:
        return ""
    return (
        f"Some of what it deletes has the status {some(words)}: if the service goes on listing with it what was "
        "deleted, add it to rejected_statuses of the tasks that plan and apply."
    )


def advice_text(plan: WhitelistPlan) -> str:
    """Return what to do about rows that do not verify; empty if there are none."""
    from airflow_custody.client.verification.trust import what_to_do

    ids = list(dict.fromkeys(row.request_id for row in plan.rows if row.state == "unverified"))
    return what_to_do(ids) if ids else ""


def changes_text(plan: WhitelistPlan, states: Collection[State]) -> str:
    """Return how many rows are in these states, and which the first are."""
    numbers = ", ".join(f"{plan.counts[state]} {state}" for state in states if plan.counts[state])
    # Unverified rows must not be hidden behind others.
    rows = sorted((row for row in plan.rows if row.state in states), key=lambda row: row.state != "unverified")
    names = []
    for row in rows:
        fields = f" ({name_some(row.fields)})" if row.fields else ""
        request = f"request {sanitize(row.request_id, 40)}"
        place = row.where or request
        if row.state == "unverified" and row.where:
            place += f" ({request})"
        names.append(f"{place} {row.state}{fields}")
    return f"{numbers}: {some(names)}"


def to_result(plan_hash: str, applied: Applied) -> dict[str, Any]:
    outcome, deletions = applied.outcome, applied.deletions
    return {
        "plan_hash": plan_hash,
        "counts": {
            "created": len(outcome.done),
            "deleted": len(deletions.done),
            "found": len(outcome.found),
            "refused": len(outcome.refused) + len(deletions.refused),
            "unknown": len(outcome.unknown) + len(deletions.unknown),
            "left": len(outcome.left) + len(deletions.left),
        },
        "request_ids": list(outcome.done.values()),
    }


def counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "nothing to do"


def to_failure(applied: Applied, file: WhitelistFile, *, can_go_on: bool) -> CustodyError | None:
    """
    Return the error that the task ends with; None if all was done.

    :param applied: the outcome of the plan.
    :param file: the file.
    :param can_go_on: whether a later try finds a record of this one.
    """
    from airflow_custody.idempotency.apply_plan import MARKED, row_key

    outcome, deletions = applied.outcome, applied.deletions
    problems = [*outcome.unknown.items(), *outcome.refused.items()]
    stopped = outcome.stopped or deletions.stopped
    is_left = bool(outcome.left or deletions.left)
    if not problems and not deletions.refused and not deletions.unknown and not is_left and stopped is None:
        return None
    places = {row_key(row.request): row for row in file.rows}
    lines = [
        f"{places[key].where}, {sanitize(places[key].request.label, 60)}: "
        f"{'unknown' if key in outcome.unknown else 'refused'}: {why}"
        for key, why in problems
    ]
    lines += [f"request {request_id}: not deleted: {why}" for request_id, why in deletions.refused.items()]
    lines += [f"request {request_id}: unknown: {why}" for request_id, why in deletions.unknown.items()]
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"and {len(lines) - _MAX_LINES} more, which the log has"]
    counts = counts_text(to_result("", applied)["counts"])
    table = "".join(f"\n  {each}" for each in lines)
    text = f"not all of the plan was carried out ({counts}){': ' + stopped.reason if stopped else ''}{table}"
    advice = [stopped.advice] if stopped is not None and stopped.advice else []
    advice += ["Nothing of what is unknown is sent again by itself."] if outcome.unknown else []
    marked = [f"{MARKED}."] if deletions.refused else []
    code: ErrorCode = "plan-incomplete"
    if stopped is not None:
        code = stopped.code
    elif deletions.unknown and not is_left and not outcome.refused and not deletions.refused:
        code = "outcome-unknown"
    if outcome.unknown:
        code = "outcome-unknown"
    if not can_go_on and (outcome.done or outcome.unknown or deletions.done):
        # A later try would find that the plan has changed.
        only_refused = not is_left and stopped is None
        error_type = (
            CustodyOutcomeUnknownError
            if outcome.unknown
            else CustodyRequestError
            if only_refused
            else CustodyConflictError
        )
        again = "Start a new run: this Airflow keeps no record for a later try."
        return error_type(text, advice=" ".join([*advice, again, *marked]), code=code)
    if stopped is not None and stopped.retryable:
        # The next try finds out more, and sends what is left.
        return CustodyConflictError(
            text,
            code=code,
            retryable=True,
            status=stopped.status,
            retry_after=stopped.retry_after,
            advice=" ".join(advice) or None,
        )
    if is_left and stopped is None:
        advice += ["The rows that are left had no effect."]
        return CustodyConflictError(text, code=code, retryable=True, advice=" ".join(advice))
    if outcome.unknown:
        return CustodyOutcomeUnknownError(text, advice=" ".join([*advice, "Then clear this task."]), code=code)
    if stopped is not None:
        return type(stopped)(text, retryable=False, status=stopped.status, advice=stopped.advice, code=code)
    mend = (
        "Mend the service, and clear this task. Or mark this task as success, so that the rest is signed; then mend "
        "the rows in the file, and start a new run."
    )
    return CustodyRequestError(text, code=code, advice=" ".join([mend, *marked]))


def what_changed(file: WhitelistFile, error: PlanChangedError, planned: Collection[str] | None) -> str:
    """
    Return what has changed since a plan was approved, as far as it is known.

    :param file: the file as it is now.
    :param error: the error, with the plan as it is now.
    :param planned: the operations of the approved plan, as :func:`shorten_operation` names them; None: not known.
    """
    changes = _changes_since(file, error, planned)
    if error.plan.counts["unverified"]:
        changes += f". The plan's hash also covers what is not verified: {changes_text(error.plan, _UNVERIFIED)}"
    return changes


def _changes_since(file: WhitelistFile, error: PlanChangedError, planned: Collection[str] | None) -> str:
    from airflow_custody.client.whitelist.plan import create_operation
    from airflow_custody.idempotency.apply_plan import shorten_operation

    if planned is None:
        creates, deletes = len(error.plan.with_action("create")), len(error.plan.with_action("delete"))
        return f"Now it would create {creates} and delete {deletes}: the file or the service has changed"
    now = {shorten_operation(each) for each in error.operations}
    states = {row.where: row for row in error.plan.rows if row.where}
    rows = {shorten_operation(create_operation(row.request)): row for row in file.rows}
    lines = []
    for operation, row in rows.items():
        name, found = f"{row.where} ({sanitize(row.request.label, 60)})", states.get(row.where)
        if operation in planned and operation not in now:
            lines.append(f"{name} is {found.state} now ({found.request_id})" if found else f"{name} is done now")
        elif operation in now and operation not in planned:
            lines.append(f"{name} is new or was changed")
    if gone := len(set(planned) - now - rows.keys()):
        lines.append(
            f"{count(gone, 'planned change')} to rows or requests that are not there any more, or have changed"
        )
    if more := len(now - set(planned) - rows.keys()):
        lines.append(count(more, "more deletion"))
    if not lines:
        return "It is for another service or tenant, was made with other settings, or other requests are not verified"
    return f"Since then: {some(lines)}"


def some(texts: Collection[str]) -> str:
    shown = list(texts)[:_MAX_NAMED]
    more = f"; and {len(texts) - len(shown)} more" if len(texts) > len(shown) else ""
    return "; ".join(shown) + more
