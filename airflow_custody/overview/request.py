"""Whitelisting requests as rows for people, and one of them with all details."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import as_name, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import (
    EFFECTIVE_STATUSES,
    NOT_PINNED,
    REJECTED_STATUSES,
    RequestState,
    decide_trust,
    describe_legacy,
    has_status,
)
from airflow_custody.client.whitelist.listing import ListedRequest, describe_verified, find_listed, verified_facts
from airflow_custody.client.whitelist.models import check_request_ids
from airflow_custody.client.whitelist.review import is_creation
from airflow_custody.overview.models import (
    GroupSignatures,
    RequestRow,
    RequestsView,
    RequestView,
)

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_NOT_LISTED = "The service does not list it: there is no such request (any more), or it is another tenant's."
#: Maximum number of characters kept of a text: page and command line may show less.
MAX_TEXT = 4000


def bound(value: object) -> str:
    """
    Return a text of at most :data:`MAX_TEXT` characters: it ends with an ellipsis if it is truncated.

    :param value: the text; another type is written as JSON, and None is empty.
    """
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def make_row(
    envelope: WhitelistEnvelope, state: RequestState, verifier: Verifier | None, *, deletion_pending: bool = False
) -> RequestRow:
    """
    Return a request as a row. Address, label and chain are those of the text that is signed; so is the network, or else
    it is marked where keys are pinned.

    :param envelope: the request.
    :param state: its state.
    :param verifier: the verifier; None: no keys are pinned.
    :param deletion_pending: whether it is in effect, and its deletion is pending. Default False.
    """
    facts: dict[str, Any] = {
        "id": bound(envelope.id),
        "status": bound(envelope.status),
        "state": state,
        "created_at": envelope.created_at,
        "changed_at": max(filter(None, (parse_timestamp(each.get("date")) for each in envelope.trails)), default=None),
        "signatures": len(envelope.signed_by),
        "action": "" if _is_creation(envelope) else bound(envelope.action),
        "deletion_pending": deletion_pending,
    }
    if not envelope.is_readable:
        return RequestRow(**facts, problem="It cannot be read: a field of it has another type than is known.")
    try:
        payload = envelope.payload()
    except CustodyError as error:
        return RequestRow(**facts, trust="unverified" if verifier else "not checked", problem=error.shorten(MAX_TEXT))
    trust = decide_trust(envelope.wire, state, verifier)
    network, shown = bound(payload.get("network")), bound(envelope.network)
    if not network and shown:
        # It must not look as if it were verified.
        network = f"({shown}: not signed)" if verifier else shown
    address = payload.get("address")
    if trust.error:
        problem = trust.error.shorten(MAX_TEXT)
    elif not isinstance(address, str) or not address.strip():
        problem = "It has no address in its payload."
    else:
        problem = _doubt(envelope, state)
    return RequestRow(
        **facts,
        chain=f"{bound(payload.get('currency'))} {network}".rstrip(),
        address=bound(address),
        label=bound(payload.get("label")),
        trust=trust.state,
        problem=problem,
        legacy=describe_legacy(trust.address.omitted) if trust.address and trust.address.legacy else "",
    )


def _doubt(envelope: WhitelistEnvelope, state: RequestState) -> str:
    """Return why the service does not say whether a request is in effect; empty: it does."""
    is_settled = has_status(envelope.status, (*EFFECTIVE_STATUSES, *REJECTED_STATUSES))
    if state == "unknown" or (state == "pending" and is_settled and _is_creation(envelope)):
        status = sanitize(envelope.status or "", 40)
        return f"Its status, {status!r}, and where it is listed do not say whether it is in effect."
    return ""


def paths_of(envelope: WhitelistEnvelope, verifier: Verifier | None) -> tuple[tuple[GroupSignatures, ...], ...]:
    """
    Return the ways to sign a request by the signed rules, with how many valid signatures of each group there are.

    :param envelope: the request.
    :param verifier: the verifier; None: no keys are pinned.
    :return: the ways; none where they are not known.
    """
    if verifier is None or not _is_creation(envelope):
        return ()
    try:
        paths = verifier.examine(envelope.wire).paths or ()
    except CustodyError:
        return ()
    return tuple(
        tuple(GroupSignatures(bound(each.group_id), len(each.user_ids), each.minimum) for each in path)
        for path in paths
    )


def _is_creation(envelope: WhitelistEnvelope) -> bool:
    """Tell whether signing a request makes the address whitelisted, as far as its action says."""
    return is_creation(envelope.action or "", accept_unknown=False)


# --- by their ids ---------------------------------------------------------------------------------------------


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
    listed = find_listed(client, [request_id])[request_id]
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
            "not checked": "The service says that it was rejected: there is nothing to verify.",
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
        verification=verification,
        payload={bound(name): bound(value) for name, value in payload.items() if value not in (None, "", [])},
        around={name: bound(value) for name, value in around.items()},
        signatures=[*_signatures(envelope, verifier)],
        trail=[
            {
                "at": parse_timestamp(each.get("date")),
                "user": bound(each.get("externalUserId") or each.get("userId")),
                "action": bound(each.get("action")),
                "comment": bound(each.get("comment")),
            }
            for each in envelope.trails
        ],
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
    found = find_listed(client, check_request_ids(request_ids, merge=True))
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


def _signatures(envelope: WhitelistEnvelope, verifier: Verifier | None) -> Iterator[dict[str, Any]]:
    entries = (envelope.wire.get("signedAddress") or {}).get("signatures")
    faults: tuple[str, ...] = ()
    # If they cannot be examined, the request as a whole says why.
    with suppress(CustodyError):
        faults = () if verifier is None else verifier.examine(envelope.wire).faults
    for entry, fault in zip_longest(entries if isinstance(entries, list) else (), faults):
        signature = entry.get("signature") if isinstance(entry, dict) else None
        found = signature if isinstance(signature, dict) else {}
        yield {
            "user": bound(as_name(found.get("userId"))),
            "comment": bound(found.get("comment")),
            "valid": None if fault is None else not fault,
            "problem": fault or "",
        }
