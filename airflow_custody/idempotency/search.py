"""Finding out what became of rows that were sent and of which nobody knows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import starmap
from typing import Literal, Protocol

from airflow_custody.client.delays import growing_delays
from airflow_custody.client.errors import CustodyError, CustodyRequestError
from airflow_custody.client.http.fence import FENCE
from airflow_custody.client.text import count, lines
from airflow_custody.idempotency.records import Batch, Row
from airflow_custody.idempotency.store import Store

# How far the service's clock may be behind Airflow's for a date to count as after the send.
_PRECISION = timedelta(seconds=1)


#: The outcome of a create: it was sent, whatever came of it; its response was lost, and it was found again; or nobody
#: knows whether it exists.
CreateOutcome = Literal["sent", "found", "unknown"]
#: Called with an outcome, and how many rows have it.
Report = Callable[[CreateOutcome, int], object]


@dataclass(frozen=True)
class Candidate:
    """
    Something at the service that has the key of what was asked for.

    :param id: its id.
    :param differs: the fields in which it is something else.
    :param unclear: why it cannot be told whether it is what was asked for; empty if it can.
    :param created_at: creation time; None if the service does not say.
    :param by_other: whether the service says that another user created it. Default False.
    :param filtered: whether the service's own filter finds it. Only then does it prove something that the search
        before the send, which used the filter, did not find it. Default True.
    :param is_rejected: whether somebody has rejected it. Default False.
    """

    id: str
    differs: tuple[str, ...] = ()
    unclear: str = ""
    created_at: datetime | None = None
    by_other: bool = False
    filtered: bool = True
    is_rejected: bool = False

    @property
    def mismatch(self) -> str:
        """Why its content is not what was asked for; empty if it is."""
        return self.unclear or (f"it differs in: {', '.join(self.differs)}" if self.differs else "")

    @property
    def difference(self) -> str:
        """Why it is not what was asked for; empty if it is."""
        return self.mismatch or ("another user created it" if self.by_other else "")


@dataclass(frozen=True)
class Found:
    """
    The result of a search for a row.

    :param candidates: the candidates.
    :param inconclusive: why a thorough search that found nothing proves nothing; empty if it does prove absence; None:
        it was not thorough.
    """

    candidates: Sequence[Candidate]
    inconclusive: str | None


class Creation(Protocol):
    """The objects to create for rows, and how to find them again."""

    @property
    def what(self) -> str:
        """The kind of thing, for people: ``"whitelisting request"``."""

    @property
    def timeout(self) -> float:
        """The seconds after which the sender gives up waiting for a response."""

    @property
    def content(self) -> Mapping[str, object]:
        """The fields that must not change from one try to the next, if it is one: what is asked for, and where."""

    def which(self, key: str) -> str:
        """Return which one a row asks for, for people: enough to recognize it at the service."""

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        """Create one and return its id; ``before_send`` must be called right before the request's body leaves."""

    def find(self, keys: Collection[str], *, thorough: bool) -> Mapping[str, Found]:
        """
        Find whatever may be the rows' at the service.

        :param keys: the rows' keys.
        :param thorough: whether to look at everything that the service lists. Otherwise what the service itself filters
            is enough, which may miss a thing that it spells differently.
        """

    def get(self, key: str, identifier: str) -> Candidate | None:
        """Get the thing with an id, to compare it with a row; None if the service itself says that there is none."""


def is_new(batch: Batch, row: Row, candidate: Candidate) -> bool | None:
    """
    Tell whether something was created after a row was recorded; None if that cannot be told.

    A date never proves that it is old: the service's clock may be wrong by days. It can prove that it is new.
    """
    if row.known_ids is not None and (candidate.filtered or candidate.id in row.known_ids):
        return candidate.id not in row.known_ids
    since = batch.recorded_at
    if since is None or candidate.created_at is None or candidate.created_at < since - _PRECISION:
        return None
    return True


def seconds_under_way(timeout: float, lookup_wait: float) -> float:
    """
    Return the seconds for which a request may be on its way, or not be listed yet.

    Its row was recorded at most one fence before the last look at that record, and leaves at most one fence later.
    """
    return 2 * FENCE + timeout + lookup_wait


@dataclass(eq=False, repr=False)
class Search:
    """
    The search for rows whose outcome is unknown, of this try and of earlier ones.

    :param store: what was sent.
    :param creation: the objects to create.
    :param log: the task's log.
    :param lookup_wait: seconds that the service may take to show what it created.
    :param report: called with how many were found.
    """

    store: Store
    creation: Creation
    log: logging.Logger
    lookup_wait: float
    report: Report

    def __post_init__(self) -> None:
        self.under_way = seconds_under_way(self.creation.timeout, self.lookup_wait)
        #: Why a person must decide about rows, by their keys.
        self.unknown: dict[str, str] = {}
        #: The error that ended the last search; None: none did.
        self.failure: CustodyError | None = None

    def resolve(self, keys: Collection[str], *, searched_at: float | None = None) -> None:
        """
        Search the service until all of these rows that are open are found, or would have been.

        The wait is counted by this process's own clock, from the first search that succeeds: the clock that a row was
        recorded by may be another machine's, and a service that hangs may hold what was sent until it responds again.

        :param keys: the rows' keys.
        :param searched_at: when all of them were searched for before; None (default): not yet.
        """
        began, delays = time.monotonic(), growing_delays(first=1.0, maximum=5.0)
        sure_after = None if searched_at is None else searched_at + self.under_way
        # Most of these were never sent, so it is the time that counts.
        delay = 0.0 if sure_after is None else max(0.0, sure_after - began)
        while open_ := self._still_open(keys):
            self.log.info("Searching the service for %s whose outcome is unknown.", count(len(open_), "row"))
            time.sleep(delay)
            is_late = sure_after is not None and time.monotonic() >= sure_after
            if self._search(open_, is_late=is_late, began=began):
                sure_after = sure_after or time.monotonic() + self.under_way
            else:
                sure_after = None
            if self.failure is not None:
                return
            delay = next(delays)
            if sure_after is not None:
                delay = max(0.05, min(delay, sure_after - time.monotonic()))

    def _still_open(self, keys: Collection[str]) -> list[str]:
        return [key for key in self.store.open_rows() if key in keys and key not in self.unknown]

    def _search(self, keys: Sequence[str], *, is_late: bool, began: float) -> bool:
        """
        Search the service once, and judge what was found.

        :param keys: the keys of rows that are open.
        :param is_late: whether all that was created must be listed by now.
        :param began: when searching began.
        :return: whether the service could be searched. If it never can, the rows are unknown, or the search has failed.
        """
        try:
            found = self.creation.find(keys, thorough=is_late)
        except CustodyError as error:
            if not error.retryable:
                self.unknown |= dict.fromkeys(keys, f"The service cannot be searched: {error.text}")
            elif time.monotonic() - began > 2 * self.under_way:
                self.failure = error
            else:
                self.log.warning("Cannot search the service yet: %s", error)
            return False
        self.judge(found)
        return True

    def judge(self, found: Mapping[str, Found]) -> None:
        """
        Decide what became of rows: one is created if there is only one candidate that it can have created.

        :param found: what was found for each row, by its key; a thorough search is late enough to find all that was
            created.
        """
        outcomes: dict[str, Row] = {}
        taken = self.store.ids()
        for key, result in found.items():
            outcome = self._judge_row(key, result, taken)
            if isinstance(outcome, str):
                self.unknown |= {key: outcome} if outcome else {}
                continue
            outcomes[key] = outcome
            if outcome.state == "created":
                taken.add(outcome.detail)
        self.store.record(outcomes.items())
        created = sum(row.state == "created" for row in outcomes.values())
        self.report("found", created)
        if len(outcomes) > created:
            number = count(len(outcomes) - created, "row")
            self.log.info("%s had no effect: the service does not show what was sent.", number)

    def _judge_row(self, key: str, result: Found, taken: Collection[str]) -> Row | str:
        """Return what became of a row, or why that is not known; empty: this search does not tell."""
        batch, row = self.store.rows[key]
        # What is exactly this row's may be so, although a response named its id for another row.
        there = [each for each in result.candidates if each.id not in taken or not each.differs]
        is_new_by_candidate = {each: is_new(batch, row, each) for each in there}
        possible = {each: is_it for each, is_it in is_new_by_candidate.items() if is_it is not False}
        own = _own_candidate(possible)
        if own is not None and own.id not in taken:
            what, which = self.creation.what, self.creation.which(key)
            self.log.info("Found %s %s for %s: it did not exist before.", what, own.id, which)
            return row.become("created", own.id)
        if possible:
            return f"Found at the service: {'; '.join(starmap(_describe, possible.items()))}."
        if result.inconclusive:
            return f"The service shows none, which proves nothing: {result.inconclusive}."
        return "" if result.inconclusive is None else row.become("void")

    # --- manual overrides ----------------------------------------------------------------------------------

    def advice(self, key: str) -> str:
        """Return how a person decides about a row, line by line."""
        batch, _ = self.store.rows[key]
        if batch.plan and not self.store.is_kept:
            return "Look at the service, and start a new run: this Airflow keeps no record for a later try."
        variable = self.store.override_variable(key, next_try=True)
        return lines(
            f"Look in the service for a {self.creation.what} for {self.creation.which(key)}, pending ones included.",
            f"If it exists: airflow variables set {variable} ID, with its id.",
            f"If it does not: airflow variables set {variable} none.",
            "Then clear this task.",
        )

    def follow_override(self, key: str) -> bool:
        """
        Apply the manual override of a row, if there is one.

        What it says is checked against the service where that can be searched.

        :param key: the row's key.
        :return: whether it says what became of the row.
        :raises CustodyError: if the service cannot be searched now.
        """
        word, *others = self.store.manual_override(key) or [""]
        if not word:
            return False
        problem = self._problem(key, word, others)
        if problem:
            self.unknown[key] = f"The variable says {' '.join([word, *others])}: {problem}."
            return False
        row = self.store.rows[key][1]
        self.log.info("The variable says %s for %s.", word, self.creation.which(key))
        self.store.record([(key, row.become("void") if word == "none" else row.become("created", word))])
        return True

    def _problem(self, key: str, word: str, others: Collection[str]) -> str:
        """Return why a manual override cannot be right; empty: it may be."""
        try:
            return self._problem_of_none(key, others) if word == "none" else self._problem_of(key, word)
        except CustodyError as error:
            if error.retryable or (error.status is None and not isinstance(error, CustodyRequestError)):
                raise
            if error.status is None:
                return f"it cannot be: {error.message}"
            self.log.warning("What the variable says cannot be checked: %s", error)
            return ""

    def _problem_of_none(self, key: str, others: Collection[str]) -> str:
        batch, row = self.store.rows[key]
        ignored = {*others, row.detail, *self.store.ids()}
        found = self.creation.find([key], thorough=True)[key].candidates
        like = [
            each.id for each in found if not each.difference and each.id not in ignored and is_new(batch, row, each)
        ]
        if not like:
            return ""
        return (
            f"{', '.join(like)} is what was asked for. If that is not this task's all the same, say "
            f"'none {' '.join([*others, *like])}'"
        )

    def _problem_of(self, key: str, identifier: str) -> str:
        batch, row = self.store.rows[key]
        found = self.creation.get(key, identifier)
        if found is None:
            return "it does not exist"
        if identifier == row.detail:
            return ""
        if is_new(batch, row, found) is False:
            return "it existed before this task"
        if identifier in self.store.ids():
            return "it is another row's"
        # A person has looked at it, and may take for it what the service changed or filled in.
        if "address" in found.differs:
            return found.difference
        if found.difference:
            self.log.warning("%s is not quite what was asked for: %s.", identifier, found.difference)
        return ""


def _own_candidate(possible: Mapping[Candidate, bool | None]) -> Candidate | None:
    """
    Return the only candidate that a row can have created; None: there is none, several, or it is not certain.

    :param possible: the candidates, each with whether it is new; None: not known.
    """
    same = [each for each in possible if not each.differs and not each.by_other]
    if len(same) != 1 or not possible[same[0]] or same[0].unclear:
        return None
    return same[0]


def _describe(candidate: Candidate, is_it_new: bool | None) -> str:
    age = "is new" if is_it_new else "may have existed before this task"
    return f"{candidate.id} {age}, and {candidate.difference or 'is what was asked for'}"
