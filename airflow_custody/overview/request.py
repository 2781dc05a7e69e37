"""Reading one whitelisting request, with all that there is to see of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import as_name, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES, has_status
from airflow_custody.client.verification.trust_texts import NOT_PINNED
from airflow_custody.client.whitelist.listing import doubt_of
from airflow_custody.client.whitelist.models import check_request_ids
from airflow_custody.client.whitelist.progress import (
    describe_verified,
    find_listed,
    judge_progress,
    status_word,
    verified_facts,
)
from airflow_custody.overview.models import RequestRow, RequestsView, RequestView, SignatureRow, State, TrailRow
from airflow_custody.overview.rows import MAX_TEXT, MAX_WORD, bound, make_row, paths_of

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.progress import ListedRequest

_NOT_LISTED = "The service does not list it: there is no such request (any more), or it is another tenant's."

MAX_TRAILS = 200
MAX_SIGNATURES = 200
MAX_FIELDS = 100
_MAX_VALUE = 4000
_MAX_VERIFICATION = 1000


def read_request(client: CustodyClient, request_id: str) -> RequestView:
    """
    Read one whitelisting request, pending or not: in one call, and up to four to find out how far it has come. If its
    status is not the one that it is listed with, it is read once more.

    :param client: the client.
    :param request_id: the request's id, a decimal number.
    :return: the request. What else could not be found out about it is said in it.
    :raises CustodyRequestError: if the id is not a number; nothing was sent.
    :raises CustodyNotFoundError: if there is no such request; ``from_service`` tells whether the service says so.
    :raises CustodyError: if it cannot be read.
    """
    envelope = client.get_whitelist_request(request_id)
    state, doubt, listed = _state_of(client, envelope)
    if listed is not None and _differ(envelope, listed):
        # It may have changed between the two calls.
        envelope = client.get_whitelist_request(request_id)
        if _differ(envelope, listed):
            state, doubt = _contradiction(envelope, listed, state)
    verifier, why = _verifier_for(client, [envelope])
    is_deleted = listed is not None and listed.deletion_pending
    row = make_row(envelope, state, verifier, doubt=doubt, deletion_pending=is_deleted)
    payload = _payload(envelope, row, verifier)
    if state != "pending" and envelope.is_readable:
        row = replace(row, paths=paths_of(envelope, verifier))
    return RequestView(
        row=row,
        fields=tuple(_fields(payload)),
        network=bound(envelope.network, MAX_WORD),
        action=bound(envelope.action, MAX_WORD),
        tenant_id=bound(envelope.tenant_id, MAX_WORD),
        hash=bound(envelope.hash, MAX_WORD),
        visibility_group=bound(envelope.visibility_group_id, MAX_WORD),
        trails=tuple(_trail(each) for each in envelope.trails[-MAX_TRAILS:]),
        signatures=tuple(_signatures(envelope, verifier)),
        verification=why or _verification(envelope, row, verifier),
        payload=payload,
        envelope=envelope,
        base_url=client.settings.base_url,
    )


def read_requests(client: CustodyClient, request_ids: Iterable[str]) -> RequestsView:
    """
    Read up to a hundred whitelisting requests, in up to four calls.

    :param client: the client.
    :param request_ids: the requests' ids, decimal numbers.
    :return: a row for each, by number. One that is not listed, or whose state is not known, says so.
    :raises CustodyRequestError: if an id is not a number, or there are too many; nothing was sent.
    :raises CustodyError: if they cannot be read.
    """
    ids = check_request_ids(request_ids, merge=True)
    found = find_listed(client, ids, strict=False)
    envelopes = [each.envelope for each in found.values() if each.envelope is not None]
    verifier, note = _verifier_for(client, envelopes)
    rows = []
    for request_id, listed in found.items():
        if listed.envelope is None:
            rows.append(RequestRow(id=request_id, status="", problem=_NOT_LISTED))
            continue
        state, doubt = _judge(listed)
        is_deleted = listed.deletion_pending
        rows.append(make_row(listed.envelope, state, verifier, doubt=doubt, deletion_pending=is_deleted))
    return RequestsView(tuple(rows), total=len(rows), note=note)


def _state_of(client: CustodyClient, envelope: WhitelistEnvelope) -> tuple[State, str, ListedRequest | None]:
    """Return how far a request has come, why that is not known if it is not, and where it is listed, if that is."""
    try:
        listed = find_listed(client, [envelope.id], strict=False)[envelope.id]
    except CustodyError as error:
        return "unknown", f"whether it is in effect is not known: {error.shorten(MAX_TEXT)}", None
    if listed.envelope is None:
        return "unknown", "the service shows it, and does not list it", None
    return *_judge(listed), listed


def _differ(shown: WhitelistEnvelope, listed: ListedRequest) -> bool:
    """Tell whether a request is shown with another status than the one that it is listed with."""
    if listed.envelope is None or not (shown.status or listed.envelope.status):
        return False
    return not has_status(shown.status, [listed.envelope.status or ""])


def _contradiction(shown: WhitelistEnvelope, listed: ListedRequest, state: State) -> tuple[State, str]:
    words = [status_word(each.status) or "none" for each in (shown, listed.envelope) if each is not None]
    doubt = f"the service shows its status as {words[0]}, and lists it as {words[1]}"
    # What can still be approved is pending, whatever its status.
    return (state, doubt) if state == "pending" else ("unknown", f"{doubt}: whether it is in effect is not known")


def _judge(listed: ListedRequest) -> tuple[State, str]:
    """Return how far a request has come that is listed, and why that is not known if it is not."""
    progress = judge_progress(listed, effective_statuses=EFFECTIVE_STATUSES, rejected_statuses=REJECTED_STATUSES)
    if progress.state == "unverified":
        return "effective", ""
    if progress.state == "unknown":
        return "unknown", "it is not pending, and its status does not say whether it is in effect"
    if progress.state == "pending" and listed.envelope is not None:
        words = (*EFFECTIVE_STATUSES, *REJECTED_STATUSES)
        return "pending", doubt_of(listed.envelope, words, for_approval=listed.for_approval)
    return progress.state if progress.state in ("effective", "pending", "rejected") else "unknown", ""


def _verifier_for(client: CustodyClient, envelopes: Iterable[WhitelistEnvelope]) -> tuple[Verifier | None, str]:
    """Return what verifies requests, and why nothing does if it cannot be had now."""
    try:
        if client.verifier is None:
            return None, ""
        from airflow_custody.client.verification.rules_in_force import verifier_for

        return verifier_for(client, [each.wire for each in envelopes]), ""
    except CustodyError as error:
        # It has no rules of its own, so that its own cannot be forgotten by this.
        return client.verifier, f"The rules in force could not be read: {error.shorten(MAX_TEXT)}"


def _verification(envelope: WhitelistEnvelope, row: RequestRow, verifier: Verifier | None) -> str:
    if verifier is None:
        return NOT_PINNED
    if row.trust == "not checked":
        return "It was rejected, in the service's word: there is nothing to verify."
    if row.trust == "unsigned":
        return "Nobody has signed it yet."
    if row.trust == "unverified":
        return row.problem
    if row.state == "pending":
        text = "Each signature that it has is valid, under rules that the pinned super-administrators have signed"
        return f"{text}; {row.legacy}." if row.legacy else f"{text}."
    facts = describe_verified(verified_facts(verifier.verify(envelope.wire)))
    legacy = f", {row.legacy}" if row.legacy else ""
    return sanitize(f"Verified: {facts.removeprefix(', verified: ')}{legacy}.", _MAX_VERIFICATION)


def _payload(envelope: WhitelistEnvelope, row: RequestRow, verifier: Verifier | None) -> Mapping[str, Any] | None:
    try:
        if verifier is not None and row.trust == "verified" and row.state != "pending":
            return verifier.verify(envelope.wire).fields
        return envelope.payload()
    except CustodyError:
        return None


def _fields(payload: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    for name, value in list((payload or {}).items())[:MAX_FIELDS]:
        if value not in (None, "", []):
            yield bound(name, MAX_WORD), bound(value, _MAX_VALUE)


def _trail(trail: Mapping[str, Any]) -> TrailRow:
    return TrailRow(
        at=parse_timestamp(trail.get("date")),
        user=bound(trail.get("externalUserId") or trail.get("userId"), MAX_WORD),
        action=bound(trail.get("action"), MAX_WORD),
        comment=bound(trail.get("comment")),
    )


def _signatures(envelope: WhitelistEnvelope, verifier: Verifier | None) -> Iterator[SignatureRow]:
    address = envelope.wire.get("signedAddress")
    entries = address.get("signatures") if isinstance(address, Mapping) else None
    faults: tuple[str, ...] = ()
    if verifier is not None:
        try:
            faults = verifier.examine(envelope.wire).faults
        except CustodyError:
            # Why is said of the request as a whole.
            faults = ()
    for number, entry in enumerate(entries[:MAX_SIGNATURES] if isinstance(entries, list) else ()):
        signature = entry.get("signature") if isinstance(entry, Mapping) else None
        found = signature if isinstance(signature, Mapping) else {}
        fault = faults[number] if number < len(faults) else None
        yield SignatureRow(
            user=bound(as_name(found.get("userId")), MAX_WORD),
            comment=bound(found.get("comment")),
            valid=None if fault is None else not fault,
            problem=sanitize(fault or "", MAX_TEXT),
        )
