"""
One try of a task that applies an approved plan.

The first try plans, takes the same part of the plan as the plan task, and continues only if its hash is the approved
hash. It records the plan: the keys of the rows to create, and the deletions. All tries execute that record, and each of
them reads a new snapshot of the service. What a later try does depends on where the earlier try ended:

- Before the plan was recorded: the earlier try has sent nothing. The later try acts as a first try.
- After the plan was recorded and before the first batch, or between two batches: the later try sends the remaining
  rows. A row is not sent if there is a request that may have the same destination, except for the requests that the
  row replaces. If another user has requested the destination meanwhile, the row is ``found`` if the content is the
  same, and ``refused`` otherwise.
- Inside a batch: the rows of the batch are recorded as ``sent``. The later try searches the service for their requests,
  and sends a row again only if sending it provably had no effect. If the outcome stays unknown, a user must decide.
- Between two deletions: this task executes deletions only if the plan creates nothing (for other plans see
  :mod:`~airflow_custody.idempotency.deletions`). The later try executes all deletions again. A missing request
  counts as deleted. A request is not deleted if it, or a request kept for the same row, has changed since the plan was
  recorded.
- With a refused row: the later try sends that row again.
- With all rows done (a retry, or the task was cleared after success): the later try sends nothing, and waits until the
  service lists the created requests.

Other cases:

- The file has changed since the first try: the later try sends nothing. A different order of the rows is not a change.
- The service, the tenant or the record has changed: the later try sends nothing.
- A new plan was approved for the same task instance, because the whole run was cleared: if the outcome of a row of the
  old plan is unknown, the later try sends nothing. Otherwise it waits until the service must list everything that was
  created under the old plan, and acts as a first try of the new plan. Requests that were created under the old plan are
  signed, too, if they are pending, and their rows are still in the file.
- There is no store (Airflow before 3.3), or the store deletes the record (``clear_on_success``): each try acts as a
  first try. It waits until the service must list everything that an earlier try has sent, and then plans. If an earlier
  try has sent anything, the hash differs, and the task stops.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from airflow_custody.client.delays import tries_within
from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyOutcomeUnknownError
from airflow_custody.client.text import count, lines, name_some, sanitize
from airflow_custody.client.whitelist.hidden import describe_hidden, warn_of_hidden
from airflow_custody.client.whitelist.plans.difference import describe_difference, lost_creations
from airflow_custody.client.whitelist.plans.plan import (
    WhitelistPlan,
    advice_on_differences,
    create_operation,
    ignored_text,
    part_key,
)
from airflow_custody.client.whitelist.plans.planner import PlanSettings, make_plan
from airflow_custody.client.whitelist.request import Request
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot, service_name
from airflow_custody.idempotency.create import CreateRows, Outcome
from airflow_custody.idempotency.deletions import (
    AppliedPlan,
    Deletions,
    deleted_id,
    deletion_key,
    execute,
    is_approved,
    is_deletion_key,
    observe,
)
from airflow_custody.idempotency.search import Report, Search, seconds_under_way
from airflow_custody.idempotency.store import PlannedDeletion, PlanRecord, Store, digest
from airflow_custody.idempotency.whitelist_creation import WhitelistCreation

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient, WhitelistRequest
    from airflow_custody.client.whitelist.files.reading import WhitelistFile

_PLAN_AGAIN = (
    "If the file or the service has changed, start a new run, which plans again and waits for a new approval.",
    "If neither has, plan_hash is not the hash of this plan, or the connection's status words or accepted fields have "
    "changed.",
)
_RESTORE = (
    "Restore the file that was approved, and clear this task, which then applies the rest.",
    "Or start a new run, which plans again and waits for a new approval. The new run does not sign the requests that "
    "this run has created.",
)
_OTHER_PLAN = (
    "Start a new run, whose plan contains the requests that the service lists by then. The new run does not sign the "
    "requests that this run has created: sign them at the service."
)
_NOT_REPLACED = (
    "{why}; the new request would have replaced {ids}, so nothing is deleted. If the service rejects a second request "
    "for the same destination, either change the file to match the service, or delete the request at the service"
)


class PlanChangedError(CustodyConflictError):
    """
    Raised, before the try sends anything, if the plan is not the approved plan.

    :param message: the message.
    :param outcome: the creates and deletions of earlier tries of the task. Default: none.
    :param plan: the current plan; None (default) if this try did not plan.
    :param facts: other arguments of :class:`CustodyConflictError`.
    """

    def __init__(
        self, message: str, *, outcome: Outcome | None = None, plan: WhitelistPlan | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.outcome = outcome or Outcome()
        self.plan = plan


def _plan_changed(
    outcome: Outcome,
    plan: WhitelistPlan | None = None,
    why: str = "",
    *,
    parts: Mapping[str, str] | None = None,
    is_forgotten: bool = False,
    advice: Sequence[str] = _PLAN_AGAIN,
) -> PlanChangedError:
    """
    Return the error that reports that the plan is not the approved plan.

    :param outcome: the creates and deletions of earlier tries of the task.
    :param plan: the current plan; None if this try did not plan.
    :param why: what has changed, if this try did not plan. Default empty.
    :param parts: the parts of the approved plan, to describe the difference. Default: unknown.
    :param is_forgotten: whether earlier tries may have sent requests that are not recorded. Default False.
    :param advice: lines of advice. Default: plan again, or compare the arguments.
    """
    numbers = {
        "created {}": len(outcome.created),
        "deleted {}": len(outcome.deleted),
        "may have sent {} requests whose outcome is unknown": len(outcome.unknown),
    }
    done = " and ".join(text.format(number) for text, number in numbers.items() if number)
    sent = "this try sent nothing"
    if is_forgotten:
        sent += "; there is no record of earlier tries of this task"
    elif done:
        sent += f", and earlier tries {done}"
    reason = f": {why}" if why else ""
    now = "" if plan is None else f". {describe_difference(parts or {}, plan)}"
    compare = "Compare the current plan in the log with the plan in the log of the task that planned."
    return PlanChangedError(
        f"the plan is not the approved plan{reason}; {sent}{now}",
        outcome=outcome,
        plan=plan,
        code="plan-changed",
        advice=lines(compare if plan is not None and not parts else None, *advice),
    )


@dataclass(eq=False, repr=False)
class ApplyPlan:
    """
    One try of a task that applies a plan.

    :param context: the task's context.
    :param client: the client.
    :param log: the task's log.
    :param settings: the settings of the plan.
    :param file: the file.
    :param plan_hash: the hash of the approved plan.
    :param at_most: the number of operations in the approved part of the plan. Default None: the plan was approved as a
        whole.
    :param parts: the parts of the approved plan, only to describe how another plan differs; empty if they are unknown.
    :param comment: why requests are deleted, for the service's history.
    :param max_parallel: maximum number of requests at once.
    :param lookup_wait: seconds that the service may take to list what it created.
    :param report: called with the outcomes of creates and their numbers.
    :param is_stopped: returns whether the user has stopped the task.
    """

    context: Context
    client: CustodyClient
    log: logging.Logger
    settings: PlanSettings
    file: WhitelistFile
    plan_hash: str
    _: KW_ONLY
    at_most: int | None = None
    parts: Mapping[str, str]
    comment: str
    max_parallel: int
    lookup_wait: float
    report: Report
    is_stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        self._store = Store(self.context)
        #: The requested contents of the file's rows, by the row's key.
        self.requests = {row_key(row.request): row.request for row in self.file.rows}
        #: The places of the file's rows, by the row's key.
        self.places = {
            key: f"{row.where}, {sanitize(row.request.label, 60)}"
            for key, row in zip(self.requests, self.file.rows, strict=True)
        }

    def run(self) -> tuple[Outcome, AppliedPlan | None]:
        """
        Execute the rest of the plan.

        :return: the outcome of the creates and deletions; and the deletions that must wait until the created requests
            are in effect (None if there are no such deletions).
        :raises PlanChangedError: if the plan is not the approved plan.
        :raises CustodyError: if the service cannot be read, or the outcome of an earlier try is unknown.
        """
        # True if an earlier try may have sent something, but there is no record of it.
        is_forgotten = self._store.read()
        record = self._store.read_plan(self.plan_hash)
        self._check_earlier_sends(is_forgotten=is_forgotten)
        searched_at, snapshot = time.monotonic(), read_snapshot(self.client)
        if snapshot.hidden:
            self.log.warning("%s", warn_of_hidden(snapshot.hidden))
        service = service_name(self.client)
        if record is None:
            record = self._begin(snapshot, service, is_forgotten=is_forgotten)
        else:
            self._check_record(record, snapshot, service)
        creation = WhitelistCreation(
            self.client,
            self.requests,
            before=snapshot,
            replaced={key: ids for key, ids in record.creations.items() if ids},
            # Ignore only the ids that the approved hash covers.
            ignored=[each for each in self.settings.ignore if ignored_text(each) in record.observed],
            own_ids=self._store.ids,
        )
        earlier = self._created_by_other_plans(creation, snapshot)
        if not record.creations:
            planned = {deletion_key(each.id): each for each in record.deletions}
            outcome = execute(
                Deletions(self.client, planned, self.comment),
                self._store,
                self.log,
                self.plan_hash,
                max_parallel=self.max_parallel,
                is_stopped=self.is_stopped,
            )
            outcome.created |= earlier
            return outcome, None
        outcome = self._create(record, creation, snapshot, searched_at)
        outcome.created = {**earlier, **outcome.created}
        return outcome, self._left_to_complete(record, outcome)

    def _create(
        self, record: PlanRecord, creation: WhitelistCreation, snapshot: Snapshot, searched_at: float
    ) -> Outcome:
        """Create those requests of the recorded plan that do not exist yet."""
        self._check_recorded_ids(creation, snapshot)
        search = Search(self._store, creation, self.log, self.lookup_wait, self.report)
        undecided: dict[str, str] = {}
        if own := [key for key in self._store.open_rows(self.plan_hash) if key in self.requests]:
            # If the search finds nothing for a row, do not count its outcome as unknown yet, because the creation will
            # search thoroughly.
            search.judge(creation.found_in(snapshot, own, thorough=False))
            # Read the user's decisions only for rows whose outcome the snapshot does not show.
            left = [key for key in own if self._store.rows[key][1].state == "sent"]
            undecided = {key: problem for key in left if (problem := search.follow_override(key))}
        keys = [key for key in self.requests if key in record.creations]
        creator = CreateRows(
            search,
            prepare=creation.prepare,
            plan=self.plan_hash,
            max_parallel=self.max_parallel,
            is_stopped=self.is_stopped,
        )
        outcome = creator.run(keys, searched_at=searched_at, undecided=undecided)
        for key in outcome.refused.keys() & creation.replaced.keys():
            ids = ", ".join(creation.replaced[key])
            outcome.refused[key] = _NOT_REPLACED.format(why=outcome.refused[key], ids=ids)
        self._check_created(outcome, creation)
        self.report("unknown", len(outcome.unknown))
        return outcome

    # --- the record ----------------------------------------------------------------------------------------

    def _begin(self, snapshot: Snapshot, service: str, *, is_forgotten: bool) -> PlanRecord:
        """
        Plan, and record the plan.

        :raises PlanChangedError: if the plan is not the approved plan.
        """
        whole = make_plan(self.file.rows, snapshot, self.settings, service=service, name=self.file.name)
        plan = whole.first(self.at_most)
        if plan.plan_hash != self.plan_hash:
            raise _plan_changed(self._done(snapshot), plan, parts=self.parts, is_forgotten=is_forgotten)
        advice = advice_on_differences(plan, replace=self.settings.replace)
        if advice:
            self.log.warning("%s", advice)
        creates = plan.with_action("create")
        record = PlanRecord(
            plan=plan.plan_hash,
            rows=digest(sorted(self.requests)),
            creations={row_key(row.request): [*row.others] for row in creates if row.request},
            replaced=observe(snapshot, [each for row in creates for each in row.others]),
            deletions=[
                PlannedDeletion(operation=row.operation, expected=observe(snapshot, [row.request_id, *row.others]))
                for row in plan.with_action("delete")
            ],
            observed=[*plan.observed],
        )
        self._store.record_plan(record)
        return record

    def _check_record(self, record: PlanRecord, snapshot: Snapshot, service: str) -> None:
        """
        Check that the recorded operations, with the rows of the file, have the approved hash.

        This is necessary because Airflow users can edit the record.

        :raises PlanChangedError: if the hash differs.
        """
        known = record.creations.keys() & self.requests.keys()
        number = len(record.creations) - len(known)
        # Whether a request may be deleted depends on all rows of the file, and a creation only on its own row.
        if number or (record.deletions and record.rows != digest(sorted(self.requests))):
            why = "the rows of the file have changed since the first try"
            if number:
                operations = [create_operation(self.requests[key], record.creations[key]) for key in known]
                names = lost_creations(self.parts, [part_key(each) for each in operations])
                why += f" (gone or changed: {number} of {len(record.creations)} approved creations"
                why += f": {names})" if names else ")"
            raise _plan_changed(self._done(snapshot), why=why, advice=_RESTORE)
        if not is_approved(record, self.requests, service, self.plan_hash):
            raise _plan_changed(self._done(snapshot), why="the service, its tenant or the task's record has changed")
        self.log.info("Continuing the approved plan, which an earlier try has begun.")

    def _done(self, snapshot: Snapshot) -> Outcome:
        """Return the outcome of earlier tries, including rows that are no longer in the file."""
        outcome = Outcome()
        for key, (batch, row) in self._store.rows.items():
            is_gone = is_deletion_key(key) and deleted_id(key) not in snapshot.requests
            if batch.plan != self.plan_hash:
                continue
            if row.state == "created":
                outcome.created[key] = row.detail
            elif is_gone and (row.state == "deleted" or (row.state == "sent" and not snapshot.hidden)):
                # If the service hides requests, a missing request may still exist. In that case, count it as deleted
                # only if the service has confirmed the deletion.
                outcome.deleted[key] = row.detail
            elif row.state == "sent":
                outcome.unknown[key] = "an earlier try sent it, and this try stopped before it could search for it"
        return outcome

    # --- what earlier tries did ----------------------------------------------------------------------------

    def _check_earlier_sends(self, *, is_forgotten: bool) -> None:
        """
        Wait for requests that this plan's record does not contain.

        Earlier tries may have sent them without a record, or under another plan.

        :raises CustodyOutcomeUnknownError: if the outcome of a row of another plan is unknown.
        """
        others = [(key, row) for key, (batch, row) in self._store.rows.items() if batch.plan != self.plan_hash]
        # Ignore deletions whose outcome is unknown, because a deletion may be sent twice.
        unknown = sum(row.state == "sent" and not is_deletion_key(key) for key, row in others)
        if unknown:
            self.report("unknown", unknown)
            rows = f"the outcome of {count(unknown, 'row')} of that plan is unknown"
            raise CustodyOutcomeUnknownError(
                f"this task has begun to apply another plan, and {rows}; this try sent nothing",
                code="outcome-unknown",
                advice=_OTHER_PLAN,
            )
        if is_forgotten or any(row.state in ("sent", "created") for _, row in others):
            seconds = seconds_under_way(self.client.settings.timeout, self.lookup_wait)
            what = "without a record" if is_forgotten else "under another plan"
            self.log.warning(
                "Waiting %.0f s until the service lists requests that earlier tries may have sent %s.", seconds, what
            )
            # Begin to wait only when the service responds: a service that hangs may process requests after it recovers.
            self.client.count_whitelist_requests()
            time.sleep(seconds)

    def _created_by_other_plans(self, creation: WhitelistCreation, snapshot: Snapshot) -> dict[str, str]:
        """
        Return the ids of the pending requests that this task has created under other plans, by the row's key.

        Only requests whose rows are still in the file are returned, because these must be signed, too.

        :raises CustodyOutcomeUnknownError: if the service may hide such a request, so that it would be created again.
        """
        earlier: dict[str, str] = {}
        for key, (batch, row) in self._store.rows.items():
            if batch.plan == self.plan_hash or row.state != "created" or key not in self.requests:
                continue
            request = snapshot.requests.get(row.detail)
            if request is None and snapshot.hidden:
                raise CustodyOutcomeUnknownError(
                    f"this task has created request {sanitize(row.detail, 40)} for {creation.which(key)} under an "
                    f"earlier plan, and {describe_hidden(snapshot.hidden)}; this try sent nothing",
                    code="outcome-unknown",
                    advice="Look for the request at the service. If it no longer exists, start a new run.",
                )
            if request is not None and request.state == "pending" and not creation.compare(key, request).mismatch:
                earlier[key] = row.detail
        if earlier:
            self.log.info("Created by this task under an earlier plan: %s.", name_some([*earlier.values()], 40))
        return earlier

    def _check_recorded_ids(self, creation: WhitelistCreation, snapshot: Snapshot) -> None:
        """
        Check that the recorded ids belong to their rows.

        This is necessary because Airflow users can edit the record. Created requests that are not listed, or no longer
        verify, are handled later.

        :raises CustodyOutcomeUnknownError: if a recorded id belongs to another request.
        """
        for key, (batch, row) in [*self._store.rows.items()]:
            if batch.plan != self.plan_hash or row.state not in ("created", "found"):
                continue
            request = snapshot.requests.get(row.detail)
            if request is None and row.state == "created":
                continue
            if request is not None and request.state == "unverified" and row.state == "found":
                # Forget a request of another user that no longer verifies, because it says nothing about this row.
                self._store.record([(key, row.become("void"))])
                continue
            why = "the service does not list it"
            if request is not None:
                found = creation.compare(key, request)
                why = "" if found.unclear and row.state == "created" else found.contradiction
            if why:
                raise CustodyOutcomeUnknownError(
                    f"the task's record names request {sanitize(row.detail, 40)} for {creation.which(key)}, but {why}; "
                    "this try sent nothing",
                    code="outcome-unknown",
                    advice="Find out how the record in Airflow's task state, or the request, was changed. Then start a "
                    "new run.",
                )

    # --- what was created ----------------------------------------------------------------------------------

    def _check_created(self, outcome: Outcome, creation: WhitelistCreation) -> None:
        """
        Check that the service lists the created requests, each with the content of its row.

        If a request is missing or contradicts its row, the outcome of the row is unknown. The row stays recorded as
        created, so that it is not sent again. Differences that the service may have caused only lead to a warning,
        because the review before signing decides about them.
        """
        listed, failure = self._fetch([*outcome.created.values()])
        outcome.stopped = outcome.stopped or failure
        warnings: list[str] = []
        for key, request_id in list(outcome.created.items()):
            why = ""
            if request_id in listed:
                found = creation.compare(key, listed[request_id])
                if found.contradiction:
                    why = (
                        f"the service returned the id {request_id} for this row, but {found.contradiction}: look at "
                        "the service, and start a new run"
                    )
                if found.differs:
                    warnings.append(f"{request_id} in {', '.join(found.differs)}")
            elif failure is None:
                why = (
                    f"the service does not list request {request_id}, which this task created: if the service is slow "
                    "to list it, clear this task later; if the request was removed, start a new run, which requests it "
                    "again"
                )
                outcome.stopped = outcome.stopped or CustodyConflictError(
                    "the service does not list a request that it reported as created",
                    code="outcome-unknown",
                    retryable=True,
                )
            if why:
                outcome.unknown[key] = why
                del outcome.created[key]
        if warnings:
            self.log.warning("Created requests differ from their rows: %s.", name_some(warnings, 120))

    def _fetch(self, ids: Sequence[str]) -> tuple[dict[str, Request], CustodyError | None]:
        """
        Wait until the service lists the created requests, because the next plan must find them.

        :return: the listed requests by id, and the error that prevented reading the rest of them; None if there was no
            error.
        """
        listed: dict[str, Request] = {}
        missing = [*ids]
        failure: CustodyError | None = None
        for _ in tries_within(self.lookup_wait):
            try:
                found = read_snapshot(self.client, missing)
                listed |= {each.id: each for each in found if each.state != "missing"}
                failure = None
            except CustodyError as error:
                failure = error
            missing = [each for each in missing if each not in listed]
            if not missing or (failure is not None and not failure.retryable):
                break
        if missing:
            why = str(failure) if failure else None
            self.log.warning("%s", lines(f"Not yet listed by the service: {name_some(missing, 60)}.", why))
        return listed, failure

    def _left_to_complete(self, record: PlanRecord, outcome: Outcome) -> AppliedPlan | None:
        """Return the deletions that must wait until the created requests are in effect; None if there are none."""
        waiting = [*(each.id for each in record.deletions), *record.replaced]
        if not waiting:
            return None
        self.log.info(
            "Not deleted yet: %s. The task that completes this plan, or the next plan, deletes them once the requests "
            "of this plan are in effect.",
            name_some(waiting, 60),
        )
        # Include all creations, because a plan is never completed if one of them has no id.
        ids = {**outcome.created, **outcome.found}
        requests = {key: self.requests[key].model_dump(exclude_none=True) for key in record.creations}
        return AppliedPlan(
            record=record, requests=requests, ids={key: ids[key] for key in record.creations if key in ids}
        )


def row_key(request: WhitelistRequest) -> str:
    """Return the key of a row in the record. Rows with the same content have the same key."""
    return digest(create_operation(request))[:20]
