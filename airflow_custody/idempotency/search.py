"""Search for rows that were sent and whose outcome is unknown."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import starmap
from typing import TYPE_CHECKING, Literal, Protocol

from airflow_custody.client.delays import growing_delays
from airflow_custody.client.errors import CustodyError, CustodyRequestError
from airflow_custody.client.http.fence import FENCE
from airflow_custody.client.text import count, lines, name_some
from airflow_custody.idempotency.store import Batch, Row, Store

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.request import Request

# Accepted lag of the service's clock behind Airflow's clock. An object counts as new if it was created at most this
# long before the row was recorded.
_PRECISION = timedelta(seconds=1)


#: The outcome of a create. ``sent``: it was sent, with any result. ``found``: its response was lost, and a search found
#: the object. ``unknown``: whether the object exists is unknown.
CreateOutcome = Literal["sent", "found", "unknown"]
#: Called with an outcome and the number of rows that have it.
Report = Callable[[CreateOutcome, int], object]


@dataclass(frozen=True)
class Candidate:
    """
    An object at the service that may be the one that a row created.

    :param id: its id.
    :param differs: the fields in which it differs from the row.
    :param filled_in: the fields among them that the row does not request, and that are not part of its destination. The
        service may have filled them in. Default: none.
    :param unclear: why the object cannot be compared with the row; empty if it can be compared.
    :param created_at: creation time; None if the service does not report one.
    :param by_other: whether the service reports another user as its creator. Default False.
    :param filtered: whether the service's own filter finds it. The search before the send used that filter, so an
        object that the filter finds, and that the earlier search did not find, is new. Default True.
    :param is_rejected: whether it was rejected. Default False.
    :param request: the whitelisting request. Default None: the object is something else.
    """

    id: str
    differs: tuple[str, ...] = ()
    unclear: str = ""
    created_at: datetime | None = None
    by_other: bool = False
    filtered: bool = True
    is_rejected: bool = False
    filled_in: tuple[str, ...] = ()
    request: Request | None = None

    @property
    def mismatch(self) -> str:
        """Why the object's content is not the requested content; empty if the content is the same."""
        return self.unclear or (f"it differs in: {', '.join(self.differs)}" if self.differs else "")

    @property
    def contradiction(self) -> str:
        """
        Why an id that is recorded, or that a user supplied, cannot be the row's; empty if it can.

        A service may shorten the label, and fill in fields. The review before signing compares them again.
        """
        is_excused = not self.unclear and {*self.differs} <= {"label", *self.filled_in}
        return "" if is_excused else self.mismatch

    @property
    def difference(self) -> str:
        """Why the object is not the requested object; empty if it is the requested object."""
        return self.mismatch or ("another user created it" if self.by_other else "")


@dataclass(frozen=True)
class SearchResult:
    """
    The result of a search for a row.

    :param candidates: the candidates.
    :param inconclusive: why the search does not prove absence if there are no candidates; empty: absence is proved;
        None: the search was not thorough.
    :param hidden: number of objects that the service's own filter finds, and that the service does not return. Default
        0.
    """

    candidates: Sequence[Candidate]
    inconclusive: str | None
    hidden: int = 0


class Creation(Protocol):
    """The objects to create for rows, and how to find them again."""

    @property
    def what(self) -> str:
        """The kind of object, for messages: ``"whitelisting request"``."""

    @property
    def timeout(self) -> float:
        """How long, in seconds, the client waits for a response."""

    @property
    def content(self) -> Mapping[str, object]:
        """
        The service and the requested fields, which must not change between tries.

        Used only to create a single object.
        """

    def which(self, key: str) -> str:
        """Return a short description of a row's object, enough to recognize it at the service."""

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        """Create an object and return its id; call ``before_send`` right before sending the request's body."""

    def find(self, keys: Collection[str], *, thorough: bool) -> Mapping[str, SearchResult]:
        """
        Find the candidates for rows at the service.

        :param keys: the rows' keys.
        :param thorough: whether to read everything that the service lists. Otherwise only the service's own filter is
            used, which may miss an object with another spelling.
        """

    def get(self, key: str, identifier: str) -> Candidate | None:
        """Get an object by its id and compare it with a row; None if the service reports that it does not exist."""


def is_new(batch: Batch, row: Row, candidate: Candidate) -> bool | None:
    """
    Tell whether an object was created after a row was recorded; None: unknown.

    A creation time can prove that the object is new. It never proves that the object is old, because the service's
    clock may be wrong by days.
    """
    if row.known_ids is not None and (candidate.filtered or candidate.id in row.known_ids):
        return candidate.id not in row.known_ids
    since = batch.recorded_at
    if since is None or candidate.created_at is None or candidate.created_at < since - _PRECISION:
        return None
    return True


def seconds_under_way(timeout: float, lookup_wait: float) -> float:
    """
    Return the seconds after which every sent request must be listed.

    A request leaves at most two fences after its row was recorded: when the record is checked, it is at most one fence
    old, and the request leaves at most one fence after this check.
    """
    return 2 * FENCE + timeout + lookup_wait


@dataclass
class Resolved:
    """
    The result of searching for rows.

    :param unknown: why a user must decide about a row, by the row's key.
    :param failure: the error that ended the search; None: the outcome of every other row is known now.
    """

    unknown: dict[str, str] = field(default_factory=dict)
    failure: CustodyError | None = None


@dataclass(eq=False, repr=False)
class Search:
    """
    The search for rows of this try and of earlier tries whose outcome is unknown.

    :param store: the record of what was sent.
    :param creation: the objects to create.
    :param log: the task's log.
    :param lookup_wait: seconds that the service may take to list what it created.
    :param report: called with the number of rows that were found.
    """

    store: Store
    creation: Creation
    log: logging.Logger
    lookup_wait: float
    report: Report

    def __post_init__(self) -> None:
        self.under_way = seconds_under_way(self.creation.timeout, self.lookup_wait)

    def resolve(self, keys: Collection[str], *, searched_at: float | None = None) -> Resolved:
        """
        Search the service until each open row is found, or would have been found.

        The wait starts with the first successful search, by this process's own clock. It does not start at the recorded
        time, because that may be by another machine's clock, and because a service that hangs may process requests only
        after it responds again.

        If the service cannot be searched, and the error is permanent, a user must decide about the rows. If temporary
        errors last too long, the search has failed.

        :param keys: the rows' keys.
        :param searched_at: time of an earlier search for all of these rows; None (default): there was none.
        """
        began, delays = time.monotonic(), growing_delays(first=1.0, maximum=5.0)
        sure_after = None if searched_at is None else searched_at + self.under_way
        # After an earlier search, most open rows were never sent. Do not search again before the wait is over, because
        # the result would be the same.
        delay = 0.0 if sure_after is None else max(0.0, sure_after - began)
        unknown: dict[str, str] = {}
        number, logged = 0, ""
        while open_ := [key for key in self.store.open_rows() if key in keys and key not in unknown]:
            if len(open_) != number:
                number = len(open_)
                self.log.info("Searching the service for %s whose outcome is unknown.", count(number, "row"))
            time.sleep(delay)
            # Whether everything that was created must be listed by now.
            is_late = sure_after is not None and time.monotonic() >= sure_after
            try:
                found = self.creation.find(open_, thorough=is_late)
            except CustodyError as error:
                if not error.retryable:
                    return Resolved(unknown | dict.fromkeys(open_, f"The service cannot be searched: {error.text}"))
                if time.monotonic() - began > 2 * self.under_way:
                    return Resolved(unknown, error)
                if str(error) != logged:
                    # Log the reason once, not at each attempt.
                    logged = str(error)
                    self.log.warning("Cannot search the service yet: %s", error)
                sure_after = None
            else:
                logged = ""
                unknown |= self.judge(found)
                sure_after = sure_after or time.monotonic() + self.under_way
            delay = next(delays)
            if sure_after is not None:
                delay = max(0.05, min(delay, sure_after - time.monotonic()))
        return Resolved(unknown)

    def judge(self, found: Mapping[str, SearchResult]) -> dict[str, str]:
        """
        Record the outcomes of rows.

        If only one possible candidate has a row's content, and it is certainly new, the row has created it.

        :param found: the result of the search for each row, by key. A thorough result must have been read late enough
            to include everything that was created.
        :return: why a user must decide about a row, by the row's key.
        """
        outcomes: dict[str, Row] = {}
        unknown: dict[str, str] = {}
        taken = self.store.ids()
        for key, result in found.items():
            outcome = self._judge_row(key, result, taken)
            if isinstance(outcome, str):
                if outcome:
                    unknown[key] = outcome
                continue
            outcomes[key] = outcome
            if outcome.state == "created":
                taken.add(outcome.detail)
        self.store.record(outcomes.items())
        created = sum(row.state == "created" for row in outcomes.values())
        self.report("found", created)
        if created:
            made = {key: row.detail for key, row in outcomes.items() if row.state == "created"}
            named = name_some([f"{made[key]} for {self.creation.which(key)}" for key in made], 120)
            self.log.info("Found, created by this task: %s %s.", self.creation.what, named)
        if len(outcomes) > created:
            number = count(len(outcomes) - created, "row")
            self.log.info("%s created nothing, and can be sent again.", number)
        return unknown

    def _judge_row(self, key: str, result: SearchResult, taken: Collection[str]) -> Row | str:
        """Return the row's new record, or the reason why its outcome is unknown; empty: search again."""
        batch, row = self.store.rows[key]
        # An exact match is possible even if a response named its id for another row.
        there = [each for each in result.candidates if each.id not in taken or not each.differs]
        is_new_by_candidate = {each: is_new(batch, row, each) for each in there}
        possible = {each: is_it for each, is_it in is_new_by_candidate.items() if is_it is not False}
        same = [each for each in possible if not each.differs and not each.by_other]
        # The row has certainly created the only possible candidate with its content, if that is new and readable.
        if len(same) == 1 and possible[same[0]] and not same[0].unclear and same[0].id not in taken:
            return row.become("created", same[0].id)
        if possible:
            return f"Found at the service: {'; '.join(starmap(_describe, possible.items()))}."
        if result.inconclusive:
            return f"The service lists no such object, but this proves nothing: {result.inconclusive}."
        return "" if result.inconclusive is None else row.become("void")

    # --- manual overrides ----------------------------------------------------------------------------------

    def advice(self, key: str) -> str:
        """Return instructions for a manual override of a row, line by line."""
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

    def follow_override(self, key: str) -> str | None:
        """
        Apply the manual override of a row, if there is one.

        It is checked against the service if the service can be searched.

        :param key: the row's key.
        :return: why the override is wrong; empty if it was applied; None if there is none.
        :raises CustodyError: if the service cannot be searched now.
        """
        word, *others = self.store.manual_override(key) or [""]
        if not word:
            return None
        problem = self._problem(key, word, others)
        if problem:
            return f"The variable is set to {' '.join([word, *others])}: {problem}."
        row = self.store.rows[key][1]
        self.log.info("The variable is set to %s for %s.", word, self.creation.which(key))
        self.store.record([(key, row.become("void") if word == "none" else row.become("created", word))])
        return ""

    def _problem(self, key: str, word: str, others: Collection[str]) -> str:
        """Return why a manual override is wrong; empty if no error was found."""
        try:
            return self._problem_of_none(key, others) if word == "none" else self._problem_of(key, word)
        except CustodyError as error:
            if error.retryable or (error.status is None and not isinstance(error, CustodyRequestError)):
                raise
            if error.status is None:
                return f"this is not a usable id: {error.message}"
            self.log.warning("The variable's value cannot be checked: %s", error)
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
            f"{', '.join(like)} has the requested content. If this task did not create it, set the variable to "
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
            return "this object existed before this task sent its request"
        if identifier in self.store.ids():
            return "it belongs to another row"
        if found.contradiction:
            return found.contradiction
        if found.difference:
            self.log.warning("%s differs from the requested object: %s.", identifier, found.difference)
        return ""


def _describe(candidate: Candidate, is_it_new: bool | None) -> str:
    age = "is new" if is_it_new else "may have existed before this task"
    return f"{candidate.id} {age}, and {candidate.difference or 'has the requested content'}"
