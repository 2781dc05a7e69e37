"""The error of a task that has executed only a part of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class PlanFailure:
    """
    The failure of a task that executes a plan.

    :param outcome: the outcome.
    :param places: the places of rows in the file, such as ``line 12``, by row key.
    :param counts: a summary of the outcome with numbers.
    :param has_store: whether a later try finds a record of this try.
    """

    outcome: Outcome
    places: Mapping[str, str]
    counts: str
    has_store: bool

    def error(self) -> CustodyError | None:
        """Return the error that the task ends with; None if all of the plan was executed."""
        stopped, rows = self.outcome.stopped, [*self._rows()]
        if not rows and not self._is_left and stopped is None:
            return None
        if len(rows) > _MAX_ROWS:
            rows[_MAX_ROWS:] = [f"and {len(rows) - _MAX_ROWS} more: see the log"]
        reason = f": {stopped.reason}" if stopped else ""
        text = f"not all of the plan was carried out ({self.counts}){reason}"
        return self._type(
            lines(text, *(indent(each, "  ") for each in rows)),
            code="outcome-unknown" if self._is_unknown else stopped.code if stopped else "plan-incomplete",
            retryable=self._is_retryable,
            status=stopped.status if stopped else None,
            retry_after=stopped.retry_after if stopped else None,
            advice=lines(*self._advice()),
        )

    # --- the facts -----------------------------------------------------------------------------------------

    @property
    def _is_creation_unknown(self) -> bool:
        """Whether the outcome of a creation is unknown. Deletions do not count: a later try may send them again."""
        return any(not is_deletion_key(key) for key in self.outcome.unknown)

    @property
    def _is_left(self) -> bool:
        """Whether another try has work to do. Deletions that only wait for failed rows do not count."""
        is_named = bool(self.outcome.unknown or self.outcome.refused)
        are_deletions = all(map(is_deletion_key, self.outcome.left))
        return bool(self.outcome.left) and not (is_named and are_deletions)

    @property
    def _can_go_on(self) -> bool:
        """
        Whether a later try can continue.

        Without a record, it can continue only if nothing was done, because anything that was done changes the plan.
        """
        is_anything_done = self.outcome.created or self._is_creation_unknown or self.outcome.deleted
        return self.has_store or not is_anything_done

    @property
    def _is_retryable(self) -> bool:
        stopped = self.outcome.stopped
        return self._can_go_on and (self._is_left if stopped is None else stopped.retryable)

    @property
    def _is_unknown(self) -> bool:
        is_deletion_unknown = bool(self.outcome.unknown) and self.outcome.stopped is None and not self._is_left
        return self._is_creation_unknown or is_deletion_unknown

    @property
    def _type(self) -> type[CustodyError]:
        if self._is_creation_unknown and not self._is_retryable:
            return CustodyOutcomeUnknownError
        if self.outcome.stopped is not None:
            return type(self.outcome.stopped)
        return CustodyConflictError if self._is_left else CustodyRequestError

    # --- in words ------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[str]:
        for key, why in self.outcome.unknown.items():
            yield f"{self._place(key)}: unknown: {why}"
        for key, why in self.outcome.refused.items():
            yield f"{self._place(key)}: {'not deleted' if is_deletion_key(key) else 'refused'}: {why}"

    def _place(self, key: str) -> str:
        return self.places.get(key) or f"request {deleted_id(key)}"

    def _advice(self) -> Iterator[str | None]:
        yield self.outcome.stopped.advice if self.outcome.stopped else None
        if self._is_creation_unknown:
            yield "Rows whose outcome is unknown are not sent again automatically."
        if not self._can_go_on:
            yield "Start a new run: this Airflow keeps no record for a later try."
        elif self._is_creation_unknown and not self._is_retryable:
            yield "Then clear this task."
        elif self.outcome.stopped is None and not self._is_retryable:
            yield (
                "If rows are wrong, mark this task as success, so that the rest is signed; then correct the file, and "
                "start a new run. If the service is wrong, fix it, then clear this task."
            )
        if any(map(is_deletion_key, self.outcome.refused)):
            yield f"{MARKED}."
