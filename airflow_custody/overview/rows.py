"""Whitelisting requests as rows for people. No I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.trust import (
    EFFECTIVE_STATUSES,
    REJECTED_STATUSES,
    RequestState,
    Trust,
    decide_trust,
    describe_legacy,
    has_status,
)
from airflow_custody.client.whitelist.review import is_creation
from airflow_custody.overview.models import GroupSignatures, RequestRow

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

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
        legacy=_legacy(envelope, trust),
    )


def _doubt(envelope: WhitelistEnvelope, state: RequestState) -> str:
    """Return why the service does not say whether a request is in effect; empty: it does."""
    is_settled = has_status(envelope.status, (*EFFECTIVE_STATUSES, *REJECTED_STATUSES))
    if state == "unknown" or (state == "pending" and is_settled and _is_creation(envelope)):
        status = sanitize(envelope.status or "", 40)
        return f"Its status, {status!r}, and where it is listed do not say whether it is in effect."
    return ""


def _legacy(envelope: WhitelistEnvelope, trust: Trust) -> str:
    """Describe a legacy form that was signed, with the keys that it lacks; empty: the whole text was signed."""
    if trust.address is not None:
        return describe_legacy(trust.address.omitted) if trust.address.legacy else ""
    # The signatures that a pending request still needs have to cover all of the text.
    if trust.state == "verified" and any(envelope.hash not in each.hashes for each in envelope.signings):
        return "some of its signatures cover a legacy form of its text"
    return ""


class _Group(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    group: str = Field(alias="externalGroupID", min_length=1)
    minimum: int | None = Field(None, alias="minimumSignatures", ge=0, le=1_000_000)


class _Path(BaseModel):
    sequential: list[_Group] = Field(min_length=1)


class _Approvers(BaseModel):
    """The ways to approve a request, as the service shows them."""

    parallel: list[_Path]


def paths_of(envelope: WhitelistEnvelope, verifier: Verifier | None) -> tuple[tuple[GroupSignatures, ...], ...]:
    """
    Return the ways to approve a request, with how many signatures of each group there are.

    With pinned keys, by the signed rules, and valid signatures only. Otherwise as the service reports them; empty if
    that cannot be read completely.

    :param envelope: the request.
    :param verifier: the verifier; None: no keys are pinned.
    """
    try:
        if verifier and _is_creation(envelope) and (paths := verifier.examine(envelope.wire).paths):
            return tuple(
                tuple(GroupSignatures(bound(each.group_id), len(each.user_ids), each.minimum) for each in path)
                for path in paths
            )
        shown = [each.sequential for each in _Approvers.model_validate(envelope.wire.get("approvers")).parallel]
    except (CustodyError, ValidationError):
        return ()
    signatures = len(envelope.signed_by)
    # The service shows neither the groups of a user nor whether a signature belongs to an earlier approval.
    is_known = _is_creation(envelope) and (not signatures or [len(path) for path in shown] == [1])
    # A minimum of zero is left out, and counts as one.
    needed = [[(bound(each.group), each.minimum or 1) for each in path] for path in shown]
    return tuple(
        tuple(GroupSignatures(name, min(signatures, number) if is_known else None, number) for name, number in path)
        for path in needed
    )


def _is_creation(envelope: WhitelistEnvelope) -> bool:
    """Tell whether approving a request makes the address whitelisted, as far as its action says."""
    return is_creation(envelope.action or "", accept_unknown=False)
