"""Whitelisting requests as rows for people. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import as_name, read_number
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.trust import RequestState, TrustState, decide_trust, describe_legacy
from airflow_custody.client.whitelist.listed_requests import read_payload
from airflow_custody.client.whitelist.review import is_creation
from airflow_custody.overview.models import GroupSignatures, RequestRow

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

Paths = tuple[tuple[GroupSignatures, ...], ...]

#: Maximum number of ways to approve a request, of groups in one, and of characters of a text.
MAX_PATHS = 10
MAX_GROUPS = 10
MAX_TEXT = 300
MAX_WORD = 100
_MAX_ADDRESS = 512
_MAX_PROBLEM = 500
_MAX_MINIMUM = 1_000_000


def bound(value: object, limit: int = MAX_TEXT) -> str:
    """
    Return a text as it is, but no longer than the limit: it ends with an ellipsis if it is cut.

    :param value: the text; what is none is written as JSON, and None is empty.
    :param limit: maximum length in characters. Default 300.
    """
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def make_row(
    envelope: WhitelistEnvelope,
    state: RequestState,
    verifier: Verifier | None,
    *,
    doubt: str = "",
    with_paths: bool = True,
    deletion_pending: bool = False,
) -> RequestRow:
    """
    Return a request as a row. Address, label and chain are those of the text that is signed; so is the network, or else
    it is marked where keys are pinned.

    :param envelope: the request.
    :param state: how far it has come.
    :param verifier: what verifies it; None: no keys are pinned.
    :param doubt: how its status contradicts where it is listed, in words. Default empty: it does not.
    :param with_paths: whether the ways to approve it are worth their time. Default True.
    :param deletion_pending: whether it is in effect, and its deletion is pending. Default False.
    """
    dates = [each for each in (parse_timestamp(trail.get("date")) for trail in envelope.trails) if each is not None]
    facts: dict[str, Any] = {
        "id": bound(envelope.id, MAX_WORD),
        "status": bound(envelope.status, MAX_WORD),
        "state": state,
        "created_at": envelope.created_at,
        "changed_at": max(dates, default=None),
        "signatures": len(envelope.signed_by),
        "action": "" if says_creation(envelope) else bound(envelope.action, MAX_WORD),
        "deletion_pending": deletion_pending,
    }
    if not envelope.is_readable:
        return RequestRow(**facts, problem="It cannot be read: a field of it has another type than is known.")
    try:
        payload = read_payload(envelope)
    except CustodyError as error:
        trust: TrustState = "not checked" if verifier is None else "unverified"
        return RequestRow(**facts, trust=trust, problem=_problem(error))
    chain = bound(payload.get("currency"), MAX_WORD)
    facts |= {
        "chain": f"{chain} {_network(payload, envelope, verifier)}".rstrip(),
        "address": bound(payload.get("address"), _MAX_ADDRESS),
        "label": bound(payload.get("label")),
        "paths": paths_of(envelope, verifier) if with_paths else (),
    }
    trust, problem, legacy = judge_trust(envelope, state, verifier)
    if doubt and not problem:
        problem = f"{doubt[0].upper()}{doubt[1:].rstrip('.')}."
    return RequestRow(**facts, trust=trust, problem=problem, legacy=legacy)


def _network(payload: Mapping[str, Any], envelope: WhitelistEnvelope, verifier: Verifier | None) -> str:
    """Return the network; one that is no part of the signed text must not look as if it were verified."""
    if signed := payload.get("network"):
        return bound(signed, MAX_WORD)
    shown = bound(envelope.network, MAX_WORD)
    return f"({shown}: not signed)" if shown and verifier is not None else shown


def judge_trust(
    envelope: WhitelistEnvelope, state: RequestState, verifier: Verifier | None
) -> tuple[TrustState, str, str]:
    """
    Return what signatures prove of a request, why they prove nothing if they do not, and that they cover a legacy form.

    :param envelope: the request.
    :param state: how far it has come.
    :param verifier: what verifies it; None: no keys are pinned.
    """
    try:
        trust = decide_trust(envelope.wire, state, verifier)
    except CustodyError as error:
        return "unverified", _problem(error), ""
    if trust.error is not None:
        return trust.state, _problem(trust.error), ""
    legacy = ""
    if trust.address is not None and trust.address.legacy:
        legacy = describe_legacy(trust.address.omitted)
    # Of a pending one, what is still needed has to cover all of the text.
    elif state == "pending" and any(envelope.hash not in each.hashes for each in envelope.signings):
        legacy = "some of its signatures cover a legacy form of its text" if trust.state == "verified" else ""
    return trust.state, "", legacy


def paths_of(envelope: WhitelistEnvelope, verifier: Verifier | None) -> Paths:
    """
    Return the ways to approve a request, with how many signatures of each group there are.

    With pinned keys, by the signed rules, and valid signatures only. Otherwise in the service's word.

    :param envelope: the request.
    :param verifier: what verifies it; None: no keys are pinned.
    """
    if verifier is not None and says_creation(envelope):
        try:
            examined = verifier.examine(envelope.wire)
        except CustodyError:
            return ()
        if examined.paths:
            return tuple(
                tuple(
                    GroupSignatures(bound(each.group_id, MAX_WORD), len(each.user_ids), each.minimum)
                    for each in path[:MAX_GROUPS]
                )
                for path in examined.paths[:MAX_PATHS]
            )
    return _shown_paths(envelope)


def says_creation(envelope: WhitelistEnvelope) -> bool:
    """Tell whether approving a request makes the address whitelisted, as far as its action says."""
    return is_creation(envelope.action or "", accept_unknown=False)


def _shown_paths(envelope: WhitelistEnvelope) -> Paths:
    """Return the ways that the service shows: which groups its users are in, it does not."""
    approvers = envelope.wire.get("approvers")
    parallel = approvers.get("parallel") if isinstance(approvers, Mapping) else None
    paths: list[tuple[tuple[str, int], ...]] = []
    for path in parallel[:MAX_PATHS] if isinstance(parallel, list) else ():
        sequential = path.get("sequential") if isinstance(path, Mapping) else None
        groups = [_threshold(each) for each in (sequential[:MAX_GROUPS] if isinstance(sequential, list) else ())]
        if groups and None not in groups:
            paths.append(tuple(each for each in groups if each is not None))
    signatures: int | None = len(envelope.signed_by)
    if not says_creation(envelope) or (signatures and not (len(paths) == 1 and len(paths[0]) == 1)):
        # Those that are shown may be of any of the groups, or of an approval before.
        signatures = None
    return tuple(
        tuple(
            GroupSignatures(group, None if signatures is None else min(signatures, needed), needed)
            for group, needed in path
        )
        for path in paths
    )


def _threshold(shown: object) -> tuple[str, int] | None:
    if not isinstance(shown, Mapping):
        return None
    group, minimum = as_name(shown.get("externalGroupID")), as_name(shown.get("minimumSignatures") or "0")
    number = read_number(minimum, _MAX_MINIMUM) if minimum else None
    # Zero is left out, and counts as one.
    return None if not group or number is None else (bound(group, MAX_WORD), max(1, number))


def _problem(error: CustodyError) -> str:
    return error.shorten(_MAX_PROBLEM)
