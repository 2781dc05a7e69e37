"""
The deletions of an approved plan. Each is executed only if nothing has changed since the approval.

If a plan creates nothing, applying it executes its deletions. Applying any other plan deletes nothing yet, and returns
an :class:`AppliedPlan`: the record of the approved plan, and the created request of each row. Once the created requests
are signed, :func:`complete_plan` executes the rest of the record: the approved deletions, and the deletions of the
requests that were replaced. A replaced request is deleted only if its successor is in effect, verified if keys are
pinned, and equal to its row. This ensures that the last request in effect for a row is never deleted. No other request
is ever deleted, because the plan's hash covers all of these deletions.

Each try executes all deletions again. This is safe, because a missing request counts as deleted, and sending a deletion
twice does no harm.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from airflow_custody.client.arguments import describe
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyRequestError,
)
from airflow_custody.client.text import name_some, sanitize
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.addresses.destinations import is_same
from airflow_custody.client.whitelist.matching import find_existing
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plans.plan import create_operation, hash_operations, requested_content
from airflow_custody.client.whitelist.request import Request, to_whitelist_request
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot, service_name
from airflow_custody.idempotency.create import Outcome, outcome_of
from airflow_custody.idempotency.send import Sender
from airflow_custody.idempotency.store import PlannedDeletion, PlanRecord, Row, Store

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient

_PREFIX = "delete:"
#: Advice for a service that keeps listing deleted requests.
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
        # The approval never recorded this state, so the request counts as changed, and is not deleted.
        return f"{request.state}, but missing from a listing"
    return f"{request.state}, its deletion is pending" if request.deletion_pending else request.state


def _is_as_approved(deletion: PlannedDeletion, now: Snapshot) -> bool:
    """
    Tell whether the request to delete, and the requests that are kept for its row, are unchanged since the approval.

    The comparison with the record is not enough, because the plan's hash covers only the operation, and Airflow users
    can edit the rest of the record. Therefore the kept requests must also be in effect, and the request to delete must
    have the content that the operation names.
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

        :param request_id: the request's id.
        :param now: the current requests.
        :raises CustodyConflictError: if the request fails one of these checks. The error is retryable if the request
            may still take effect.
        """
        request = now[request_id]
        why, may_take_effect = "", False
        if request.state != "effective":
            reason = f": {request.reason}" if request.reason else ""
            why = f"{request.name} is {request.state}, not in effect{reason}"
            # The request may still take effect, for example if the listing lags behind and lacks the last signature.
            may_take_effect = request.state not in ("rejected", "unreadable")
        elif request.deletion_pending:
            why = f"the deletion of {request.name} is pending"
        else:
            # Decide in the same way as a plan, which deletes a replaced request only if another request has exactly the
            # row's content.
            decision = find_existing(self.requested[request_id], [request], self.client.settings)
            if decision.state != "unchanged":
                differs = decision.note or f"it differs in: {', '.join(decision.fields)}"
                why = f"{request.name} differs from the requested content: {differs}"
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
        # A service may keep listing deleted requests, with a status word that counts as rejected.
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
                why = f"it does not have the same destination as {now[successor].name}, which replaces it"
                return row.become("refused", why)
        before_send()
        with suppress(CustodyNotFoundError):
            self.client.delete_whitelist_request(deletion.id, self.comment)
        return row.become("deleted", row.detail)

    def describe(self, key: str, row: Row, error: CustodyError | None) -> tuple[int, str]:
        """Return the level and the text of the log entry about a row's outcome."""
        request_id = self.planned[key].id
        if key in self._gone:
            return (
                logging.INFO,
                f"Nothing to delete: whitelisting request {request_id} was already deleted or rejected.",
            )
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


# --- completing a plan ------------------------------------------------------------------------------------


class AppliedPlan(BaseModel):
    """
    An applied plan whose deletions are still to be executed.

    :param record: the record of the approved plan.
    :param requests: the requested content of each row to create, by the row's key.
    :param ids: the id of the request that was created for each of these rows, by the row's key.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    record: PlanRecord
    requests: dict[str, dict[str, Any]]
    ids: dict[str, str]


def is_approved(record: PlanRecord, requests: Mapping[str, WhitelistRequest], service: str, plan_hash: str) -> bool:
    """
    Tell whether a record has the hash of the approved plan.

    This check is necessary because Airflow users can edit records and XComs.

    :param record: the record.
    :param requests: the requested contents, by the row's key.
    :param service: name of the service and the tenant.
    :param plan_hash: the hash of the approved plan.
    """
    if not record.creations.keys() <= requests.keys():
        return False
    operations = [create_operation(requests[key], replaced) for key, replaced in record.creations.items()]
    operations += [each.operation for each in record.deletions]
    return hash_operations(operations, record.observed, service) == plan_hash


def read_applied(value: Any) -> AppliedPlan | None:
    """
    Read the part of a plan that an apply task has left for the complete task; None: nothing is left.

    :param value: the task's XCom, or its JSON text.
    :raises CustodyRequestError: if the value is not the XCom of an apply task.
    """
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, Mapping) and "completion" in value:
        if value["completion"] is None:
            return None
        try:
            return AppliedPlan.model_validate(value["completion"])
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            found = f"an XCom with an invalid {sanitize(where or 'completion', 80)}"
    elif isinstance(value, Mapping):
        found = "a mapping without 'completion', which an apply task pushes if it stops because the plan has changed"
    else:
        found = describe(value)
    raise CustodyRequestError(
        f"applied must be the XCom of the apply task, not {found}; this try deleted nothing",
        setting="applied",
        advice="Write applied=apply.output.",
        code="parameter-wrong",
    )


def complete_plan(
    context: Context,
    client: CustodyClient,
    log: logging.Logger,
    applied: AppliedPlan,
    plan_hash: str,
    *,
    comment: str,
    is_stopped: Callable[[], bool],
) -> Outcome:
    """
    Delete the requests that an applied plan deletes or replaces, as one try of a task.

    :param context: the task's context.
    :param client: the client.
    :param log: the task's log.
    :param applied: the applied plan.
    :param plan_hash: the hash of the approved plan.
    :param comment: why requests are deleted, for the service's history.
    :param is_stopped: returns whether the user has stopped the task.
    :return: the outcome of the deletions.
    :raises CustodyConflictError: if this is not the approved plan, or a created request is not in effect as requested;
        this try deleted nothing. The error is retryable if a request may still take effect.
    :raises CustodyError: if the service cannot be read.
    """
    record = applied.record
    requests = {key: WhitelistRequest(**content) for key, content in applied.requests.items()}
    if not is_approved(record, requests, service_name(client), plan_hash):
        raise CustodyConflictError(
            "the applied plan does not have this hash, or the service or its tenant has changed; this try deleted "
            "nothing",
            code="plan-changed",
            advice="Pass plan_hash and applied from the same apply task. If they already are, start a new run.",
        )
    ids = {key: applied.ids.get(key, "") for key in record.creations}
    if missing := [requests[key].address for key in ids if not ids[key]]:
        named = name_some(missing, 60)
        raise plan_incomplete(f"not all rows were created, so nothing is deleted; missing: {named}", retryable=False)
    if len({*ids.values()}) != len(ids):
        raise plan_incomplete("two creations name the same request, so nothing is deleted", retryable=False)
    # The approved deletions come first. After them come the deletions of the requests that were replaced.
    planned = {deletion_key(each.id): each for each in record.deletions}
    successors: dict[str, str] = {}
    for key, replaced in record.creations.items():
        for old in replaced:
            operation = json.dumps({"delete": old, "replaced by": ids[key]})
            expected = {old: record.replaced.get(old, [])}
            planned[deletion_key(old)] = PlannedDeletion(operation=operation, expected=expected)
            successors[deletion_key(old)] = ids[key]
    requested = {ids[key]: requests[key] for key in ids}
    deletions = Deletions(client, planned, comment, successors, requested)
    snapshot = read_snapshot(client, requested)
    for each in requested:
        deletions.check_successor(each, snapshot)
    store = Store(context)
    store.read()
    return execute(deletions, store, log, plan_hash, is_stopped=is_stopped)
