"""All that the service lists of a whitelist, and a listed request in the words of a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.trust import (
    EFFECTIVE_STATUSES,
    REJECTED_STATUSES,
    ListedAs,
    RequestState,
    has_status,
    state_of,
)
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.progress import (
    find_for_approval,
    pending_deletions,
    still_pending,
)
from airflow_custody.client.whitelist.review import PAYLOAD_KEYS, is_deletion

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.verification.verifier import VerificationPins, Verifier

log = logging.getLogger(__name__)

# Seconds before a listing that changed while it was read is read again.
_PAUSES = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Listing:
    """
    All whitelisting requests that the service lists.

    :param envelopes: the requests, pending ones included.
    :param pending_ids: the ids of those that are pending approval, whatever their status says. Default: none.
    :param settled_ids: the ids of those that are listed also without asking for pending ones. Default: none.
    :param verifier: verifier of the requests. Default None: nothing is verified.
    :param for_approval_ids: the ids of those whose creation is pending approval by the client's user. Default: none.
    :param deletions: those in effect whose deletion is pending approval by the client's user, as they are listed for
        it. They are in effect until it is approved, and not pending. Default: none.
    """

    envelopes: Sequence[WhitelistEnvelope]
    pending_ids: frozenset[str] = field(default_factory=frozenset)
    settled_ids: frozenset[str] = field(default_factory=frozenset)
    verifier: Verifier | None = None
    for_approval_ids: frozenset[str] = field(default_factory=frozenset)
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
        listed: ListedAs = "settled" if envelope.id in self.settled_ids else "anywhere"
        if envelope.id in self.pending_ids:
            listed = "pending"
        if envelope.id in self.for_approval_ids:
            listed = "for approval"
        return state_of(
            envelope.status, listed, effective_statuses=effective_statuses, rejected_statuses=rejected_statuses
        )

    def pending(
        self, effective_statuses: Collection[str] | None, rejected_statuses: Collection[str]
    ) -> list[WhitelistEnvelope]:
        """Return the requests that are pending approval; the parameters are those of :meth:`state_of`."""
        states = ((each, self.state_of(each, effective_statuses, rejected_statuses)) for each in self.envelopes)
        return [each for each, state in states if state == "pending"]

    def is_settled(self, envelope: WhitelistEnvelope) -> bool:
        """Tell whether a request is certainly not pending approval any more."""
        return envelope.id in self.settled_ids and envelope.id not in self.pending_ids


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
    by_status: bool = True,
    effective_statuses: Collection[str] = EFFECTIVE_STATUSES,
    rejected_statuses: Collection[str] = REJECTED_STATUSES,
    sleep: Callable[[float], None] = time.sleep,
) -> Listing:
    """
    Read all that the service lists: one call for each hundred requests, and those for what is pending: of what the
    client's user may sign, two for each hundred, or three if something is shown as in effect.

    With pinned keys, the listing has what verifies it: :func:`~airflow_custody.client.whitelist.planner.make_plan`
    does. Where a request with signatures is shown without rules, those in force are got for it, in one more call.

    :param client: the client.
    :param by_status: whether the status words tell what is in effect. Otherwise the requests that are not pending are
        listed once more, which takes as many calls again. Default True.
    :param effective_statuses: status words, compared without case, of which a request in effect has one.
    :param rejected_statuses: status words, compared without case, that mean that a request was rejected. These and
        requests with other words are listed once more: are they pending, or settled in a way that nobody named? Those
        with a word that means in effect are, too, unless their number shows that none of them is pending.
    :param sleep: waits for some seconds before a listing that changed while it was read is read again; tests turn it.
    :raises CustodyError: if one page could not be read; a part of a listing proves nothing.
    """
    for seconds in _PAUSES:
        try:
            return _with_verifier(_fetch(client, by_status, effective_statuses, rejected_statuses), client)
        except CustodyResponseError as error:
            # On a busy service, requests come and go between two pages.
            if not error.retryable:
                raise
            log.info("%s; reading it again in %g s", error.message, seconds)
            try:
                sleep(seconds)
            except CustodyError:
                error.advice = f"{error.advice} There was no time to read it again."
                # There is no time for another reading: why this one failed is the reason.
                raise error from None
    return _with_verifier(_fetch(client, by_status, effective_statuses, rejected_statuses), client)


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
    return _with_verifier(_fetch(client, True, effective_statuses, rejected_statuses, envelopes), client)


def _with_verifier(listing: Listing, client: CustodyClient) -> Listing:
    if client.verifier is None:
        return listing
    from airflow_custody.client.verification.rules_in_force import verifier_for

    return replace(
        listing, verifier=verifier_for(client, [each.wire for each in (*listing.envelopes, *listing.deletions)])
    )


def find_all(client: CustodyClient) -> list[WhitelistEnvelope]:
    """
    Read all requests that the service lists anywhere, without asking which of them are pending.

    :param client: the client.
    :raises CustodyError: if one page could not be read.
    """
    return _find_all(client)[0]


def _find_all(client: CustodyClient) -> tuple[list[WhitelistEnvelope], dict[str, WhitelistEnvelope]]:
    """Return all requests, and those of them that are pending approval by the client's user, by their ids."""
    envelopes = list(client.find_whitelist_requests())
    for_approval = find_for_approval(client)
    # A request that the other listing lacks is pending all the same.
    known = {each.id for each in envelopes}
    envelopes += [each for each in for_approval.values() if each.id not in known]
    return envelopes, for_approval


def _fetch(
    client: CustodyClient,
    by_status: bool,
    effective_statuses: Collection[str],
    rejected_statuses: Collection[str],
    some: Sequence[WhitelistEnvelope] | None = None,
) -> Listing:
    if some is None:
        envelopes, for_approval = _find_all(client)
    else:
        envelopes, for_approval = [*some], find_for_approval(client, [each.id for each in some])
    if not by_status:
        settled = {each.id: each for each in client.find_whitelist_requests(include_pending=False)}
        decided = _decided(settled.values(), for_approval, effective_statuses, rejected_statuses)
        creations = still_pending(client, for_approval, decided)
        pending = set(creations) | {each.id for each in envelopes} - set(settled)
        return _listing(envelopes, pending, settled, for_approval, creations)
    listed = [each for each in envelopes if each.id in for_approval]
    decided = _decided(listed, for_approval, effective_statuses, rejected_statuses)
    creations = still_pending(client, for_approval, settled_requests(client, decided))
    pending = set(creations)
    rejected = [each.id for each in envelopes if has_status(each.status, rejected_statuses)]
    others = [each for each in envelopes if each.id not in pending and not has_status(each.status, rejected_statuses)]
    effective = [each.id for each in others if has_status(each.status, effective_statuses)]
    # With the status that each has now: it may have taken effect since the listing.
    now = settled_requests(client, [each.id for each in others if not has_status(each.status, effective_statuses)])
    if some is not None or not _is_none_pending(client, effective, now, pending.union(rejected)):
        pending |= set(effective).difference(settled_requests(client, effective))
    shown = [now.get(each.id, each) for each in envelopes]
    return _listing(shown, pending, now, for_approval, creations)


def _decided(
    envelopes: Iterable[WhitelistEnvelope],
    for_approval: Mapping[str, WhitelistEnvelope],
    effective_statuses: Collection[str],
    rejected_statuses: Collection[str],
) -> list[str]:
    """
    Return the ids of those whose status says that they are in effect, or rejected; and of those, whatever their status,
    whose deletion is listed for approval.
    """
    words = (*effective_statuses, *rejected_statuses)
    deleted = {each for each, row in for_approval.items() if is_deletion(row.action or "")}
    return [each.id for each in envelopes if each.id in deleted or has_status(each.status, words)]


def _listing(
    envelopes: Sequence[WhitelistEnvelope],
    pending: Collection[str],
    settled: Collection[str],
    for_approval: Mapping[str, WhitelistEnvelope],
    creations: Collection[str],
) -> Listing:
    deletions = tuple(pending_deletions(for_approval, creations).values())
    return Listing(
        envelopes,
        frozenset(pending),
        frozenset(settled),
        for_approval_ids=frozenset(creations),
        deletions=deletions,
    )


def _is_none_pending(
    client: CustodyClient, effective: Sequence[str], settled: Collection[str], others: Collection[str]
) -> bool:
    """
    Tell whether certainly no request is pending although its status word says that it is in effect.

    A user who is no signer sees that only by what is listed without asking for pending ones. Where the number of
    these is that of all requests that may be among them, none is: which saves a second listing. Of the ``others``,
    which are rejected or pending, some may be listed there all the same.
    """
    if not effective:
        return True
    expected = len(effective) + len(settled) + len(settled_requests(client, sorted(others)))
    return client.count_whitelist_requests(include_pending=False) == expected


def settled_requests(client: CustodyClient, ids: Sequence[str]) -> dict[str, WhitelistEnvelope]:
    """
    Find which requests are listed without asking for pending ones, in a call for each hundred.

    :param client: the client.
    :param ids: the requests' ids.
    :return: those that are, by their ids.
    """
    found: dict[str, WhitelistEnvelope] = {}
    for start in range(0, len(ids), MAX_PAGE_SIZE):
        batch = ids[start : start + MAX_PAGE_SIZE]
        found.update({each.id: each for each in client.find_whitelist_requests(ids=batch, include_pending=False)})
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
