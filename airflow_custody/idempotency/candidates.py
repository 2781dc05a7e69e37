"""Selection of the candidate that an attempt created. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_custody.idempotency.records import Intent, Untracked

# How far the service's clock may be behind Airflow's for a date to count as after the send.
_PRECISION = timedelta(seconds=1)
# A date that is further from the time of the send than the clocks may differ is of another request.
_CLOCKS_DIFFER = timedelta(minutes=5)


class AmbiguousError(Exception):
    """
    Raised when it cannot be told which candidate an attempt created, or whether it created one.

    :param text: why, in words.
    :param like: the ids of those that the attempt may well have created.
    """

    def __init__(self, text: str, like: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.like = tuple(like)


@dataclass(frozen=True)
class Candidate:
    """
    Something at the service that may be what a task asked for.

    :param id: its id.
    :param same: whether it is what was asked for in every field.
    :param unclear: why that cannot be told; empty if it can.
    :param differs: the fields in which it certainly is something else.
    :param created_at: creation time; None if the service does not say.
    :param by_other: whether the service says that another user created it. Default False.
    :param filtered: whether the service's own filter finds it. Only then does it prove something that the search
        before the send, which used the filter, did not find it. Default True.
    :param guessed: whether only its other fields speak for it: the service would have written the address in a way
        that cannot be recognized. Default False.
    """

    id: str
    same: bool
    unclear: str = ""
    differs: tuple[str, ...] = ()
    created_at: datetime | None = None
    by_other: bool = False
    filtered: bool = True
    guessed: bool = False

    @property
    def difference(self) -> str:
        """Why it is not what was asked for."""
        return self.unclear or f"it asks for something else ({', '.join(self.differs)})"


def select(attempt: Intent | Untracked, candidates: Iterable[Candidate], *, under_way: float) -> Candidate | None:
    """
    Return the only candidate that an attempt can have created.

    A date never proves that a candidate is old: the service's clock may be wrong by days. It can prove that one is new.

    :param attempt: the attempt.
    :param candidates: the search results.
    :param under_way: seconds that a request may be under way after its intent was recorded.
    :return: the candidate; None if there is none.
    :raises AmbiguousError: if there are several, or one of which it cannot be told; its text says why.
    """
    matching: list[Candidate] = []
    unclear: list[str] = []
    changed: list[str] = []
    for each in candidates:
        new = is_new(attempt, each)
        if new is False or (each.guessed and not is_of_that_time(attempt, each, under_way)):
            continue
        if each.differs:
            # The service may have changed what was asked for, or filled something in.
            changed.append(f"{each.id} is for the same, but differs in: {', '.join(each.differs)}")
        elif new is None:
            unclear.append(f"{each.id} may have existed before this task")
        elif each.unclear:
            unclear.append(f"{each.id} is like it, but {each.unclear}")
        elif each.by_other:
            unclear.append(f"{each.id} is like it, but another user created it")
        elif _is_too_early(attempt, each):
            unclear.append(f"{each.id} was created at {each.created_at}, before this task sent its own")
        elif _is_too_late(attempt, each, under_way):
            unclear.append(f"{each.id} was created at {each.created_at}, after this task can have sent it")
        else:
            matching.append(each)
    if unclear or (changed and not matching):
        also = [f"{each.id} is like it" for each in matching]
        like = [each.id for each in matching]
        raise AmbiguousError(f"Found at the service: {'; '.join([*unclear, *changed, *also])}.", like)
    if len(matching) > 1:
        like = [each.id for each in matching]
        raise AmbiguousError(f"There are {len(like)} like it that did not exist before: {', '.join(like)}.", like)
    return matching[0] if matching else None


def _sent_after(attempt: Intent | Untracked) -> datetime | None:
    return attempt.recorded_at if isinstance(attempt, Intent) else attempt.since


def is_new(attempt: Intent | Untracked, candidate: Candidate) -> bool | None:
    """Tell whether something was created after the attempt; None if that cannot be told."""
    if isinstance(attempt, Intent) and attempt.known_ids is not None:
        if candidate.id in attempt.known_ids:
            return False
        if candidate.filtered:
            return True
    since = _sent_after(attempt)
    if since is None or candidate.created_at is None or candidate.created_at < since - _PRECISION:
        return None
    return True


def is_of_that_time(attempt: Intent | Untracked, candidate: Candidate, under_way: float) -> bool:
    """Tell whether something may have been created when the attempt was made."""
    since = _sent_after(attempt)
    if since is None or candidate.created_at is None:
        return True
    return candidate.created_at >= since - _PRECISION and not _is_too_late(attempt, candidate, under_way)


def _is_too_early(attempt: Intent | Untracked, candidate: Candidate) -> bool:
    # Another program may have created it between the look at what existed and the send.
    if isinstance(attempt, Untracked) or candidate.created_at is None:
        return False
    return candidate.created_at < attempt.recorded_at - _PRECISION


def _is_too_late(attempt: Intent | Untracked, candidate: Candidate, under_way: float) -> bool:
    if isinstance(attempt, Untracked) or candidate.created_at is None:
        return False
    return candidate.created_at > attempt.recorded_at + timedelta(seconds=under_way) + _CLOCKS_DIFFER
