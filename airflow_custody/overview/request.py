"""Reading one whitelisting request, with all that there is to see of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import as_name
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.trust import (
    EFFECTIVE_STATUSES,
    NOT_PINNED,
    REJECTED_STATUSES,
    RequestState,
    decide_trust,
)
from airflow_custody.client.whitelist.listing import doubt_of
from airflow_custody.client.whitelist.models import check_request_ids
from airflow_custody.client.whitelist.progress import ListedRequest, describe_verified, find_listed, verified_facts
from airflow_custody.overview.budget import Describe, describe_problem
from airflow_custody.overview.models import RequestRow, RequestsView, RequestView, SignatureRow, TrailRow
from airflow_custody.overview.rows import bound, make_row, with_paths

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.verifier import VerifiedAddress, Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_NOT_LISTED = "The service does not list it: there is no such request (any more), or it is another tenant's."


def read_request(client: CustodyClient, request_id: str, *, describe: Describe = describe_problem) -> RequestView:
    """
    Read one whitelisting request, pending or not, as the service lists it: in up to four calls.

    One that is not listed, or not now, is read by its id in one more; how far it has come is not known then.

    :param client: the client.
    :param request_id: the request's id, a decimal number.
    :param describe: returns in words why something else about it could not be read. Default: as the error says it.
    :return: the request. What else could not be found out about it is said in it.
    :raises CustodyRequestError: if the id is not a number; nothing was sent.
    :raises CustodyNotFoundError: if there is no such request; ``from_service`` tells whether the service says so.
    :raises CustodyError: if it cannot be read.
    """
    listed, doubt = ListedRequest(None, settled=False), "the service shows it, and does not list it"
    try:
        listed = find_listed(client, [request_id], strict=False)[request_id]
    except CustodyError as error:
        doubt = f"whether it is in effect is not known: {describe(error)}"
    envelope = listed.envelope
    state: RequestState = "unknown"
    if envelope is None:
        envelope = client.get_whitelist_request(request_id)
    else:
        state, doubt = _state_of(listed, envelope)
    verifier, why = _verifier_for(client, [envelope], describe)
    row = make_row(envelope, state, verifier, doubt=doubt, deletion_pending=listed.deletion_pending)
    proved = decide_trust(envelope.wire, state, verifier).address if row.trust == "verified" else None
    return RequestView(
        row=with_paths(row, envelope, verifier),
        fields=tuple(_fields(envelope, proved)),
        network=bound(envelope.network),
        action=bound(envelope.action),
        tenant_id=bound(envelope.tenant_id),
        hash=bound(envelope.hash),
        visibility_group=bound(envelope.visibility_group_id),
        trails=tuple(_trail(each) for each in envelope.trails),
        signatures=tuple(_signatures(envelope, verifier)),
        verification=why or _verification(row, proved, is_pinned=verifier is not None),
    )


def read_requests(
    client: CustodyClient, request_ids: Iterable[str], *, describe: Describe = describe_problem
) -> RequestsView:
    """
    Read up to a hundred whitelisting requests, in up to four calls.

    :param client: the client.
    :param request_ids: the requests' ids, decimal numbers.
    :param describe: returns in words why something about them could not be read. Default: as the error says it.
    :return: a row for each, by number. One that is not listed, or whose state is not known, says so.
    :raises CustodyRequestError: if an id is not a number, or there are too many; nothing was sent.
    :raises CustodyError: if they cannot be read.
    """
    found = find_listed(client, check_request_ids(request_ids, merge=True), strict=False)
    verifier, note = _verifier_for(client, [each.envelope for each in found.values() if each.envelope], describe)
    rows = []
    for request_id, listed in found.items():
        if (envelope := listed.envelope) is None:
            rows.append(RequestRow(id=request_id, status="", problem=_NOT_LISTED))
            continue
        state, doubt = _state_of(listed, envelope)
        row = make_row(envelope, state, verifier, doubt=doubt, deletion_pending=listed.deletion_pending)
        rows.append(with_paths(row, envelope, verifier))
    return RequestsView(tuple(rows), total=len(rows), note=note)


def _state_of(listed: ListedRequest, envelope: WhitelistEnvelope) -> tuple[RequestState, str]:
    """Return how far a request has come that is listed, and how that contradicts its status, if it does."""
    state = listed.state(EFFECTIVE_STATUSES, REJECTED_STATUSES)
    if state == "unknown":
        return state, "it is not pending, and its status does not say whether it is in effect"
    if state == "pending":
        words = (*EFFECTIVE_STATUSES, *REJECTED_STATUSES)
        return state, doubt_of(envelope, words, for_approval=listed.for_approval)
    return state, ""


def _verifier_for(
    client: CustodyClient, envelopes: Iterable[WhitelistEnvelope], describe: Describe
) -> tuple[Verifier | None, str]:
    """Return what verifies requests, and why nothing does if it cannot be had now."""
    try:
        if client.verifier is None:
            return None, ""
        from airflow_custody.client.verification.rules_in_force import verifier_for

        return verifier_for(client, [each.wire for each in envelopes]), ""
    except CustodyError as error:
        # It has no rules of its own, so that its own cannot be forgotten by this.
        return client.verifier, f"The rules in force could not be read: {describe(error)}"


def _verification(row: RequestRow, proved: VerifiedAddress | None, *, is_pinned: bool) -> str:
    if not is_pinned:
        return NOT_PINNED
    if row.trust == "not checked":
        return "It was rejected, in the service's word: there is nothing to verify."
    if row.trust == "unsigned":
        return "Nobody has signed it yet."
    if row.trust == "unverified":
        return row.problem
    legacy = f", {row.legacy}" if row.legacy else ""
    if proved is None:
        text = "Each signature that it has is valid, under rules that the pinned super-administrators have signed"
        return f"{text}{legacy}."
    facts = describe_verified(verified_facts(proved))
    return f"Verified: {facts.removeprefix(', verified: ')}{legacy}."


def _fields(envelope: WhitelistEnvelope, proved: VerifiedAddress | None) -> Iterator[tuple[str, str]]:
    """Yield keys and values of the text that is signed, as far as signatures cover it where that is proved."""
    payload: Mapping[str, Any] = {}
    with suppress(CustodyError):
        payload = envelope.payload() if proved is None else proved.fields
    for name, value in payload.items():
        if value not in (None, "", []):
            yield bound(name), bound(value)


def _trail(trail: Mapping[str, Any]) -> TrailRow:
    return TrailRow(
        at=parse_timestamp(trail.get("date")),
        user=bound(trail.get("externalUserId") or trail.get("userId")),
        action=bound(trail.get("action")),
        comment=bound(trail.get("comment")),
    )


def _signatures(envelope: WhitelistEnvelope, verifier: Verifier | None) -> Iterator[SignatureRow]:
    address = envelope.wire.get("signedAddress")
    entries = address.get("signatures") if isinstance(address, Mapping) else None
    faults: tuple[str, ...] = ()
    # If they cannot be examined, the request as a whole says why.
    with suppress(CustodyError):
        faults = () if verifier is None else verifier.examine(envelope.wire).faults
    for entry, fault in zip_longest(entries if isinstance(entries, list) else (), faults):
        signature = entry.get("signature") if isinstance(entry, Mapping) else None
        found = signature if isinstance(signature, Mapping) else {}
        yield SignatureRow(
            user=bound(as_name(found.get("userId"))),
            comment=bound(found.get("comment")),
            valid=None if fault is None else not fault,
            problem=fault or "",
        )
