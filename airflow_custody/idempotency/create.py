"""Create an object at most once for each row. There may be one row, or thousands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from textwrap import indent
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

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
from airflow_custody.idempotency.records import RecordState, Row, digest
from airflow_custody.idempotency.search import Candidate, Creation, Report, Search
from airflow_custody.idempotency.send import Sender
from airflow_custody.idempotency.stop_request import StopRequest
from airflow_custody.idempotency.store import Store

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: Behaviour when a user clears a task that has created its request.
OnClear = Literal["reuse", "create"]

#: The key of a single row.
ONE = "one"


@dataclass
class Outcome:
    """
    The outcome of rows, by their keys.

    :param created: the id of the created object.
    :param deleted: the operation that deleted the request.
    :param found: the id of a request with the same content, if another client has created one meanwhile.
    :param refused: why the row was refused.
    :param unknown: why the outcome is unknown, and instructions for the user's decision.
    :param left: the keys of the rows that had no effect.
    :param stopped: the error that ended the sending early; None if there was none.
    """

    created: dict[str, str] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    stopped: CustodyError | None = None

    def add(
        self, store: Store, keys: Collection[str], plan: str, errors: Mapping[str, CustodyError] = MappingProxyType({})
    ) -> None:
        """
        Add the recorded outcomes of rows of a plan.

        :param store: the record.
        :param keys: the rows' keys.
        :param plan: the plan's hash.
        :param errors: the errors of this try, by key. Default: none.
        """
        for key in keys:
            batch, row = store.rows.get(key, (None, None))
            if row is None or batch is None or row.state == "void" or batch.plan != plan:
                self.left.append(key)
            elif row.state == "sent":
                lost = "its response was lost, and the service could not be searched"
                self.unknown[key] = errors[key].reason if key in errors else lost
            else:
                getattr(self, row.state)[key] = row.detail


@dataclass(eq=False, repr=False)
class CreateRows:
    """
    Creates an object for each row, unless an earlier try of this task instance already did.

    :param store: the record of what was sent.
    :param creation: the objects to create.
    :param log: the task's log.
    :param look_up: returns the rows of a batch before they are sent; see :meth:`Job.look_up`.
    :param plan: the hash of the rows' plan. Default empty: a single row.
    :param max_parallel: maximum number of requests at once. Default 1.
    :param lookup_wait: seconds that the service may take to list what it created.
    :param report: called with the outcomes of creates.
    :param stop_request: the user's request to send nothing more. Default: users cannot stop the sending.
    """

    store: Store
    creation: Creation
    log: logging.Logger
    _: KW_ONLY
    look_up: Callable[[Sequence[str]], Mapping[str, Row]]
    plan: str = ""
    max_parallel: int = 1
    lookup_wait: float
    report: Report
    stop_request: StopRequest = field(default_factory=StopRequest)

    def __post_init__(self) -> None:
        self.search = Search(self.store, self.creation, self.log, self.lookup_wait, self.report)
        self.sender = Sender(
            self.store,
            self.log,
            self,
            plan=self.plan,
            max_parallel=self.max_parallel,
            report=self.report,
            stop_request=self.stop_request,
        )

    def run(self, keys: Sequence[str], *, searched_at: float | None = None) -> Outcome:
        """
        Create the rows' objects that do not exist yet.

        :param keys: the rows' keys.
        :param searched_at: time of an earlier search for the open rows; None (default): there was none.
        :return: the outcome of each row.
        """
        earlier = {*self.store.open_rows()}
        # Send refused rows again, because the service may accept them by now.
        todo = self._in_state(keys, "void", "refused")
        while True:
            self.sender.send(todo)
            is_earlier = {*self.store.open_rows()} <= earlier
            self.search.resolve(keys, searched_at=searched_at if is_earlier else None)
            # The earlier search proves nothing about rows that are sent from now on.
            searched_at = None
            sent, todo = todo, self._in_state(keys, "void")
            # Send rows that had no effect again, unless the last round had no effect on any row.
            is_in_vain = bool(sent) and {*sent} <= {*todo}
            if not todo or is_in_vain or self.search.failure is not None:
                break
        outcome = Outcome()
        outcome.add(self.store, keys, self.plan)
        outcome.unknown |= {
            key: lines(why, indent(self.search.advice(key), "  "))
            for key, why in self.search.unknown.items()
            if key in keys
        }
        outcome.stopped = self.sender.stopped or self.search.failure
        return outcome

    def _in_state(self, keys: Sequence[str], *states: RecordState) -> list[str]:
        return [key for key in keys if key not in self.search.unknown and self._state(key) in states]

    def _state(self, key: str) -> RecordState:
        """
        Return a row's state.

        The state is ``void`` if the row is not recorded, or is recorded only under another plan with a known outcome.
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
                f"Not sent: another client has requested {which} meanwhile: {what} {row.detail}.",
            )
        if row.state == "sent":
            why = "it was interrupted" if error is None else error.message.rstrip(".")
            return logging.WARNING, f"The outcome of the {what} for {which} is unknown: {why}."
        return logging.DEBUG, ""


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
    :param look_before_create: whether to record, before the first send, which similar objects exist. Default True.
    :param without_looking: the parameters that make the task create without looking first, for advice. Default empty:
        there are none.
    :param existing: called before a send if similar objects exist. Returns the id of the object to use instead of a new
        one, and a description of its state; or None to create a new one. Default None: always create a new one.
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
    existing: Callable[[], tuple[str, str] | None] | None = None
    check: Callable[[], None] | None = None
    lookup_wait: float
    report: Report

    def __post_init__(self) -> None:
        self._reused = ""
        self._store = Store(self.context)
        self._content = {name: digest(value) for name, value in self.creation.content.items()}
        self._rows = CreateRows(
            self._store,
            self.creation,
            self.log,
            look_up=self._look_up,
            lookup_wait=self.lookup_wait,
            report=self.report,
        )

    def run(self) -> str:
        """
        Find out what earlier tries have done, and create the object if that is safe.

        :return: the id of the object, created now or earlier.
        :raises CustodyOutcomeUnknownError: if it is unknown whether the object exists, or the object has other content;
            nothing (more) was sent.
        :raises CustodyError: of another type if the object was not created.
        """
        store, search = self._store, self._rows.search
        if store.read():
            self.log.info("An earlier try of this task may have sent the request without leaving a record.")
            store.add_forgotten(ONE)
        if ONE in store.rows and store.rows[ONE][1].state in ("sent", "created"):
            self._check_earlier()
        outcome = self._rows.run([ONE])
        if self._reused or ONE in outcome.created:
            return self._reused or outcome.created[ONE]
        if ONE in search.unknown:
            if self._can_reuse_unrecorded():
                return self._reused
            raise self._unknown(search.unknown[ONE])
        raise self._not_created(outcome)

    def _can_reuse_unrecorded(self) -> bool:
        """
        Tell whether an existing request can be reused, whoever created it.

        An unrecorded try of this task may have created it. Such a request may be reused if the requests of other
        creators may be reused.
        """
        is_recorded = bool(self._store.rows[ONE][0].try_number)
        if is_recorded or self.existing is None:
            return False
        with suppress(CustodyError):
            return not self._look_up([ONE])
        return False

    def _not_created(self, outcome: Outcome) -> CustodyError:
        """Return the error for an object that, as far as is known, was not created."""
        search = self._rows.search
        error = outcome.stopped or self._rows.sender.errors[ONE]
        if search.failure is not None:
            advice = lines(self._history(), "The next try searches again; nothing is sent until then.")
            return error.with_facts(advice=advice)
        # A request that the client itself refuses is not recorded, because it was not sent.
        is_refused = isinstance(error, CustodyRequestError)
        if ONE in outcome.left and outcome.stopped is None and not is_refused:
            advice = (
                f"The request had no effect: {search.under_way:g} s after it was sent, the service lists no such "
                f"{self.creation.what}. Trying again is safe."
            )
            return error.with_facts(advice=advice, retryable=True)
        return error

    def _keep(self, **changes: object) -> None:
        self._store.record([(ONE, self._store.rows[ONE][1].model_copy(update=changes))])

    def _check_earlier(self) -> None:
        """
        Decide whether to use the object that an earlier try sent or created.

        If it is not used, the row becomes ``void``.

        :raises CustodyOutcomeUnknownError: if its content differs, or a user must decide.
        """
        search = self._rows.search
        if search.follow_override(ONE):
            self._keep(content=self._content)
            # The user has decided against the existing objects.
            self.existing = None
            return
        if ONE in search.unknown:
            raise self._unknown(search.unknown[ONE])
        row = self._store.rows[ONE][1]
        if row.state != "created":
            self._check_content(row)
            self.log.info("%s", self._history())
            return
        what = f"{self.creation.what} {row.detail}"
        is_cleared = row.max_tries != self._store.max_tries
        if is_cleared and self.on_clear == "create":
            self.log.info("This task created %s and was cleared: creating another (on_clear='create').", what)
            self._keep(state="void", detail="")
            return
        self._check_content(row)
        if not self._check_recorded(row.detail, may_be_gone=is_cleared):
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

    def _check_content(self, row: Row) -> None:
        """
        Check that the requested content has not changed since the row was recorded.

        :raises CustodyOutcomeUnknownError: if the content has changed.
        """
        if row.content and row.content != self._content:
            names = {*row.content, *self._content}
            changed = sorted(name for name in names if row.content.get(name) != self._content.get(name))
            raise self._unknown(f"The requested content has changed since: {', '.join(changed)}.")

    def _check_recorded(self, identifier: str, *, may_be_gone: bool) -> bool:
        """
        Check that a recorded id belongs to an object with the requested content.

        This is necessary because Airflow users can edit the record.

        :param identifier: the id.
        :param may_be_gone: whether to return False if the object certainly does not exist.
        :return: whether it exists.
        :raises CustodyOutcomeUnknownError: if its content differs, or cannot be checked.
        """
        try:
            found, hidden = self._look_for(identifier)
        except CustodyError as error:
            if not (error.not_offered or error.status == 403):
                raise
            raise self._unknown(f"Its content cannot be checked: {error.text}") from None
        if found is None:
            if may_be_gone and not hidden:
                return False
            raise self._unknown(f"The service does not list it{hidden and f', which proves nothing: {hidden}'}.")
        if found.contradiction:
            raise self._unknown(
                f"But {identifier} differs from the content that this task requests: {found.contradiction}. Find out "
                "how the task's state or the request was changed."
            )
        if found.mismatch:
            self.log.warning("%s differs from the requested object: %s.", identifier, found.mismatch)
        if found.is_rejected and self.existing:
            raise CustodyConflictError(
                f"{self.creation.what} {identifier}, which this task created, was rejected; nothing is sent",
                code="request-rejected",
                advice="If it is still wanted, start a new run with if_exists='create', which requests it again.",
            )
        return True

    def _look_for(self, identifier: str) -> tuple[Candidate | None, str]:
        """
        Return the object with an id, or None.

        With None, the text is the reason why the object's absence is not proved; empty if it is proved.
        """
        # Try several times, because the service may take some time to list the object.
        for _ in tries_within(self.lookup_wait):
            if found := self.creation.get(ONE, identifier):
                return found, ""
        return None, self.creation.find([ONE], thorough=True)[ONE].inconclusive or ""

    def _look_up(self, keys: Sequence[str]) -> dict[str, Row]:
        """
        Return the row before it is sent, with the ids of similar objects.

        Empty if an existing object is reused.
        """
        known: list[str] | None = None
        try:
            if self.look_before_create:
                found = self.creation.find(keys, thorough=False)[ONE]
                known = sorted(each.id for each in found.candidates)
                self._check_hidden(found.hidden)
            if known and self._use_existing():
                return {}
        except CustodyError as error:
            # A gateway's response is no evidence that the service does not offer the lookup.
            is_not_offered = error.not_offered and (error.from_service or not self.existing)
            if known is not None or not is_not_offered:
                raise self._not_looked_up(error) from None
            self._warn_that_lost_is_lost(error)
        if known:
            what, named = self.creation.what, name_some(known)
            self.log.info("Already exists, and was not created by this task: %s %s.", what, named)
        if self.check is not None:
            self.check()
        return {ONE: Row(state="sent", known_ids=known, content=self._content)}

    def _check_hidden(self, hidden: int) -> None:
        """
        Refuse to create what may exist already, because the service counts similar objects that it does not return.

        :raises CustodyConflictError: if an existing object would be reused, or would forbid the creation.
        """
        if not hidden:
            return
        why = f"{describe_hidden(hidden)} for this address, so the requested content may exist already"
        if self.existing is None:
            self.log.warning("%s. Creating another one (if_exists='create').", f"{why[0].upper()}{why[1:]}")
            return
        raise CustodyConflictError(
            f"{why}; nothing is sent",
            code="request-exists",
            advice=lines(HIDDEN_ADVICE, "To create another request all the same, set if_exists='create'."),
        )

    def _warn_that_lost_is_lost(self, error: CustodyError) -> None:
        more = ", nor whether the same was requested before" if self.existing else ""
        text = f"If the response to the create is lost, this task cannot find out whether it had an effect{more}:"
        self.log.warning("%s", lines(text, str(error)))

    def _use_existing(self) -> bool:
        """Use an existing object instead of a new one, if that is allowed."""
        existing = None if self.existing is None else self.existing()
        if existing is None:
            return False
        self._reused, state = existing
        what = f"{self.creation.what} {self._reused}"
        self.log.info("Reusing %s, so nothing is sent: it has the same content and is %s.", what, state)
        return True

    def _not_looked_up(self, error: CustodyError) -> CustodyError:
        """Return the error for a service that cannot be searched before the send."""
        hint = "Nothing was created."
        is_about_user = error.is_missing_role or isinstance(error, CustodyAuthenticationError)
        is_lasting_response = error.status is not None and not error.retryable and not is_about_user
        if self.without_looking and is_lasting_response:
            hint += (
                f" With {self.without_looking} the task creates without looking first. An existing request is then not "
                "reused, and if the response is lost, the outcome may stay unknown."
            )
        return error.with_facts(advice=lines(error.advice, hint))

    # --- not knowing ---------------------------------------------------------------------------------------

    def _unknown(self, why: str) -> CustodyOutcomeUnknownError:
        self.report("unknown", 1)
        return CustodyOutcomeUnknownError(
            lines(
                f"it cannot be known whether this task's {self.creation.what} exists, so it is not sent again.",
                self._history(),
                why,
            ),
            code="outcome-unknown",
            advice=self._rows.search.advice(ONE),
        )

    def _history(self) -> str:
        """Return a description of the known effects of earlier tries."""
        batch, row = self._store.rows[ONE]
        if row.state == "created":
            return f"An earlier try created {row.detail}."
        if batch.recorded_at is None or not batch.try_number:
            return f"An earlier try may have sent a {self.creation.what}."
        at = batch.recorded_at.isoformat()
        return f"Try {batch.try_number} sent a {self.creation.what} at {at}, or was about to."
