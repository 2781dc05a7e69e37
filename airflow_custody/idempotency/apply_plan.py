"""One try of a task that carries out a plan: each row at most once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from textwrap import indent
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
)
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import lines, sanitize
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
from airflow_custody.idempotency.create import CreateRows, Outcome, Report
from airflow_custody.idempotency.plan_settings import PlanSettings
from airflow_custody.idempotency.records import Row, digest
from airflow_custody.idempotency.search import Search, lookups, seconds_under_way
from airflow_custody.idempotency.send import Sender
from airflow_custody.idempotency.store import Store
from airflow_custody.idempotency.whitelist_requests import TrustChecker, WhitelistCreation

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest
    from airflow_custody.client.whitelist.file import WhitelistFile


#: Prefix of the key of a row to delete; the request's id follows.
DELETE = "delete:"
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
_CHANGED = "it is not any more what the approved plan deletes: plan again in a new run"
_NOT_REPLACED = (
    "{why}; it was to replace {ids}: nothing is deleted. If the service takes no second request for a destination, two "
    "ways are left: change the file to what the service has, or delete the request at the service"
)
#: The fields that say for which destination a request is.
_DESTINATION = {"address", "blockchain", "currency", "network", "memo"}


class PlanChangedError(CustodyConflictError):
    """
    Raised when what is to be done is not what was approved; this try sent nothing.

    :param plan: the plan as it is now.
    :param outcome: the creates and deletions of earlier tries of the task.
    """

    def __init__(self, plan: WhitelistPlan, outcome: Outcome) -> None:
        created, deleted = len(outcome.created), len(outcome.deleted)
        what = [f"created {created}" if created else "", f"deleted {deleted}" if deleted else ""]
        done = " and ".join(filter(None, what))
        said = f"this try sent nothing, and earlier ones {done}" if done else "nothing was sent"
        super().__init__(f"the plan is not the one that was approved; {said}", code="plan-changed")
        self.plan = plan
        self.outcome = outcome


@dataclass(eq=False, repr=False)
class ApplyPlan:
    """
    Carries out a plan.

    :param context: the task's context.
    :param client: the client.
    :param log: the task's log.
    :param settings: the settings of the plan.
    :param file: the file.
    :param plan_hash: the hash of the plan that was approved.
    :param comment: why requests are deleted, for the service's history.
    :param max_parallel: maximum number of requests at once.
    :param lookup_wait: seconds that the service may take to show what it created.
    :param report: called with what is created, what became of it, and how many.
    """

    context: Context
    client: CustodyClient
    log: logging.Logger
    settings: PlanSettings
    file: WhitelistFile
    plan_hash: str
    _: KW_ONLY
    comment: str
    max_parallel: int
    lookup_wait: float
    report: Report

    def __post_init__(self) -> None:
        self._store = Store(self.context)
        self._trust = TrustChecker(self.client, self.settings.effective_statuses, self.settings.rejected_statuses)
        self._requests = {row_key(row.request): row.request for row in self.file.rows}
        # What is deleted, and the request that is kept beside it, as they were planned, by the deletion's key.
        self._deletions: dict[str, list[PlanRow]] = {}
        self._senders: list[Sender] = []
        self._is_stopped = False

    def run(self) -> Outcome:
        """
        Plan again, and do what the plan says, if it is what was approved.

        :return: the outcome of the rows to create, and of the deletions, whose keys begin with :data:`DELETE`.
        :raises PlanChangedError: if what is to be done has changed.
        :raises CustodyError: if the service cannot be read, or it cannot be known what an earlier try did.
        """
        store, requests, plan_hash = self._store, self._requests, self.plan_hash
        service = service_name(self.client)
        is_forgotten = store.read()
        others = [
            key for key in store.open_rows() if store.rows[key][0].plan != plan_hash and not key.startswith(DELETE)
        ]
        is_replanned = any(batch.plan != plan_hash and row.state == "created" for batch, row in store.rows.values())
        if is_forgotten or others or is_replanned:
            seconds = seconds_under_way(self.client.settings.timeout, self.lookup_wait)
            what = "before: this Airflow has no record of it" if is_forgotten else "under another plan"
            self.log.warning("Waiting %.0f s until the service shows what this task may have sent %s.", seconds, what)
            time.sleep(seconds)
        searched_at, listing = time.monotonic(), self.settings.fetch(self.client)
        accepted = self.settings.accept_fields
        creation = WhitelistCreation(self.client, requests, self._trust, accepted, listing.envelopes)
        creator = CreateRows(
            store,
            creation,
            self.log,
            look_up=creation.look_up,
            plan=plan_hash,
            max_parallel=self.max_parallel,
            lookup_wait=self.lookup_wait,
            report=self.report,
        )
        self._add_sender(creator.sender)
        self._settle(creator.search, creation, listing, others)
        done = {key: row for key, (batch, row) in store.rows.items() if batch.plan == plan_hash}
        if done:
            self.log.info("An earlier try has done %d rows of this plan: going on.", len(done))
        self._check_recorded(done, creation, listing)
        plan = self._plan_rest(listing, done, service)
        planned = {_key_of(row): row for row in plan.rows if row.action}
        new = {key: row for key, row in planned.items() if _is_to_do(row, done.get(key))}
        deleted = _deleted(done, plan)
        operations = {*(row.operation for row in new.values()), *_created(done, requests), *deleted.values()}
        if hash_operations({*operations, *plan.observed}, service) != plan_hash:
            created = {key: row.detail for key, row in done.items() if row.state == "created" and key in requests}
            raise PlanChangedError(plan, Outcome(created, deleted))
        earlier = self._earlier_deletions(deleted, done, planned)
        creation.replaced = {key: [*row.others] for key, row in planned.items() if row.others}
        outcome = creator.run([key for key in requests if key in done or key in new], searched_at=searched_at)
        for key in outcome.refused.keys() & creation.replaced.keys():
            ids = ", ".join(creation.replaced[key])
            outcome.refused[key] = _NOT_REPLACED.format(why=outcome.refused[key], ids=ids)
        self._check_created(outcome)
        self.report(creation.what, "unknown", len(outcome.unknown))
        self._add_earlier_plans(outcome, plan)
        by_id = {row.request_id: row for row in plan.rows}
        self._deletions = {
            key: [row, *(by_id[each] for each in row.others)] for key, row in new.items() if row.action == "delete"
        }
        self._delete(outcome)
        outcome.deleted |= earlier.deleted
        outcome.unknown |= earlier.unknown
        outcome.stopped = outcome.stopped or earlier.stopped
        if advice := advice_on_differences(plan, replace=self.settings.replace):
            self.log.warning("%s", advice)
        return outcome

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

    # --- what earlier tries did ----------------------------------------------------------------------------

    def _settle(self, search: Search, creation: WhitelistCreation, listing: Listing, others: Collection[str]) -> None:
        """
        Find out what became of rows that an earlier try has sent, as far as the listing shows it.

        :param others: the keys of rows of another plan: it must be known what became of each.
        """
        store, requests = self._store, self._requests
        # The file does not have the others any more, and the plan of now has seen what became of them.
        store.record((key, store.rows[key][1].become("void")) for key in others if key not in requests)
        known = [key for key in others if key in requests and not search.follow_override(key)]
        search.judge(creation.found_in(listing.envelopes, known, thorough=True))
        if search.unknown:
            self.report(creation.what, "unknown", len(search.unknown))
            rows = [
                f"  {creation.which(key)}: {lines(why, indent(search.advice(key), '    '))}"
                for key, why in search.unknown.items()
            ]
            raise CustodyOutcomeUnknownError(
                lines(
                    "it cannot be known what became of rows of another plan that this task was carrying out before; "
                    "nothing was sent:",
                    *rows,
                ),
                code="outcome-unknown",
            )
        own = [key for key in store.open_rows(self.plan_hash) if key in requests]
        search.judge(creation.found_in(listing.envelopes, own, thorough=False))
        # More becomes known by searching thoroughly.
        search.unknown.clear()
        for key in store.open_rows(self.plan_hash):
            if key in requests:
                search.follow_override(key)

    def _check_recorded(self, done: Mapping[str, Row], creation: WhitelistCreation, listing: Listing) -> None:
        """
        Check that the recorded ids are what their rows ask for: Airflow's users can edit the record.

        A service may shorten a label or fill in a field, which signing compares. A created request that is not listed
        is dealt with later, and so is a request that no longer verifies.

        :raises CustodyOutcomeUnknownError: if one is something else.
        """
        listed = {each.id: each for each in listing.envelopes}
        recorded = {key: row.detail for key, row in done.items() if row.state in ("created", "found")}
        for key, request_id in recorded.items():
            if key not in self._requests:
                continue
            if request_id not in listed:
                if done[key].state == "found":
                    raise self._wrong_record(key, request_id, creation, "the service does not list it")
                continue
            differs = creation.compare(key, listed[request_id]).differs
            given = self._requests[key].model_dump(exclude_none=True, exclude={"label"})
            if wrong := [name for name in differs if name in _DESTINATION or name in given]:
                raise self._wrong_record(key, request_id, creation, f"it differs in {', '.join(wrong)}")

    @staticmethod
    def _wrong_record(key: str, request_id: str, creation: WhitelistCreation, why: str) -> CustodyOutcomeUnknownError:
        return CustodyOutcomeUnknownError(
            f"the task's record names request {sanitize(request_id, 40)} for {creation.which(key)}, but {why}; nothing "
            "was sent",
            code="outcome-unknown",
            advice="Find out who has edited the task's state, or what has changed the request. Then start a new run.",
        )

    def _plan_rest(self, listing: Listing, done: Mapping[str, Row], service: str) -> WhitelistPlan:
        """Plan again, and return the plan without the rows whose request this task has created or found."""
        found = {row.detail for row in done.values() if row.state == "found"}
        # A request of somebody else that does not verify any more is not this row's.
        unverified = {each.id for each in listing.envelopes if each.id in found and self._trust.why_unverified(each)}
        # A request for a row whose outcome is unknown, or that was refused, still belongs to that row.
        settled = {
            key: row.detail
            for key, row in done.items()
            if row.state == "created" or (row.state == "found" and row.detail not in unverified)
        }
        # Also of the rows that are done, as what they replace is theirs.
        plan = self.settings.plan(self.file, listing.without(settled.values()), service)
        rows = [row for row in plan.rows if not (row.where and row.request and row_key(row.request) in settled)]
        return replace(plan, rows=rows)

    def _earlier_deletions(
        self, deleted: Mapping[str, str], done: Mapping[str, Row], planned: Collection[str]
    ) -> Outcome:
        """
        Return the outcome of the deletions that earlier tries have carried out, as far as could be seen.

        :param planned: the keys of what the plan of now does.
        """
        outcome = Outcome()
        for key, operation in deleted.items():
            if key in planned:
                why = "the service lists what was deleted"
                outcome.unknown[key] = _STILL_LISTED
                outcome.stopped = CustodyConflictError(why, code="outcome-unknown", retryable=True)
                continue
            try:
                if done[key].state == "deleted" or status_if_exists(self.client, key.removeprefix(DELETE)) is None:
                    outcome.deleted[key] = operation
                else:
                    outcome.unknown[key] = _UNCLEAR
            except CustodyError as error:
                outcome.unknown[key] = f"{_UNCLEAR} ({error.reason})"
                outcome.stopped = outcome.stopped or (error if error.transient else None)
        return outcome

    def _add_earlier_plans(self, outcome: Outcome, plan: WhitelistPlan) -> None:
        """Add the requests created under an earlier plan: they are to be signed, too, if the file has them."""
        pending = {row.request_id: row_key(row.request) for row in plan.rows if row.state == "pending" and row.request}
        for key, (batch, row) in self._store.rows.items():
            is_earlier = row.state == "created" and batch.plan != self.plan_hash
            if is_earlier and pending.get(row.detail) == key:
                self.log.info("Request %s was created by this task under an earlier plan.", row.detail)
                outcome.created.setdefault(key, row.detail)

    # --- what was created ----------------------------------------------------------------------------------

    def _check_created(self, outcome: Outcome) -> None:
        """
        Check that the service lists what was created, and under each id what its row asks for.

        What is not so is unknown. It stays recorded as created: it must not be a reason to send a row again.
        """
        listed, failure = self._fetch([*outcome.created.values()])
        outcome.stopped = outcome.stopped or failure
        for key, request_id in list(outcome.created.items()):
            why = ""
            if request_id in listed:
                why = self._difference(self._requests[key], listed[request_id])
                why = why and f"the service named {request_id} as its id, and {why}"
            elif failure is None:
                why = (
                    f"request {request_id}, which this task has created, is not listed, or not any more: if it is "
                    "late, clear this task later; if it was removed, start a new run, which asks for it again"
                )
                outcome.stopped = outcome.stopped or CustodyConflictError(
                    "the service does not list what it said that it created", code="outcome-unknown", retryable=True
                )
            if why:
                outcome.unknown[key] = why
                del outcome.created[key]

    def _difference(self, request: WhitelistRequest, envelope: WhitelistEnvelope) -> str:
        """Return why a request at the service cannot be a row's; empty if it can."""
        if unverified := self._trust.why_unverified(envelope):
            return unverified
        try:
            fields = differing_fields(request, envelope, self.settings.accept_fields)
        except CustodyResponseError as error:
            return f"what it shows there cannot be read: {error.text}"
        if not _DESTINATION.isdisjoint(fields):
            return f"shows something else there ({', '.join(fields)}): look at the service, and start a new run"
        if fields:
            self.log.warning("Request %s is not quite what was asked for: %s.", envelope.id, ", ".join(fields))
        return ""

    def _fetch(self, ids: Sequence[str]) -> tuple[dict[str, WhitelistEnvelope], CustodyError | None]:
        """
        Wait until the service lists what was created: the next plan must see it.

        :return: the listed requests by id, and why it cannot be seen whether others are; None if it can.
        """
        listed: dict[str, WhitelistEnvelope] = {}
        missing = [*ids]
        failure: CustodyError | None = None
        for _ in lookups(self.lookup_wait):
            try:
                for start in range(0, len(missing), MAX_PAGE_SIZE):
                    batch = missing[start : start + MAX_PAGE_SIZE]
                    listed |= {each.id: each for each in self.client.find_whitelist_requests(ids=batch)}
                failure = None
            except CustodyError as error:
                failure = error
            missing = [each for each in missing if each not in listed]
            if not missing or (failure is not None and not failure.retryable):
                break
        if missing:
            why = str(failure) if failure else None
            self.log.warning("%s", lines(f"The service does not list yet: {_names(missing)}.", why))
        return listed, failure

    # --- deletions -----------------------------------------------------------------------------------------

    def _delete(self, outcome: Outcome) -> None:
        """Delete what the plan deletes: rows that are sent as others are, and may be sent twice."""
        keys = [*self._deletions]
        # What is to be deleted may be what a row that was not created should stand in for.
        if keys and (outcome.stopped or outcome.refused or outcome.unknown or outcome.left):
            self.log.warning("Nothing is deleted, as not all rows were created: %s stay.", _names(keys))
            outcome.left += keys
            return
        sender = self._add_sender(
            Sender(
                self._store,
                self.log,
                look_up=lambda keys: {key: Row(state="sent", detail=self._deletions[key][0].operation) for key in keys},
                send_row=self._delete_one,
                plan=self.plan_hash,
                max_parallel=self.max_parallel,
                sent=lambda: None,
                done=self._log_deletion,
            )
        )
        sender.send(keys)
        outcome.add(self._store, keys, self.plan_hash)
        outcome.unknown |= {key: sender.errors[key].reason for key in keys if key in outcome.unknown}
        outcome.stopped = outcome.stopped or sender.stopped

    def _delete_one(self, key: str, row: Row, before_send: Callable[[], None]) -> Row:
        """Delete a request if it, and what is kept beside it, are as they were planned."""
        request_id = key.removeprefix(DELETE)
        planned = {each.request_id: (each.status, each.hash) for each in self._deletions[key]}
        listed = self.client.find_whitelist_requests(ids=[*planned])
        found = {each.id: (status_word(each.status), each.hash or "") for each in listed}
        is_gone = request_id not in found and status_if_exists(self.client, request_id) is None
        if not is_gone and found != planned:
            return row.become("refused", _CHANGED)
        if not is_gone:
            before_send()
            with suppress(CustodyNotFoundError):
                self.client.delete_whitelist_request(request_id, self.comment)
        return row.become("deleted", row.detail)

    def _log_deletion(self, key: str, row: Row) -> None:
        request_id = key.removeprefix(DELETE)
        if row.state == "deleted":
            self.log.info("Whitelisting request %s is deleted.", request_id)
        elif row.state != "void":
            why = row.detail if row.state == "refused" else "nobody knows"
            self.log.warning("Whitelisting request %s was not deleted: %s", request_id, why)


def _key_of(row: PlanRow) -> str:
    """Return what names an operation of a plan in the record."""
    return row_key(row.request) if row.action == "create" and row.request else f"{DELETE}{row.request_id}"


def _is_to_do(row: PlanRow, done: Row | None) -> bool:
    """Tell whether an operation of a plan is left to do: a deletion whose outcome is unknown may be sent once more."""
    return done is None or done.state in ("void", "refused") or (row.action == "delete" and done.state == "sent")


def _deleted(done: Mapping[str, Row], plan: WhitelistPlan) -> dict[str, str]:
    """Return the deletions that this task has carried out, as far as can be seen; the plan of now has the others."""
    there = {f"{DELETE}{row.request_id}" for row in plan.rows}
    return {
        key: row.detail
        for key, row in done.items()
        if row.state == "deleted" or (row.state == "sent" and key.startswith(DELETE) and key not in there)
    }


def _created(done: Mapping[str, Row], requests: Mapping[str, WhitelistRequest]) -> Iterable[str]:
    """Yield what this task has created already, or may have, as the plan's hash covers it."""
    for key, row in done.items():
        if row.state in ("sent", "created", "found") and key in requests:
            yield create_operation(requests[key], row.replaces)


def row_key(request: WhitelistRequest) -> str:
    """Return what names a row in the record: the same for the same request."""
    return digest(create_operation(request))[:20]


def _names(ids: Sequence[str]) -> str:
    return name_some([sanitize(each, 60) for each in ids])
