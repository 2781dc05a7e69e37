"""Whitelisting requests as what is created at most once: one of them, or many."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.error_codes import known_code
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyResponseError,
)
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.trust import (
    EFFECTIVE_STATUSES,
    REJECTED_STATUSES,
    ListedAs,
    decide_trust,
    has_status,
    state_of,
    what_to_do,
)
from airflow_custody.client.whitelist.addresses import spellings
from airflow_custody.client.whitelist.envelopes import UserIds, user_ids
from airflow_custody.client.whitelist.listing import find_all, listing_of
from airflow_custody.client.whitelist.matching import (
    Names,
    RequestsByDestination,
    destination_of,
    differing_fields,
    names_in,
    spelled_as,
)
from airflow_custody.client.whitelist.plan import FileRow
from airflow_custody.client.whitelist.planner import make_plan
from airflow_custody.client.whitelist.review import ENVELOPE_ACTION, envelope_faults
from airflow_custody.idempotency.create import ONE
from airflow_custody.idempotency.records import Row
from airflow_custody.idempotency.search import Candidate, Found

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest
    from airflow_custody.client.verification.rules_in_force import PendingVerifier
    from airflow_custody.client.whitelist.plan import PlanRow

#: Behaviour when what a task asks for exists already, whoever asked for it.
IfExists = Literal["reuse", "fail", "create"]
#: Maximum number of addresses in one search: gateways refuse a URL that is longer than some thousand characters.
MAX_ADDRESSES = 50


@dataclass
class TrustChecker:
    """
    Tells which requests do not verify, so that they are not taken for what a task asked for.

    :param client: the client. Without pinned keys, nothing is verified.
    :param effective_statuses: status words, compared without case, of requests in effect; None: being listed as not
        pending is enough. Default ``approved``.
    :param rejected_statuses: status words of rejected requests.
    """

    client: CustodyClient
    effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES
    rejected_statuses: Collection[str] = REJECTED_STATUSES

    @cached_property
    def _verifier(self) -> PendingVerifier | None:
        from airflow_custody.client.verification.rules_in_force import verifier_for

        return verifier_for(self.client)

    def why_unverified(self, envelope: WhitelistEnvelope) -> str:
        """
        Return why a request does not verify; empty if it does, or need not.

        :param envelope: the request.
        :raises CustodyError: if what that takes cannot be got from the service now.
        """
        if self._verifier is None:
            return ""
        effective, rejected = self.effective_statuses, self.rejected_statuses
        listed: ListedAs = "anywhere"
        if effective is None:
            settled = self.client.find_whitelist_requests(ids=[envelope.id], include_pending=False)
            listed = "settled" if any(settled) else "pending"
        state = state_of(envelope.status, listed, effective_statuses=effective, rejected_statuses=rejected)
        if state == "pending":
            self._verifier.fetch_for([envelope.wire])
        error = decide_trust(envelope.wire, state, self._verifier).error
        return "" if error is None else error.reason


@dataclass(eq=False, repr=False)
class WhitelistCreation:
    """
    The creation of whitelisting requests.

    :param client: the client.
    :param requests: the requests, by the row's key.
    :param trust: tells what does not verify.
    :param accepted: keys of a payload that may have a value that was not requested, and ``envelope.action``.
    :param listed: all that the service listed when the rows were planned: what is new is known from that, whatever the
        service's own filter finds. None (default): they were not planned.
    """

    what = "whitelisting request"
    client: CustodyClient
    requests: Mapping[str, WhitelistRequest]
    trust: TrustChecker
    accepted: Collection[str] = ()
    listed: Sequence[WhitelistEnvelope] | None = None

    def __post_init__(self) -> None:
        self._before = None if self.listed is None else RequestsByDestination(self.listed, self._known)
        self._existed = frozenset(each.id for each in self.listed or ())
        self.timeout = self.client.settings.timeout
        self._filtered: list[WhitelistEnvelope] = []
        #: The ids of the requests that a row's request replaces, by the row's key.
        self.replaced: Mapping[str, list[str]] = {}
        #: What is asked for, in the spelling of the request that is used in place of a new one; None: there is none.
        self.reused: WhitelistRequest | None = None

    @property
    def content(self) -> Mapping[str, object]:
        """What is asked for, and where, if it is one request."""
        return {"service": self.client.settings.base_url, **self.requests[ONE].model_dump(exclude_none=True)}

    def which(self, key: str) -> str:
        request = self.requests[key]
        return f"{shorten(request.address)} on {request.chain}"

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        return self.client.create_whitelist_request(self.requests[key], before_send=before_send)

    def find(self, keys: Collection[str], *, thorough: bool) -> dict[str, Found]:
        filtered: dict[str, WhitelistEnvelope] = {}
        # With everything listed before and now, the service's own filter says nothing more.
        unfiltered = thorough and self._before is not None
        requests = () if unfiltered else [self.requests[key] for key in keys]
        if self._before is None:
            addresses = [each for request in requests for each in spellings(request.address, request.chain)]
        else:
            addresses = [*dict.fromkeys(request.address for request in requests)]
        for start in range(0, len(addresses), MAX_ADDRESSES):
            page = self.client.find_whitelist_requests(addresses=addresses[start : start + MAX_ADDRESSES])
            filtered |= {each.id: each for each in page}
        self._filtered = [*filtered.values()]
        # How the service spells an address is its own affair, and so is what its filter makes of that.
        listed = find_all(self.client)[0] if thorough else self._filtered
        return self.found_in(listed, keys, filtered=filtered if self._before is None else None, thorough=thorough)

    def found_in(
        self,
        envelopes: Sequence[WhitelistEnvelope],
        keys: Collection[str],
        *,
        filtered: Collection[str] | None = None,
        thorough: bool,
    ) -> dict[str, Found]:
        """
        Return what may be the rows', of what was listed.

        :param envelopes: what was listed.
        :param keys: the rows' keys.
        :param filtered: the ids of what the service's own filter finds. None (default): all of them, as they are
            compared with what was listed before, and not with what was filtered.
        :param thorough: whether that is everything that the service lists.
        """
        index = RequestsByDestination(envelopes, self._known)
        why_inconclusive = cache(partial(self._why_inconclusive, envelopes))
        found = {}
        for key in keys:
            request = self.requests[key]
            candidates = [
                self._candidate(request, each, is_filtered=filtered is None or each.id in filtered)
                for each in index.candidates(request)
            ]
            found[key] = Found(candidates, why_inconclusive(request.visibility_group_id or "") if thorough else None)
        return found

    def look_up(self, keys: Sequence[str]) -> dict[str, Row]:
        """Return planned rows as they are before they are sent: what others have asked for meanwhile is not sent."""
        rows = {}
        for key, found in self.find(keys, thorough=False).items():
            new = [each for each in found.candidates if each.id not in self._existed]
            known = [each.id for each in self._before.candidates(self.requests[key])] if self._before else []
            known = sorted({*known, *(each.id for each in found.candidates)})
            row = Row(state="sent", known_ids=known, replaces=self.replaced.get(key, []))
            if same := [each for each in new if not each.differs and not each.unclear]:
                row = row.become("found", same[0].id)
            elif new:
                why = f"somebody else has asked for the same destination meanwhile, {new[0].id}: {new[0].difference}"
                row = row.become("refused", why)
            rows[key] = row
        return rows

    def existing(self, if_exists: IfExists) -> tuple[str, str] | None:
        """
        Judge what the last search found of a single request, as a plan of it would.

        :param if_exists: ``reuse`` or ``fail``: what becomes of a request with the same content that is pending or in
            effect.
        :return: its id, and its state in words; None: there is none.
        :raises CustodyConflictError: if it must not be used, or nobody can tell; it is not retryable.
        :raises CustodyError: if what that takes cannot be got from the service now.
        """
        asked = FileRow(self.requests[ONE], "this task")
        found = {each.id: each for each in RequestsByDestination(self._filtered).candidates(asked.request)}
        words: dict[str, Any] = {
            "effective_statuses": self.trust.effective_statuses or (),
            "rejected_statuses": self.trust.rejected_statuses,
        }
        listing = listing_of(self.client, [*found.values()], **words)
        settings = {"accept_fields": self.accepted, **words}
        while (row := make_plan([asked], listing, **settings).rows[0]).state == "rejected" and row.fields:
            # It asked for something else, and hides nothing.
            listing = listing.without([row.request_id])
        if row.state == "create":
            return None
        if row.state not in ("pending", "unchanged"):
            raise _unusable(row)
        envelope = found[row.request_id]
        by = sanitize(max((each for _, each in envelope.created_by), key=len, default="an unknown user"), 60)
        state = "pending approval" if row.state == "pending" else "in effect"
        state = f"{state} (status {row.status or 'not given'}, asked for by {by})"
        if if_exists == "fail":
            raise CustodyConflictError(
                f"whitelisting request {row.request_id} asks for the same already, and is {state}; nothing was sent",
                code="request-exists",
            )
        self.reused = spelled_as(asked.request, envelope)
        return row.request_id, state

    def get(self, key: str, identifier: str) -> Candidate | None:
        try:
            return self.compare(key, self.client.get_whitelist_request(identifier))
        except CustodyError as error:
            if not (error.not_offered and error.from_service):
                raise
        # There is none with this id, or the service does not offer to get one by its id. Its listing knows.
        listed = self.client.find_whitelist_requests(ids=[identifier])
        return next((self.compare(key, each) for each in listed), None)

    def compare(self, key: str, envelope: WhitelistEnvelope) -> Candidate:
        """Compare a request at the service with a row, its envelope included."""
        found = self._candidate(self.requests[key], envelope)
        if found.unclear:
            return found
        faults = envelope_faults(envelope, envelope.payload(), self.requests[key], accepted=(ENVELOPE_ACTION,))
        return replace(found, unclear="; ".join(faults))

    @cached_property
    def _known(self) -> Collection[Names]:
        """The names of chains and networks that the rows use."""
        return names_in(map(destination_of, self.requests.values()))

    @cached_property
    def _own_ids(self) -> UserIds:
        """The ids of the user who creates; empty if the service does not say."""
        try:
            user = self.client.get_current_user()
        except CustodyError as error:
            if error.retryable:
                raise
            return frozenset()
        return user_ids(user.get("id"), user.get("externalUserId"))

    def _why_inconclusive(self, listed: Iterable[WhitelistEnvelope], group: str) -> str:
        """Return why a request of this user would not be listed; empty if it would."""
        if not self._own_ids:
            return "the service does not say who the connection's user is, so whether it lists that user's requests"
        if any(each.created_by & self._own_ids and (each.visibility_group_id or "") == group for each in listed):
            return ""
        of_group = f" of the visibility group {group}" if group else ""
        return f"it lists no request{of_group} that the connection's user has created, so it may hide them"

    def _candidate(
        self, request: WhitelistRequest, envelope: WhitelistEnvelope, *, is_filtered: bool = True
    ) -> Candidate:
        differs: Sequence[str] = ()
        try:
            differs = differing_fields(request, envelope, self.accepted)
            # Requests that certainly are for another destination need not be verified.
            unclear = "" if "address" in differs else self.trust.why_unverified(envelope)
        except CustodyResponseError as error:
            unclear = error.text
        by = envelope.created_by
        return Candidate(
            envelope.id,
            tuple(differs),
            unclear,
            envelope.created_at,
            by_other=bool(by and self._own_ids and not by & self._own_ids),
            filtered=is_filtered,
            is_rejected=has_status(envelope.status, self.trust.rejected_statuses),
        )


def shorten(address: str) -> str:
    """Return enough of an address to recognize it in a log."""
    return address if len(address) <= 16 else f"{address[:8]}…{address[-6:]}"


def _unusable(row: PlanRow) -> CustodyConflictError:
    """Return the error for a request that is, or may be, for the destination that is asked for, and is not used."""
    name, code, text = f"whitelisting request {row.request_id}", "request-differs", row.note
    advice = "Look at it in the service. If it is for another destination, if_exists='create' requests this one."
    if row.state == "rejected":
        code, text = "request-rejected", f"{name} asked for the same, and was rejected (status {row.status})"
        advice = "If the address is still wanted, if_exists='create' asks for it once more."
    elif row.state == "unverified":
        code, advice = "not-verified", what_to_do([row.request_id])
    elif row.state == "differs" and row.request_id:
        fields = [f"{each} (shown {sanitize(row.shown.get(each, ''), 80)!r})" for each in row.fields]
        verb = "may be" if row.is_doubtful else "is"
        text = f"{name} {verb} for the same destination, and differs in {', '.join(fields)}"
        text += f": {row.note}" if row.note else ""
        if row.is_doubtful:
            advice = (
                "Write chain, network and address as the service does, or name the network that is meant. If that "
                "request is for another destination, if_exists='create' requests this one."
            )
        elif row.fields == ("status",):
            advice = "Name the status word in effective_statuses or rejected_statuses."
        else:
            advice = (
                "Correct what the task asks for; or have a plan with replace=True (CustodyPlanWhitelistOperator) "
                "replace that request, which stays in effect until the new one is; or delete it at the service."
            )
    return CustodyConflictError(f"{text}; nothing was sent", code=known_code(code), advice=advice)
