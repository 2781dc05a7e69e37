"""The record of what a task instance has sent: rows in batches, and their stored form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from airflow_custody.client.errors import CustodyOutcomeUnknownError

#: The key of the task's state. Each closed batch has its own key: this one, followed by the batch's number.
STATE_KEY = "custody_create_once"
#: The version of the stored form. A record of any other version is refused.
FORMAT = 2

_Record = TypeVar("_Record", bound=BaseModel)

#: ``sent``: about to be sent, outcome unknown. ``void``: no effect. ``found``: another client has created a request
#: with the same content. ``reused``: an existing object is used; never stored, because nothing is sent.
RecordState = Literal["sent", "created", "deleted", "found", "reused", "refused", "void"]


class Row(BaseModel):
    """
    The record of one row. It contains no secrets.

    :param state: its state.
    :param detail: the id of the created, found or reused request, the reason for a refusal, or a deletion's operation.
    :param known_ids: the ids of similar requests that existed before the row was sent; None: not looked up.
    :param content: a digest of each requested field; empty if the row's key already is a digest of all fields.
    :param replaces: the ids of the requests in effect that the created request replaces. The plan's hash covers them.
    :param request: the requested content in the spelling of the reused object; None: no object is reused.
    :param max_tries: the task's ``max_tries`` when the state was recorded. It changes when a user clears the task.
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
    :param key: a unique name, also used in the names of the variables for manual overrides; empty without a store.
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
    :param expected: state, status and hash, at the time of approval, of the request and of the requests that are kept
        for the same row, by id.
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
        """The content of the request at the time of approval; None: not recorded."""
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


def to_stored_plan(record: PlanRecord) -> dict[str, Any]:
    """Convert the record of a plan to plain JSON data."""
    return {"format": FORMAT, "state": "planned", **record.model_dump(mode="json")}


def from_stored_plan(stored: Mapping[str, Any]) -> PlanRecord:
    """
    Read the stored record of a plan.

    :param stored: the result of :func:`to_stored_plan`, possibly from another version of this package.
    :raises CustodyOutcomeUnknownError: if it cannot be read.
    """
    return _read(stored, PlanRecord)


def to_stored(batch: Batch) -> dict[str, Any]:
    """Convert a batch to plain JSON data."""
    state = "open" if any(row.state == "sent" for row in batch.rows.values()) else "closed"
    return {"format": FORMAT, "state": state, **batch.model_dump(mode="json", exclude_defaults=True)}


def from_stored(stored: Mapping[str, Any]) -> Batch:
    """
    Read a stored batch.

    :param stored: the result of :func:`to_stored`, possibly from another version of this package.
    :raises CustodyOutcomeUnknownError: if it cannot be read.
    """
    return _read(stored, Batch)


def _read(stored: object, model: type[_Record]) -> _Record:
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
    """Return a digest of JSON data, the same for the same data in the same order."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
