"""
Complete a plan: execute the deletions that had to wait for the created requests.

Applying a plan that creates anything deletes nothing. It returns an :class:`AppliedPlan`: the record of the approved
plan, and the created request of each row. Once the created requests are signed, completing executes the other half of
the record: it deletes the replaced requests, and executes the approved deletions. No other request is ever deleted,
because the plan's hash covers all of these deletions. :mod:`~airflow_custody.idempotency.deletions` describes the
checks of each deletion.
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
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import create_operation, hash_operations
from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name
from airflow_custody.idempotency.create import Outcome
from airflow_custody.idempotency.deletions import Deletions, deletion_key, execute, plan_incomplete
from airflow_custody.idempotency.store import PlannedDeletion, PlanRecord, Store

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient


class AppliedPlan(BaseModel):
    """
    An applied plan whose deletions are left to complete.

    :param record: the record of the approved plan.
    :param requests: the requested contents of its creations, by the row's key.
    :param ids: the ids of the requests that were created for them, by the row's key.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    record: PlanRecord
    requests: dict[str, dict[str, Any]]
    ids: dict[str, str]


def is_approved(record: PlanRecord, requests: Mapping[str, WhitelistRequest], service: str, plan_hash: str) -> bool:
    """
    Tell whether a record has the hash of the approved plan. Airflow users can edit records and XComs.

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
    :param is_stopped: returns whether the user has stopped the task.
    """

    context: Context
    client: CustodyClient
    log: logging.Logger
    applied: AppliedPlan
    plan_hash: str
    _: KW_ONLY
    comment: str
    is_stopped: Callable[[], bool]

    def run(self) -> Outcome:
        """
        Delete the requests that the plan deletes or replaces.

        :return: the outcome of the deletions.
        :raises CustodyConflictError: if this is not the approved plan, or a created request is not in effect as
            requested; this try deleted nothing. It is retryable if a request may still take effect.
        :raises CustodyError: if the service cannot be read.
        """
        record = self.applied.record
        requests = {key: WhitelistRequest(**content) for key, content in self.applied.requests.items()}
        if not is_approved(record, requests, service_name(self.client), self.plan_hash):
            raise CustodyConflictError(
                "the applied plan does not have this hash, or the service or its tenant has changed; this try deleted "
                "nothing",
                code="plan-changed",
                advice="Use plan_hash and output of the same apply task. Otherwise start a new run.",
            )
        ids = {key: self.applied.ids.get(key, "") for key in record.creations}
        if missing := [requests[key].address for key in ids if not ids[key]]:
            named = name_some(missing, 60)
            raise plan_incomplete(f"not all of the plan was created, so nothing is deleted: {named}", retryable=False)
        if len({*ids.values()}) != len(ids):
            raise plan_incomplete("two creations name the same request, so nothing is deleted", retryable=False)
        # First the plan's deletions, then the replaced requests.
        planned = {deletion_key(each.id): each for each in record.deletions}
        successors: dict[str, str] = {}
        for key, replaced in record.creations.items():
            for old in replaced:
                operation = json.dumps({"delete": old, "replaced by": ids[key]})
                expected = {old: record.replaced.get(old, [])}
                planned[deletion_key(old)] = PlannedDeletion(operation=operation, expected=expected)
                successors[deletion_key(old)] = ids[key]
        requested = {ids[key]: requests[key] for key in ids}
        deletions = Deletions(self.client, planned, self.comment, successors, requested)
        snapshot = read_snapshot(self.client, requested)
        for each in requested:
            deletions.check_successor(each, snapshot)
        store = Store(self.context)
        store.read()
        return execute(deletions, store, self.log, self.plan_hash, is_stopped=self.is_stopped)
