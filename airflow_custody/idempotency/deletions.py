"""The deletions of an approved plan. Each is executed only if nothing has changed since the approval."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyNotFoundError
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plans.plan import requested_content
from airflow_custody.client.whitelist.request import Request, to_whitelist_request
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot
from airflow_custody.idempotency.create import Outcome
from airflow_custody.idempotency.records import PlannedDeletion, Row

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

_PREFIX = "delete:"
#: Advice for a service that goes on listing deleted requests.
MARKED = (
    "If the service keeps listing deleted requests, add the status word that it gives them to 'rejected_statuses' of "
    "this task's Airflow connection"
)
_UNCLEAR = "an earlier try began to delete it, but the outcome is unknown: look at the service, and start a new run"
_STILL_LISTED = (
    "the service confirmed to an earlier try of this task that it is deleted, but still lists it: if the listing is "
    f"only out of date, clear this task later; otherwise start a new run, which deletes it again. {MARKED}"
)
_CHANGED = "it has changed since the plan was approved: plan again in a new run"


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
    Return the facts that must not change between the approval and a deletion.

    :param snapshot: the requests.
    :param ids: the ids of the request to delete, and of the requests that are kept for the same row.
    :return: state, status and hash of each listed request, by id.
    """
    requests = [snapshot.requests[each] for each in ids if each in snapshot.requests]
    return {
        each.id: [_state(each), each.status, each.envelope.hash or ""] for each in requests if each.envelope is not None
    }


def _state(request: Request) -> str:
    if request.has_vanished:
        # No approved deletion has this state, so the request is not deleted.
        return f"{request.state}, but missing from a listing"
    return f"{request.state}, its deletion is pending" if request.deletion_pending else request.state


def _is_as_approved(deletion: PlannedDeletion, now: Snapshot) -> bool:
    """
    Tell whether a deletion's requests are unchanged since the approval.

    These are the request to delete, and the requests kept for its row.

    The plan's hash covers only the operation, and Airflow users can edit the rest of the record. Therefore the kept
    requests must also be in effect, and the request to delete must have the content that the operation names.
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
    The deletions of a plan, as rows to send. A deletion may be sent twice.

    :param client: the client.
    :param planned: the planned deletions, by the row's key.
    :param comment: the reason, for the service's history.
    """

    client: CustodyClient
    planned: Mapping[str, PlannedDeletion]
    comment: str
    #: The keys of the rows whose requests were gone before this try sent a deletion.
    _gone: set[str] = field(default_factory=set, init=False)

    def earlier(self, done: Mapping[str, Row], snapshot: Snapshot) -> tuple[Outcome, list[str]]:
        """
        Return the outcomes of earlier deletions, and the keys that are left.

        A deletion whose outcome is unknown is left if the service still lists the request.

        :param done: the record of each row, by key.
        :param snapshot: everything that the service lists now.
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
                    "the service lists deleted requests", code="outcome-unknown", retryable=True
                )
            elif row.state == "deleted":
                outcome.deleted[key] = deletion.operation
            elif is_listed:
                left.append(key)
            else:
                self._resolve(key, deletion, outcome)
        return outcome, left

    def _resolve(self, key: str, deletion: PlannedDeletion, outcome: Outcome) -> None:
        """
        Add the outcome of a deletion that an earlier try began.

        Its request is no longer listed.
        """
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
        """Delete a request if nothing has changed since the approval."""
        deletion = self.planned[key]
        now = read_snapshot(self.client, deletion.expected)
        request = now[deletion.id]
        # A service may keep listing deleted requests, with a status word that is among the rejected ones.
        is_marked = request.reported == "rejected"
        may_be_gone = request.state == "missing" or request.has_vanished
        if is_marked or (may_be_gone and status_if_exists(self.client, deletion.id) is None):
            self._gone.add(key)
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
        """Return why an unchanged request must not be deleted now; empty if it may be deleted."""
        return ""

    def describe(self, key: str, row: Row, error: CustodyError | None) -> tuple[int, str]:
        """Return the outcome of a row, for the log."""
        request_id = self.planned[key].id
        if key in self._gone:
            return logging.INFO, f"Whitelisting request {request_id} was deleted or rejected before: nothing to delete."
        if row.state == "deleted":
            return logging.INFO, f"Whitelisting request {request_id} is deleted."
        if row.state == "void":
            return logging.DEBUG, ""
        if row.state == "refused":
            return logging.WARNING, f"Whitelisting request {request_id} was not deleted: {row.detail}"
        return logging.WARNING, f"Whether whitelisting request {request_id} was deleted is unknown."
