"""Reading whitelisting requests by their ids, one of them with all details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import as_name
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, NOT_PINNED, REJECTED_STATUSES, decide_trust
from airflow_custody.client.whitelist.models import check_request_ids
from airflow_custody.client.whitelist.progress import ListedRequest, describe_verified, find_listed, verified_facts
from airflow_custody.overview.models import RequestRow, RequestsView, RequestView, SignatureRow, TrailRow
from airflow_custody.overview.rows import bound, make_row, paths_of

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_NOT_LISTED = "The service does not list it: there is no such request (any more), or it is another tenant's."


def read_request(client: CustodyClient, request_id: str) -> RequestView:
    """
    Read one whitelisting request, pending or not, as the service lists it: in up to four calls.

    One that is not listed is read by its id in one more; its state is not known then.

    :param client: the client.
    :param request_id: the request's id, a decimal number.
    :return: the request.
    :raises CustodyRequestError: if the id is not a number; nothing was sent.
    :raises CustodyNotFoundError: if there is no such request; ``from_service`` tells whether the service says so.
    :raises CustodyError: if it cannot be read.
    """
    listed = find_listed(client, [request_id], strict=False)[request_id]
    envelope = listed.envelope or client.get_whitelist_request(request_id)
    verifier = verifier_for(client, [envelope.wire])
    row = _row(listed, envelope, verifier)
    proved = decide_trust(envelope.wire, row.state, verifier).address
    payload: Mapping[str, Any] = {}
    with suppress(CustodyError):
        # Of a legacy form only what is signed.
        payload = proved.fields if proved else envelope.payload()
    if verifier is None:
        verification = NOT_PINNED
    elif proved:
        facts = describe_verified(verified_facts(proved)).removeprefix(", verified: ")
        verification = f"Verified: {facts}{', ' if row.legacy else ''}{row.legacy}."
    else:
        verification = {
            "not checked": "It was rejected, in the service's word: there is nothing to verify.",
            "unsigned": "Nobody has signed it yet.",
            "verified": "Each signature that it has is valid, under rules that the pinned super-administrators have "
            "signed.",
        }.get(row.trust, row.problem)
    around = {
        "Action": envelope.action,
        "Network": envelope.network,
        "Tenant": envelope.tenant_id,
        "Visible to the group": envelope.visibility_group_id,
        "Hash": envelope.hash,
    }
    return RequestView(
        row=row,
        fields=tuple((bound(name), bound(value)) for name, value in payload.items() if value not in (None, "", [])),
        around=tuple((name, bound(value)) for name, value in around.items()),
        trails=tuple(
            TrailRow(
                at=parse_timestamp(each.get("date")),
                user=bound(each.get("externalUserId") or each.get("userId")),
                action=bound(each.get("action")),
                comment=bound(each.get("comment")),
            )
            for each in envelope.trails
        ),
        signatures=tuple(_signatures(envelope, verifier)),
        verification=verification,
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
    found = find_listed(client, check_request_ids(request_ids, merge=True), strict=False)
    verifier = verifier_for(client, [each.envelope.wire for each in found.values() if each.envelope])
    rows = [
        _row(listed, listed.envelope, verifier)
        if listed.envelope
        else RequestRow(id=request_id, status="", problem=_NOT_LISTED)
        for request_id, listed in found.items()
    ]
    return RequestsView(tuple(rows), total=len(rows))


def _row(listed: ListedRequest, envelope: WhitelistEnvelope, verifier: Verifier | None) -> RequestRow:
    state = listed.state(EFFECTIVE_STATUSES, REJECTED_STATUSES) if listed.envelope else "unknown"
    row = make_row(envelope, state, verifier, deletion_pending=listed.deletion_pending)
    return replace(row, paths=paths_of(envelope, verifier)) if row.address else row


def _signatures(envelope: WhitelistEnvelope, verifier: Verifier | None) -> Iterator[SignatureRow]:
    entries = (envelope.wire.get("signedAddress") or {}).get("signatures")
    faults: tuple[str, ...] = ()
    # If they cannot be examined, the request as a whole says why.
    with suppress(CustodyError):
        faults = () if verifier is None else verifier.examine(envelope.wire).faults
    for entry, fault in zip_longest(entries if isinstance(entries, list) else (), faults):
        signature = entry.get("signature") if isinstance(entry, dict) else None
        found = signature if isinstance(signature, dict) else {}
        yield SignatureRow(
            user=bound(as_name(found.get("userId"))),
            comment=bound(found.get("comment")),
            valid=None if fault is None else not fault,
            problem=fault or "",
        )
