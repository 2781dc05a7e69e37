"""
Listed requests: their content, their state, and whether signatures prove it.

Pure functions, no I/O. Without pinned keys nothing is verified, and all of it is the service's word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.text import read_number, sanitize
from airflow_custody.client.verification.trust import RequestState, decide_trust
from airflow_custody.client.whitelist.matching import Destination, is_text, read_destination

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.listing import Listing
    from airflow_custody.client.whitelist.plan import State


@dataclass(eq=False)
class Listed:
    """
    A request at the service, and what is known of it.

    :param envelope: the request.
    :param state: ``unchanged`` if it is in effect, ``pending``, ``rejected``; ``differs`` if it is settled and its
        status word is not known; ``unverified`` if signatures do not prove it, so that all of it is only claimed;
        ``unreadable``.
    :param destination: its destination; None if it is unreadable.
    :param payload: its payload: if signatures prove it, the fields that they cover. Empty if it is unreadable.
    :param note: why it is unverified or unreadable; or how its status contradicts where it is listed. Empty: nothing.
    :param omitted: the keys of its payload that the signatures do not cover.
    :param row: the place in the file of a row that it may be. Empty: there is none.
    """

    envelope: WhitelistEnvelope
    state: State
    destination: Destination | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    omitted: tuple[str, ...] = ()
    row: str = ""


def read_payload(envelope: WhitelistEnvelope) -> Mapping[str, Any]:
    """
    Return what a request asks for, with an address.

    :param envelope: the request.
    :raises CustodyResponseError: if it cannot be read, or has no address.
    """
    payload = envelope.payload()
    if not is_text(payload.get("address")):
        raise CustodyResponseError(
            f"whitelisting request {sanitize(envelope.id, 40)} has no address in its payload", code="request-differs"
        )
    return payload


def read_listed(
    envelope: WhitelistEnvelope,
    listing: Listing,
    effective_statuses: Collection[str] | None,
    rejected_statuses: Collection[str],
) -> Listed:
    """
    Read a request, and verify it if keys are pinned.

    :param envelope: the request.
    :param listing: the listing that it is in.
    :param effective_statuses: status words of requests in effect; None: not being pending is enough.
    :param rejected_statuses: status words of rejected requests.
    :return: the request and its state.
    """
    if read_number(envelope.id, MAX_ID) is None:
        note = f"whitelisting request {sanitize(envelope.id, 40)} has an id that is no number"
        return Listed(envelope, "unreadable", note=note)
    try:
        payload = envelope.payload()
        destination = read_destination(envelope, payload)
    except CustodyError as error:
        return Listed(envelope, "unreadable", note=error.message)
    state = listing.state_of(envelope, effective_statuses, rejected_statuses)
    shown: RequestState = "effective" if state == "unchanged" else "unknown" if state == "differs" else state
    trust = decide_trust(envelope.wire, shown, listing.verifier)
    if trust.error is not None:
        return Listed(envelope, "unverified", destination, payload, trust.error.reason)
    if trust.address is not None:
        # Of what was signed in a legacy form, only what the signatures cover.
        return Listed(envelope, state, destination, trust.address.fields, omitted=trust.address.omitted)
    doubt = listing.doubt(envelope, effective_statuses, rejected_statuses) if state == "pending" else ""
    return Listed(envelope, state, destination, payload, doubt)
