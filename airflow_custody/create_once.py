"""
Create something at the service at most once for each task instance.

The service has no idempotency key. So what a task is about to send is written down first, where all tries of the task
instance can read it, and a try that finds such an intent without its outcome looks at the service before it sends
anything. An operator that creates something describes it as a :class:`Creation` and runs :class:`CreateOnce`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, Protocol

from airflow_custody.client.errors import NOT_OFFERED, CustodyError, CustodyOutcomeUnknownError
from airflow_custody.intents import Intents, digest

if TYPE_CHECKING:
    from logging import Logger

    from airflow.providers.common.compat.sdk import Context

#: What to do when a person clears a task that has created its request.
OnClear = Literal["reuse", "create"]

#: Seconds that may pass between asking for the intent to be written and the send. A process that was stopped in
#: between for longer writes it again, which fails if another try has taken over.
FENCE_SECONDS = 5.0
_LONGEST_PAUSE = 5.0
# Dates that the service gives are compared with Airflow's clock with this much room: one that is wrong by more must
# not make a task's own request pass for somebody else's, nor the other way round.
_OLD_ENOUGH = timedelta(days=1)
_CLOCKS_DIFFER = timedelta(minutes=5)


@dataclass(frozen=True)
class Seen:
    """
    Describe something at the service that may be what a task asked for.

    :param id: its id.
    :param same: whether it is in every field what was asked for.
    :param unclear: why that can not be told; empty if it can.
    :param created_at: when it was created, if the service says so.
    """

    id: str
    same: bool
    unclear: str = ""
    created_at: datetime | None = None


class Creation(Protocol):
    """Describe what is created, and how to look for it."""

    @property
    def what(self) -> str:
        """What it is, for people: ``"whitelisting request"``."""

    @property
    def which(self) -> str:
        """Which one, for people: enough to recognise it in the service."""

    @property
    def content(self) -> Mapping[str, object]:
        """What is asked for, where: the fields that must not change from one try to the next."""

    @property
    def timeout(self) -> float:
        """Seconds after which the sender gives up waiting for an answer."""

    def send(self, before_send: Callable[[], None]) -> str:
        """Create it and return its id; ``before_send`` must be called right before the first byte leaves."""

    def look(self, request_id: str | None = None) -> Iterable[Seen]:
        """Look at the service for whatever may be it, or at one by its id."""


@dataclass
class CreateOnce:
    """
    Create something unless an earlier try of this task instance did: one try of it.

    :param context: the task's context.
    :param creation: what is to be created.
    :param log: the task's log, which gets the story.
    :param on_clear: when a person has cleared the task after it was created: ``reuse`` returns it again if it still
        exists, ``create`` makes another one.
    :param look_before_create: whether to note before the first send what is there already.
    :param lookup_wait: seconds that the service may take to show what it created.
    """

    context: Context
    creation: Creation
    log: Logger
    on_clear: OnClear = "reuse"
    look_before_create: bool = True
    lookup_wait: float = 30.0

    def __post_init__(self) -> None:
        self.intents = Intents(self.context)
        self.content = {name: digest(value) for name, value in self.creation.content.items()}

    def run(self) -> str:
        """
        Find out what earlier tries did, and send if that is safe.

        :return: the id of what was created, now or earlier.
        :raises CustodyOutcomeUnknownError: if it can not be known whether it exists, or it asks for something else;
            nothing (more) was sent.
        :raises CustodyError: of another type if it was not created.
        """
        record = self.intents.read()
        if record is None or record["state"] == "refused":
            return self._create(self._look_before())
        if said := self.intents.persons_word(record):
            return self._follow(record, said)
        if record["state"] == "created":
            return self._after_success(record)
        return self._after_unknown(record)

    # --- what an earlier try left behind -------------------------------------------------------------------

    def _after_success(self, record: dict[str, Any]) -> str:
        """Return what was created, or make a new one if a person has cleared the task and wants that."""
        request_id = str(record["id"])
        what = f"{self.creation.what} {request_id}"
        cleared = record["max_tries"] != self.intents.max_tries
        if cleared and self.on_clear == "create":
            self.log.info("This task created %s and was cleared: creating another, as on_clear='create' says.", what)
            return self._create(self._look_before())
        self._refuse_changes(record)
        if not cleared:
            self.log.info("An earlier try of this task created %s: taking it, nothing is sent.", what)
            return request_id
        try:
            seen = self._look_at(request_id)
        except CustodyError as error:
            if error.status not in NOT_OFFERED:
                raise
            self.log.warning("Whether %s still exists can not be checked: %s", what, error)
        else:
            if seen is None:
                self.log.warning("This task created %s, which is not there any more: creating another.", what)
                return self._create(self._look_before())
            if not seen.same:
                raise self._cannot_know(record, f"{what} is not what this task asked for: {_difference(seen)}.")
        self.log.info(
            "This task created %s and was cleared: taking it again. For a new one at each clear, give the operator "
            "on_clear='create'.",
            what,
        )
        return request_id

    def _after_unknown(self, record: dict[str, Any]) -> str:
        """Find out what became of an intent, and send only if it came to nothing."""
        self._refuse_changes(record)
        if "at" in record:
            self.log.info("Try %s was about to send at %s and left no result.", record["try"], record["at"])
        else:
            self.log.info("An earlier try of this task may have sent: this Airflow keeps no record of it.")
        if found := self._find_out(record, sure_after=self._settled_at(record)):
            return self._adopt(record, found)
        return self._create(record["before"] if "before" in record else self._look_before())

    def _follow(self, record: dict[str, Any], said: str) -> str:
        """Do what a person has said: send, or take the request of this id."""
        if said == "none":
            self.log.info("The variable %s says that there is none: sending.", self.intents.variable(record))
            return self._create(self._look_before())
        what = f"{self.creation.what} {said}"
        try:
            seen = self._look_at(said)
        except CustodyError as error:
            if error.status not in NOT_OFFERED:
                raise
            self.log.warning("Whether %s is this task's can not be checked: %s", what, error)
        else:
            if seen is None:
                raise self._cannot_know(record, f"The variable says {what}, which is not there.")
            if not seen.same:
                raise self._cannot_know(record, f"The variable says {what}: {_difference(seen)}.")
        self.log.info("Taking %s, as the variable %s says.", what, self.intents.variable(record))
        return self._take(record, said)

    def _take(self, record: dict[str, Any], request_id: str) -> str:
        self.intents.write(self.intents.settled(record, request_id))
        return request_id

    def _refuse_changes(self, record: dict[str, Any]) -> None:
        """Refuse to take what was created for other content, and to send beside it."""
        before = record.get("content")
        if before is None or before == self.content:
            return
        changed = sorted(name for name in {*before, *self.content} if before.get(name) != self.content.get(name))
        raise self._cannot_know(record, f"What is asked for has changed since: {', '.join(changed)}.")

    # --- looking -------------------------------------------------------------------------------------------

    def _look_before(self) -> list[str] | None:
        """Return the ids of what is there before the send; None if nobody looks."""
        if not self.look_before_create:
            return None
        try:
            there = sorted(seen.id for seen in self.creation.look())
        except CustodyError as error:
            if error.status in NOT_OFFERED:
                self.log.warning(
                    "If the answer to the create gets lost, this task can not find out what became of it: %s", error
                )
                return None
            error.advice = " ".join(
                filter(
                    None,
                    [error.advice, "Nothing was sent. With look_before_create=False the task creates without looking."],
                )
            )
            raise
        if there:
            self.log.info("There already, and not this task's: %s %s.", self.creation.what, ", ".join(there))
        return there

    def _look_at(self, request_id: str) -> Seen | None:
        return next((seen for seen in self.creation.look(request_id) if seen.id == request_id), None)

    def _settled_at(self, record: dict[str, Any]) -> float:
        """Return when nothing can be on its way any more, as a moment of this process's clock."""
        age = 0.0
        if "at" in record:
            age = max(0.0, (_now() - datetime.fromisoformat(record["at"])).total_seconds())
        left = FENCE_SECONDS + self.creation.timeout + self.lookup_wait - age
        # Never at once: the clock that wrote the record may be another machine's.
        return time.monotonic() + max(left, min(self.lookup_wait, FENCE_SECONDS))

    def _find_out(self, record: dict[str, Any], sure_after: float) -> Seen | None:
        """
        Look until it is there, or until it would be.

        :return: what the intent created; None if it created nothing.
        :raises CustodyOutcomeUnknownError: if that can not be known.
        """
        pause = 1.0
        while True:
            late = time.monotonic() >= sure_after
            try:
                seen = list(self.creation.look())
            except CustodyError as error:
                if not error.retryable:
                    raise self._cannot_know(
                        record, f"The service can not be asked: {error}", "When it can, clearing this task is enough."
                    ) from error
                if late:
                    error.advice = f"{self._story(record)} The next try looks again; nothing is sent until then."
                    raise
                self.log.warning("Can not look yet: %s", error)
            else:
                if found := self._the_one(record, seen):
                    return found
                if late:
                    self.log.info("There is none at the service: what an earlier try may have sent was not done.")
                    return None
            time.sleep(max(0.05, min(pause, sure_after - time.monotonic())))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _the_one(self, record: dict[str, Any], seen: list[Seen]) -> Seen | None:
        """Return the only one that the intent can have created; None if there is none."""
        unclear, candidates = [], []
        for each in seen:
            new = _is_new(record, each)
            if new is False or (not each.same and not each.unclear):
                continue
            if new is None:
                unclear.append(f"{each.id} may have been there before this task")
            elif each.unclear:
                unclear.append(f"{each.id} is like it, but {each.unclear}")
            elif self._is_too_late(record, each):
                unclear.append(f"{each.id} was created at {each.created_at}, after this task can have sent it")
            else:
                candidates.append(each)
        if unclear:
            also = [f"{each.id} is like it" for each in candidates]
            raise self._cannot_know(record, f"What was found: {'; '.join([*unclear, *also])}.")
        if len(candidates) > 1:
            ids = ", ".join(each.id for each in candidates)
            raise self._cannot_know(record, f"There are {len(candidates)} like it that were not there before: {ids}.")
        return candidates[0] if candidates else None

    def _is_too_late(self, record: dict[str, Any], seen: Seen) -> bool:
        if "at" not in record or seen.created_at is None:
            return False
        on_its_way = timedelta(seconds=FENCE_SECONDS + self.creation.timeout + self.lookup_wait)
        return seen.created_at > datetime.fromisoformat(record["at"]) + on_its_way + _CLOCKS_DIFFER

    def _adopt(self, record: dict[str, Any], found: Seen) -> str:
        self.log.info(
            "Found %s %s: it was not there before and is what this task asked for. Taking it.",
            self.creation.what,
            found.id,
        )
        return self._take(record, found.id)

    # --- sending -------------------------------------------------------------------------------------------

    def _create(self, before: list[str] | None) -> str:
        record = self.intents.new(self.content, before)

        def write_down() -> None:
            # Written again at each send, also by a later try: a process that was superseded fails here.
            for _ in range(3):
                asked = _clocks()
                self.log.info("Noting the intent, sending the %s for %s.", self.creation.what, self.creation.which)
                record["at"] = _now().isoformat()
                self.intents.write(record)
                # Nothing that can take time may come between this look at the clock and the send.
                if max(late - early for early, late in zip(asked, _clocks(), strict=True)) < FENCE_SECONDS:
                    return
            raise CustodyError(
                f"writing down the intent took longer than {FENCE_SECONDS:g} s three times; nothing was sent",
                retryable=True,
            )

        try:
            request_id = self.creation.send(write_down)
        except CustodyOutcomeUnknownError as error:
            return self._after_lost_answer(record, error)
        except CustodyError:
            if "at" in record:
                self.intents.write({**record, "state": "refused"})
            raise
        self.log.info("Created %s %s for %s.", self.creation.what, request_id, self.creation.which)
        return self._take(record, request_id)

    def _after_lost_answer(self, record: dict[str, Any], error: CustodyOutcomeUnknownError) -> str:
        self.log.warning("It is not known what became of it: %s. Looking at the service.", error.message.rstrip("."))
        found = self._find_out(record, sure_after=time.monotonic() + self.lookup_wait)
        if found:
            return self._adopt(record, found)
        error.retryable = True
        error.advice = (
            f"It was not done: {self.lookup_wait:g} s later the service shows no such {self.creation.what}. "
            "Trying again is safe."
        )
        raise error

    # --- not knowing ---------------------------------------------------------------------------------------

    def _story(self, record: dict[str, Any]) -> str:
        if record["state"] == "created":
            return f"An earlier try created {record['id']}."
        if "at" in record:
            return f"Try {record['try']} sent a {self.creation.what} at {record['at']}, or was about to."
        return f"An earlier try may have sent a {self.creation.what}."

    def _cannot_know(self, record: dict[str, Any], why: str, advice: str = "") -> CustodyOutcomeUnknownError:
        name = self.intents.variable(record, next_try=True)
        return CustodyOutcomeUnknownError(
            f"whether the {self.creation.what} that this task asks for exists can not be known, so it is not sent "
            f"again. {self._story(record)} {why}",
            advice=(
                f"Look in the service for a {self.creation.what} for {self.creation.which}, waiting ones included. If "
                f"it is there: airflow variables set {name} ID, with its id. If it is not: airflow variables set "
                f"{name} none. Then clear this task. {advice}".rstrip()
            ),
        )


def _is_new(record: Mapping[str, Any], seen: Seen) -> bool | None:
    """Tell whether something was created after the intent; None if that can not be told."""
    if "before" in record:
        return seen.id not in record["before"]
    since = record.get("at") or record.get("since")
    if since is None or seen.created_at is None:
        return None
    since = datetime.fromisoformat(since)
    if seen.created_at < since - _OLD_ENOUGH:
        return False
    return True if seen.created_at >= since else None


def _difference(seen: Seen) -> str:
    return seen.unclear or "it asks for something else"


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _clocks() -> tuple[float, float]:
    """Return two clocks: the one does not count while the machine sleeps, the other may be set."""
    return time.monotonic(), time.time()
