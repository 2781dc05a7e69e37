"""
The deletions of an approved plan. Each is executed only if nothing has changed since the approval.

A plan that creates nothing deletes when it is applied. Any other plan deletes when it is completed: then a replaced
request also needs a successor that is in effect, verified if keys are pinned, and equal to its row. This ensures that
the last request in effect for a row is never deleted.

Each try executes all deletions. A missing request counts as deleted, and a deletion may be sent twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyNotFoundError
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.addresses.destinations import is_same
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plans.plan import requested_content
from airflow_custody.client.whitelist.request import Request, to_whitelist_request
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot
from airflow_custody.idempotency.create import Outcome, outcome_of
from airflow_custody.idempotency.send import Sender
from airflow_custody.idempotency.store import PlannedDeletion, Row, Store
from airflow_custody.idempotency.whitelist_creation import WhitelistCreation

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, WhitelistRequest

_PREFIX = "delete:"
#: Advice for a service that goes on listing deleted requests.
MARKED = (
    "If the service keeps listing deleted requests, add the status word that it gives them to 'rejected_statuses' of "
    "this task's Airflow connection"
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
    :param successors: the ids of the requests that replace deleted requests, by the row's key. Default: none.
    :param requested: the requested contents of the successors, by id. Default: none.
    """

    client: CustodyClient
    planned: Mapping[str, PlannedDeletion]
    comment: str
    successors: Mapping[str, str] = field(default_factory=dict)
    requested: Mapping[str, WhitelistRequest] = field(default_factory=dict)
    #: The keys of the rows whose requests were gone before this try sent a deletion.
    _gone: set[str] = field(default_factory=set, init=False)

    def check_successor(self, request_id: str, now: Snapshot) -> None:
        """
        Check that a created request is in effect, verified if keys are pinned, and equal to its row.

        :param request_id: its id.
        :param now: the current requests.
        :raises CustodyConflictError: if the request fails one of these checks. It is retryable if the request may still
            take effect.
        """
        request = now[request_id]
        why, may_take_effect = "", False
        if request.state != "effective":
            reason = f": {request.reason}" if request.reason else ""
            why = f"{request.name} is {request.state}, not in effect{reason}"
            # The listing may be late and lack the last signature.
            may_take_effect = request.state not in ("rejected", "unreadable")
        elif request.deletion_pending:
            why = f"the deletion of {request.name} is pending"
        elif mismatch := WhitelistCreation(self.client, self.requested).compare(request_id, request).mismatch:
            why = f"{request.name} differs from the requested content: {mismatch}"
        if why:
            raise plan_incomplete(why, retryable=may_take_effect)

    def prepare(self, keys: Sequence[str]) -> dict[str, Row]:
        """Return the rows of a batch before they are sent."""
        return {key: Row(state="sent", detail=self.planned[key].operation) for key in keys}

    def send(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        """Delete a request if nothing has changed since the approval."""
        deletion = self.planned[key]
        successor = self.successors.get(key)
        now = read_snapshot(self.client, [*deletion.expected, *([successor] if successor else [])])
        request = now[deletion.id]
        # A service may keep listing deleted requests, with a status word that is among the rejected ones.
        is_marked = request.reported == "rejected"
        may_be_gone = request.state == "missing" or request.has_vanished
        if is_marked or (may_be_gone and status_if_exists(self.client, deletion.id) is None):
            self._gone.add(key)
            return row.become("deleted", row.detail)
        if not _is_as_approved(deletion, now):
            return row.become("refused", _CHANGED)
        if successor:
            try:
                self.check_successor(successor, now)
            except CustodyConflictError as error:
                return row.become("refused", error.message)
            replaced, replacing = request.destination, now[successor].destination
            if replaced is None or replacing is None or not is_same(replaced, replacing):
                why = f"it is not for the destination of {now[successor].name}, which replaces it"
                return row.become("refused", why)
        before_send()
        with suppress(CustodyNotFoundError):
            self.client.delete_whitelist_request(deletion.id, self.comment)
        return row.become("deleted", row.detail)

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


def plan_incomplete(why: str, *, retryable: bool) -> CustodyConflictError:
    """Return the error for a plan that cannot be completed now."""
    return CustodyConflictError(
        why,
        code="plan-incomplete",
        retryable=retryable,
        advice="The replaced requests stay in effect. Once the new request is in effect as requested, clear this "
        "task; or start a new run, which plans again.",
    )


def execute(
    deletions: Deletions,
    store: Store,
    log: logging.Logger,
    plan_hash: str,
    *,
    max_parallel: int = 1,
    is_stopped: Callable[[], bool],
) -> Outcome:
    """
    Execute deletions.

    :param deletions: the deletions.
    :param store: the record of what was sent.
    :param log: the task's log.
    :param plan_hash: the hash of the approved plan.
    :param max_parallel: maximum number of requests at once. Default 1.
    :param is_stopped: returns whether the user has stopped the task.
    :return: the outcome of each deletion.
    """
    keys = [*deletions.planned]
    sender = Sender(
        store,
        log,
        deletions,
        plan=plan_hash,
        max_parallel=max_parallel,
        report=lambda outcome, count: None,
        is_stopped=is_stopped,
    )
    return outcome_of(store, keys, plan_hash, sender.send(keys))
