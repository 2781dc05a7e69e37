"""One try of a task that carries out a plan: each row at most once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyOutcomeUnknownError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.text import count
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.listing import Listing, fetch_listing, service_name
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plan import WhitelistPlan, create_operation, hash_operations
from airflow_custody.client.whitelist.planner import make_plan
from airflow_custody.client.whitelist.progress import status_word
from airflow_custody.idempotency.apply_lock import ApplyLock
from airflow_custody.idempotency.create_once import Report, Timing, ignore_report
from airflow_custody.idempotency.create_rows import CreateRows, Outcome
from airflow_custody.idempotency.delete_rows import DELETE, DeleteRows
from airflow_custody.idempotency.listed_rows import ListedRows
from airflow_custody.idempotency.records import Untracked, digest
from airflow_custody.idempotency.rows import Row, RowLog, RowState, RowStore
from airflow_custody.idempotency.whitelist_requests import TrustChecker, WhitelistRowsCreation

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest
    from airflow_custody.client.whitelist.file import WhitelistFile
    from airflow_custody.client.whitelist.listing import ListedState
    from airflow_custody.client.whitelist.plan import PlanRow


#: Reason for stopping when a service lists what was deleted.
MARKED = (
    "If the service goes on listing what was deleted, add the status word that it then has to rejected_statuses of "
    "this task and of the one that plans"
)
_UNCLEAR = (
    "an earlier try began to delete it, and whether it did cannot be told: look at the service, and start a new run. "
    f"{MARKED}"
)
_STILL_LISTED = (
    "an earlier try of this task was told that it is deleted, and the service lists it as not deleted: if it is late, "
    "clear this task later; otherwise start a new run, which deletes it again"
)


@dataclass(frozen=True)
class PlanSettings:
    """
    The settings of a plan, besides file and service; the same for planning and applying.

    :param prune: whether requests that the file does not have are deleted. Default False.
    :param dry_run_chains: chains for which nothing is done. Default: none.
    :param effective_statuses: status words of requests in effect; None: not being pending is enough.
    :param rejected_statuses: status words of rejected requests.
    :param accept_fields: keys of a payload that nobody needs to have asked for, and ``envelope.action``.
    :param ignore: ids of requests that cannot be read, and stop no row. Default: none.
    """

    prune: bool = False
    dry_run_chains: Collection[str] = ()
    effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES
    rejected_statuses: Collection[str] = REJECTED_STATUSES
    accept_fields: Collection[str] = ()
    ignore: Collection[str] = ()

    def fetch(self, client: CustodyClient) -> Listing:
        """Read all that the service lists."""
        return fetch_listing(
            client,
            by_status=self.effective_statuses is not None,
            effective_statuses=self.effective_statuses or (),
            rejected_statuses=self.rejected_statuses,
        )

    def pending(self, listing: Listing) -> Sequence[WhitelistEnvelope]:
        """Return the requests of a listing that are pending approval."""
        return listing.pending(self.effective_statuses, self.rejected_statuses)

    def not_deleted(self, listing: Listing, plan: WhitelistPlan, done: Mapping[str, Row]) -> Collection[str]:
        """
        Return the ids of the requests that nobody has deleted: those that are pending, in effect, or as they were.

        Of the others whose deletion was begun, a service may list for good, with a word of its own, what was deleted.

        :param listing: the listing of the service.
        :param plan: the plan of it.
        :param done: the rows of earlier tries.
        """
        states = {each.id: self._state_of(each, listing) for each in listing.envelopes}
        as_before = {row.request_id for row in plan.rows if row.operation and _deletion(done, row) == row.operation}
        return as_before | {each for each, state in states.items() if state in ("pending", "unchanged")}

    def is_settled_otherwise(self, envelope: WhitelistEnvelope, listing: Listing) -> bool:
        """Tell whether a request is neither pending nor in effect."""
        return self._state_of(envelope, listing) in ("rejected", "differs")

    def _state_of(self, envelope: WhitelistEnvelope, listing: Listing) -> ListedState:
        return listing.state_of(envelope, self.effective_statuses, self.rejected_statuses)

    def plan(self, file: WhitelistFile, listing: Listing, service: str) -> WhitelistPlan:
        """Compare a file with what the service lists."""
        return make_plan(
            file.rows,
            listing,
            service=service,
            name=file.name,
            prune=self.prune,
            dry_run_chains=self.dry_run_chains,
            effective_statuses=self.effective_statuses,
            rejected_statuses=self.rejected_statuses,
            accept_fields=self.accept_fields,
            ignore=self.ignore,
        )


@dataclass(frozen=True)
class Applied:
    """
    The outcome of a plan.

    :param outcome: outcome of the rows to create, by their keys.
    :param requests: the request of each of them, by its key.
    :param deleted: the ids of the requests that were deleted.
    :param not_deleted: why others were not, by their id.
    :param unknown: why it cannot be known whether others were, by their id.
    :param left: the ids of requests that are to be deleted, and were not.
    :param stopped: the error that ended the deletions early; None: none did.
    """

    outcome: Outcome
    requests: Mapping[str, WhitelistRequest]
    deleted: Sequence[str] = ()
    not_deleted: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    left: Sequence[str] = ()
    stopped: CustodyError | None = None


class PlanChangedError(CustodyConflictError):
    """
    Raised when what is to be done is not what was approved; this try sent nothing.

    :param operations: the operations of the plan as it is now.
    :param plan: the plan as it is now.
    :param applied: the creates and deletions of earlier tries of the task.
    :param only_prune: whether it is what was approved if ``prune`` is turned over. Default False.
    """

    def __init__(
        self, operations: Collection[str], plan: WhitelistPlan, applied: Applied, *, only_prune: bool = False
    ) -> None:
        super().__init__("the plan is not the one that was approved; nothing was sent", code="plan-changed")
        self.only_prune = only_prune
        self.operations = operations
        self.plan = plan
        self.applied = applied


class ApplyPlan:
    """
    Carries out a plan.

    :param context: the task's context.
    :param client: the client.
    :param log: the task's log.
    :param settings: the settings of the plan.
    :param comment: why requests are deleted, for the service's history.
    :param max_parallel: maximum number of requests at once. Default 4.
    :param lookup_wait: seconds that the service may take to show what it created. Default 30.
    :param timing: clocks and bounds.
    :param report: called with what is created, what became of it, and how many. Default: nobody is told.
    """

    def __init__(
        self,
        context: Context,
        client: CustodyClient,
        log: logging.Logger,
        settings: PlanSettings,
        *,
        comment: str,
        max_parallel: int = 4,
        lookup_wait: float = DEFAULT_LOOKUP_WAIT,
        timing: Timing | None = None,
        report: Report = ignore_report,
    ) -> None:
        self._client = client
        self._log = log
        self._settings = settings
        self._max_parallel = max_parallel
        self._lookup_wait = lookup_wait
        self._timing = timing or Timing()
        self._report = report
        self._store = RowStore(context, client.settings.base_url)
        self._trust = TrustChecker(client, settings.effective_statuses, settings.rejected_statuses)
        self._listed = ListedRows(client, self._store, log, lookup_wait=lookup_wait, trust=self._trust)
        self._deleting = DeleteRows(client, self._store, log, comment=comment, max_parallel=max_parallel)
        self._creating: CreateRows | None = None
        self._is_stopped = False
        # A request of an earlier try may be on its way for so long, or not be listed yet.
        self._under_way = self._timing.fence + client.settings.timeout + lookup_wait
        self._apply_lock = ApplyLock(context, client.settings.base_url, log, under_way=self._under_way)

    def run(self, file: WhitelistFile, plan_hash: str) -> Applied:
        """
        Plan again, and do what the plan says, if it is what was approved.

        :param file: the file.
        :param plan_hash: the hash of the plan that was approved.
        :return: its outcome.
        :raises PlanChangedError: if what is to be done has changed.
        :raises CustodyError: if the service cannot be read, or it cannot be known what an earlier try did.
        """
        requests = {row_key(row.request): row.request for row in file.rows}
        service = service_name(self._client)
        with self._apply_lock.held():
            earlier = self._store.read()
            if earlier is None and isinstance(self._store.task.read(), Untracked):
                self._wait_for_earlier_try()
            if earlier is not None and earlier.plan != plan_hash:
                self._settle(earlier, requests)
            listing = self._settings.fetch(self._client)
            creation = WhitelistRowsCreation(self._client, requests, listing, self._trust)
            creator, done = None, {}
            if earlier is not None and earlier.plan == plan_hash:
                self._store.begin(plan_hash, earlier.total, earlier)
                creator = self._creator(creation)
                creator.lost.only(requests)
                creator.lost.adopt(creation.found_in(creation.listed_before, creator.lost.open))
                creator.lost.follow_overrides()
                done = {key: row for key, (_, row) in earlier.rows().items()}
                self._log.info("An earlier try has done %d of %s: going on.", earlier.done, count(earlier.total, "row"))
            make = partial(self._operations, file, listing, done, service)
            plan, there, operations = make(self._settings)
            if hash_operations({*operations, *plan.observed}, service) != plan_hash:
                created = {key: row.detail for key, row in done.items() if row.state == "created" and key in requests}
                applied = Applied(Outcome(created=created), requests, _with_state(done, "deleted"))
                other, _, others = make(replace(self._settings, prune=not self._settings.prune))
                only_prune = hash_operations({*others, *other.observed}, service) == plan_hash
                raise PlanChangedError(operations, plan, applied, only_prune=only_prune)
            self._warn_of_settled(listing, done)
            unclear, unread = self._unclear(plan, listing, done, there)
            self._store.begin(plan_hash, len(operations), earlier)
            creator = creator or self._creator(creation)
            operations_now = partial(self._operations_now, file, service)
            applied = self._carry_out(creator, creation, plan, done, requests, unclear, operations_now=operations_now)
            return replace(applied, stopped=applied.stopped or unread)

    def stop(self) -> None:
        """Send nothing more that has not left yet; may be called from a signal handler."""
        self._is_stopped = True
        if self._creating is not None:
            self._creating.stop()

    def _carry_out(
        self,
        creator: CreateRows,
        creation: WhitelistRowsCreation,
        plan: WhitelistPlan,
        done: Mapping[str, Row],
        requests: Mapping[str, WhitelistRequest],
        unclear: Mapping[str, str],
        *,
        operations_now: Callable[[Collection[str]], Mapping[str, str]],
    ) -> Applied:
        creates = {*done, *(row_key(row.request) for row in plan.with_action("create") if row.request is not None)}
        keys = [key for key in requests if key in creates]
        outcome = creator.run(keys)
        is_listed = self._listed.check(outcome, requests, done)
        if is_listed is None:
            # Their own requests are there as well, and can be found.
            creator = self._creator(creation)
            outcome = creator.run(keys)
            is_listed = self._listed.check(outcome, requests, done)
        self._report(creation.what, "unknown", len(outcome.unknown))
        self._apply_lock.is_settled = bool(is_listed) and creator.lost.failure is None
        self._add_earlier_plans(outcome, requests, plan)
        operations = {each.operation for each in plan.with_action("delete")}
        over = {
            key.removeprefix(DELETE)
            for key, row in done.items()
            if row.state == "deleted" or (row.state == "deleting" and row.detail not in operations)
        }
        # The service may list for some time, or for good, what was deleted.
        deletes = {row.request_id: row.operation for row in plan.with_action("delete") if row.request_id not in over}
        deleted = [each for each in over if each not in unclear]
        applied = Applied(outcome, requests, deleted, unknown=unclear)
        if outcome.stopped is not None:
            applied = replace(applied, left=[*deletes])
        elif deletes:
            applied = self._delete(deletes, applied, operations_now)
        self._store.finish()
        return applied

    def _delete(
        self,
        deletes: Mapping[str, str],
        applied: Applied,
        operations_now: Callable[[Collection[str]], Mapping[str, str]],
    ) -> Applied:
        is_settled = self._apply_lock.is_settled
        done = self._deleting.run(deletes, check=operations_now, is_stopped=lambda: self._is_stopped)
        # Deleting what is deleted does no harm: others need not wait for this.
        self._apply_lock.is_settled = is_settled
        return replace(
            applied,
            deleted=[*applied.deleted, *done.deleted],
            not_deleted=done.refused,
            unknown={**applied.unknown, **done.unknown},
            left=done.left,
            stopped=done.stopped,
        )

    def _warn_of_settled(self, listing: Listing, done: Mapping[str, Row]) -> None:
        """Warn of requests that an earlier try has created and nobody can approve any more."""
        created = {row.detail for row in done.values() if row.state == "created"}
        for each in listing.envelopes:
            if each.id in created and self._settings.is_settled_otherwise(each, listing):
                status = status_word(each.status)
                self._log.warning("Request %s, which this task has created, has the status %s now.", each.id, status)

    def _unclear(
        self, plan: WhitelistPlan, listing: Listing, done: Mapping[str, Row], there: Collection[str]
    ) -> tuple[dict[str, str], CustodyError | None]:
        """
        Find which requests may be there although an earlier try deleted them, or began to.

        :param there: the ids of the requests that nobody has deleted.
        :return: why that is not clear, by their ids; and what another try may mend, None: nothing.
        """
        to_delete = {row.request_id for row in plan.with_action("delete")}.intersection(there)
        found = {each: _STILL_LISTED for each in _with_state(done, "deleted") if each in to_delete}
        again: CustodyError | None = None
        if found:
            again = CustodyConflictError("the service lists what was deleted", code="outcome-unknown", retryable=True)
        listed = {each.id for each in listing.envelopes}
        for each in _with_state(done, "deleting"):
            if each in there:
                continue
            try:
                if each in listed or status_if_exists(self._client, each) is not None:
                    found[each] = _UNCLEAR
            except CustodyError as error:
                found[each] = f"{_UNCLEAR} ({error.reason})"
                again = again or (error if error.transient else None)
        return found, again

    def _operations_now(self, file: WhitelistFile, service: str, ids: Collection[str]) -> Mapping[str, str]:
        """Return what a plan would do by now about each of these requests that may exist; empty for nothing."""
        self._apply_lock.renew()
        listing = self._settings.fetch(self._client)
        rows = {row.request_id: row.operation for row in self._settings.plan(file, listing, service).rows}
        listed = {each.id for each in listing.envelopes}
        return {each: rows.get(each, "") for each in ids if each in listed or self._may_exist(each)}

    def _may_exist(self, request_id: str) -> bool:
        try:
            return status_if_exists(self._client, request_id) is not None
        except CustodyError as error:
            self._log.warning("Whether request %s, which is not listed, exists cannot be known: %s", request_id, error)
            return True

    def _creator(self, creation: WhitelistRowsCreation) -> CreateRows:
        self._creating = CreateRows(
            self._store,
            creation,
            self._log,
            max_parallel=self._max_parallel,
            lookup_wait=self._lookup_wait,
            check=self._apply_lock.renew,
            timing=self._timing,
            report=self._report,
        )
        if self._is_stopped:
            self._creating.stop()
        return self._creating

    def _wait_for_earlier_try(self) -> None:
        self._log.warning(
            "An earlier try of this task may have sent requests, and this Airflow has no record of it. Waiting %.0f s "
            "until the service shows them.",
            self._under_way,
        )
        time.sleep(self._under_way)

    def _settle(self, earlier: RowLog, requests: Mapping[str, WhitelistRequest]) -> None:
        """Find out what became of the rows of another plan that this task was carrying out before."""
        self._listed.fetch([row.detail for _, row in earlier.rows().values() if row.state == "created"])
        sent = earlier.with_state("sent").keys()
        known = sent & requests.keys()
        if sent - known:
            self._log.info(
                "Waiting %.0f s until the service shows what this task may have created under another plan.",
                self._under_way,
            )
            time.sleep(self._under_way)
        if not known:
            return
        self._store.begin(earlier.plan, earlier.total, earlier)
        creation = WhitelistRowsCreation(self._client, {key: requests[key] for key in known}, Listing([]), self._trust)
        outcome = self._creator(creation).settle(known)
        if outcome.stopped is not None:
            raise outcome.stopped
        if outcome.unknown:
            self._report(creation.what, "unknown", len(outcome.unknown))
            lines = "; ".join(f"{creation.which(key)}: {why}" for key, why in outcome.unknown.items())
            raise CustodyOutcomeUnknownError(
                "it cannot be known what became of rows of another plan that this task was carrying out before; "
                f"nothing was sent: {lines}",
                code="outcome-unknown",
            )

    def _operations(
        self, file: WhitelistFile, listing: Listing, done: Mapping[str, Row], service: str, settings: PlanSettings
    ) -> tuple[WhitelistPlan, Collection[str], set[str]]:
        """
        Plan again.

        :return: the plan without what this task has created; the ids of the requests that nobody has deleted; and what
            is to be done, with what this task has done of it.
        """
        found = {row.detail for row in done.values() if row.state == "found"}
        # A request of somebody else that does not verify any more is not this row's.
        unverified = self._trust.unverified(each for each in listing.envelopes if each.id in found)
        # A request for a row whose outcome is unknown, or that was refused, still belongs to that row.
        settled = {
            key
            for key, row in done.items()
            if row.state == "created" or (row.state == "found" and row.detail not in unverified)
        }
        own = {done[key].detail for key in settled}
        rows = tuple(row for row in file.rows if row_key(row.request) not in settled)
        plan = settings.plan(replace(file, rows=rows), listing.without(own), service)
        there = settings.not_deleted(listing, plan, done)
        requests = {row_key(row.request): row.request for row in file.rows}
        return plan, there, {*_new_operations(plan, done, there), *_operations(done, requests, plan, there)}

    def _add_earlier_plans(
        self, outcome: Outcome, requests: Mapping[str, WhitelistRequest], plan: WhitelistPlan
    ) -> None:
        """Add the requests created under an earlier plan: they are to be signed, too, if the file has them."""
        pending = {
            row.request_id: row_key(row.request)
            for row in plan.rows
            if row.state == "pending" and row.request is not None
        }
        for key, request_id in self._store.created_before().items():
            if key in requests and pending.get(request_id) == key and key not in outcome.created:
                self._log.info("Request %s was created by this task under an earlier plan.", request_id)
                outcome.created[key] = request_id


def _deletion(done: Mapping[str, Row], row: PlanRow) -> str:
    """Return the operation by which an earlier try deleted a request, or began to; empty if it did not."""
    recorded = done.get(f"{DELETE}{row.request_id}")
    return recorded.detail if recorded is not None else ""


def _with_state(done: Mapping[str, Row], state: RowState) -> list[str]:
    """Return the ids of the requests whose deletion has come so far."""
    return sorted(key.removeprefix(DELETE) for key, row in done.items() if row.state == state)


def _new_operations(plan: WhitelistPlan, done: Mapping[str, Row], there: Collection[str]) -> Iterable[str]:
    """Yield what a plan does, without what this task has done already."""
    for row in plan.rows:
        key = row_key(row.request) if row.action == "create" and row.request else f"{DELETE}{row.request_id}"
        state = done[key].state if key in done else None
        if row.operation and (state in (None, "refused") or (state == "deleting" and row.request_id in there)):
            yield row.operation


def _operations(
    done: Mapping[str, Row], requests: Mapping[str, WhitelistRequest], plan: WhitelistPlan, there: Collection[str]
) -> Iterable[str]:
    """
    Yield what this task has done already, as the plan's hash covers it.

    Refused operations and open deletions are not done: the plan of now decides on them.

    :param there: the ids of the requests that nobody has deleted.
    """
    dry = {row_key(row.request) for row in plan.rows if row.state == "create" and not row.action and row.request}
    for key, row in done.items():
        if row.state == "deleted" or (row.state == "deleting" and key.removeprefix(DELETE) not in there):
            yield row.detail
        elif row.state in ("sent", "created", "found") and key in requests and key not in dry:
            yield create_operation(requests[key])


def row_key(request: WhitelistRequest) -> str:
    """Return what names a row in the record: the same for the same request."""
    return digest(create_operation(request))[:20]


def shorten_operation(operation: str) -> str:
    """Return what names an operation in XCom."""
    return digest(operation)[:12]
