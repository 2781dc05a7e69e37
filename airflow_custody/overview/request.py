"""Whitelisting requests as rows of a listing, or with all details."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import as_name, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import NOT_PINNED, describe_legacy
from airflow_custody.client.whitelist.comparison import is_creation
from airflow_custody.client.whitelist.ids import check_request_ids
from airflow_custody.client.whitelist.request import Request, describe_verified, judge_request, verified_facts
from airflow_custody.client.whitelist.signatures import find_signatures
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.overview.models import (
    RequestRow,
    RequestsView,
    RequestView,
    SignatureCounts,
)

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_NOT_LISTED = "the service does not list it; it does not exist, was deleted, or belongs to another tenant"
_TRUST_IN_WORDS = {
    "not checked": "The service reports it as rejected, so there is nothing to verify.",
    "unsigned": "It has no signatures yet.",
    "verified": "All of its signatures are valid, under rules that the pinned super-administrators have signed.",
}
#: Maximum number of characters kept of a text. Page and command line may shorten it further.
MAX_TEXT = 4000


def bound(value: object) -> str:
    """
    Return a text, truncated to :data:`MAX_TEXT` characters.

    A truncated text ends with an ellipsis.

    :param value: the text. A value of another type is written as JSON, and None as the empty text.
    """
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def make_row(request: Request, verifier: Verifier | None) -> RequestRow:
    """
    Return a request as a row.

    Address, label and chain are read from the signed text. If the signed text has no network, the row has the network
    that the service reports. If keys are pinned, that network is marked as not signed.

    :param request: a listed request.
    :param verifier: the verifier that verified the request; None if no keys are pinned.
    """
    envelope = request.shown
    network, shown = bound(request.fields.get("network")), bound(envelope.network)
    if not network and shown and request.fields:
        # Mark an unsigned network, because it must not look verified.
        network = f"({shown}: not signed)" if verifier else shown
    dates = filter(None, (parse_timestamp(each.get("date")) for each in envelope.trails))
    proved = request.proved
    return RequestRow(
        id=bound(envelope.id),
        status=bound(envelope.status),
        state=request.reported,
        judged=request.state,
        created_at=envelope.created_at,
        changed_at=max(dates, default=None),
        signatures=len(envelope.signed_by),
        action="" if _is_creation(envelope) else bound(envelope.action),
        deletion_pending=request.deletion_pending,
        chain=f"{bound(request.fields.get('currency'))} {network}".strip(),
        address=bound(request.fields.get("address")),
        label=bound(request.fields.get("label")),
        trust=request.trust.state,
        problem=_problem(request, envelope),
        legacy=describe_legacy(proved.omitted) if proved and proved.legacy else "",
    )


def _problem(request: Request, envelope: WhitelistEnvelope) -> str:
    """Return a request's problem, without the request's name; empty if none."""
    error = request.trust.error
    if error is not None:
        return f"{sanitize(error.explanation, MAX_TEXT)} {label(error.code)}"
    if request.reason:
        return sanitize(request.reason, MAX_TEXT)
    if request.reported == "unknown" or (request.is_contradictory and _is_creation(envelope)):
        return f"its status, {request.status!r}, and the listing it appears in do not prove whether it is in effect"
    return ""


def signing_paths(request: Request, verifier: Verifier | None) -> tuple[tuple[SignatureCounts, ...], ...]:
    """
    Return the alternative ways to sign a request, with the number of valid signatures.

    The signed rules define these ways. Each way lists its groups, with their numbers of valid and required signatures.

    :param request: a listed request.
    :param verifier: the verifier; None if no keys are pinned.
    :return: the ways; empty if they are unknown.
    """
    found = find_signatures(request.shown, verifier)
    return tuple(
        tuple(SignatureCounts(bound(each.group_id), len(each.user_ids), each.minimum) for each in path)
        for path in (found.paths if found else ())
    )


def _is_creation(envelope: WhitelistEnvelope) -> bool:
    """Return whether the effect of signing a request is to whitelist the address, according to the request's action."""
    return is_creation(envelope.action or "", accept_unknown=False)


# --- reading by id ---------------------------------------------------------------------------------------------


def read_request(client: CustodyClient, request_id: str) -> RequestView:
    """
    Read one whitelisting request, pending or not.

    This takes up to four calls. If the service does not list the request, it is read by its id in one more call, and
    its state is unknown.

    :param client: the client.
    :param request_id: the request's id, a decimal number.
    :return: the request.
    :raises CustodyRequestError: if the id is not a number; nothing is sent.
    :raises CustodyNotFoundError: if it does not exist; ``from_service`` is true if this is the service's own response.
    :raises CustodyError: if it cannot be read.
    """
    snapshot = read_snapshot(client, ids=[request_id])
    request, verifier = snapshot[request_id], snapshot.verifier
    if request.envelope is None:
        envelope = client.get_whitelist_request(request_id)
        verifier = verifier_for(client, [envelope.wire])
        request = judge_request(envelope, "unknown", verifier)
    envelope = request.shown
    row = _row(request, verifier)
    around = {
        "Action": envelope.action,
        "Network": envelope.network,
        "Tenant": envelope.tenant_id,
        "Visibility group": envelope.visibility_group_id,
        "Hash": envelope.hash,
    }
    return RequestView(
        row=row,
        verification=_describe_trust(request, row, verifier),
        payload={bound(name): bound(value) for name, value in request.fields.items() if value not in (None, "", [])},
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


def _describe_trust(request: Request, row: RequestRow, verifier: Verifier | None) -> str:
    """Describe how a request is proved, or why it is not."""
    if verifier is None:
        return NOT_PINNED
    if request.proved is not None:
        legacy = f", {row.legacy}" if row.legacy else ""
        return f"Verified: {describe_verified(verified_facts(request.proved))}{legacy}."
    return _TRUST_IN_WORDS.get(row.trust, row.problem)


def read_requests(client: CustodyClient, request_ids: Iterable[str]) -> RequestsView:
    """
    Read up to a hundred whitelisting requests, in up to four calls.

    :param client: the client.
    :param request_ids: the requests' ids, decimal numbers.
    :return: a row for each request, ordered by id. If a request is not listed, or its state is unknown, the row's
        ``problem`` says so.
    :raises CustodyRequestError: if an id is not a number, or there are too many; nothing is sent.
    :raises CustodyError: if the requests cannot be read.
    """
    snapshot = read_snapshot(client, ids=check_request_ids(request_ids, merge=True))
    rows = [
        RequestRow(id=each.id, status="", judged=each.state, problem=_NOT_LISTED)
        if each.envelope is None
        else _row(each, snapshot.verifier)
        for each in snapshot
    ]
    return RequestsView(tuple(rows), total=len(rows))


def _row(request: Request, verifier: Verifier | None) -> RequestRow:
    row = make_row(request, verifier)
    return replace(row, paths=signing_paths(request, verifier)) if row.address else row


def _signatures(envelope: WhitelistEnvelope, verifier: Verifier | None) -> Iterator[dict[str, Any]]:
    entries = (envelope.wire.get("signedAddress") or {}).get("signatures")
    faults: tuple[str, ...] = ()
    # Ignore an error here: if the signatures cannot be examined, the row of the request already reports the reason.
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
