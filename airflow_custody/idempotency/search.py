"""Search the service for objects of rows that were sent, and whose outcome is unknown."""

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

# Accepted lag of the service's clock behind Airflow's clock: an object also counts as new if its creation time is at
# most this long before the time at which the row was recorded.
_PRECISION = timedelta(seconds=1)


#: The outcome of a create. ``sent``: the create was sent, with any result. ``found``: its response was lost, and a
#: search found the object. ``unknown``: it is unknown whether the object exists.
CreateOutcome = Literal["sent", "found", "unknown"]
#: Called with an outcome and the number of rows that have it.
Report = Callable[[CreateOutcome, int], object]


@dataclass(frozen=True)
class Candidate:
    """
    An object at the service that a row may have created.

    :param id: its id.
    :param differs: the fields in which it differs from the row.
    :param filled_in: the differing fields that the row does not request, and that are not part of its destination. The
        service may have filled them in. Default: none.
    :param unclear: why the object cannot be compared with the row; empty if it can be compared.
    :param created_at: creation time; None if the service does not report one.
    :param by_other: whether the service reports another user as its creator. Default False.
    :param filtered: whether the service's own filter finds the object. The search before sending used the same filter.
        So an object that the filter finds now, and did not find then, is new. Default True.
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
        """Why the object does not have the requested content; empty if it has."""
        return self.unclear or (f"it differs in: {', '.join(self.differs)}" if self.differs else "")

    @property
    def contradiction(self) -> str:
        """
        Why a recorded id, or an id from a user, cannot belong to the row; empty if it can.

        A different label or a filled-in field is not a contradiction, because a service may shorten the label and fill
        in fields. The review before signing compares these fields again.
        """
        is_excused = not self.unclear and {*self.differs} <= {"label", *self.filled_in}
        return "" if is_excused else self.mismatch

    @property
    def difference(self) -> str:
        """Why the object is not what this user requested; empty if it is."""
        return self.mismatch or ("another user created it" if self.by_other else "")


@dataclass(frozen=True)
class SearchResult:
    """
    The result of a search for a row.

    :param candidates: the candidates.
    :param inconclusive: why a search without candidates does not prove that the object does not exist. Empty: it does
        prove it. None: the search was not thorough.
    :param hidden: number of objects that the service's own filter counts, but that the service does not return. Default
        0.
    """

    candidates: Sequence[Candidate]
    inconclusive: str | None
    hidden: int = 0


class Creation(Protocol):
    """The objects to create for rows, with the ways to send, find and compare them."""

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
        :param thorough: whether to read everything that the service lists. Otherwise, only the service's own filter is
            used, which may miss an object whose address is spelled differently.
        """

    def get(self, key: str, identifier: str) -> Candidate | None:
        """Get an object by its id and compare it with a row; None if the service reports that it does not exist."""


def is_new(batch: Batch, row: Row, candidate: Candidate) -> bool | None:
    """
    Tell whether an object was created after a row was recorded; None: unknown.

    A creation time can prove that the object is new. It can never prove that the object is old, because the service's
    clock may be days behind.
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

    A request is sent at most two fences after its row was recorded. The first fence limits the record's age when it is
    checked, the second the time between this check and sending.
    """
    return 2 * FENCE + timeout + lookup_wait


@dataclass
class Resolved:
    """
    The result of searching for rows.

    :param unknown: why a user must decide about a row, by the row's key.
    :param failure: the error that ended the search. None: the outcome of every row that is not in ``unknown`` is known
        now.
    """

    unknown: dict[str, str] = field(default_factory=dict)
    failure: CustodyError | None = None


@dataclass(eq=False, repr=False)
class Search:
    """
    The search for rows whose outcome is unknown, whether this try or an earlier one sent them.

    :param store: the record of what was sent.
    :param creation: the objects to create.
    :param log: the task's log.
    :param lookup_wait: seconds that the service may take to list what it created.
    :param report: called with the number of rows whose objects were found.
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
        Search the service until the object of each open row is found, or would be listed by now if it existed.

        An object must be listed after :attr:`under_way` seconds. This time is counted from the first successful search,
        by this process's own clock. It is not counted from the recorded time, because another machine's clock may have
        been used there, and because a service that hangs may process requests only after it responds again.

        If the service cannot be searched because of a permanent error, a user must decide about the rows. If temporary
        errors last too long, the search fails.

        :param keys: the rows' keys.
        :param searched_at: time of an earlier search for all of these rows; None (default): there was none.
        """
        began, delays = time.monotonic(), growing_delays(first=1.0, maximum=5.0)
        sure_after = None if searched_at is None else searched_at + self.under_way
        # The earlier search did not find these rows, so most of them were probably never sent. Another search is only
        # conclusive when the wait is over, so wait first.
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

        A row has created a candidate if that is certainly new, and the only possible candidate with the row's content.

        :param found: the result of the search for each row, by key. A thorough result must have been read so late that
            it includes everything that was created.
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
            self.log.info("Found at the service, and created by this task: %s %s.", self.creation.what, named)
        if len(outcomes) > created:
            number = count(len(outcomes) - created, "row")
            self.log.info("%s created nothing, and can be sent again.", number)
        return unknown

    def _judge_row(self, key: str, result: SearchResult, taken: Collection[str]) -> Row | str:
        """Return the row's new record, or the reason why its outcome is unknown (empty: search again)."""
        batch, row = self.store.rows[key]
        # A candidate that another row has created is not possible, unless it matches exactly: a response may have named
        # its id for the wrong row.
        there = [each for each in result.candidates if each.id not in taken or not each.differs]
        is_new_by_candidate = {each: is_new(batch, row, each) for each in there}
        possible = {each: is_it for each, is_it in is_new_by_candidate.items() if is_it is not False}
        same = [each for each in possible if not each.differs and not each.by_other]
        # If only one possible candidate has the row's content, is new and can be read, the row has created it.
        if len(same) == 1 and possible[same[0]] and not same[0].unclear and same[0].id not in taken:
            return row.become("created", same[0].id)
        if possible:
            return f"Found at the service: {'; '.join(starmap(_describe, possible.items()))}."
        if result.inconclusive:
            return f"The service does not list the object, but this proves nothing: {result.inconclusive}."
        return "" if result.inconclusive is None else row.become("void")

    # --- manual overrides ----------------------------------------------------------------------------------

    def advice(self, key: str) -> str:
        """Return instructions for a manual override of a row, line by line."""
        batch, _ = self.store.rows[key]
        if batch.plan and not self.store.is_kept:
            return (
                "Check in the service whether the request exists, and start a new run: this version of Airflow keeps "
                "no record for a later try."
            )
        variable = self.store.override_variable(key, next_try=True)
        return lines(
            f"Look in the service for a {self.creation.what} for {self.creation.which(key)}, pending ones included.",
            f"If it exists, run 'airflow variables set {variable} ID' with its id.",
            f"If it does not exist, run 'airflow variables set {variable} none'.",
            "Then clear this task.",
        )

    def follow_override(self, key: str) -> str | None:
        """
        Apply the user's manual override of a row, if there is one.

        The override is first checked against the service, unless the service cannot be searched at all.

        :param key: the row's key.
        :return: why the override is wrong; empty if it was applied; None if there is no override.
        :raises CustodyError: if the service cannot be searched now, because of a temporary error.
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
        """Return why a manual override is wrong; empty if nothing speaks against it."""
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
            return "this object does not exist"
        if identifier == row.detail:
            return ""
        if is_new(batch, row, found) is False:
            return "this object existed before this task sent its request"
        if identifier in self.store.ids():
            return "this object belongs to another row"
        if found.contradiction:
            return found.contradiction
        if found.difference:
            self.log.warning("%s differs from the requested object: %s.", identifier, found.difference)
        return ""


def _describe(candidate: Candidate, is_it_new: bool | None) -> str:
    age = "is new" if is_it_new else "may have existed before this task"
    return f"{candidate.id} {age}, and {candidate.difference or 'has the requested content'}"
