"""One try of a task that creates something at most once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT, Operation
from airflow_custody.idempotency.candidates import AmbiguousError, Candidate, is_new, is_of_that_time, select
from airflow_custody.idempotency.records import Begun, Created, Intent, Refused, Untracked, digest
from airflow_custody.idempotency.store import RecordStore

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: Behaviour when a person clears a task that has created its request.
OnClear = Literal["reuse", "create"]

#: The outcome of a create: it was sent, whatever came of it; its response was lost, and it was found again; or nobody
#: knows whether it exists.
CreateOutcome = Literal["sent", "found", "unknown"]
#: Called with what was created, for people, what became of it, and how many.
Report = Callable[[str, CreateOutcome, int], object]

_MAX_LOOKUP_INTERVAL = 5.0
_MAX_IDS_SHOWN = 10
# The status of a refusal to show something.
_NOT_SHOWN = 404
# A search that fails makes the wait begin anew. It does not go on for longer than this many waits.
_MAX_WAITS = 3


def ignore_report(what: str, outcome: CreateOutcome, number: int) -> None:
    """Tell nobody."""


def _two_clocks() -> tuple[float, float]:
    """Return two clocks: the first does not count while the machine sleeps, the second may be set."""
    return time.monotonic(), time.time()


@dataclass(frozen=True)
class Timing:
    """
    The clocks and bounds of creating once; tests turn them.

    :param fence: maximum number of seconds between asking for the intent to be recorded and the send. A process that
        was stopped in between for longer records it again, which fails if another try has taken over. Default 5.
    :param clocks: returns clocks that the fence is measured by.
    """

    fence: float = 5.0
    clocks: Callable[[], tuple[float, ...]] = _two_clocks


@dataclass(frozen=True)
class Found:
    """
    The result of a search of the service.

    :param candidates: the candidates.
    :param inconclusive: why a search that found nothing proves nothing; empty if it does prove absence.
    """

    candidates: Sequence[Candidate]
    inconclusive: str = ""


class Creation(Protocol):
    """A kind of object to create, and how to find it again."""

    @property
    def operation(self) -> Operation:
        """The operation that creates it."""

    @property
    def what(self) -> str:
        """The kind of thing, for people: ``"whitelisting request"``."""

    @property
    def which(self) -> str:
        """The one thing, for people: enough to recognize it at the service."""

    @property
    def content(self) -> Mapping[str, object]:
        """The fields that must not change from one try to the next: what is asked for, and where."""

    @property
    def timeout(self) -> float:
        """The seconds after which the sender gives up waiting for a response."""

    def send(self, before_send: Callable[[], None]) -> str:
        """Create it and return its id; ``before_send`` must be called right before the first byte leaves."""

    def find(self, *, thorough: bool) -> Found:
        """
        Find whatever may be it at the service.

        :param thorough: whether to look at everything that the service lists. Otherwise what the service itself filters
            is enough, which may miss a thing that it spells differently.
        """

    def get(self, identifier: str) -> Candidate | None:
        """Get one thing by its id; None if the service itself says that there is none."""


class CreateOnce:
    """
    Creates something unless an earlier try of this task instance did.

    :param context: the task's context.
    :param creation: the object to create.
    :param log: the task's log.
    :param on_clear: behaviour when a person has cleared the task after it was created: ``reuse`` (default) returns it
        again if it still exists, ``create`` creates another.
    :param look_before_create: whether to record before the first send what exists already. Default True.
    :param lookup_wait: seconds that the service may take to show what it created. Default 30.
    :param timing: clocks and bounds.
    :param report: called with what became of the create. Default: nobody is told.
    """

    def __init__(
        self,
        context: Context,
        creation: Creation,
        log: logging.Logger,
        *,
        on_clear: OnClear = "reuse",
        look_before_create: bool = True,
        lookup_wait: float = DEFAULT_LOOKUP_WAIT,
        timing: Timing | None = None,
        report: Report = ignore_report,
    ) -> None:
        self._creation = creation
        self._log = log
        self._on_clear = on_clear
        self._look_before_create = look_before_create
        self._lookup_wait = lookup_wait
        self._timing = timing or Timing()
        self._report = partial(report, creation.what)
        self._store = RecordStore(context)
        self._content = {name: digest(value) for name, value in creation.content.items()}

    def run(self) -> str:
        """
        Find out what earlier tries did, and send if that is safe.

        :return: the id of what was created, now or earlier.
        :raises CustodyOutcomeUnknownError: if it cannot be known whether it exists, or it asks for something else;
            nothing (more) was sent.
        :raises CustodyError: of another type if it was not created.
        """
        try:
            return self._run()
        except CustodyOutcomeUnknownError as error:
            if not error.retryable:
                self._report("unknown", 1)
            raise

    def _run(self) -> str:
        record = self._store.read()
        if record is None or isinstance(record, (Begun, Refused)):
            return self._create(self._find_known_ids())
        if override := self._store.manual_override(record):
            return self._follow(record, override)
        if isinstance(record, Created):
            return self._after_success(record)
        return self._after_unknown(record)

    # --- what an earlier try left behind -------------------------------------------------------------------

    def _after_success(self, record: Created) -> str:
        """Return what was created, or create another if a person has cleared the task and wants that."""
        what = f"{self._creation.what} {record.id}"
        cleared = record.max_tries != self._store.max_tries
        if cleared and self._on_clear == "create":
            self._log.info("This task created %s and was cleared: creating another, as on_clear='create' says.", what)
            return self._create(self._find_known_ids())
        self._refuse_changes(record)
        if not cleared:
            self._log.info("An earlier try of this task created %s: using it, nothing is sent.", what)
            return record.id
        try:
            found = self._find_created(record)
        except CustodyError as error:
            if not error.not_offered:
                raise
            self._log.warning("Whether %s still exists cannot be checked: %s", what, error)
        else:
            if found is None:
                self._log.warning("This task created %s, which no longer exists: creating another.", what)
                return self._create(self._find_known_ids())
            if not found.same:
                # The service said that it is this task's. It may have changed or filled in a field.
                self._log.warning("%s is not quite what this task asked for: %s.", what, found.difference)
        self._log.info(
            "This task created %s and was cleared: using it again. For a new one at each clear, give the operator "
            "on_clear='create'.",
            what,
        )
        return record.id

    def _find_created(self, record: Created) -> Candidate | None:
        """
        Get what was created, and wait as long as the service may take to show it.

        :raises CustodyError: ``not_offered`` if it is not there, and its absence proves nothing.
        """
        deadline, intervals = time.monotonic() + self._lookup_wait, lookup_intervals()
        while True:
            late = time.monotonic() >= deadline
            if (found := self._creation.get(record.id)) is not None:
                return found
            if late and (inconclusive := self._creation.find(thorough=True).inconclusive):
                raise CustodyError(
                    f"the service does not show it, which proves nothing: {inconclusive}",
                    code="not-offered",
                    status=_NOT_SHOWN,
                )
            if late:
                return None
            time.sleep(max(0.05, min(next(intervals), deadline - time.monotonic())))

    def _after_unknown(self, attempt: Intent | Untracked) -> str:
        """Find out what became of an attempt, and send only if it came to nothing."""
        self._refuse_changes(attempt)
        if isinstance(attempt, Intent):
            self._log.info(
                "Try %s was about to send at %s and left no result.",
                attempt.try_number,
                attempt.recorded_at.isoformat(),
            )
        else:
            self._log.info("An earlier try of this task may have sent: this Airflow keeps no record of it.")
        if found := self._resolve(attempt, self._under_way):
            return self._adopt(attempt, found)
        known_ids = attempt.known_ids if isinstance(attempt, Intent) else None
        return self._create(self._find_known_ids() if known_ids is None else known_ids)

    def _follow(self, record: Intent | Untracked | Created, override: str) -> str:
        """Apply a manual override: send, or use the one with this id."""
        variable = self._store.override_variable(record)
        word, *others = override.split()
        if word == "none":
            self._check_none(record, variable, others)
            self._log.info("The variable %s says that there is none: sending.", variable)
            return self._create(self._find_known_ids())
        what = f"{self._creation.what} {override}"
        attempt = record.attempt if isinstance(record, Created) else record
        try:
            found = self._creation.get(override)
        except CustodyError as error:
            if isinstance(error, CustodyRequestError) and error.status is None:
                raise self._unknown(
                    record, f"The variable says {what}, which cannot be: {error.message}.", code="setting-wrong"
                ) from None
            if not error.not_offered:
                raise
            self._log.warning("Whether %s is this task's cannot be checked: %s", what, error)
        else:
            if found is None:
                raise self._unknown(record, f"The variable says {what}, which does not exist.", code="setting-wrong")
            # A person has looked at it, and may take for it what the service changed or filled in.
            known = is_new(attempt, found) is False
            elsewhere = "address" in found.differs and (
                len(found.differs) > 1 or not is_of_that_time(attempt, found, self._under_way)
            )
            if (known or elsewhere) and override != getattr(record, "id", None):
                why = "it existed before this task" if known else found.difference
                raise self._unknown(record, f"The variable says {what}: {why}.", code="setting-wrong")
            if not found.same:
                self._log.warning(
                    "The variable says %s, which is not quite what was asked for: %s.", what, found.difference
                )
        self._log.info("Using %s, as the variable %s says.", what, variable)
        return self._record_created(attempt, override)

    def _check_none(self, record: Intent | Untracked | Created, variable: str, others: Sequence[str]) -> None:
        """
        Refuse to send if a person says that there is none, and the service shows that there is.

        :param others: ids of which the person says that they are not this task's.
        """
        attempt = record.attempt if isinstance(record, Created) else record
        try:
            candidates = [each for each in self._creation.find(thorough=True).candidates if each.id not in others]
            found = select(attempt, candidates, under_way=self._under_way)
        except AmbiguousError as error:
            if not error.like:
                self._log.warning("The variable %s says that there is none. %s", variable, error)
                return
            like = error.like
        except CustodyError as error:
            if error.retryable:
                raise
            self._log.warning("The variable %s says that there is none, which cannot be checked: %s", variable, error)
            return
        else:
            like = () if found is None else (found.id,)
        like = tuple(each for each in like if each != getattr(record, "id", None))
        if like:
            these = ", ".join(like)
            raise self._unknown(
                record,
                f"The variable {variable} says that there is none, but {these} is what this task asked for.",
                f"If that is not this task's all the same: airflow variables set {variable} "
                f"'none {' '.join([*others, *like])}'.",
                code="setting-wrong",
            )

    def _record_created(self, attempt: Intent | Untracked, identifier: str) -> str:
        self._store.write(self._store.created(attempt, identifier))
        return identifier

    def _refuse_changes(self, record: Intent | Untracked | Created) -> None:
        """Refuse to use what was created for other content, and to send beside it."""
        attempt = record.attempt if isinstance(record, Created) else record
        if isinstance(attempt, Untracked) or attempt.content == self._content:
            return
        before = attempt.content
        changed = sorted(name for name in {*before, *self._content} if before.get(name) != self._content.get(name))
        raise self._unknown(record, f"What is asked for has changed since: {', '.join(changed)}.")

    # --- looking at the service ----------------------------------------------------------------------------

    def _find_known_ids(self) -> tuple[str, ...] | None:
        """Return the ids of what exists before the send; None if that is not looked up."""
        if not self._look_before_create:
            return None
        try:
            found = self._creation.find(thorough=False)
        except CustodyError as error:
            if error.not_offered:
                self._log.warning(
                    "If the response to the create is lost, this task cannot find out what became of it: %s", error
                )
                return None
            hint = "Nothing was created."
            if isinstance(error, CustodyResponseError) and not error.retryable:
                hint += (
                    " With look_before_create=False the task creates without looking first, and may not find out what "
                    "became of a lost response."
                )
            error.advice = _join(error.advice, hint)
            raise
        known = tuple(sorted(candidate.id for candidate in found.candidates))
        if known:
            shown = ", ".join([*known[-_MAX_IDS_SHOWN:], *(["..."] if len(known) > _MAX_IDS_SHOWN else [])])
            self._log.info("Already at the service, not created by this task: %s %s.", self._creation.what, shown)
        return known

    @property
    def _under_way(self) -> float:
        """The seconds after its intent for which a request may be on its way, or not be listed yet."""
        return self._timing.fence + self._creation.timeout + self._lookup_wait

    def _resolve(self, attempt: Intent | Untracked, wait: float) -> Candidate | None:
        """
        Search the service until the object is found, or would have been.

        :param wait: seconds after which it would be there. They are counted by this process's own clock, from the
            first search that succeeds: the clock that the attempt was recorded by may be another machine's, and a
            service that hangs may hold the request until it responds again.
        :return: the object that the attempt created; None if it created nothing.
        :raises CustodyOutcomeUnknownError: if that cannot be known.
        """
        began, intervals = time.monotonic(), lookup_intervals()
        sure_after: float | None = None
        while True:
            started = time.monotonic()
            late = sure_after is not None and started >= sure_after
            try:
                found = self._creation.find(thorough=late)
            except CustodyError as error:
                if not error.retryable:
                    raise self._unknown(
                        attempt,
                        f"The service cannot be searched: {error.text}",
                        "If the service can be searched again, just clear this task.",
                    ) from None
                if started >= began + wait * (1 if sure_after is None else _MAX_WAITS):
                    history = _history(self._creation.what, attempt)
                    error.advice = f"{history} The next try searches again; nothing is sent until then."
                    raise
                self._log.warning("Cannot search the service yet: %s", error)
                sure_after = None
            else:
                if candidate := self._select(attempt, found.candidates):
                    return candidate
                if late and found.inconclusive:
                    raise self._unknown(attempt, f"The service shows none, which proves nothing: {found.inconclusive}.")
                if late:
                    self._log.info("There is none at the service: what an earlier try may have sent had no effect.")
                    return None
                if sure_after is None:
                    sure_after = time.monotonic() + wait
            interval = next(intervals)
            time.sleep(interval if sure_after is None else max(0.05, min(interval, sure_after - time.monotonic())))

    def _select(self, attempt: Intent | Untracked, candidates: Sequence[Candidate]) -> Candidate | None:
        try:
            return select(attempt, candidates, under_way=self._under_way)
        except AmbiguousError as error:
            raise self._unknown(attempt, str(error)) from None

    def _adopt(self, attempt: Intent | Untracked, found: Candidate) -> str:
        self._log.info(
            "Found %s %s: it did not exist before and is what this task asked for. Using it.",
            self._creation.what,
            found.id,
        )
        self._record_created(attempt, found.id)
        self._report("found", 1)
        return found.id

    # --- sending -------------------------------------------------------------------------------------------

    def _create(self, known_ids: tuple[str, ...] | None) -> str:
        key = self._store.new_key()
        recorded: Intent | None = None

        def record_intent() -> None:
            # Again at each send, also by a later try: a process that was superseded fails here.
            nonlocal recorded
            for _ in range(3):
                asked = self._timing.clocks()
                self._log.info(
                    "Recording the intent, sending the %s for %s.", self._creation.what, self._creation.which
                )
                intent = Intent(key, self._store.try_number, self._store.max_tries, self._content, known_ids, _now())
                is_there = self._store.write(intent)
                # Nothing that can take time may come between this look at the clock and the send.
                elapsed = [late - early for early, late in zip(asked, self._timing.clocks(), strict=True)]
                if is_there and max(elapsed) < self._timing.fence:
                    # Objects created while the intent was being recorded are not this task's.
                    recorded = replace(intent, recorded_at=_now())
                    return
            raise CustodyError(
                "the intent could not be recorded three times: another try of this task has taken over, or recording "
                f"it took longer than {self._timing.fence:g} s; nothing was sent",
                code="task-stopped",
                retryable=True,
            )

        try:
            identifier = self._creation.send(record_intent)
        except BaseException as error:
            # Counted first: what comes now may fail. Also where the task was ended in the middle.
            if recorded is not None and not getattr(error, "nothing_sent", False):
                self._report("sent", 1)
            if recorded is None or not isinstance(error, CustodyError):
                raise
            if isinstance(error, CustodyOutcomeUnknownError):
                return self._after_lost_response(recorded, error)
            self._after_refusal(recorded, error)
            raise
        self._report("sent", 1)
        self._log.info("Created %s %s for %s.", self._creation.what, identifier, self._creation.which)
        self._record_created(recorded or Untracked(None), identifier)
        return identifier

    def _after_refusal(self, intent: Intent, error: CustodyError) -> None:
        """Record that the intent came to nothing, if it is the service itself that refused it."""
        if (error.from_service or error.nothing_sent) and error.operation == self._creation.operation.name:
            self._store.write(Refused(intent))
            return
        error.advice = _join(
            error.advice,
            f"It is not the service's own refusal, so the {self._creation.what} may have been created all the same. "
            "The next try, or this task when it is cleared, looks for it before anything is sent.",
        )

    def _after_lost_response(self, intent: Intent, error: CustodyOutcomeUnknownError) -> str:
        self._log.warning("The outcome is unknown: %s. Searching the service.", error.message.rstrip("."))
        if found := self._resolve(intent, self._lookup_wait):
            return self._adopt(intent, found)
        error.retryable = True
        error.advice = (
            f"It was not carried out: {self._lookup_wait:g} s later the service shows no such {self._creation.what}. "
            "Trying again is safe."
        )
        raise error

    # --- not knowing ---------------------------------------------------------------------------------------

    def _unknown(
        self, record: Intent | Untracked | Created, why: str, advice: str = "", code: ErrorCode = "outcome-unknown"
    ) -> CustodyOutcomeUnknownError:
        variable = self._store.override_variable(record, next_try=True)
        what = self._creation.what
        return CustodyOutcomeUnknownError(
            f"it cannot be known whether the {what} that this task asks for exists, so it is not sent "
            f"again. {_history(what, record)} {why}",
            code=code,
            advice=(
                f"{advice} Look in the service for a {what} for {self._creation.which}, pending ones included. If it "
                f"exists: airflow variables set {variable} ID, with its id. If it does not: airflow variables set "
                f"{variable} none. Then clear this task.".lstrip()
            ),
        )


def _history(what: str, record: Intent | Untracked | Created) -> str:
    """Return what earlier tries did, as far as it is known."""
    if isinstance(record, Created):
        return f"An earlier try created {record.id}."
    if isinstance(record, Intent):
        return f"Try {record.try_number} sent a {what} at {record.recorded_at.isoformat()}, or was about to."
    return f"An earlier try may have sent a {what}."


def _join(advice: str | None, more: str) -> str:
    return f"{advice} {more}" if advice else more


def lookup_intervals() -> Iterator[float]:
    """Yield the seconds between two searches, which become rarer."""
    interval = 1.0
    while True:
        yield interval
        interval = min(2 * interval, _MAX_LOOKUP_INTERVAL)


def _now() -> datetime:
    return datetime.now(timezone.utc)
