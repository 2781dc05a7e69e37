"""Create an object at most once for each row. There may be one row, or thousands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.delays import tries_within
from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConflictError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.text import lines, name_some
from airflow_custody.client.whitelist.hidden import HIDDEN_ADVICE, describe_hidden
from airflow_custody.idempotency.search import Candidate, Creation, Report, Resolved, Search
from airflow_custody.idempotency.send import Sender, Sent
from airflow_custody.idempotency.store import RecordState, Row, Store, digest

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: Behaviour when a user clears a task that has created its request.
OnClear = Literal["reuse", "create"]

#: The key of a single row.
ONE = "one"

_LOST = "its response was lost, and the service could not be searched"


@dataclass
class Outcome:
    """
    The outcome of rows. Each mapping has the rows' keys as its keys.

    :param created: the id of the object that was created for the row.
    :param deleted: the operation that deleted the request.
    :param found: the id of a request with the same content that another client has created meanwhile.
    :param reused: the record of a single row that uses an existing object, so that nothing was sent.
    :param refused: why the row was refused.
    :param unknown: why the row's outcome is unknown.
    :param advice: instructions for the user, who must decide about a row whose outcome is unknown. If such a row has no
        advice, the next try searches for it instead.
    :param left: the keys of the rows that had no effect.
    :param errors: the row's last error in this try.
    :param stopped: the error that ended the sending or the search early; None if there was none.
    """

    created: dict[str, str] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    reused: dict[str, Row] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    errors: dict[str, CustodyError] = field(default_factory=dict)
    stopped: CustodyError | None = None


def outcome_of(store: Store, keys: Collection[str], plan: str, sent: Sent) -> Outcome:
    """
    Return the outcomes of rows, from the record of their plan and from what this try has sent.

    :param store: the record.
    :param keys: the rows' keys.
    :param plan: the plan's hash; empty for a single row.
    :param sent: what this try has sent.
    """
    outcome = Outcome(errors=sent.errors, stopped=sent.stopped)
    for key in keys:
        batch, row = store.rows.get(key, (None, None))
        if key in sent.rows and sent.rows[key].state == "reused":
            outcome.reused[key] = sent.rows[key]
        elif row is None or batch is None or row.state == "void" or batch.plan != plan:
            outcome.left.append(key)
        elif row.state == "sent":
            outcome.unknown[key] = sent.errors[key].reason if key in sent.errors else _LOST
        else:
            getattr(outcome, row.state)[key] = row.detail
    return outcome


@dataclass(eq=False, repr=False)
class CreateRows:
    """
    Creates an object for each row, unless an earlier try of this task instance already did.

    :param search: the search for rows whose outcome is unknown, with the record and the objects to create.
    :param prepare: returns the rows of a batch before they are sent; see :meth:`Job.prepare`.
    :param plan: the hash of the rows' plan. Default empty: a single row.
    :param max_parallel: maximum number of requests at once. Default 1.
    :param is_stopped: returns whether the user has stopped the task. Default: users cannot stop it.
    """

    search: Search
    _: KW_ONLY
    prepare: Callable[[Sequence[str]], Mapping[str, Row]]
    plan: str = ""
    max_parallel: int = 1
    is_stopped: Callable[[], bool] = bool

    def __post_init__(self) -> None:
        self.store = self.search.store
        self.creation = self.search.creation

    def run(
        self, keys: Sequence[str], *, searched_at: float | None = None, undecided: Mapping[str, str] | None = None
    ) -> Outcome:
        """
        Create the rows' objects that do not exist yet.

        :param keys: the rows' keys.
        :param searched_at: time of an earlier search for the open rows; None (default): there was none.
        :param undecided: why a user must decide about a row, by the row's key. Such rows are neither searched for nor
            sent. Default: none.
        :return: the outcome of each row.
        """
        sender = Sender(
            self.store,
            self.search.log,
            self,
            plan=self.plan,
            max_parallel=self.max_parallel,
            report=self.search.report,
            is_stopped=self.is_stopped,
        )
        unknown = {**(undecided or {})}
        earlier = {*self.store.open_rows()}
        # Send refused rows again, because the service may accept them by now.
        todo = [key for key in keys if key not in unknown and self._state(key) in ("void", "refused")]
        while True:
            sent = sender.send(todo)
            open_rows = {*self.store.open_rows()}
            found = Resolved()
            if open_rows:
                is_open = [key for key in keys if key not in unknown]
                found = self.search.resolve(is_open, searched_at=searched_at if open_rows <= earlier else None)
            unknown |= found.unknown
            # Rows that are sent from now on cannot be in the result of the earlier search, so do not use it for them.
            searched_at = None
            before, todo = todo, [key for key in keys if key not in unknown and self._state(key) == "void"]
            # Rows that had no effect are sent once more. Stop if the last round had no effect on any of its rows.
            is_in_vain = bool(before) and {*before} <= {*todo}
            if not todo or is_in_vain or found.failure is not None:
                break
        outcome = outcome_of(self.store, keys, self.plan, sent)
        outcome.unknown = dict.fromkeys(outcome.unknown, _LOST) | unknown
        outcome.advice |= {key: self.search.advice(key) for key in unknown}
        outcome.stopped = outcome.stopped or found.failure
        return outcome

    def _state(self, key: str) -> RecordState:
        """
        Return a row's state.

        The state is ``void`` (no effect) if the row is not recorded, or is only recorded for another plan and with a
        known outcome.
        """
        batch, row = self.store.rows.get(key, (None, None))
        if row is None or batch is None or (batch.plan != self.plan and row.state != "sent"):
            return "void"
        return row.state

    def send(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        """Create the object of a row."""
        identifier = self.creation.send(key, before_send)
        if identifier in (row.known_ids or ()):
            raise CustodyOutcomeUnknownError(
                f"the response names {identifier}, which existed before",
                operation=f"create {self.creation.what}",
                code="outcome-unknown",
            )
        return row.become("created", identifier)

    def describe(self, key: str, row: Row, error: CustodyError | None) -> tuple[int, str]:
        """Return the level and the text of the log entry about a row's outcome."""
        what, which = self.creation.what, self.creation.which(key)
        if row.state == "created":
            return logging.INFO, f"Created {what} {row.detail} for {which}."
        if row.state == "refused":
            return logging.WARNING, f"Refused: {which}: {row.detail}"
        if row.state == "found":
            return (
                logging.WARNING,
                f"Not sent: {which}: another client has created {what} {row.detail} meanwhile.",
            )
        if row.state == "sent":
            why = "sending it was interrupted" if error is None else error.message.rstrip(".")
            return logging.WARNING, f"The outcome of the {what} for {which} is unknown: {why}."
        return logging.DEBUG, ""


@dataclass(frozen=True)
class Created:
    """
    The object of a single row.

    :param id: its id.
    :param reused: if an existing object is used instead of a new one: the requested content, in the existing object's
        spelling. None (default): the task has created the object.
    """

    id: str
    reused: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Existing:
    """
    An existing object that can be used instead of a new one.

    :param id: its id.
    :param state: a description of its state.
    :param content: the requested content, in the existing object's spelling.
    """

    id: str
    state: str
    content: Mapping[str, Any]


@dataclass(eq=False, repr=False)
class CreateOnce:
    """
    Creates an object, unless an earlier try of this task instance already did.

    The object is recorded as a batch with a single row.

    :param context: the task's context.
    :param creation: the object to create.
    :param log: the task's log.
    :param on_clear: behaviour if a user clears the task after the object was created: ``reuse`` (default) returns it
        again if it still exists, ``create`` creates another.
    :param look_before_create: whether to look for similar objects before the first send, and to record their ids.
        Default True.
    :param without_looking: the task's parameters that turn this look off, quoted in advice. Default empty: no
        parameters do.
    :param existing: called with the similar objects, if there are any, before a send. Returns the object to use instead
        of a new one, or None to create a new one. Default None: always create a new one.
    :param check: called before a new object is recorded and sent; raises an error to prevent this. Default None: no
        check.
    :param lookup_wait: seconds that the service may take to list what it created.
    :param report: called with the outcome of the create.
    """

    context: Context
    creation: Creation
    log: logging.Logger
    _: KW_ONLY
    on_clear: OnClear = "reuse"
    look_before_create: bool = True
    without_looking: str = ""
    existing: Callable[[Sequence[Candidate]], Existing | None] | None = None
    check: Callable[[], None] | None = None
    lookup_wait: float
    report: Report

    def __post_init__(self) -> None:
        self._store = Store(self.context)
        self._search = Search(self._store, self.creation, self.log, self.lookup_wait, self.report)
        self._content = {name: digest(value) for name, value in self.creation.content.items()}

    def run(self) -> Created:
        """
        Find out what earlier tries have done, and create the object if that is safe.

        :return: the object, created now or earlier, or existing.
        :raises CustodyOutcomeUnknownError: if it is unknown whether the object exists, or if its content is not the
            requested content; nothing more is sent.
        :raises CustodyError: (of another type) if the object was not created.
        """
        store = self._store
        if store.read():
            self.log.info("An earlier try of this task may have sent the request without leaving a record.")
            store.add_forgotten(ONE)
        may_reuse = True
        if ONE in store.rows and store.rows[ONE][1].state in ("sent", "created"):
            may_reuse = not self._follow_override()
            if may_reuse:
                self._check_earlier(store.rows[ONE][1])
        rows = CreateRows(self._search, prepare=lambda _: {ONE: self._prepare(may_reuse=may_reuse)})
        outcome = rows.run([ONE])
        if ONE in outcome.created:
            return Created(outcome.created[ONE])
        reused = outcome.reused.get(ONE)
        if ONE in outcome.advice and may_reuse and self.existing and not store.rows[ONE][0].try_number:
            # The similar request may come from an unrecorded try of this task. Reuse it if the task may reuse even the
            # requests of other creators.
            with suppress(CustodyError):
                reused = self._find_existing(may_reuse=True)[1]
        if reused is not None:
            return Created(reused.detail, reused.request)
        if ONE in outcome.advice:
            raise self._unknown(outcome.unknown[ONE])
        raise self._not_created(outcome)

    def _not_created(self, outcome: Outcome) -> CustodyError:
        """Return the error for an object that, as far as is known, was not created."""
        error = outcome.stopped or outcome.errors[ONE]
        if ONE in outcome.unknown:
            advice = lines(self._history(), "The next try searches again; nothing is sent until then.")
            return error.with_facts(advice=advice)
        # A request that the client itself refuses is not recorded, because it was not sent.
        is_refused = isinstance(error, CustodyRequestError)
        if ONE in outcome.left and outcome.stopped is None and not is_refused:
            advice = (
                f"The request had no effect: {self._search.under_way:g} s after it was sent, the service lists no such "
                f"{self.creation.what}. Trying again is safe."
            )
            return error.with_facts(advice=advice, retryable=True)
        return error

    # --- earlier tries -------------------------------------------------------------------------------------

    def _keep(self, **changes: object) -> None:
        self._store.record([(ONE, self._store.rows[ONE][1].model_copy(update=changes))])

    def _follow_override(self) -> bool:
        """
        Apply the user's manual override, if there is one, and tell whether there is one.

        With an override, no existing object is reused, because the user has decided about the row.

        :raises CustodyOutcomeUnknownError: if the override is wrong.
        """
        problem = self._search.follow_override(ONE)
        if problem:
            raise self._unknown(problem)
        if problem is None:
            return False
        self._keep(content=self._content)
        return True

    def _check_earlier(self, row: Row) -> None:
        """
        Decide whether to use the object that an earlier try sent or created.

        If the object is not used, the row becomes ``void``, so that another one is created.

        :raises CustodyOutcomeUnknownError: if the object's content is not the requested content.
        """
        what = f"{self.creation.what} {row.detail}"
        is_cleared = row.max_tries != self._store.max_tries
        if row.state == "created" and is_cleared and self.on_clear == "create":
            self.log.info("This task created %s and was cleared: creating another (on_clear='create').", what)
            self._keep(state="void", detail="")
            return
        if row.content and row.content != self._content:
            names = {*row.content, *self._content}
            changed = sorted(name for name in names if row.content.get(name) != self._content.get(name))
            raise self._unknown(f"The requested content has changed since that try: {', '.join(changed)}.")
        if row.state != "created":
            self.log.info("%s", self._history())
        elif not self._check_recorded(row.detail, may_be_gone=is_cleared):
            self.log.warning("This task created %s, which no longer exists: creating another.", what)
            self._keep(state="void", detail="")
        elif is_cleared:
            self.log.info(
                "%s",
                lines(
                    f"This task created {what} and was cleared: reusing it.",
                    "To create a new one at each clear, set on_clear='create'.",
                ),
            )
        else:
            self.log.info("An earlier try of this task created %s: reusing it, nothing is sent.", what)

    def _check_recorded(self, identifier: str, *, may_be_gone: bool) -> bool:
        """
        Check that a recorded id belongs to an object with the requested content.

        This is necessary because Airflow users can edit the record.

        :param identifier: the id.
        :param may_be_gone: whether to return False if the object certainly does not exist. Otherwise, raise an error.
        :return: whether the object exists.
        :raises CustodyOutcomeUnknownError: if the object's content is not the requested content, or cannot be checked.
        """
        found, inconclusive = None, ""
        try:
            # Try several times, because the service may take some time to list the object.
            for _ in tries_within(self.lookup_wait):
                if found := self.creation.get(ONE, identifier):
                    break
            else:
                inconclusive = self.creation.find([ONE], thorough=True)[ONE].inconclusive or ""
        except CustodyError as error:
            if not (error.not_offered or error.status == 403):
                raise
            raise self._unknown(f"The content of {identifier} cannot be checked: {error.text}") from None
        if found is None:
            if may_be_gone and not inconclusive:
                return False
            proof = f", which proves nothing: {inconclusive}" if inconclusive else ""
            raise self._unknown(f"The service does not list {identifier}{proof}.")
        if found.contradiction:
            raise self._unknown(
                f"But {identifier} does not have the content that this task requests: {found.contradiction}. Find out "
                "how the task's state or the request was changed."
            )
        if found.mismatch:
            self.log.warning("%s differs from the requested object: %s.", identifier, found.mismatch)
        if found.is_rejected and self.existing:
            raise CustodyConflictError(
                f"{self.creation.what} {identifier}, which this task created, was rejected; nothing is sent",
                code="request-rejected",
                advice="If the address is still wanted, start a new run with if_exists='create' to request it again.",
            )
        return True

    # --- before the send -----------------------------------------------------------------------------------

    def _prepare(self, *, may_reuse: bool) -> Row:
        """Return the row to send, with the ids of similar objects; or a ``reused`` row, if nothing must be sent."""
        known, reused = self._find_existing(may_reuse=may_reuse)
        if reused is not None:
            return reused
        if known:
            what, named = self.creation.what, name_some(known)
            self.log.info("Similar objects exist that this task did not create: %s %s.", what, named)
        if self.check is not None:
            self.check()
        return Row(state="sent", known_ids=known, content=self._content)

    def _find_existing(self, *, may_reuse: bool) -> tuple[list[str] | None, Row | None]:
        """
        Find similar objects at the service.

        :param may_reuse: whether one of them may be used, provided that the task allows this at all.
        :return: the ids of the similar objects (None: they cannot be looked up); and the row that uses one of these
            objects (None: a new object must be created).
        :raises CustodyConflictError: if an existing object forbids the creation.
        :raises CustodyError: if the service cannot be searched now.
        """
        if not self.look_before_create:
            return None, None
        find_existing = self.existing if may_reuse else None
        try:
            found = self.creation.find([ONE], thorough=False)[ONE]
        except CustodyError as error:
            # "Not offered" must come from the service itself: a gateway's response does not prove it.
            if not error.not_offered or not (error.from_service or find_existing is None):
                raise self._not_looked_up(error) from None
            more = "" if find_existing is None else ". It also cannot find out whether the same request already exists"
            text = f"If the response to the create is lost, this task cannot find out whether it had an effect{more}:"
            self.log.warning("%s", lines(text, str(error)))
            return None, None
        known = sorted(each.id for each in found.candidates)
        if found.hidden:
            # The service counts similar objects that it does not return.
            why = f"{describe_hidden(found.hidden)} for this address, so the requested content may exist already"
            if find_existing is not None:
                raise CustodyConflictError(
                    f"{why}; nothing is sent",
                    code="request-exists",
                    advice=lines(HIDDEN_ADVICE, "To create another request all the same, set if_exists='create'."),
                )
            self.log.warning("%s. Creating another request (if_exists='create').", f"{why[0].upper()}{why[1:]}")
        try:
            existing = find_existing(found.candidates) if known and find_existing is not None else None
        except CustodyError as error:
            raise self._not_looked_up(error) from None
        if existing is None:
            return known, None
        what = f"{self.creation.what} {existing.id}"
        self.log.info("Reusing %s, so nothing is sent: it has the same content and is %s.", what, existing.state)
        return known, Row(state="reused", detail=existing.id, request={**existing.content})

    def _not_looked_up(self, error: CustodyError) -> CustodyError:
        """Return the error for a service that cannot be searched before the send."""
        hint = "Nothing was created."
        is_about_user = error.is_missing_role or isinstance(error, CustodyAuthenticationError)
        is_lasting_response = error.status is not None and not error.retryable and not is_about_user
        if self.without_looking and is_lasting_response:
            hint += (
                f" With {self.without_looking}, the task does not look for existing requests before it creates one. "
                "An existing request is then not reused, and if a response is lost, the outcome may stay unknown."
            )
        return error.with_facts(advice=lines(error.advice, hint))

    # --- an unknown outcome --------------------------------------------------------------------------------

    def _unknown(self, why: str) -> CustodyOutcomeUnknownError:
        self.report("unknown", 1)
        return CustodyOutcomeUnknownError(
            lines(
                f"it is unknown whether this task's {self.creation.what} exists, so it is not sent again.",
                self._history(),
                why,
            ),
            code="outcome-unknown",
            advice=self._search.advice(ONE),
        )

    def _history(self) -> str:
        """Describe what earlier tries have sent or created."""
        batch, row = self._store.rows[ONE]
        if row.state == "created":
            return f"An earlier try created {row.detail}."
        if batch.recorded_at is None or not batch.try_number:
            return f"An earlier try may have sent a {self.creation.what}."
        at = batch.recorded_at.isoformat()
        return f"Try {batch.try_number} sent a {self.creation.what} at {at}, or was about to send it."
