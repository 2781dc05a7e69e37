"""One try of a task that carries out a plan: each row at most once."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT, MAX_PAGE_SIZE
from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.listing import Listing, service_name, status_word
from airflow_custody.client.whitelist.matching import differing_fields
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plan import (
    PlanRow,
    WhitelistPlan,
    advice_on_differences,
    create_operation,
    hash_operations,
)
from airflow_custody.idempotency.create import CreateRows, Outcome, Report, ignore_report
from airflow_custody.idempotency.plan_settings import DELETE, PlanSettings
from airflow_custody.idempotency.records import Row, digest
from airflow_custody.idempotency.search import lookup_intervals
from airflow_custody.idempotency.send import Sender
from airflow_custody.idempotency.store import Store
from airflow_custody.idempotency.whitelist_requests import TrustChecker, WhitelistCreation

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest
    from airflow_custody.client.whitelist.file import WhitelistFile


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
_CHANGED = "it is not any more what the approved plan deletes: plan again in a new run"
_NOT_REPLACED = (
    "{why}; it was to replace {ids}: nothing is deleted. If the service takes no second request for a destination, two "
    "ways are left: change the file to what the service has, or delete the request at the service"
)


@dataclass(frozen=True)
class Applied:
    """
    The outcome of a plan.

    :param outcome: outcome of the rows to create, by their keys.
    :param requests: the request of each of them, by its key.
    :param deletions: outcome of the deletions, by the requests' ids.
    """

    outcome: Outcome
    requests: Mapping[str, WhitelistRequest]
    deletions: Outcome = field(default_factory=Outcome)


class PlanChangedError(CustodyConflictError):
    """
    Raised when what is to be done is not what was approved; this try sent nothing.

    :param plan: the plan as it is now.
    :param applied: the creates and deletions of earlier tries of the task.
    """

    def __init__(self, plan: WhitelistPlan, applied: Applied) -> None:
        created, deleted = len(applied.outcome.done), len(applied.deletions.done)
        what = [f"created {created}" if created else "", f"deleted {deleted}" if deleted else ""]
        done = " and ".join(filter(None, what))
        said = f"this try sent nothing, and earlier ones {done}" if done else "nothing was sent"
        super().__init__(f"the plan is not the one that was approved; {said}", code="plan-changed")
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
        report: Report = ignore_report,
    ) -> None:
        self._client = client
        self._log = log
        self._settings = settings
        self._comment = comment
        self._max_parallel = max_parallel
        self._lookup_wait = lookup_wait
        self._report = report
        self._store = Store(context)
        self._trust = TrustChecker(client, settings.effective_statuses, settings.rejected_statuses)
        # The ids of the requests that a row's request replaces, by its key.
        self._replaced: dict[str, list[str]] = {}
        # The request that is kept beside a duplicate, as it was planned last, by the deletion's key.
        self._kept: dict[str, PlanRow] = {}
        self._senders: list[Sender] = []
        self._is_stopped = False

    def run(self, file: WhitelistFile, plan_hash: str) -> Applied:
        """
        Plan again, and do what the plan says, if it is what was approved.

        :param file: the file.
        :param plan_hash: the hash of the plan that was approved.
        :return: its outcome.
        :raises PlanChangedError: if what is to be done has changed.
        :raises CustodyError: if the service cannot be read, or it cannot be known what an earlier try did.
        """
        keys = [row_key(row.request) for row in file.rows]
        requests = {key: row.request for key, row in zip(keys, file.rows, strict=True)}
        service, store = service_name(self._client), self._store
        is_forgotten = store.read()
        others = [
            key for key in store.open_rows() if store.rows[key][0].plan != plan_hash and not key.startswith(DELETE)
        ]
        creator = self._creator(WhitelistCreation(self._client, requests, self._trust), plan_hash)
        if is_forgotten or others:
            wait = creator.search.under_way
            what = "under another plan" if others else "before: this Airflow has no record of it"
            self._log.warning("Waiting %.0f s until the service shows what this task may have sent %s.", wait, what)
            time.sleep(wait)
        searched_at, listing = time.monotonic(), self._settings.fetch(self._client)
        creation = WhitelistCreation(self._client, requests, self._trust, listing.envelopes)
        creator = self._creator(creation, plan_hash)
        self._settle(creator, creation, listing, requests, others)
        own = [key for key in store.open_rows(plan_hash) if key in requests]
        creator.search.judge(creation.found_in(listing.envelopes, own), late=False)
        # More becomes known by searching thoroughly.
        creator.search.unknown.clear()
        for key in store.open_rows(plan_hash):
            if key in requests:
                creator.search.follow_override(key)
        done = {key: row for key, (batch, row) in store.rows.items() if batch.plan == plan_hash}
        if done:
            self._log.info("An earlier try has done %d rows of this plan: going on.", len(done))
        plan, there, new, operations = self._operations(file, keys, listing, done, service)
        if hash_operations({*operations, *plan.observed}, service) != plan_hash:
            created = {key: row.detail for key, row in done.items() if row.state == "created" and key in requests}
            deleted = Outcome(done=dict.fromkeys(_deleted(done, there), ""))
            raise PlanChangedError(plan, Applied(Outcome(created), requests, deleted))
        self._warn_of_settled(listing, done)
        unclear, unread = self._unclear(plan, listing, done, there)
        outcome = creator.run([key for key in requests if key in done or key in new], searched_at=searched_at)
        for key in outcome.refused.keys() & self._replaced.keys():
            ids = ", ".join(self._replaced[key])
            outcome.refused[key] = _NOT_REPLACED.format(why=outcome.refused[key], ids=ids)
        self._check_created(outcome, requests, done)
        self._report(creation.what, "unknown", len(outcome.unknown))
        self._add_earlier_plans(outcome, requests, plan, plan_hash)
        deletions = self._delete(file, service, plan, plan_hash, done, outcome)
        deletions.done = {each: "" for each in deletions.done if each not in unclear}
        deletions.unknown |= unclear
        deletions.stopped = deletions.stopped or unread
        if advice := advice_on_differences(plan, replace=self._settings.replace):
            self._log.warning("%s", advice)
        return Applied(outcome, requests, deletions)

    def stop(self) -> None:
        """Send nothing more that has not left yet; may be called from a signal handler."""
        self._is_stopped = True
        for each in self._senders:
            each.stop()

    def _add_sender(self, sender: Sender) -> Sender:
        self._senders.append(sender)
        if self._is_stopped:
            sender.stop()
        return sender

    def _creator(self, creation: WhitelistCreation, plan_hash: str) -> CreateRows:
        creator = CreateRows(
            self._store,
            creation,
            self._log,
            look_up=partial(self._look_up, creation),
            existed=creation.existed,
            plan=plan_hash,
            max_parallel=self._max_parallel,
            lookup_wait=self._lookup_wait,
            report=self._report,
        )
        self._add_sender(creator.sender)
        return creator

    def _look_up(self, creation: WhitelistCreation, keys: Sequence[str]) -> dict[str, Row]:
        """Return the rows as they are before they are sent, with what they replace."""
        rows = creation.look_up(keys)
        return {key: row.model_copy(update={"replaces": self._replaced.get(key, [])}) for key, row in rows.items()}

    # --- what earlier tries did ----------------------------------------------------------------------------

    def _settle(
        self,
        creator: CreateRows,
        creation: WhitelistCreation,
        listing: Listing,
        requests: Mapping[str, WhitelistRequest],
        others: Collection[str],
    ) -> None:
        """Find out what became of rows of another plan that this task was carrying out before."""
        search = creator.search
        # The file does not have the others any more, and the plan of now has seen what became of them.
        self._store.record((key, self._store.rows[key][1].become("void")) for key in others if key not in requests)
        known = [key for key in others if key in requests and not search.follow_override(key)]
        search.judge(creation.found_in(listing.envelopes, known), late=True)
        if search.unknown:
            self._report(creation.what, "unknown", len(search.unknown))
            lines = "; ".join(
                f"{creation.which(key)}: {why} {search.advice(key)}" for key, why in search.unknown.items()
            )
            raise CustodyOutcomeUnknownError(
                "it cannot be known what became of rows of another plan that this task was carrying out before; "
                f"nothing was sent: {lines}",
                code="outcome-unknown",
            )

    def _warn_of_settled(self, listing: Listing, done: Mapping[str, Row]) -> None:
        """Warn of requests that an earlier try has created and nobody can sign any more."""
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
        found = {each: _STILL_LISTED for each in _deletions(done, "deleted") if each in to_delete}
        again: CustodyError | None = None
        if found:
            again = CustodyConflictError("the service lists what was deleted", code="outcome-unknown", retryable=True)
        listed = {each.id for each in listing.envelopes}
        for each in _deletions(done, "sent"):
            if each in there:
                continue
            try:
                if each in listed or status_if_exists(self._client, each) is not None:
                    found[each] = _UNCLEAR
            except CustodyError as error:
                found[each] = f"{_UNCLEAR} ({error.reason})"
                again = again or (error if error.transient else None)
        return found, again

    def _operations(
        self, file: WhitelistFile, keys: Sequence[str], listing: Listing, done: Mapping[str, Row], service: str
    ) -> tuple[WhitelistPlan, Collection[str], Mapping[str, str], set[str]]:
        """
        Plan again.

        :param keys: the keys of the file's rows.
        :return: the plan without what this task has created; the ids of the requests that nobody has deleted; what is
            to be done, by key; and that with what this task has done of it.
        """
        found = {row.detail for row in done.values() if row.state == "found"}
        # A request of somebody else that does not verify any more is not this row's.
        unverified = {each.id for each in listing.envelopes if each.id in found and self._trust.why_unverified(each)}
        # A request for a row whose outcome is unknown, or that was refused, still belongs to that row.
        settled = {
            key
            for key, row in done.items()
            if row.state == "created" or (row.state == "found" and row.detail not in unverified)
        }
        own = {done[key].detail for key in settled}
        # Also of the rows that are done, as what they replace is theirs.
        plan = self._settings.plan(file, listing.without(own), service)
        self._replaced = {
            row_key(row.request): [*row.others] for row in plan.with_action("create") if row.request and row.others
        }
        there = self._settings.not_deleted(listing, plan, done)
        new = _new_operations(plan, done, there)
        requests = {key: row.request for key, row in zip(keys, file.rows, strict=True)}
        operations = {*new.values(), *_operations(done, requests, plan, there)}
        places = {row.where for key, row in zip(keys, file.rows, strict=True) if key in settled}
        left = replace(plan, rows=[row for row in plan.rows if row.where not in places])
        return left, there, new, operations

    def _add_earlier_plans(
        self, outcome: Outcome, requests: Mapping[str, WhitelistRequest], plan: WhitelistPlan, plan_hash: str
    ) -> None:
        """Add the requests created under an earlier plan: they are to be signed, too, if the file has them."""
        pending = {
            row.request_id: row_key(row.request)
            for row in plan.rows
            if row.state == "pending" and row.request is not None
        }
        for key, (batch, row) in self._store.rows.items():
            is_earlier = row.state == "created" and batch.plan != plan_hash
            if is_earlier and key in requests and pending.get(row.detail) == key:
                self._log.info("Request %s was created by this task under an earlier plan.", row.detail)
                outcome.done.setdefault(key, row.detail)

    # --- what was created ----------------------------------------------------------------------------------

    def _check_created(
        self, outcome: Outcome, requests: Mapping[str, WhitelistRequest], done: Mapping[str, Row]
    ) -> None:
        """
        Check that the service lists what was created, and under each id what its row asks for.

        What is not so is unknown. It stays recorded as created: it must not be a reason to send a row again.
        """
        listed, missing = self._fetch([*outcome.done.values()])
        by_address: dict[str, list[WhitelistRequest]] = defaultdict(list)
        for request in requests.values():
            by_address[request.address].append(request)
        # Where nothing is listed, that one is not proves nothing.
        gone = {outcome.done[key] for key in outcome.done.keys() & done.keys()}.intersection(missing if listed else ())
        if listed and (late := [each for each in missing if each not in gone]):
            outcome.stopped = outcome.stopped or CustodyConflictError(
                f"the service does not list what it said that it created: {_names(late)}",
                code="outcome-unknown",
                retryable=True,
            )
        for key, request_id in list(outcome.done.items()):
            why = ""
            if request_id in gone:
                why = (
                    f"request {request_id}, which this task has created, is not listed any more: if it was removed, "
                    "start a new run, which asks for it again"
                )
            elif request_id in listed:
                why = self._difference(requests[key], listed[request_id], by_address[requests[key].address])
                why = why and f"the service named {request_id} as its id, and {why}"
            if why:
                outcome.unknown[key] = why
                del outcome.done[key]

    def _difference(
        self, request: WhitelistRequest, envelope: WhitelistEnvelope, same_address: Iterable[WhitelistRequest]
    ) -> str:
        """Return why a request at the service cannot be a row's; empty if it can."""
        if unverified := self._trust.why_unverified(envelope):
            return unverified
        try:
            fields = differing_fields(request, envelope)
            others = [each for each in same_address if fields and not differing_fields(each, envelope)]
        except CustodyResponseError as error:
            self._log.warning("%s", error)
            return ""
        if "address" in fields or others:
            return f"shows something else there ({', '.join(fields)}): look at the service, and start a new run"
        if fields:
            self._log.warning("Request %s is not quite what was asked for: %s.", envelope.id, ", ".join(fields))
        return ""

    def _fetch(self, ids: Sequence[str]) -> tuple[dict[str, WhitelistEnvelope], list[str]]:
        """
        Wait until the service lists what was created: the next plan must see it.

        :return: the listed requests by id, and the ids that are not listed; none if the listing cannot be read.
        """
        listed: dict[str, WhitelistEnvelope] = {}
        missing, deadline, intervals = list(ids), time.monotonic() + self._lookup_wait, lookup_intervals()
        while missing:
            try:
                for start in range(0, len(missing), MAX_PAGE_SIZE):
                    batch = missing[start : start + MAX_PAGE_SIZE]
                    listed |= {each.id: each for each in self._client.find_whitelist_requests(ids=batch)}
            except CustodyError as error:
                self._log.warning("Whether the service lists what was created cannot be seen: %s", error)
                return listed, []
            missing = [each for each in missing if each not in listed]
            if not missing or time.monotonic() >= deadline:
                break
            time.sleep(max(0.05, min(next(intervals), deadline - time.monotonic())))
        if missing:
            self._log.warning("The service does not list yet: %s.", _names(missing))
        return listed, missing

    # --- deletions -----------------------------------------------------------------------------------------

    def _delete(
        self,
        file: WhitelistFile,
        service: str,
        plan: WhitelistPlan,
        plan_hash: str,
        done: Mapping[str, Row],
        creates: Outcome,
    ) -> Outcome:
        """Delete what the plan deletes: rows that are sent as others are, and may be sent twice."""
        operations = {f"{DELETE}{row.request_id}": row.operation for row in plan.with_action("delete")}
        # The service may list for some time, or for good, what was deleted.
        over = {
            key
            for key, row in done.items()
            if key.startswith(DELETE)
            and (row.state == "deleted" or (row.state == "sent" and row.detail not in operations.values()))
        }
        keys = [key for key in operations if key not in over]
        sender = self._add_sender(
            Sender(
                self._store,
                self._log,
                look_up=partial(self._deletions_now, file, service, operations),
                send=self._delete_one,
                plan=plan_hash,
                max_parallel=self._max_parallel,
                sent=lambda: None,
                done=self._log_deletion,
            )
        )
        # What is to be deleted may be what a row that was not created should stand in for.
        is_held = bool(creates.stopped or creates.refused or creates.unknown or creates.left)
        if is_held and keys:
            self._log.warning("Nothing is deleted, as not all rows were created: %s stay.", _names(keys))
        else:
            sender.send(keys)
        outcome = Outcome.of(self._store, () if is_held else keys, plan_hash)

        def by_id(rows: Mapping[str, str]) -> dict[str, str]:
            return {key.removeprefix(DELETE): value for key, value in rows.items()}

        return Outcome(
            done=by_id({**outcome.done, **dict.fromkeys(over, "")}),
            refused=by_id(outcome.refused),
            unknown=by_id({key: sender.errors[key].reason for key in outcome.unknown}),
            left=keys if is_held else outcome.left,
            stopped=None if is_held else sender.stopped,
        )

    def _deletions_now(
        self, file: WhitelistFile, service: str, operations: Mapping[str, str], keys: Sequence[str]
    ) -> dict[str, Row]:
        """Return the rows of deletions, those only that a plan would still make in the same way."""
        listing = self._settings.fetch(self._client)
        plan = {row.request_id: row for row in self._settings.plan(file, listing, service).rows}
        now = {request_id: row.operation for request_id, row in plan.items()}
        listed = {each.id for each in listing.envelopes}
        rows = {}
        for key in keys:
            request_id = key.removeprefix(DELETE)
            row = Row(state="sent", detail=operations[key])
            if now.get(request_id, "") != row.detail and (request_id in listed or self._may_exist(request_id)):
                row = row.become("refused", _CHANGED)
            elif request_id in plan and (others := plan[request_id].others):
                self._kept[key] = plan[others[0]]
            rows[key] = row
        return rows

    def _may_exist(self, request_id: str) -> bool:
        try:
            return status_if_exists(self._client, request_id) is not None
        except CustodyError as error:
            self._log.warning("Whether request %s, which is not listed, exists cannot be known: %s", request_id, error)
            return True

    def _delete_one(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        if key in self._kept and not self._is_as_planned(self._kept[key]):
            return row.become("refused", _CHANGED)
        before_send()
        try:
            self._client.delete_whitelist_request(key.removeprefix(DELETE), self._comment)
        except CustodyNotFoundError:
            self._log.info("Whitelisting request %s does not exist any more.", key.removeprefix(DELETE))
        return row.become("deleted", row.detail)

    def _is_as_planned(self, kept: PlanRow) -> bool:
        """Tell whether the request that is kept beside a duplicate is as it was planned: in effect."""
        try:
            found = list(self._client.find_whitelist_requests(ids=[kept.request_id]))
        except CustodyError as error:
            error.nothing_sent = True
            raise
        return [(status_word(each.status), each.hash or "") for each in found] == [(kept.status, kept.hash)]

    def _log_deletion(self, key: str, row: Row) -> None:
        request_id = key.removeprefix(DELETE)
        if row.state == "deleted":
            self._log.info("Whitelisting request %s is deleted.", request_id)
        elif row.state != "void":
            why = row.detail if row.state == "refused" else "nobody knows"
            self._log.warning("Whitelisting request %s was not deleted: %s", request_id, why)


def _deletions(done: Mapping[str, Row], state: str) -> list[str]:
    """Return the ids of the requests whose deletion has come so far."""
    return sorted(
        key.removeprefix(DELETE) for key, row in done.items() if key.startswith(DELETE) and row.state == state
    )


def _deleted(done: Mapping[str, Row], there: Collection[str]) -> list[str]:
    """Return the ids of the requests that this task has deleted, as far as can be seen."""
    return [*_deletions(done, "deleted"), *(each for each in _deletions(done, "sent") if each not in there)]


def _new_operations(plan: WhitelistPlan, done: Mapping[str, Row], there: Collection[str]) -> dict[str, str]:
    """Return what a plan does, by key, without what this task has done already."""
    found = {}
    for row in plan.rows:
        if not (operation := row.operation):
            continue
        key = row_key(row.request) if row.action == "create" and row.request else f"{DELETE}{row.request_id}"
        state = done[key].state if key in done else "void"
        is_open = row.action == "delete" and state == "sent" and row.request_id in there
        if state in ("void", "refused") or is_open:
            found[key] = operation
    return found


def _operations(
    done: Mapping[str, Row], requests: Mapping[str, WhitelistRequest], plan: WhitelistPlan, there: Collection[str]
) -> Iterable[str]:
    """
    Yield what this task has done already, as the plan's hash covers it.

    Refused operations and open deletions are not done: the plan of now decides on them.

    :param there: the ids of the requests that nobody has deleted.
    """
    deleted = {*_deleted(done, there)}
    rows = [row for row in plan.rows if row.state in ("create", "replace") and not row.action]
    dry = {row_key(row.request) for row in rows if row.request}
    for key, row in done.items():
        if key.startswith(DELETE):
            if key.removeprefix(DELETE) in deleted:
                yield row.detail
        elif row.state in ("sent", "created", "found") and key in requests and key not in dry:
            yield create_operation(requests[key], row.replaces)


def row_key(request: WhitelistRequest) -> str:
    """Return what names a row in the record: the same for the same request."""
    return digest(create_operation(request))[:20]


def _names(ids: Sequence[str]) -> str:
    return name_some([sanitize(each, 60) for each in ids])
