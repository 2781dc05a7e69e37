"""
Where whitelisting requests are listed: all of them, or some by their ids; and a listed request in the words of a file.

Two things count: where a request is listed, as requests that are pending approval are hidden unless one asks for them,
and its ``status``. The service's makers publish no list of the words of ``status``: one that is not known proves
nothing. With pinned keys a third counts: neither is proof, and only signatures prove that a request is in
effect.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError, CustodyResponseError, CustodyVerificationError
from airflow_custody.client.text import sanitize
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import (
    EFFECTIVE_STATUSES,
    REJECTED_STATUSES,
    ListedAs,
    RequestState,
    decide_trust,
    has_status,
    state_of,
)
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.models import WhitelistRequest, cut_into_batches
from airflow_custody.client.whitelist.review import PAYLOAD_KEYS, is_deletion

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.verification.verifier import VerificationPins, VerifiedAddress, Verifier

log = logging.getLogger(__name__)

# Seconds before a listing that changed while it was read is read again.
_PAUSES = (0.5, 1.0, 2.0, 4.0)
_MAX_STATUS = 100

#: Requests by their ids.
Rows = dict[str, WhitelistEnvelope]


@dataclass(frozen=True)
class Listing:
    """
    All whitelisting requests that the service lists.

    :param envelopes: the requests, pending ones included.
    :param listed_as: where those are listed that were looked up, by id. Default: none.
    :param verifier: verifier of the requests. Default None: nothing is verified.
    :param deletions: those in effect whose deletion is pending approval by the client's user, as they are listed for
        it. They are in effect until it is approved, and not pending. Default: none.
    """

    envelopes: Sequence[WhitelistEnvelope]
    listed_as: Mapping[str, ListedAs] = field(default_factory=dict)
    verifier: Verifier | None = None
    deletions: Sequence[WhitelistEnvelope] = ()

    @property
    def pins(self) -> VerificationPins | None:
        """The pins of the verifier; None: nothing is verified."""
        return None if self.verifier is None else self.verifier.pins

    def without(self, ids: Iterable[str]) -> Listing:
        """Return the listing as it would be without these requests."""
        left_out = frozenset(ids)
        return replace(self, envelopes=[each for each in self.envelopes if each.id not in left_out])

    def state_of(
        self,
        envelope: WhitelistEnvelope,
        effective_statuses: Collection[str] | None,
        rejected_statuses: Collection[str],
    ) -> RequestState:
        """
        Return how far a request has come, by its status. What can still be signed is pending, whatever its
        status.

        :param envelope: one of the listing.
        :param effective_statuses: status words, compared without case, of which a request in effect has one; None: not
            being listed as pending is enough.
        :param rejected_statuses: status words, compared without case, that mean that a request was rejected.
        :return: ``rejected``, ``effective``, ``pending``; or ``unknown``, if it is not pending, and its status does not
            say that it is in effect.
        """
        return state_of(
            envelope.status,
            self.listed_as.get(envelope.id, "anywhere"),
            effective_statuses=effective_statuses,
            rejected_statuses=rejected_statuses,
        )

    def pending(
        self, effective_statuses: Collection[str] | None, rejected_statuses: Collection[str]
    ) -> list[WhitelistEnvelope]:
        """Return the requests that are pending approval; the parameters are those of :meth:`state_of`."""
        states = ((each, self.state_of(each, effective_statuses, rejected_statuses)) for each in self.envelopes)
        return [each for each, state in states if state == "pending"]


@dataclass(frozen=True)
class ListedRequest:
    """
    A request, and where it is listed.

    :param envelope: the listed request; None: it is not listed.
    :param listed_as: where it is listed. Default ``pending``.
    :param verified: the facts that its signatures prove, if it is settled and keys are pinned. Default None.
    :param unverified: why they prove nothing, if they do not. Default None.
    :param deletion_pending: whether it is settled, and its deletion is pending approval by the client's user. Default
        False.
    """

    envelope: WhitelistEnvelope | None
    listed_as: ListedAs = "pending"
    verified: VerifiedAddress | None = None
    unverified: CustodyVerificationError | None = None
    deletion_pending: bool = False

    def state(
        self, effective_statuses: Iterable[str] | None, rejected_statuses: Iterable[str] = REJECTED_STATUSES
    ) -> RequestState:
        """Return how far it has come; the parameters are those of :func:`state_of`."""
        status = None if self.envelope is None else self.envelope.status
        return state_of(
            status, self.listed_as, effective_statuses=effective_statuses, rejected_statuses=rejected_statuses
        )


def verified_facts(verified: VerifiedAddress) -> dict[str, Any]:
    """
    Return what signatures prove, as plain JSON data.

    :param verified: the verified address.
    :return: ``fields``, what the signed text says, by the names of the parameters; ``signed_by``, the external ids of
        the users whose signatures counted; ``rules_date``, the date of the rules, empty if they do not say.
    """
    fields: dict[str, Any] = {}
    for name, key in PAYLOAD_KEYS.items():
        value = verified.fields.get(name)
        if value not in (None, "", []):
            is_list = isinstance(value, list)
            fields[key.field or name] = [str(link["id"]) for link in value] if is_list else value
    timestamp = verified.rules.timestamp
    date = (format_unix_time(timestamp) or str(timestamp)) if timestamp else ""
    return {"fields": fields, "signed_by": list(verified.user_ids), "rules_date": date}


def describe_verified(facts: Mapping[str, Any]) -> str:
    """Return in words what :func:`verified_facts` returned, to end a sentence about the request."""
    signed_by = name_some([sanitize(each, 60) for each in facts["signed_by"]])
    date = facts["rules_date"].replace("T", " ").replace("Z", " UTC")
    rules = f"rules of {date}" if date else "rules without a date"
    return f", verified: signed by {signed_by} under {rules}"


def status_word(status: str | None) -> str:
    """Return a status as the service sent it, of a length that is fit for a report; empty if there is none."""
    return sanitize(status or "", _MAX_STATUS)


def service_name(client: CustodyClient) -> str:
    """
    Return what names the service, and the tenant of the client's user, in a plan.

    :param client: the client.
    :return: the base URL, and the tenant's id if the service says who the user is.
    :raises CustodyError: if that cannot be known now.
    """
    try:
        tenant_id = client.get_current_user().get("tenantId")
    except CustodyError as error:
        if not error.not_offered:
            raise
        tenant_id = None
    return f"{client.settings.base_url} (tenant {sanitize(tenant_id, 40)})" if tenant_id else client.settings.base_url


def fetch_listing(
    client: CustodyClient,
    *,
    effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES,
    rejected_statuses: Collection[str] = REJECTED_STATUSES,
) -> Listing:
    """
    Read all that the service lists: one call for each hundred requests, and those for what is pending: of what the
    client's user may sign, two for each hundred, or three if something is shown as in effect.

    With pinned keys, the listing has what verifies it: :func:`~airflow_custody.client.whitelist.planner.make_plan`
    does. Where a request with signatures is shown without rules, those in force are got for it, in one more call.

    :param client: the client.
    :param effective_statuses: status words, compared without case, of which a request in effect has one. None: they do
        not tell. Then the requests that are not pending are listed once more, which takes as many calls again.
    :param rejected_statuses: status words, compared without case, that mean that a request was rejected. These and
        requests with other words are listed once more: are they pending, or settled in a way that nobody named? Those
        with a word that means in effect are, too, unless their number shows that none of them is pending.
    :raises CustodyError: if one page could not be read; a part of a listing proves nothing.
    """
    pauses = iter(_PAUSES)
    while True:
        try:
            rows, for_approval = find_all(client)
            return _fetch(client, rows, for_approval, effective_statuses, rejected_statuses)
        except CustodyResponseError as error:
            # On a busy service, requests come and go between two pages.
            if not error.retryable or (seconds := next(pauses, None)) is None:
                raise
            log.info("%s; reading it again in %g s", error.message, seconds)
            time.sleep(seconds)


def listing_of(
    client: CustodyClient,
    envelopes: Sequence[WhitelistEnvelope],
    effective_statuses: Collection[str] = EFFECTIVE_STATUSES,
    rejected_statuses: Collection[str] = REJECTED_STATUSES,
) -> Listing:
    """
    Return some requests as a listing of all has them: how far each has come, and what verifies it.

    It takes up to four calls for each hundred of them, and none if there are none.

    :param client: the client.
    :param envelopes: the requests, as they were listed.
    :param effective_statuses: status words, compared without case, of requests in effect.
    :param rejected_statuses: status words, compared without case, of rejected requests.
    :raises CustodyError: if that could not be read.
    """
    for_approval = _find_for_approval(client, [each.id for each in envelopes])
    return _fetch(client, envelopes, for_approval, effective_statuses, rejected_statuses, is_part=True)


def find_all(client: CustodyClient) -> tuple[Sequence[WhitelistEnvelope], Rows]:
    """
    Read all requests that the service lists anywhere.

    :param client: the client.
    :return: the requests; and, by their ids, those of them that are pending approval by the client's user.
    :raises CustodyError: if one page could not be read.
    """
    envelopes = list(client.find_whitelist_requests())
    for_approval = _find_for_approval(client)
    # A request that the other listing lacks is pending all the same.
    known = {each.id for each in envelopes}
    return [*envelopes, *(each for each in for_approval.values() if each.id not in known)], for_approval


def _fetch(
    client: CustodyClient,
    envelopes: Sequence[WhitelistEnvelope],
    for_approval: Rows,
    effective_statuses: Collection[str] | None,
    rejected_statuses: Collection[str],
    *,
    is_part: bool = False,
) -> Listing:
    words = (*(EFFECTIVE_STATUSES if effective_statuses is None else effective_statuses), *rejected_statuses)
    # Also those, whatever their status, whose deletion is listed for approval.
    deleted = {each for each, row in for_approval.items() if is_deletion(row.action or "")}

    def decided(rows: Iterable[WhitelistEnvelope]) -> list[str]:
        return [each.id for each in rows if each.id in deleted or has_status(each.status, words)]

    pending: Iterable[str]
    if effective_statuses is None:
        settled = {each.id: each for each in client.find_whitelist_requests(include_pending=False)}
        creations, deletions = _split(client, for_approval, decided(settled.values()))
        pending = {each.id for each in envelopes}.difference(settled)
    else:
        listed = decided(each for each in envelopes if each.id in for_approval)
        creations, deletions = _split(client, for_approval, _settled(client, listed))
        rejected = {each.id for each in envelopes if has_status(each.status, rejected_statuses)}
        others = [each for each in envelopes if each.id not in creations and each.id not in rejected]
        effective = [each.id for each in others if has_status(each.status, effective_statuses)]
        # With the status that each has now: it may have taken effect since the listing.
        settled = _settled(client, [each.id for each in others if not has_status(each.status, effective_statuses)])
        envelopes = [settled.get(each.id, each) for each in envelopes]
        pending = ()
        if effective:
            # A user who is no signer sees that a request is pending, although its status says that it is in effect,
            # only by what is listed without asking for pending ones. Where the number of these is that of all requests
            # that may be among them, none is: which saves a second listing. Some that are rejected or pending may be
            # listed there.
            others_there = 0 if is_part else len(_settled(client, sorted({*creations, *rejected})))
            number = len(effective) + len(settled) + others_there
            if is_part or client.count_whitelist_requests(include_pending=False) != number:
                pending = set(effective).difference(_settled(client, effective))
    listed_as: dict[str, ListedAs] = {
        **dict.fromkeys(settled, "settled"),
        **dict.fromkeys(pending, "pending"),
        **dict.fromkeys(creations, "for approval"),
    }
    verifier = verifier_for(client, [each.wire for each in (*envelopes, *deletions.values())])
    return Listing(envelopes, listed_as, verifier, tuple(deletions.values()))


def _settled(client: CustodyClient, ids: Sequence[str]) -> Rows:
    """Find which requests are listed without asking for pending ones, in a call for each hundred."""
    batches = (client.find_whitelist_requests(ids=each, include_pending=False) for each in cut_into_batches(ids))
    return {row.id: row for batch in batches for row in batch}


def _find_for_approval(
    client: CustodyClient, ids: list[str] | None = None, *, include_already_signed: bool = True
) -> Rows:
    """
    Find the requests that are pending approval by the user, whatever other listings, or their status words, say.

    :param client: the client.
    :param ids: only these requests. Default None: all.
    :param include_already_signed: whether to find also those that the user has signed. Default True.
    :return: the requests by their ids; none for a user who is no signer.
    """
    find = partial(client.find_whitelist_requests_for_approval, include_already_signed=include_already_signed)
    try:
        return {row.id: row for batch in ([None] if ids is None else cut_into_batches(ids)) for row in find(ids=batch)}
    except CustodyError as error:
        # Nothing is pending for somebody who is no signer. Only the service itself can tell.
        if error.not_offered and error.from_service:
            return {}
        raise


def _split(client: CustodyClient, for_approval: Rows, decided: Collection[str]) -> tuple[Rows, Rows]:
    """
    Return the requests whose creation is pending, and those in effect whose deletion is, of those that are listed as
    pending approval by the user.

    A request that is otherwise shown as decided is pending only if the user may still sign it, not its deletion: an
    address is in effect until its deletion is. That takes one more call for each hundred of them.

    :param client: the client.
    :param for_approval: the result of :func:`_find_for_approval`.
    :param decided: the ids of those that are listed without asking for pending ones, with a status that says that they
        are in effect, or rejected.
    """
    deletions = {each: row for each, row in for_approval.items() if is_deletion(row.action or "")}
    doubtful = [each for each in for_approval if each in decided and each not in deletions]
    signable = _find_for_approval(client, doubtful, include_already_signed=False)
    creations = {each: row for each, row in for_approval.items() if each not in decided or each in signable}
    return creations, {each: row for each, row in deletions.items() if each not in creations}


def find_listed(client: CustodyClient, ids: Iterable[str]) -> dict[str, ListedRequest]:
    """
    Find where requests are listed, in two calls for each hundred of them, and one more for those that are settled,
    missing or rejected: are they listed for approval? For those that are settled and listed there, too, one more says
    which can still be signed.

    If the client has pinned keys, those that are settled are verified. A request that does not verify affects no other.

    :param client: the client.
    :param ids: the requests' ids.
    :return: one entry for each id. Of a request that cannot be read, the envelope says so, and it is not verified.
    :raises CustodyError: as :meth:`CustodyClient.find_whitelist_requests` does.
    """
    found = {each: ListedRequest(None) for each in ids}
    for batch in cut_into_batches([*found]):
        rows = {row.id: row for row in client.find_whitelist_requests(ids=batch, include_pending=False)}
        for_approval = _find_for_approval(client, [each for each in batch if each in rows])
        creations, deletions = _split(client, for_approval, rows)
        for each, row in rows.items():
            if each in creations:
                found[each] = ListedRequest(row, "for approval")
                continue
            listed_as: ListedAs = "signed" if each in for_approval and each not in deletions else "settled"
            # Whatever its status: which words mean that it is in effect, whoever asked knows.
            trust = decide_trust(row.wire, "effective", client.verifier if row.is_readable else None)
            found[each] = ListedRequest(row, listed_as, trust.address, trust.error, each in deletions)
        # Last: what takes effect in between is seen as pending, and not as gone.
        if rest := [each for each in batch if each not in rows]:
            more = {row.id: row for row in client.find_whitelist_requests(ids=rest)}
            # Of these, the status word, or that they are not listed, is not to be believed at once.
            doubtful = [each for each in rest if each not in more or has_status(more[each].status, REJECTED_STATUSES)]
            pending = _find_for_approval(client, doubtful)
            for each, row in {**pending, **more}.items():
                found[each] = ListedRequest(row, "for approval" if each in pending else "pending")
    return found


def to_request(envelope: WhitelistEnvelope, payload: Mapping[str, Any]) -> WhitelistRequest:
    """
    Return what would have to be asked for to get this request.

    Values that the service fills in, and empty fields, are left out.

    :param envelope: the request.
    :param payload: its payload.
    :raises CustodyResponseError: if the payload cannot be asked for: a field is malformed, or has surrounding white
        space.
    """
    fields: dict[str, Any] = {}
    for name, key in PAYLOAD_KEYS.items():
        value = payload.get(name)
        if key.field is None or value in (None, "", [], key.harmless):
            continue
        if isinstance(value, list):
            value = [each.get("id") if isinstance(each, dict) else each for each in value]
        fields[key.field] = value
    if envelope.network and "network" not in fields:
        fields["network"] = envelope.network
    if envelope.visibility_group_id:
        fields["visibility_group_id"] = envelope.visibility_group_id
    try:
        return WhitelistRequest(**fields)
    except CustodyError as error:
        raise CustodyResponseError(
            f"whitelisting request {sanitize(envelope.id, 40)} cannot be written in a file: "
            f"{error.message.removeprefix('nothing was sent: ')}",
            code="request-differs",
        ) from None
