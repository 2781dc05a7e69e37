"""Records that the tries of one task instance share, and their stored form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from airflow_custody.client.errors import CustodyOutcomeUnknownError

T = TypeVar("T")

#: The stored form's version. A task that another version of this package started must be able to go on.
FORMAT = 1


@dataclass(frozen=True)
class Begun:
    """A try that began and recorded no intent, so it sent nothing."""


@dataclass(frozen=True)
class Intent:
    """
    A send that was about to happen when it was recorded; its outcome is unknown.

    :param key: names the intent, and with it the variable of its manual override.
    :param try_number: the task's try that recorded it.
    :param max_tries: the task's ``max_tries`` then; it changes when a person clears the task.
    :param content: a digest of each field that was asked for.
    :param known_ids: the ids of what was at the service before; None: nobody looked.
    :param recorded_at: time of recording, right before the send.
    """

    key: str | None
    try_number: int
    max_tries: int
    content: Mapping[str, str]
    known_ids: tuple[str, ...] | None
    recorded_at: datetime


@dataclass(frozen=True)
class Untracked:
    """
    An earlier try that may have sent, and of which nothing is recorded.

    This Airflow has no task state store, or its store has forgotten the record.

    :param since: start of the run; None: not known.
    """

    since: datetime | None


@dataclass(frozen=True)
class Refused:
    """
    An intent that came to nothing: the service refused it.

    :param intent: the intent.
    """

    intent: Intent


@dataclass(frozen=True)
class Created:
    """
    An intent that succeeded.

    :param id: the id of what was created.
    :param key: names this outcome, so that a manual override of the intent before it is spent.
    :param max_tries: the task's ``max_tries`` when the outcome was recorded.
    :param attempt: the intent.
    """

    id: str
    key: str
    max_tries: int
    attempt: Intent | Untracked


Record = Begun | Intent | Untracked | Refused | Created


def to_stored(record: Begun | Intent | Refused | Created) -> dict[str, Any]:
    """Return a record as plain JSON data; nothing in it is secret."""
    if isinstance(record, Begun):
        return {"format": FORMAT, "state": "begun"}
    if isinstance(record, Refused):
        return {**to_stored(record.intent), "state": "refused"}
    if isinstance(record, Created):
        outcome = {"state": "created", "id": record.id, "max_tries": record.max_tries, "key": record.key}
        if isinstance(record.attempt, Intent):
            return {**to_stored(record.attempt), **outcome}
        since = {} if record.attempt.since is None else {"since": record.attempt.since.isoformat()}
        return {"format": FORMAT, **since, **outcome}
    stored: dict[str, Any] = {
        "format": FORMAT,
        "state": "intent",
        "try": record.try_number,
        "max_tries": record.max_tries,
        "content": dict(record.content),
        "at": record.recorded_at.isoformat(),
    }
    if record.known_ids is not None:
        stored["before"] = list(record.known_ids)
    if record.key is not None:
        stored["key"] = record.key
    return stored


def from_stored(stored: Mapping[str, Any]) -> Record:
    """
    Return the record that was stored.

    :param stored: the result of :func:`to_stored`, maybe of another version of this package.
    :raises CustodyOutcomeUnknownError: if it cannot be read.
    """
    try:
        if stored["format"] != FORMAT:
            raise ValueError(stored["format"])
        if stored["state"] == "begun":
            return Begun()
        attempt: Intent | Untracked
        if "try" in stored:
            attempt = Intent(
                key=_text(stored["key"]) if "key" in stored else None,
                try_number=_integer(stored["try"]),
                max_tries=_integer(stored["max_tries"]),
                content={_text(name): _text(value) for name, value in _typed(stored["content"], dict).items()},
                known_ids=tuple(map(_text, _typed(stored["before"], list))) if "before" in stored else None,
                recorded_at=_aware(stored["at"]),
            )
        else:
            attempt = Untracked(_aware(stored["since"]) if "since" in stored else None)
        if stored["state"] == "created":
            return Created(_text(stored["id"]), _text(stored["key"]), _integer(stored["max_tries"]), attempt)
        if stored["state"] == "refused" and isinstance(attempt, Intent):
            return Refused(attempt)
        if stored["state"] == "intent" and isinstance(attempt, Intent):
            return attempt
        raise ValueError(stored["state"])
    except (KeyError, TypeError, ValueError):
        raise CustodyOutcomeUnknownError(
            "the record of an earlier try cannot be read, so nothing is sent: another version of "
            "airflow-provider-custody wrote it, or it was damaged",
            code="record-unreadable",
            advice="Look in the service whether what this task asks for exists. If it does not, delete the key "
            "'custody_create_once' of the task's state and clear the task.",
        ) from None


def _typed(value: object, expected: type[T]) -> T:
    if not isinstance(value, expected):
        raise ValueError(value)
    return value


def _text(value: object) -> str:
    if not _typed(value, str):
        raise ValueError(value)
    return str(value)


def _integer(value: object) -> int:
    if isinstance(value, bool):
        raise ValueError(value)
    return _typed(value, int)


def _aware(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    return found


def digest(value: object) -> str:
    """Return a digest of JSON data, the same for the same data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
