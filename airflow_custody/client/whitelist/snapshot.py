"""A snapshot of whitelisting requests: all of them or some, always read in the same way."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from airflow_custody.client.delays import growing_delays
from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.listings import Listing
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.whitelist.ids import cut_into_batches
from airflow_custody.client.whitelist.request import ListedRequest, Request, make_request

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.verification.rules_in_force import PendingVerifier
    from airflow_custody.client.verification.verifier import VerificationPins, Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

log = logging.getLogger(__name__)

Envelopes = dict[str, "WhitelistEnvelope"]


@dataclass(frozen=True)
class Snapshot:
    """
    Whitelisting requests as the service listed them: all of them or some.

    :param requests: the requests, by id. If they were requested by id, missing requests are included.
    :param settings: the settings of the client that read the requests, with the status words and the accepted fields.
    :param verifier: the verifier of the requests. Default None: nothing was verified.
    :param hidden: number of requests that the service counts but does not return, in the listing of all requests. If
        requests were read by id, only hidden requests with one of these ids are counted. Default 0.
    """

    requests: Mapping[str, Request]
    settings: ClientSettings
    verifier: Verifier | None = None
    hidden: int = 0

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests.values())

    def __getitem__(self, request_id: str) -> Request:
        return self.requests[request_id]

    @property
    def pins(self) -> VerificationPins | None:
        """The pins that requests were verified with; None: nothing was verified."""
        return None if self.verifier is None else self.verifier.pins


def read_snapshot(
    client: CustodyClient, ids: Iterable[str] | None = None, verifier: PendingVerifier | None = None
) -> Snapshot:
    """
    Read whitelisting requests, and verify them if the client has pinned keys.

    Three listings are read in this order: the settled requests (those that are not pending), all requests, and the
    requests that the client's user may still sign. A request in the second listing but not in the first is pending.
    Because of the order, a request that takes effect between the first two listings is reported as pending, and not as
    missing. A request in the first listing but not in the second has vanished. Its state is then unknown, with two
    exceptions: it is rejected if the first listing has it with a rejected status, and pending if the third listing has
    it. Reading the listings takes two calls for each hundred requests, and one for each hundred that the user may sign.

    The number of hidden requests comes from the second listing, because it includes pending requests. The other two
    listings may hide the same requests, so their numbers are not added.

    :param client: the client.
    :param ids: ids of the requests to read. Default None: all that the service lists.
    :param verifier: verifier of the requests, which may already have fetched the rules in force. Default None: a new
        one, if the client has pinned keys.
    :return: the requests. If ``ids`` is set, requests that are not listed are ``missing``. A request that cannot be
        read or verified does not affect the other requests.
    :raises CustodyError: if a page cannot be read, because an incomplete listing proves nothing.
    """
    listing = _read_everything(client) if ids is None else _read_some(client, list(dict.fromkeys(ids)))
    found = listing.rows
    # The service may list pending requests without the rules that are needed to verify them. If so, the verifier
    # fetches the rules in force.
    shown = [envelope.wire for each in found for envelope in (each.envelope, each.for_approval) if envelope is not None]
    if verifier is None:
        verifier = verifier_for(client, shown)
    else:
        verifier.fetch_for(shown)
    settings = client.settings
    requests = {each.id: make_request(each, settings, verifier) for each in found}
    return Snapshot(requests, settings, verifier, listing.hidden)


def _read_everything(client: CustodyClient) -> Listing[ListedRequest]:
    # On a busy service, requests appear and disappear between two pages, so an inconsistent listing is read again.
    for delay in islice(growing_delays(first=0.5, maximum=4.0), 4):
        try:
            return _read(client, None)
        except CustodyResponseError as error:
            if not error.retryable:
                raise
            log.info("%s; reading it again in %g s", error.message, delay)
        time.sleep(delay)
    return _read(client, None)


def _read_some(client: CustodyClient, ids: Sequence[str]) -> Listing[ListedRequest]:
    batches = [_read(client, batch) for batch in cut_into_batches(ids)]
    return Listing([each for batch in batches for each in batch.rows], sum(batch.hidden for batch in batches))


def _read(client: CustodyClient, ids: list[str] | None) -> Listing[ListedRequest]:
    """Read the three listings, for all requests or for at most a hundred ids."""
    settled = {each.id: each for each in client.list_whitelist_requests(ids=ids, include_pending=False).rows}
    listing = client.list_whitelist_requests(ids=ids)
    everything = {each.id: each for each in listing.rows}
    for_approval = find_for_approval(client, ids)
    listed = {**for_approval, **settled, **everything}
    if ids is None:
        # Return the requests in the service's order.
        ids = list(dict.fromkeys([*everything, *listed]))
    found = [
        ListedRequest(
            each,
            listed.get(each),
            is_settled=each in settled,
            for_approval=for_approval.get(each),
            has_vanished=each in settled and each not in everything,
        )
        for each in ids
    ]
    return Listing(found, listing.hidden)


def find_for_approval(client: CustodyClient, ids: Sequence[str] | None) -> Envelopes:
    """
    Find the requests that the client's user may still sign.

    :param client: the client.
    :param ids: ids of the requests to find; None: all.
    :return: the requests, by id; empty if the user is not a signer.
    :raises CustodyError: if a page cannot be read.
    """
    try:
        return {each.id: each for each in client.find_whitelist_requests_for_approval(ids=ids)}
    except CustodyError as error:
        # The user is not a signer if the service itself (not a gateway) responds that a role is missing, or that it
        # does not offer the operation. Any other error proves nothing.
        if error.not_offered_by_service or error.is_missing_role:
            return {}
        raise


def service_name(client: CustodyClient) -> str:
    """
    Return the name of service and tenant that a plan's hash covers.

    :param client: the client.
    :return: the base URL, and the id of the user's tenant if the service reports it.
    :raises CustodyError: if the tenant cannot be read now.
    """
    tenant_id = tenant_of(client)
    return f"{client.settings.base_url} (tenant {sanitize(tenant_id, 40)})" if tenant_id else client.settings.base_url


def tenant_of(client: CustodyClient) -> str | None:
    """Return the tenant id of the client's user; None if the service does not report it."""
    try:
        return client.get_current_user().get("tenantId")
    except CustodyError as error:
        if not error.not_offered:
            raise
        return None
