"""One try of a task that creates something at most once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, Protocol

from airflow_custody.client.errors import CustodyError, CustodyOutcomeUnknownError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.idempotency.candidates import AmbiguousError, Candidate, select
from airflow_custody.idempotency.records import Created, Intent, Refused, Untracked, digest
from airflow_custody.idempotency.store import RecordStore

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: What to do when a person clears a task that has created its request.
OnClear = Literal["reuse", "create"]

_MAX_LOOKUP_INTERVAL = 5.0


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


class Creation(Protocol):
    """What is created, and how to find it again."""

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

    def find(self, identifier: str | None = None) -> Iterable[Candidate]:
        """Find whatever may be it at the service, or one thing by its id."""


class CreateOnce:
    """
    Creates something unless an earlier try of this task instance did.

    :param context: the task's context.
    :param creation: what is to be created.
    :param log: the task's log.
    :param on_clear: when a person has cleared the task after it was created: ``reuse`` (default) returns it again if
        it still exists, ``create`` creates another.
    :param look_before_create: whether to record before the first send what exists already. Default True.
    :param lookup_wait: seconds that the service may take to show what it created. Default 30.
    :param timing: clocks and bounds.
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
    ) -> None:
        self._creation = creation
        self._log = log
        self._on_clear = on_clear
        self._look_before_create = look_before_create
        self._lookup_wait = lookup_wait
        self._timing = timing or Timing()
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
        record = self._store.read()
        if record is None or isinstance(record, Refused):
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
            found = self._find_one(record.id)
        except CustodyError as error:
            if not error.not_offered:
                raise
            self._log.warning("Whether %s still exists cannot be checked: %s", what, error)
        else:
            if found is None:
                self._log.warning("This task created %s, which no longer exists: creating another.", what)
                return self._create(self._find_known_ids())
            if not found.same:
                raise self._unknown(record, f"{what} is not what this task asked for: {found.difference}.")
        self._log.info(
            "This task created %s and was cleared: using it again. For a new one at each clear, give the operator "
            "on_clear='create'.",
            what,
        )
        return record.id

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
        if found := self._resolve(attempt, sure_after=self._settled_at(attempt)):
            return self._adopt(attempt, found)
        known_ids = attempt.known_ids if isinstance(attempt, Intent) else None
        return self._create(self._find_known_ids() if known_ids is None else known_ids)

    def _follow(self, record: Intent | Untracked | Created, override: str) -> str:
        """Do what a person has said: send, or use the one with this id."""
        variable = self._store.override_variable(record)
        if override == "none":
            self._log.info("The variable %s says that there is none: sending.", variable)
            return self._create(self._find_known_ids())
        what = f"{self._creation.what} {override}"
        try:
            found = self._find_one(override)
        except CustodyError as error:
            if not error.not_offered:
                raise
            self._log.warning("Whether %s is this task's cannot be checked: %s", what, error)
        else:
            if found is None:
                raise self._unknown(record, f"The variable says {what}, which does not exist.")
            if not found.same:
                raise self._unknown(record, f"The variable says {what}: {found.difference}.")
        self._log.info("Using %s, as the variable %s says.", what, variable)
        return self._record_created(record.attempt if isinstance(record, Created) else record, override)

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
            known = tuple(sorted(candidate.id for candidate in self._creation.find()))
        except CustodyError as error:
            if error.not_offered:
                self._log.warning(
                    "If the response to the create is lost, this task cannot find out what became of it: %s", error
                )
                return None
            hint = "Nothing was created."
            if not error.retryable:
                hint += (
                    " With look_before_create=False the task creates without looking first, and may not find out what "
                    "became of a lost response."
                )
            error.advice = f"{error.advice} {hint}" if error.advice else hint
            raise
        if known:
            self._log.info("Already at the service, created by others: %s %s.", self._creation.what, ", ".join(known))
        return known

    def _find_one(self, identifier: str) -> Candidate | None:
        return next((each for each in self._creation.find(identifier) if each.id == identifier), None)

    def _settled_at(self, attempt: Intent | Untracked) -> float:
        """Return when nothing can be on its way any more, on this process's monotonic clock."""
        age = 0.0
        if isinstance(attempt, Intent):
            age = max(0.0, (_now() - attempt.recorded_at).total_seconds())
        left = self._timing.fence + self._creation.timeout + self._lookup_wait - age
        # Never at once: the clock that the record was written by may be another machine's.
        return time.monotonic() + max(left, min(self._lookup_wait, self._timing.fence))

    def _resolve(self, attempt: Intent | Untracked, sure_after: float) -> Candidate | None:
        """
        Look until what was sent is there, or until it would be.

        :return: what the attempt created; None if it created nothing.
        :raises CustodyOutcomeUnknownError: if that cannot be known.
        """
        interval = 1.0
        while True:
            late = time.monotonic() >= sure_after
            try:
                candidates = list(self._creation.find())
            except CustodyError as error:
                if not error.retryable:
                    raise self._unknown(
                        attempt,
                        f"The service cannot be searched: {error}",
                        "If the service can be searched again, just clear this task.",
                    ) from None
                if late:
                    history = _history(self._creation.what, attempt)
                    error.advice = f"{history} The next try searches again; nothing is sent until then."
                    raise
                self._log.warning("Cannot search the service yet: %s", error)
            else:
                if found := self._select(attempt, candidates):
                    return found
                if late:
                    self._log.info("There is none at the service: what an earlier try may have sent had no effect.")
                    return None
            time.sleep(max(0.05, min(interval, sure_after - time.monotonic())))
            interval = min(2 * interval, _MAX_LOOKUP_INTERVAL)

    def _select(self, attempt: Intent | Untracked, candidates: list[Candidate]) -> Candidate | None:
        try:
            return select(
                attempt, candidates, under_way=self._timing.fence + self._creation.timeout + self._lookup_wait
            )
        except AmbiguousError as error:
            raise self._unknown(attempt, str(error)) from None

    def _adopt(self, attempt: Intent | Untracked, found: Candidate) -> str:
        self._log.info(
            "Found %s %s: it did not exist before and is what this task asked for. Using it.",
            self._creation.what,
            found.id,
        )
        return self._record_created(attempt, found.id)

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
                recorded = Intent(key, self._store.try_number, self._store.max_tries, self._content, known_ids, _now())
                self._store.write(recorded)
                # Nothing that can take time may come between this look at the clock and the send.
                elapsed = [late - early for early, late in zip(asked, self._timing.clocks(), strict=True)]
                if max(elapsed) < self._timing.fence:
                    return
            raise CustodyError(
                f"recording the intent took longer than {self._timing.fence:g} s three times; nothing was sent",
                retryable=True,
            )

        try:
            identifier = self._creation.send(record_intent)
        except CustodyOutcomeUnknownError as error:
            if recorded is None:
                raise
            return self._after_lost_response(recorded, error)
        except CustodyError:
            if recorded is not None:
                self._store.write(Refused(recorded))
            raise
        self._log.info("Created %s %s for %s.", self._creation.what, identifier, self._creation.which)
        return self._record_created(recorded or Untracked(None), identifier)

    def _after_lost_response(self, intent: Intent, error: CustodyOutcomeUnknownError) -> str:
        self._log.warning("The outcome is unknown: %s. Searching the service.", error.message.rstrip("."))
        found = self._resolve(intent, sure_after=time.monotonic() + self._lookup_wait)
        if found:
            return self._adopt(intent, found)
        error.retryable = True
        error.advice = (
            f"It was not carried out: {self._lookup_wait:g} s later the service shows no such {self._creation.what}. "
            "Trying again is safe."
        )
        raise error

    # --- not knowing ---------------------------------------------------------------------------------------

    def _unknown(self, record: Intent | Untracked | Created, why: str, advice: str = "") -> CustodyOutcomeUnknownError:
        variable = self._store.override_variable(record, next_try=True)
        what = self._creation.what
        return CustodyOutcomeUnknownError(
            f"it cannot be known whether the {what} that this task asks for exists, so it is not sent "
            f"again. {_history(what, record)} {why}",
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


def _now() -> datetime:
    return datetime.now(timezone.utc)
