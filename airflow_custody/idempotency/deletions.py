"""The deletions of an approved plan: each only while everything is as it was approved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyNotFoundError
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plans.plan import requested_content
from airflow_custody.client.whitelist.request import Request, to_whitelist_request
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot
from airflow_custody.client.whitelist.status_words import StatusWords
from airflow_custody.idempotency.create import Outcome
from airflow_custody.idempotency.records import PlannedDeletion, Row

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

_PREFIX = "delete:"
#: Reason for stopping when a service lists what was deleted.
MARKED = (
    "If the service goes on listing what was deleted, add the status word that it then has to rejected_statuses of "
    "this task and of the one that plans"
)
_UNCLEAR = (
    "an earlier try began to delete it, and whether it did cannot be told: look at the service, and start a new run"
)
_STILL_LISTED = (
    "an earlier try of this task was told that it is deleted, and the service lists it as not deleted: if it is late, "
    f"clear this task later; otherwise start a new run, which deletes it again. {MARKED}"
)
_CHANGED = "it is no longer what the approved plan deletes: plan again in a new run"


def deletion_key(request_id: str) -> str:
    """Return the key of the row that deletes a request."""
    return f"{_PREFIX}{request_id}"


def is_deletion_key(key: str) -> bool:
    """Tell whether a row deletes a request."""
    return key.startswith(_PREFIX)


def deleted_id(key: str) -> str:
    """Return the id of the request that a row deletes."""
    return key.partition(":")[2]


def observe(snapshot: Snapshot, ids: Iterable[str]) -> dict[str, list[str]]:
    """
    Return what must not change between the approval and a deletion.

    :param snapshot: the requests.
    :param ids: the ids of the request to delete, and of those that are kept beside it.
    :return: state, status and hash of each that is listed, by id.
    """
    requests = [snapshot.requests[each] for each in ids if each in snapshot.requests]
    return {
        each.id: [_state(each), each.status, each.envelope.hash or ""] for each in requests if each.envelope is not None
    }


def _state(request: Request) -> str:
    return f"{request.state}, its deletion is pending" if request.deletion_pending else request.state


def _is_as_approved(deletion: PlannedDeletion, now: Snapshot) -> bool:
    """
    Tell whether a request, and those that are kept beside it, are as they were approved.

    The operation alone is covered by the plan's hash. So the kept ones must be in effect, and the request must ask for
    what the operation says, whatever else was recorded.
    """
    if observe(now, deletion.expected) != deletion.expected:
        return False
    if any(now[each].state != "effective" or now[each].deletion_pending for each in deletion.kept):
        return False
    if deletion.content is None:
        return True
    try:
        return bool(requested_content(to_whitelist_request(now[deletion.id])) == deletion.content)
    except RefusalError:
        return False


@dataclass(frozen=True, eq=False)
class Deletions:
    """
    The deletions of a plan, as rows to send. They may be sent twice.

    :param client: the client.
    :param words: the status words.
    :param planned: the planned deletions, by the row's key.
    :param comment: why they are deleted, for the service's history.
    """

    client: CustodyClient
    words: StatusWords
    planned: Mapping[str, PlannedDeletion]
    comment: str

    def earlier(self, done: Mapping[str, Row], snapshot: Snapshot) -> tuple[Outcome, list[str]]:
        """
        Return the outcome of the deletions of earlier tries, as far as it is certain, and the keys of what is left.

        :param done: the record of each row, by its key.
        :param snapshot: all that the service lists now.
        """
        outcome, left = Outcome(), []
        for key, deletion in self.planned.items():
            row = done.get(key)
            request = snapshot.requests.get(deletion.id)
            is_listed = request is not None and request.reported != "rejected"
            if row is None or row.state not in ("deleted", "sent"):
                left.append(key)
            elif row.state == "deleted" and is_listed:
                outcome.unknown[key] = _STILL_LISTED
                outcome.stopped = CustodyConflictError(
                    "the service lists what was deleted", code="outcome-unknown", retryable=True
                )
            elif row.state == "deleted":
                outcome.deleted[key] = deletion.operation
            elif is_listed:
                left.append(key)
            else:
                self._resolve(key, deletion, outcome)
        return outcome, left

    def _resolve(self, key: str, deletion: PlannedDeletion, outcome: Outcome) -> None:
        """Add the outcome of a deletion that was begun, and whose request is not listed."""
        try:
            if status_if_exists(self.client, deletion.id) is None:
                outcome.deleted[key] = deletion.operation
            else:
                outcome.unknown[key] = _UNCLEAR
        except CustodyError as error:
            outcome.unknown[key] = f"{_UNCLEAR} ({error.reason})"
            if error.transient and outcome.stopped is None:
                outcome.stopped = error

    def look_up(self, keys: Sequence[str]) -> dict[str, Row]:
        """Return the rows of a batch before they are sent."""
        return {key: Row(state="sent", detail=self.planned[key].operation) for key in keys}

    def send(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        """Delete a request if it, and what is kept beside it, are as they were approved."""
        deletion = self.planned[key]
        now = read_snapshot(self.client, self.words, deletion.expected)
        request = now[deletion.id]
        # A service may go on listing what was deleted, with a status of its own that the user has named.
        is_marked = request.reported == "rejected"
        if is_marked or (request.state == "missing" and status_if_exists(self.client, deletion.id) is None):
            return row.become("deleted", row.detail)
        if not _is_as_approved(deletion, now):
            return row.become("refused", _CHANGED)
        why_not = self.why_not(key)
        if why_not:
            return row.become("refused", why_not)
        before_send()
        with suppress(CustodyNotFoundError):
            self.client.delete_whitelist_request(deletion.id, self.comment)
        return row.become("deleted", row.detail)

    def why_not(self, key: str) -> str:
        """Return why a request must not be deleted now, although it is as it was approved; empty: it may be."""
        return ""

    def describe(self, key: str, row: Row, error: CustodyError | None) -> tuple[int, str]:
        """Return what became of a row, for the log."""
        name = f"Whitelisting request {self.planned[key].id}"
        if row.state == "deleted":
            return logging.INFO, f"{name} is deleted."
        if row.state == "void":
            return logging.DEBUG, ""
        why = row.detail if row.state == "refused" else "nobody knows"
        return logging.WARNING, f"{name} was not deleted: {why}"
