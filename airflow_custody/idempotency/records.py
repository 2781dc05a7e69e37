"""What the tries of one task instance have sent: rows in batches, and their stored form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from airflow_custody.client.errors import CustodyOutcomeUnknownError

#: The key of the task's state; each batch that is closed has a key of its own, with its number behind this one.
STATE_KEY = "custody_create_once"
#: The stored form's version. One of another version is refused.
FORMAT = 2

_Record = TypeVar("_Record", bound=BaseModel)

#: ``sent``: it was about to be sent, and its outcome is unknown. ``void``: it had no effect. ``found``: somebody else
#: has asked for the same.
RecordState = Literal["sent", "created", "deleted", "found", "refused", "void"]


class Row(BaseModel):
    """
    The record of one row; nothing in it is secret.

    :param state: its state.
    :param detail: the id of what was created or found, why it was refused, or the operation that deletes it.
    :param known_ids: the ids of what was like it at the service before it was sent; None: nobody looked.
    :param content: a digest of each field that was asked for; empty where the row's key is one of all of them.
    :param replaces: the ids of the requests in effect that a created one replaces: the plan's hash covers them.
    :param max_tries: the task's ``max_tries`` when the state was recorded; it changes when a person clears the task.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    state: RecordState
    detail: str = ""
    known_ids: list[str] | None = None
    content: dict[str, str] = {}
    replaces: list[str] = []
    max_tries: int = 0

    def become(self, state: RecordState, detail: str = "") -> Row:
        """Return the record with another state."""
        return self.model_copy(update={"state": state, "detail": detail})


class Batch(BaseModel):
    """
    Rows that are recorded together, before they are sent and after.

    :param number: its number among the task instance's batches.
    :param key: names the batch, and with it the variables of the manual overrides of its rows; empty without a store.
    :param plan: the hash of the plan that the rows are of; empty for a single one.
    :param try_number: the try that sent it.
    :param recorded_at: when it was recorded, before the rows were sent; None: not known.
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

    :param operation: the operation, as the text that the plan's hash covers.
    :param expected: state, status and hash of the request, and of those that are kept beside it, when the plan was
        approved, by their ids.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    operation: str
    expected: dict[str, list[str]]

    @property
    def id(self) -> str:
        """The id of the request to delete, as the operation names it."""
        return str(json.loads(self.operation)["delete"])

    @property
    def kept(self) -> list[str]:
        """The ids of the requests that are kept beside it."""
        return [str(each) for each in json.loads(self.operation).get("beside", ())]

    @property
    def content(self) -> Any:
        """What the request asks for, as it was approved; None: the operation does not say."""
        return json.loads(self.operation).get("request")

    @model_validator(mode="after")
    def _names_a_request(self) -> PlannedDeletion:
        try:
            ids = {self.id, *self.kept}
        except (ValueError, KeyError, TypeError):
            ids = {""}
        if ids != self.expected.keys():
            raise ValueError("the operation is no deletion of what is expected")
        return self


class PlanRecord(BaseModel):
    """
    The record of an approved plan, which all tries of a task instance execute.

    :param plan: the plan's hash.
    :param rows: a digest of all rows of the file, in any order.
    :param creations: the keys of the rows to create, each with the ids of the requests that it replaces. The file has
        the contents.
    :param replaced: state, status and hash of the requests that creations replace, when the plan was made, by id.
    :param deletions: the requests to delete.
    :param observed: what else the plan's hash covers.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    plan: str
    rows: str
    creations: dict[str, list[str]]
    replaced: dict[str, list[str]]
    deletions: list[PlannedDeletion]
    observed: list[str]


def to_stored_plan(record: PlanRecord) -> dict[str, Any]:
    """Return the record of a plan as plain JSON data."""
    return {"format": FORMAT, "state": "planned", **record.model_dump(mode="json")}


def from_stored_plan(stored: Mapping[str, Any]) -> PlanRecord:
    """
    Return the record of a plan that was stored.

    :param stored: the result of :func:`to_stored_plan`, maybe of another version of this package.
    :raises CustodyOutcomeUnknownError: if it cannot be read.
    """
    return _read(stored, PlanRecord)


def to_stored(batch: Batch) -> dict[str, Any]:
    """Return a batch as plain JSON data."""
    state = "open" if any(row.state == "sent" for row in batch.rows.values()) else "closed"
    return {"format": FORMAT, "state": state, **batch.model_dump(mode="json", exclude_defaults=True)}


def from_stored(stored: Mapping[str, Any]) -> Batch:
    """
    Return the batch that was stored.

    :param stored: the result of :func:`to_stored`, maybe of another version of this package.
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
        advice="Look in the service whether what this task asks for exists. Where it does not, delete the keys "
        f"{STATE_KEY!r} of the task's state and clear the task.",
    )


def digest(value: object) -> str:
    """Return a digest of JSON data, the same for the same data in the same order."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
