"""Which of the things at the service did an attempt create? Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_custody.idempotency.records import Intent, Untracked

# Dates that the service gives are compared with Airflow's clock with this much room: one that is wrong by more must
# not make a task's own request pass for somebody else's, nor the other way round.
_OLD_ENOUGH = timedelta(days=1)
_CLOCKS_DIFFER = timedelta(minutes=5)


class AmbiguousError(Exception):
    """Raised when it cannot be told which candidate an attempt created, or whether it created one."""


@dataclass(frozen=True)
class Candidate:
    """
    Something at the service that may be what a task asked for.

    :param id: its id.
    :param same: whether it is what was asked for in every field.
    :param unclear: why that cannot be told; empty if it can.
    :param created_at: when it was created; None if the service does not say.
    """

    id: str
    same: bool
    unclear: str = ""
    created_at: datetime | None = None

    @property
    def difference(self) -> str:
        """Why it is not what was asked for."""
        return self.unclear or "it asks for something else"


def select(attempt: Intent | Untracked, candidates: Iterable[Candidate], *, under_way: float) -> Candidate | None:
    """
    Return the only candidate that an attempt can have created.

    :param attempt: the attempt.
    :param candidates: what was found at the service.
    :param under_way: seconds that a request may be under way after its intent was recorded.
    :return: the candidate; None if there is none.
    :raises AmbiguousError: if there are several, or one of which it cannot be told; its text says why.
    """
    unclear, matching = [], []
    for each in candidates:
        new = _is_new(attempt, each)
        if new is False or (not each.same and not each.unclear):
            continue
        if new is None:
            unclear.append(f"{each.id} may have existed before this task")
        elif each.unclear:
            unclear.append(f"{each.id} is like it, but {each.unclear}")
        elif _is_too_late(attempt, each, under_way):
            unclear.append(f"{each.id} was created at {each.created_at}, after this task can have sent it")
        else:
            matching.append(each)
    if unclear:
        also = [f"{each.id} is like it" for each in matching]
        raise AmbiguousError(f"Found at the service: {'; '.join([*unclear, *also])}.")
    if len(matching) > 1:
        ids = ", ".join(each.id for each in matching)
        raise AmbiguousError(f"There are {len(matching)} like it that did not exist before: {ids}.")
    return matching[0] if matching else None


def _is_new(attempt: Intent | Untracked, candidate: Candidate) -> bool | None:
    """Tell whether something was created after the attempt; None if that cannot be told."""
    if isinstance(attempt, Intent) and attempt.known_ids is not None:
        return candidate.id not in attempt.known_ids
    since = attempt.recorded_at if isinstance(attempt, Intent) else attempt.since
    if since is None or candidate.created_at is None:
        return None
    if candidate.created_at < since - _OLD_ENOUGH:
        return False
    return True if candidate.created_at >= since else None


def _is_too_late(attempt: Intent | Untracked, candidate: Candidate, under_way: float) -> bool:
    if isinstance(attempt, Untracked) or candidate.created_at is None:
        return False
    return candidate.created_at > attempt.recorded_at + timedelta(seconds=under_way) + _CLOCKS_DIFFER
