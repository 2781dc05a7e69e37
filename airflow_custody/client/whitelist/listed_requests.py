"""
Listed requests: their content, their state, and whether signatures prove it.

Pure functions, no I/O. Without pinned keys nothing is verified, and all of it is the service's word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.text import read_number, sanitize
from airflow_custody.client.verification.trust import RequestState, decide_trust
from airflow_custody.client.whitelist.matching import Listed, Unreadable, match, match_respelled
from airflow_custody.client.whitelist.matching_index import RequestIndex

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.listing import Listing
    from airflow_custody.client.whitelist.matching import Match
    from airflow_custody.client.whitelist.matching_index import Group
    from airflow_custody.client.whitelist.models import WhitelistRequest

    Compare = Callable[[WhitelistRequest, Listed, Collection[str]], Match | None]


def read_payload(envelope: WhitelistEnvelope) -> Mapping[str, Any]:
    """
    Return what a request asks for, with an address.

    :param envelope: the request.
    :raises CustodyResponseError: if it cannot be read, or has no address.
    """
    payload = envelope.payload()
    address = payload.get("address")
    if not isinstance(address, str) or not address.strip():
        raise CustodyResponseError(
            f"whitelisting request {sanitize(envelope.id, 40)} has no address in its payload", code="request-differs"
        )
    return payload


def read_listed(
    envelope: WhitelistEnvelope,
    listing: Listing,
    effective_statuses: Collection[str] | None,
    rejected_statuses: Collection[str],
) -> Listed | Unreadable:
    """
    Read a request, and verify it if keys are pinned.

    :param envelope: the request.
    :param listing: the listing that it is in.
    :param effective_statuses: status words of requests in effect; None: not being pending is enough.
    :param rejected_statuses: status words of rejected requests.
    :return: the request and its state; ``unverified``, with what it claims, if signatures do not prove it.
    """
    if read_number(envelope.id, MAX_ID) is None:
        return Unreadable(envelope, f"whitelisting request {sanitize(envelope.id, 40)} has an id that is no number")
    try:
        payload = read_payload(envelope)
    except CustodyError as error:
        return Unreadable(envelope, error.message)
    state = listing.state_of(envelope, effective_statuses, rejected_statuses)
    doubt = listing.doubt(envelope, effective_statuses, rejected_statuses)
    shown: RequestState = "effective" if state == "unchanged" else "unknown" if state == "differs" else state
    trust = decide_trust(envelope.wire, shown, listing.verifier)
    if trust.error is not None:
        return Listed(envelope, payload, "unverified", why=trust.error.reason)
    if trust.address is not None:
        # Of what was signed in a legacy form, only what the signatures cover.
        return Listed(envelope, trust.address.fields, state, omitted=trust.address.omitted)
    return Listed(envelope, payload, state, is_unsigned=trust.state == "unsigned", doubt=doubt)


class Claims:
    """
    Requests that do not verify, by what they claim.

    A claim may be a reason not to create, and nothing else: it takes no row from a request that verifies.

    :param requests: the requests.
    """

    def __init__(self, requests: Iterable[Listed]) -> None:
        self._index = RequestIndex(requests)

    def find(self, request: WhitelistRequest, accepted: Collection[str], *, has_own_label: bool) -> Listed | None:
        """
        Return a request that claims to be what a row asks for, or may mean it: one that no row has, if there is one.

        :param request: the row's request.
        :param accepted: as for :func:`match`.
        :param has_own_label: whether the label is no other row's. Then it is enough that it is the same: the address
            may be the lie.
        :return: the request; None if there is none.
        """
        for is_free in (True, False):
            for group, compare in self._groups(request):
                for listed in group.free() if is_free else group:
                    if compare(request, listed, accepted):
                        return listed
        return next(self._index.has_label(request), None) if has_own_label else None

    def _groups(self, request: WhitelistRequest) -> Iterator[tuple[Group, Compare]]:
        """Yield groups of requests, the likeliest first, and what compares them with a row."""
        exact = self._index.exact_groups(request)
        bucket = self._index.without_memo(request)
        without_memo = [*bucket.labelled(request), *bucket.groups(request)] if bucket else []
        yield from ((each, match) for each in (*exact, *without_memo))
        yield from ((each, match_respelled) for each in self._index.alike(request))
        yield from ((each, match_respelled) for each in self._index.respelled(request))
