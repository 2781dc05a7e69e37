"""
Complete a plan: execute the deletions that had to wait for the created requests.

Applying a plan that creates anything deletes nothing. It returns an :class:`AppliedPlan`: the created request of each
row, the requests that it replaces, and the approved deletions. Once the created requests are signed, completing deletes
the replaced requests and executes the approved deletions. No other request is ever deleted, because the plan's hash
covers all of these deletions.

Each deletion is checked right before it is sent. The request to delete, and the requests that are kept for the same
row, must be unchanged since the plan was made. The successor must be in effect, verified if keys are pinned, and equal
to its row. This ensures that the last request in effect for a row is never deleted. If a try is killed or repeated, the
next try continues: a missing request counts as deleted, and a deletion may be sent twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from airflow_custody.client.arguments import describe
from airflow_custody.client.errors import CustodyConflictError, CustodyRequestError
from airflow_custody.client.text import name_some, sanitize
from airflow_custody.client.whitelist.addresses.destinations import is_same
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import create_operation, hash_operations
from airflow_custody.client.whitelist.request import Request
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot, service_name
from airflow_custody.idempotency.create import Outcome
from airflow_custody.idempotency.deletions import Deletions, deletion_key
from airflow_custody.idempotency.records import PlannedDeletion
from airflow_custody.idempotency.send import Sender
from airflow_custody.idempotency.stop_request import StopRequest
from airflow_custody.idempotency.store import Store
from airflow_custody.idempotency.whitelist_creation import WhitelistCreation

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient


class AppliedCreation(BaseModel):
    """
    A creation of an applied plan.

    :param request: the requested content.
    :param id: the request's id; empty if it was not created.
    :param replaces: the ids of the requests that it replaces.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    request: dict[str, Any]
    id: str
    replaces: list[str]


class AppliedPlan(BaseModel):
    """
    An applied plan whose deletions are left to complete.

    :param creations: the creations.
    :param replaced: state, status and hash of the replaced requests when the plan was made, by id.
    :param deletions: the approved deletions.
    :param observed: other facts that the plan's hash covers.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    creations: list[AppliedCreation]
    replaced: dict[str, list[str]]
    deletions: list[PlannedDeletion]
    observed: list[str]


def read_applied(value: Any) -> AppliedPlan | None:
    """
    Read the part of a plan that an apply task has left to complete; None: nothing is left.

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
        found = (
            "a mapping without 'completion'. An apply task that stops because the plan has changed pushes such a one"
        )
    else:
        found = describe(value)
    raise CustodyRequestError(
        f"applied must be the XCom of the apply task, not {found}; this try deleted nothing",
        setting="applied",
        advice="Write applied=apply.output.",
        code="parameter-wrong",
    )


@dataclass(eq=False, repr=False)
class CompletePlan:
    """
    One try of a task that completes a plan.

    :param context: the task's context.
    :param client: the client.
    :param log: the task's log.
    :param applied: the applied plan.
    :param plan_hash: the hash of the approved plan.
    :param comment: why requests are deleted, for the service's history.
    :param stop_request: the user's request to send nothing more.
    """

    context: Context
    client: CustodyClient
    log: logging.Logger
    applied: AppliedPlan
    plan_hash: str
    _: KW_ONLY
    comment: str
    stop_request: StopRequest

    def __post_init__(self) -> None:
        self._store = Store(self.context)
        self._requests = {each.id: WhitelistRequest(**each.request) for each in self.applied.creations}
        self._creation = WhitelistCreation(self.client, self._requests)

    def run(self) -> Outcome:
        """
        Delete the requests that the plan deletes or replaces.

        :return: the outcome of the deletions.
        :raises CustodyConflictError: if this is not the approved plan, or a created request is not in effect as
            requested; this try deleted nothing. It is retryable if a request may still take effect.
        :raises CustodyError: if the service cannot be read.
        """
        self._check_hash()
        missing = [each.request.get("address", "") for each in self.applied.creations if not each.id]
        if missing:
            named = name_some(missing, 60)
            raise self._incomplete(f"not all of the plan was created, so nothing is deleted: {named}", retryable=False)
        if len(self._requests) != len(self.applied.creations):
            raise self._incomplete("two creations name the same request, so nothing is deleted", retryable=False)
        snapshot = read_snapshot(self.client, self._requests)
        for each in self._requests:
            self._check_successor(each, snapshot)
        self._store.read()
        deletions = _Completion(
            self.client,
            self._planned(),
            self.comment,
            successors=self._successors(),
            check=self._check_successor,
        )
        outcome, keys = Outcome(), [*deletions.planned]
        sender = Sender(
            self._store,
            self.log,
            deletions,
            plan=self.plan_hash,
            max_parallel=1,
            report=lambda outcome, count: None,
            stop_request=self.stop_request,
        )
        sender.send(keys)
        outcome.add(self._store, keys, self.plan_hash, sender.errors)
        outcome.stopped = sender.stopped
        return outcome

    def _check_hash(self) -> None:
        operations = [
            create_operation(WhitelistRequest(**each.request), each.replaces) for each in self.applied.creations
        ]
        operations += [each.operation for each in self.applied.deletions]
        if hash_operations(operations, self.applied.observed, service_name(self.client)) != self.plan_hash:
            raise CustodyConflictError(
                "the applied plan does not have this hash, or the service or its tenant has changed; this try deleted "
                "nothing",
                code="plan-changed",
                advice="Use plan_hash and output of the same apply task. Otherwise start a new run.",
            )

    def _planned(self) -> dict[str, PlannedDeletion]:
        """Return all deletions by row key: first the plan's deletions, then the replaced requests."""
        planned = {deletion_key(each.id): each for each in self.applied.deletions}
        for creation in self.applied.creations:
            for old in creation.replaces:
                operation = json.dumps({"delete": old, "replaced by": creation.id})
                expected = {old: self.applied.replaced.get(old, [])}
                planned[deletion_key(old)] = PlannedDeletion(operation=operation, expected=expected)
        return planned

    def _successors(self) -> dict[str, str]:
        """Return the id of each replaced request's successor, by the key of the deletion."""
        return {deletion_key(old): each.id for each in self.applied.creations for old in each.replaces}

    def _check_successor(self, request_id: str, snapshot: Snapshot) -> None:
        """
        Check that a created request is in effect, verified if keys are pinned, and equal to its row.

        :raises CustodyConflictError: if the request fails one of these checks.
        """
        request = snapshot[request_id]
        if request.state != "effective":
            # Retry unless the state is final, because the listing may be late and lack the last signature.
            is_final = request.state in ("rejected", "unreadable")
            raise self._incomplete(_why_not_effective(request), retryable=not is_final)
        if request.deletion_pending:
            raise self._incomplete(f"the deletion of {request.name} is pending", retryable=False)
        mismatch = self._creation.compare(request_id, request).mismatch
        if mismatch:
            raise self._incomplete(f"{request.name} differs from the requested content: {mismatch}", retryable=False)

    @staticmethod
    def _incomplete(why: str, *, retryable: bool) -> CustodyConflictError:
        return CustodyConflictError(
            why,
            code="plan-incomplete",
            retryable=retryable,
            advice="The replaced requests stay in effect. Once the new request is in effect as requested, clear this "
            "task; or start a new run, which plans again.",
        )


def _why_not_effective(request: Request) -> str:
    reason = f": {request.reason}" if request.reason else ""
    return f"{request.name} is {request.state}, not in effect{reason}"


@dataclass(frozen=True, eq=False)
class _Completion(Deletions):
    """
    Deletions of a completed plan.

    A replaced request is deleted only if its successor is in effect.

    :param successors: the ids of the replaced requests' successors, by the row's key.
    :param check: raises an error if a successor is not in effect as requested.
    """

    successors: Mapping[str, str]
    check: Callable[[str, Snapshot], None]

    def why_not(self, key: str) -> str:
        """Return why a request must not be deleted now; empty if it may be deleted."""
        successor = self.successors.get(key)
        if successor is None:
            return ""
        old = self.planned[key].id
        now = read_snapshot(self.client, [successor, old])
        try:
            self.check(successor, now)
        except CustodyConflictError as error:
            return error.message
        replaced, replacing = now[old].destination, now[successor].destination
        if replaced is None or replacing is None or not is_same(replaced, replacing):
            return f"it is not for the destination of whitelisting request {successor}, which replaces it"
        return ""
