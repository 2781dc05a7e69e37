"""Whitelisting requests as rows for people. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.trust import RequestState, Trust, TrustState, decide_trust, describe_legacy
from airflow_custody.client.whitelist.listed_requests import read_payload
from airflow_custody.client.whitelist.review import is_creation
from airflow_custody.overview.models import GroupSignatures, RequestRow

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

Paths = tuple[tuple[GroupSignatures, ...], ...]

#: Maximum number of characters of a text that is kept: page and command line decide how much of it they show.
MAX_TEXT = 4000


class _Group(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    group: str = Field(alias="externalGroupID", min_length=1)
    minimum: int | None = Field(None, alias="minimumSignatures", ge=0, le=1_000_000)


class _Path(BaseModel):
    sequential: list[_Group] = Field(min_length=1)


class _Approvers(BaseModel):
    """The ways to approve a request, as the service shows them."""

    parallel: list[_Path]


def bound(value: object) -> str:
    """
    Return a text as it is, but no longer than :data:`MAX_TEXT`: it ends with an ellipsis if it is cut.

    :param value: the text; what is none is written as JSON, and None is empty.
    """
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def make_row(
    envelope: WhitelistEnvelope,
    state: RequestState,
    verifier: Verifier | None,
    *,
    doubt: str = "",
    deletion_pending: bool = False,
) -> RequestRow:
    """
    Return a request as a row. Address, label and chain are those of the text that is signed; so is the network, or else
    it is marked where keys are pinned.

    :param envelope: the request.
    :param state: how far it has come.
    :param verifier: what verifies it; None: no keys are pinned.
    :param doubt: how its status contradicts where it is listed, in words. Default empty: it does not.
    :param deletion_pending: whether it is in effect, and its deletion is pending. Default False.
    """
    dates = [each for each in (parse_timestamp(trail.get("date")) for trail in envelope.trails) if each is not None]
    facts: dict[str, Any] = {
        "id": bound(envelope.id),
        "status": bound(envelope.status),
        "state": state,
        "created_at": envelope.created_at,
        "changed_at": max(dates, default=None),
        "signatures": len(envelope.signed_by),
        "action": "" if says_creation(envelope) else bound(envelope.action),
        "deletion_pending": deletion_pending,
    }
    if not envelope.is_readable:
        return RequestRow(**facts, problem="It cannot be read: a field of it has another type than is known.")
    try:
        payload = read_payload(envelope)
    except CustodyError as error:
        unreadable: TrustState = "not checked" if verifier is None else "unverified"
        return RequestRow(**facts, trust=unreadable, problem=error.shorten(MAX_TEXT))
    trust = decide_trust(envelope.wire, state, verifier)
    problem = trust.error.shorten(MAX_TEXT) if trust.error else ""
    if doubt and not problem:
        problem = f"{doubt[0].upper()}{doubt[1:].rstrip('.')}."
    return RequestRow(
        **facts,
        chain=f"{bound(payload.get('currency'))} {_network(payload, envelope, verifier)}".rstrip(),
        address=bound(payload.get("address")),
        label=bound(payload.get("label")),
        trust=trust.state,
        problem=problem,
        legacy=_legacy(envelope, trust),
    )


def _network(payload: Mapping[str, Any], envelope: WhitelistEnvelope, verifier: Verifier | None) -> str:
    """Return the network; one that is no part of the signed text must not look as if it were verified."""
    if signed := payload.get("network"):
        return bound(signed)
    shown = bound(envelope.network)
    return f"({shown}: not signed)" if shown and verifier is not None else shown


def _legacy(envelope: WhitelistEnvelope, trust: Trust) -> str:
    """Return what the signatures do not cover, as they are of a legacy form of the text; empty: they cover all."""
    if trust.address is not None:
        return describe_legacy(trust.address.omitted) if trust.address.legacy else ""
    # Of a pending one, what is still needed has to cover all of the text.
    if trust.state == "verified" and any(envelope.hash not in each.hashes for each in envelope.signings):
        return "some of its signatures cover a legacy form of its text"
    return ""


def with_paths(row: RequestRow, envelope: WhitelistEnvelope, verifier: Verifier | None) -> RequestRow:
    """Return the row of a request that can be read with the ways to approve it, see :func:`paths_of`."""
    return replace(row, paths=paths_of(envelope, verifier)) if row.address else row


def paths_of(envelope: WhitelistEnvelope, verifier: Verifier | None) -> Paths:
    """
    Return the ways to approve a request, with how many signatures of each group there are.

    With pinned keys, by the signed rules, and valid signatures only. Otherwise in the service's word; empty if that
    cannot be read as a whole.

    :param envelope: the request.
    :param verifier: what verifies it; None: no keys are pinned.
    """
    try:
        if verifier is not None and says_creation(envelope) and (paths := verifier.examine(envelope.wire).paths):
            return tuple(
                tuple(GroupSignatures(bound(each.group_id), len(each.user_ids), each.minimum) for each in path)
                for path in paths
            )
        shown = [each.sequential for each in _Approvers.model_validate(envelope.wire.get("approvers")).parallel]
    except (CustodyError, ValidationError):
        return ()
    signatures: int | None = len(envelope.signed_by)
    if not says_creation(envelope) or (signatures and [len(path) for path in shown] != [1]):
        # Which groups a user is in, the service does not show; nor whether a signature is of an approval before.
        signatures = None
    # A minimum of zero is left out, and counts as one.
    return tuple(
        tuple(
            GroupSignatures(
                bound(each.group), None if signatures is None else min(signatures, each.minimum or 1), each.minimum or 1
            )
            for each in path
        )
        for path in shown
    )


def says_creation(envelope: WhitelistEnvelope) -> bool:
    """Tell whether approving a request makes the address whitelisted, as far as its action says."""
    return is_creation(envelope.action or "", accept_unknown=False)
