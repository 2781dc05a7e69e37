"""Finding out what became of rows that were sent and of which nobody knows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.text import count
from airflow_custody.idempotency.candidates import AmbiguousError, Candidate, is_new, select
from airflow_custody.idempotency.create_once import CreateOutcome, Found, Timing, lookup_intervals
from airflow_custody.idempotency.rows import Row, RowStore, Window

# A window may take long: the service says how long to wait between its rows.
_MAX_WINDOW_SECONDS = 3600.0
# Others may wait for this task, and want to know that it is still there.
_SECONDS_BETWEEN_SIGNS = 10.0


class RowsCreation(Protocol):
    """The objects to create for rows, and how to find them again."""

    @property
    def operation(self) -> Operation:
        """The operation that creates one."""

    @property
    def what(self) -> str:
        """The kind of thing, for people: ``"whitelisting request"``."""

    @property
    def timeout(self) -> float:
        """The seconds after which the sender gives up waiting for a response."""

    def which(self, key: str) -> str:
        """Return which one a row asks for, for people."""

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        """Create one and return its id; ``before_send`` must be called right before the first byte leaves."""

    def known_ids(self, key: str) -> tuple[str, ...]:
        """Return the ids of what may be this one, and was there before any was sent."""

    def find(self, keys: Collection[str], *, thorough: bool) -> Mapping[str, Found]:
        """
        Find whatever may be the rows' at the service.

        :param keys: the rows' keys.
        :param thorough: whether to look at everything that the service lists. Otherwise what the service itself filters
            is enough, which may miss a thing that it spells differently.
        """


class LostRows:
    """
    The rows whose outcome is unknown, of this try and of earlier ones.

    :param store: the record of each row; a plan has begun.
    :param creation: the objects to create.
    :param log: the task's log.
    :param lookup_wait: seconds that the service may take to show what it created.
    :param timing: clocks and bounds.
    :param keep: called while this takes long; raises if this task must not go on.
    :param report: called with what became of creates, and how many.
    """

    def __init__(
        self,
        store: RowStore,
        creation: RowsCreation,
        log: logging.Logger,
        *,
        lookup_wait: float,
        timing: Timing,
        keep: Callable[[], None],
        report: Callable[[CreateOutcome, int], object],
    ) -> None:
        self._store = store
        self._creation = creation
        self._log = log
        self._lookup_wait = lookup_wait
        self._keep = keep
        self._report = report
        self._began = time.monotonic()
        # A request of an earlier try may be under way for so long; one of this try, for the look-up's time.
        self._under_way = timing.fence + creation.timeout + lookup_wait
        self._earlier = store.log.with_state("sent").keys()
        self._only: Collection[str] | None = None
        #: Why a person must decide about rows, by their keys.
        self.unknown: dict[str, str] = {}
        #: The error that ended the last search; None: none did.
        self.failure: CustodyError | None = None

    @property
    def open(self) -> dict[str, Window]:
        """The windows of the rows of which more may become known, by the row's key."""
        sent = self._store.log.with_state("sent")
        return {
            key: window
            for key, window in sent.items()
            if key not in self.unknown and (self._only is None or key in self._only)
        }

    def only(self, keys: Collection[str]) -> None:
        """Keep only these rows: the requests of others are not known any more."""
        self._only = keys

    def adopt(self, found: Mapping[str, Found]) -> None:
        """
        Take what was found for what earlier tries sent.

        :param found: the search results, by the row's key.
        """
        adopted: list[tuple[Window, str, Row | None]] = []
        taken = self._created_ids()
        for key, window in self.open.items():
            if key not in found:
                continue
            try:
                candidate = self._select(window, key, found[key].candidates)
            except AmbiguousError:
                # More becomes known by searching thoroughly.
                continue
            if candidate is not None and candidate.id not in taken:
                taken.add(candidate.id)
                adopted.append((window, key, Row("created", candidate.id)))
        self._store.record(adopted)
        self._report("found", len(adopted))

    def resolve(self) -> set[str]:
        """
        Search the service until all rows are found, or would have been.

        :return: the keys of the rows that came to nothing, which may be sent again. Empty if the service cannot be
            searched: then :attr:`failure` says why.
        """
        open_ = self.open
        if not open_:
            return set()
        self._log.info("Searching the service for %s whose outcome is unknown.", count(len(open_), "row"))
        wait = self._under_way if self._earlier & open_.keys() else self._lookup_wait
        # The service was searched when this began.
        sure_after: float | None = max(time.monotonic() + self._lookup_wait, self._began + wait)
        intervals, failed_since = lookup_intervals(), None
        while open_:
            self._keep()
            late = sure_after is not None and time.monotonic() >= sure_after
            if sure_after is not None and not late and open_.keys() <= self._earlier:
                # They were searched for when this try began. Most were never sent, and those take the time.
                time.sleep(min(_SECONDS_BETWEEN_SIGNS, max(0.05, sure_after - time.monotonic())))
                continue
            try:
                found = self._creation.find(list(open_), thorough=late)
            except CustodyError as error:
                failed_since = failed_since or time.monotonic()
                if not error.retryable or time.monotonic() - failed_since > self._lookup_wait:
                    self.failure = error
                    return set()
                self._log.warning("Cannot search the service yet: %s", error)
                # A service that hangs may hold what was sent until it responds again.
                sure_after = None
            else:
                failed_since = None
                if sure_after is None:
                    sure_after = time.monotonic() + wait
                if late:
                    return self._judge_late(open_, found)
                open_ = self._judge(open_, found)
                if not open_:
                    break
            interval = next(intervals)
            time.sleep(interval if sure_after is None else max(0.05, min(interval, sure_after - time.monotonic())))
        return set()

    def _judge(self, open_: Mapping[str, Window], found: Mapping[str, Found]) -> dict[str, Window]:
        """Note the outcome of each row that needs no further search, and return the others."""
        created: list[tuple[Window, str, Row | None]] = []
        others = {}
        taken = self._created_ids()
        for key, window in open_.items():
            try:
                candidate = self._select(window, key, found[key].candidates)
            except AmbiguousError as error:
                self.unknown[key] = self._advise(window, key, str(error))
                continue
            if candidate is None:
                others[key] = window
            elif candidate.id in taken:
                why = f"Found at the service: {candidate.id}, which is another row's."
                self.unknown[key] = self._advise(window, key, why)
            else:
                taken.add(candidate.id)
                what, which = self._creation.what, self._creation.which(key)
                self._log.info("Found %s %s for %s.", what, candidate.id, which)
                created.append((window, key, Row("created", candidate.id)))
        self._store.record(created)
        self._report("found", len(created))
        return others

    def _judge_late(self, open_: Mapping[str, Window], found: Mapping[str, Found]) -> set[str]:
        """Decide on the rows, after the time by which all that was created is listed."""
        came_to_nothing: list[tuple[Window, str, Row | None]] = []
        for key, window in self._judge(open_, found).items():
            if found[key].inconclusive:
                why = f"The service shows none, which proves nothing: {found[key].inconclusive}."
                self.unknown[key] = self._advise(window, key, why)
            else:
                came_to_nothing.append((window, key, None))
        self._store.record(came_to_nothing)
        if came_to_nothing:
            self._log.info("%s had no effect: the service does not show them.", count(len(came_to_nothing), "row"))
        return {key for _, key, _ in came_to_nothing}

    def _created_ids(self) -> set[str]:
        """Return the ids of what is known to be a row's."""
        return {row.detail for _, row in self._store.log.rows().values() if row.state == "created"}

    def _select(self, window: Window, key: str, candidates: Iterable[Candidate]) -> Candidate | None:
        return select(window.intent(key), candidates, under_way=self._under_way + _MAX_WINDOW_SECONDS)

    # --- manual overrides ----------------------------------------------------------------------------------

    def _advise(self, window: Window, key: str, why: str) -> str:
        if not self._store.task.is_kept:
            return f"{why} Look at the service, and start a new run: this Airflow keeps no record for a later try."
        variable = self._store.task.override_variable(window.intent(key))
        return (
            f"{why} If it exists: airflow variables set {variable} ID; if it does not: airflow variables set "
            f"{variable} none"
        )

    def follow_overrides(self) -> None:
        """
        Apply the manual overrides of rows with an unknown outcome.

        :raises CustodyError: if the service cannot be searched.
        """
        said = {
            key: (window, override)
            for key, window in self.open.items()
            if (override := self._store.task.manual_override(window.intent(key)))
        }
        if not said:
            return
        found = self._creation.find(list(said), thorough=True)
        outcomes: list[tuple[Window, str, Row | None]] = []
        for key, (window, override) in said.items():
            word, *others = override.split()
            candidates = {each.id: each for each in found[key].candidates}
            if word == "none":
                left = [each for each in candidates.values() if each.id not in others]
                outcomes += self._follow_none(window, key, left)
            elif (
                word not in candidates
                or is_new(window.intent(key), candidates[word]) is False
                or word in self._created_ids()
            ):
                why = f"The variable says {word}, which is not a new {self._creation.what} for the same."
                self.unknown[key] = self._advise(window, key, why)
            else:
                self._log.info("Using %s for %s, as the variable says.", word, self._creation.which(key))
                outcomes.append((window, key, Row("created", word)))
        self._store.record(outcomes)

    def _follow_none(
        self, window: Window, key: str, candidates: Sequence[Candidate]
    ) -> list[tuple[Window, str, Row | None]]:
        # Whatever the clocks say: it was not there before, and asks for just this.
        intent, taken = window.intent(key), self._created_ids()
        ids = [each.id for each in candidates if each.same and is_new(intent, each) is not False]
        if like := [each for each in ids if each not in taken]:
            why = f"The variable says that there is none, but {', '.join(like)} is what this row asks for."
            self.unknown[key] = self._advise(window, key, why)
            return []
        self._log.info("The variable says that there is none for %s: sending.", self._creation.which(key))
        return [(window, key, None)]
