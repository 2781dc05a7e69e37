"""
The record of all tries of a task instance, in Airflow's task state store.

The record consists of rows in batches, and of the plan that the task applies.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from airflow.providers.common.compat.sdk import Variable
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from airflow_custody.client.errors import CustodyError, CustodyOutcomeUnknownError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: The key of the record in the task's state. Each closed batch has its own key: this one, followed by the batch's
#: number.
STATE_KEY = "custody_create_once"
#: The version of the stored form. A record of any other version is refused.
FORMAT = 2
_PLAN_KEY = f"{STATE_KEY}_plan"
# Maximum number of times that a value is written. It is written again if a late write by an earlier try overwrites it.
_MAX_WRITES = 3

_Record = TypeVar("_Record", bound=BaseModel)

#: ``sent``: about to be sent, outcome unknown. ``void``: no effect. ``found``: another client has created a request
#: with the same content. ``reused``: an existing object is used; never stored, because nothing is sent.
RecordState = Literal["sent", "created", "deleted", "found", "reused", "refused", "void"]


class Row(BaseModel):
    """
    The record of one row. It contains no secrets.

    :param state: its state.
    :param detail: depending on the state: the id of the created, found or reused request, the reason for a refusal, or
        the operation of a deletion.
    :param known_ids: the ids of similar requests that existed before the row was sent; None: not looked up.
    :param content: a digest of each requested field, by name; empty if the row's key is itself a digest of all fields.
    :param replaces: the ids of the requests in effect that the created request replaces. The plan's hash covers them.
    :param request: the requested content in the spelling of the reused object; None: no object is reused.
    :param max_tries: the task's ``max_tries`` when the state was recorded. It changes when a user clears the task, so
        it shows whether the task was cleared since.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    state: RecordState
    detail: str = ""
    known_ids: list[str] | None = None
    content: dict[str, str] = {}
    replaces: list[str] = []
    request: dict[str, Any] | None = None
    max_tries: int = 0

    def become(self, state: RecordState, detail: str = "") -> Row:
        """Return the record with another state."""
        return self.model_copy(update={"state": state, "detail": detail})


class Batch(BaseModel):
    """
    Rows that are recorded together, before and after they are sent.

    :param number: its number among the task instance's batches.
    :param key: a unique name, which is also part of the names of the variables for manual overrides; empty if the
        record is only kept in memory.
    :param plan: the hash of the rows' plan; empty for a single row.
    :param try_number: the number of the try that sent the batch.
    :param recorded_at: when the batch was recorded, before its rows were sent; None: unknown.
    :param rows: the record of each row, by its key.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    number: int
    key: str
    plan: str
    try_number: int
    recorded_at: AwareDatetime | None = Field(default=None, strict=False)
    rows: dict[str, Row]


class PlannedDeletion(BaseModel):
    """
    A deletion of an approved plan.

    :param operation: the operation, in the form that the plan's hash covers.
    :param expected: state, status and hash at the time of approval, by id: of the request to delete, and of the
        requests that are kept for the same row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: str
    expected: dict[str, list[str]]

    @property
    def id(self) -> str:
        """The id of the request to delete."""
        return str(json.loads(self.operation)["delete"])

    @property
    def kept(self) -> list[str]:
        """The ids of the requests that are kept for the same row."""
        return [str(each) for each in json.loads(self.operation).get("beside", ())]

    @property
    def content(self) -> Any:
        """The content of the request to delete, at the time of approval; None: not recorded."""
        return json.loads(self.operation).get("request")

    @model_validator(mode="after")
    def _names_a_request(self) -> PlannedDeletion:
        try:
            ids = {self.id, *self.kept}
        except (ValueError, KeyError, TypeError):
            ids = {""}
        if ids != self.expected.keys():
            raise ValueError("the operation does not delete the expected request")
        return self


class PlanRecord(BaseModel):
    """
    The record of an approved plan, which all tries of a task instance execute.

    :param plan: the plan's hash.
    :param rows: a digest of all rows of the file, independent of their order.
    :param creations: the keys of the rows to create, each with the ids of the requests that it replaces. Their contents
        are read from the file.
    :param replaced: state, status and hash of the replaced requests when the plan was made, by id.
    :param deletions: the requests to delete.
    :param observed: other facts that the plan's hash covers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: str
    rows: str
    creations: dict[str, list[str]]
    replaced: dict[str, list[str]]
    deletions: list[PlannedDeletion]
    observed: list[str]


def to_stored(record: Batch | PlanRecord) -> dict[str, Any]:
    """Convert a batch, or the record of a plan, to plain JSON data."""
    if isinstance(record, PlanRecord):
        return {"format": FORMAT, "state": "planned", **record.model_dump(mode="json")}
    state = "open" if any(row.state == "sent" for row in record.rows.values()) else "closed"
    return {"format": FORMAT, "state": state, **record.model_dump(mode="json", exclude_defaults=True)}


def from_stored(stored: object, model: type[_Record]) -> _Record:
    """
    Read a stored batch, or the stored record of a plan.

    :param stored: the result of :func:`to_stored`, possibly from another version of this package.
    :param model: :class:`Batch` or :class:`PlanRecord`, whichever it must be.
    :raises CustodyOutcomeUnknownError: if it cannot be read.
    """
    if isinstance(stored, Mapping) and stored.get("format") == FORMAT:
        fields = {name: each for name, each in stored.items() if name not in ("format", "state")}
        with suppress(ValidationError):
            return model.model_validate(fields)
    raise unreadable()


def unreadable() -> CustodyOutcomeUnknownError:
    """Return the error for a record that cannot be read."""
    return CustodyOutcomeUnknownError(
        "the record of an earlier try cannot be read, so nothing is sent: another version of airflow-provider-custody "
        "wrote it, or it was damaged",
        code="record-unreadable",
        advice="Check in the service whether the requests of this task exist. If they do not, delete all keys of the "
        f"task's state that begin with {STATE_KEY!r}, and clear the task.",
    )


def digest(value: object) -> str:
    """Return a digest of JSON data; it depends on the order of keys."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


class Store:
    """
    Everything that the tries of one task instance have sent.

    One key of the task's state holds the number of batches and the open batch. Each closed batch has its own key. If
    Airflow has no task state store (before 3.3), everything is kept in memory, and later tries cannot read it.

    If this process is no longer the task's current try, Airflow raises an error in the methods that write. Do not
    catch this error. If the supervisor has died, the error is a BrokenPipeError, which looks like a network error.

    :param context: the task's context.
    """

    def __init__(self, context: Context) -> None:
        self._ti: Any = context["ti"]
        self._run: Any = context.get("dag_run")
        self._task: Any = context.get("task")
        self._store: Any = context.get("task_state_store")
        #: Changes when a user clears the task, but not when it is retried.
        self.max_tries: int = self._ti.max_tries
        #: Whether Airflow has a store, so that a later try finds the record.
        self.is_kept = self._store is not None
        self.batches: list[Batch] = []
        #: The numbers of the batches that are stored under a key of their own.
        self._apart: set[int] = set()
        #: Last known state and batch of each row, keyed by row key.
        self.rows: dict[str, tuple[Batch, Row]] = {}

    # --- reading -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """
        Record that a try of this task has begun, unless there is a record already.

        If a cleared task found nothing, it could not distinguish two cases: no earlier try sent anything, or the store
        deletes the state of successful tasks (``[state_store] clear_on_success``, a setting of the server that a task
        cannot read). This record distinguishes them.
        """
        if self.is_kept and not self._may_have_forgotten and self._store.get(STATE_KEY) is None:
            self._write(STATE_KEY, {"format": FORMAT, "state": "begun"})

    def read(self) -> bool:
        """
        Read the records of earlier tries.

        :return: whether an earlier try may have sent something without leaving a record.
        :raises CustodyOutcomeUnknownError: if a record cannot be read.
        """
        head = self._store.get(STATE_KEY) if self.is_kept else None
        if head is None:
            return self._may_have_forgotten
        if head.get("format") != FORMAT:
            raise unreadable()
        for number in range(head.get("batches", 0)):
            stored = self._store.get(f"{STATE_KEY}_{number:04d}")
            if stored is not None:
                self._apart.add(number)
            # Only the last batch can still be open.
            is_open = stored is None and number == head["batches"] - 1
            self._put(from_stored(head["batch"] if is_open else stored, Batch))
        return False

    def read_plan(self, plan: str) -> PlanRecord | None:
        """
        Return the record of a plan; None: no try has begun to apply it.

        :param plan: the plan's hash.
        :raises CustodyOutcomeUnknownError: if the record cannot be read, or is missing although rows of the plan were
            sent.
        """
        stored = self._store.get(_PLAN_KEY) if self.is_kept else None
        if stored is None:
            if any(batch.plan == plan for batch in self.batches):
                raise unreadable()
            return None
        record = from_stored(stored, PlanRecord)
        # If the record is for another plan, that one was approved since. This plan then begins again, but the record
        # still has its rows.
        return record if record.plan == plan else None

    @property
    def _may_have_forgotten(self) -> bool:
        if self._ti.try_number <= 1:
            return False
        # A retry finds the record of earlier tries. If the task was cleared, it may have succeeded before, and the
        # store may have deleted the record then.
        return not self.is_kept or self.max_tries != getattr(self._task, "retries", None)

    def add_forgotten(self, key: str) -> None:
        """Record a row that an earlier try may have sent without leaving a record."""
        # Earlier tries began after the run's start date. If the task may have been cleared, do not use this date,
        # because clearing may change it.
        cleared = self.is_kept or self._run is None or self._run.clear_number
        since = None if cleared else self._run.start_date
        rows, number = {key: Row(state="sent")}, len(self.batches)
        batch = Batch(number=number, key="", plan="", try_number=0, recorded_at=since, rows=rows)
        self._write_head(self._put(batch))

    def open_rows(self, plan: str | None = None) -> list[str]:
        """Return the keys of the rows whose outcome is unknown. None (default): the rows of all plans."""
        return [key for key, (batch, row) in self.rows.items() if row.state == "sent" and plan in (None, batch.plan)]

    def ids(self) -> set[str]:
        """Return the ids of the created objects."""
        return {row.detail for _, row in self.rows.values() if row.state == "created"}

    def _put(self, batch: Batch) -> Batch:
        """Add a batch, or replace the batch with the same number."""
        self.batches[batch.number : batch.number + 1] = [batch]
        for key, row in batch.rows.items():
            if key not in self.rows or self.rows[key][0].number <= batch.number:
                self.rows[key] = batch, row
        return batch

    # --- writing -------------------------------------------------------------------------------------------

    def new_batch(self, rows: Mapping[str, Row], plan: str = "") -> Batch:
        """Return a batch of rows to send, without recording it."""
        for previous in self.batches[-1:]:
            # A batch that was not closed has no key of its own yet. Write it to one, because the new batch will
            # overwrite it.
            if previous.number not in self._apart:
                self._write_apart(previous)
        stamped = {key: row.model_copy(update={"max_tries": self.max_tries}) for key, row in rows.items()}
        key = uuid.uuid4().hex if self.is_kept else ""
        number = len(self.batches)
        return Batch(number=number, key=key, plan=plan, try_number=self._ti.try_number, rows=stamped)

    def open(self, batch: Batch) -> None:
        """Record a batch that is about to be sent, possibly again. A superseded try fails here."""
        self._write_head(self._put(batch.model_copy(update={"recorded_at": datetime.now(timezone.utc)})))

    def record_plan(self, record: PlanRecord) -> None:
        """Record the plan that this try begins to apply, and replace the record of any earlier plan."""
        self._write(_PLAN_KEY, to_stored(record))

    def record(self, outcomes: Iterable[tuple[str, Row]]) -> None:
        """Record the outcomes of rows, including rows of earlier tries, by key."""
        changed: dict[int, dict[str, Row]] = {}
        for key, row in outcomes:
            changed.setdefault(self.rows[key][0].number, {})[key] = row.model_copy(update={"max_tries": self.max_tries})
        for number, rows in changed.items():
            batch = self.batches[number]
            self._write_apart(self._put(batch.model_copy(update={"rows": {**batch.rows, **rows}})))

    def _write_head(self, batch: Batch) -> None:
        head = {"format": FORMAT, "state": "sending", "batches": len(self.batches), "batch": to_stored(batch)}
        self._write(STATE_KEY, head)

    def _write_apart(self, batch: Batch) -> None:
        self._apart.add(batch.number)
        self._write(f"{STATE_KEY}_{batch.number:04d}", to_stored(batch))

    def _write(self, key: str, value: Mapping[str, Any]) -> None:
        """Store JSON data for as long as the task instance exists, and check by reading it that it is stored."""
        if not self.is_kept:
            return
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        for _ in range(_MAX_WRITES):
            self._store.set(key, value, retention=NEVER_EXPIRE)
            # Airflow checks that this try is the current one before it writes, but not while it writes.
            if self._store.get(key) == value:
                return
        raise CustodyError(
            "another try of this task has taken over: it has overwritten the task's state; this try sent nothing more",
            code="task-stopped",
            nothing_sent=True,
            retryable=True,
        )

    # --- manual overrides ----------------------------------------------------------------------------------

    def override_variable(self, key: str, *, next_try: bool = False) -> str:
        """
        Return the name of the Airflow variable for the manual override of a row.

        The name depends on the row's state and batch (without a store: on the try), so that no override is used twice.

        :param key: the row's key.
        :param next_try: whether to return the name that the next try uses. Default False.
        """
        batch, row = self.rows[key]
        ti = self._ti
        batch_key = batch.key or [ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.try_number + next_try]
        return f"custody_create_{digest([batch_key, key, row.state, row.detail])[:12]}"

    def manual_override(self, key: str) -> list[str]:
        """
        Return the words of a row's manual override.

        :return: one id; or ``none``, optionally followed by ids of objects that the row did not create; or empty if
            there is no override.
        """
        # Pass a positional argument, because the parameter has another name in Airflow 2.
        value = Variable.get(self.override_variable(key), None)
        word, *others = str(value or "").split() or [""]
        return [word.lower() if word.lower() == "none" else word, *others] if word else []
