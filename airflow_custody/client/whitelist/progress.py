"""
Where whitelisting requests are listed.

Two things count: where a request is listed, as requests that are pending approval are hidden unless one asks for them,
and its ``status``. The service's makers publish no list of the words of ``status``: one that is not known proves
nothing. With pinned keys a third counts: neither is proof, and only signatures prove that a request is in
effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError, CustodyVerificationError
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.trust import (
    REJECTED_STATUSES,
    ListedAs,
    RequestState,
    decide_trust,
    has_status,
    state_of,
)
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.models import cut_into_batches
from airflow_custody.client.whitelist.review import is_deletion

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.verification.verifier import VerifiedAddress, Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_MAX_STATUS = 100


@dataclass(frozen=True)
class ListedRequest:
    """
    A request, and where it is listed.

    :param envelope: the listed request; None: it is not listed.
    :param settled: whether it is listed without asking for pending ones, and not among those that are pending
        approval by the client's user.
    :param verified: the facts that its signatures prove, if it is settled and keys are pinned. Default None.
    :param unverified: why they prove nothing, if they do not. Default None.
    :param for_approval: whether it is among those that are pending approval by the client's user. Default False.
    :param deletion_pending: whether it is settled, and its deletion is pending approval by that user. Default False.
    :param was_signed: whether it is settled, and also listed among those that the user has signed: it may be pending
        others' approval, if its status does not say that it was decided. Default False.
    """

    envelope: WhitelistEnvelope | None
    settled: bool
    verified: VerifiedAddress | None = None
    unverified: CustodyVerificationError | None = None
    for_approval: bool = False
    deletion_pending: bool = False
    was_signed: bool = False

    @property
    def listed_as(self) -> ListedAs:
        """Where it is listed."""
        if self.for_approval:
            return "for approval"
        if self.was_signed:
            return "signed"
        return "settled" if self.settled else "pending"

    def state(
        self, effective_statuses: Iterable[str] | None, rejected_statuses: Iterable[str] = REJECTED_STATUSES
    ) -> RequestState:
        """Return how far it has come; the parameters are those of :func:`state_of`."""
        status = None if self.envelope is None else self.envelope.status
        return state_of(
            status, self.listed_as, effective_statuses=effective_statuses, rejected_statuses=rejected_statuses
        )


def verified_facts(verified: VerifiedAddress) -> dict[str, Any]:
    """
    Return what signatures prove, as plain JSON data.

    :param verified: the verified address.
    :return: ``fields``, what the signed text says, by the names of the parameters; ``signed_by``, the external ids of
        the users whose signatures counted; ``rules_date``, the date of the rules, empty if they do not say.
    """
    from airflow_custody.client.whitelist.review import PAYLOAD_KEYS

    fields: dict[str, Any] = {}
    for name, key in PAYLOAD_KEYS.items():
        value = verified.fields.get(name)
        if value not in (None, "", []):
            is_list = isinstance(value, list)
            fields[key.field or name] = [str(link["id"]) for link in value] if is_list else value
    return {"fields": fields, "signed_by": list(verified.user_ids), "rules_date": _date(verified.rules.timestamp)}


def describe_verified(facts: Mapping[str, Any]) -> str:
    """Return in words what :func:`verified_facts` returned, to end a sentence about the request."""
    signed_by = name_some([sanitize(each, 60) for each in facts["signed_by"]])
    date = facts["rules_date"].replace("T", " ").replace("+00:00", " UTC")
    rules = f"rules of {date}" if date else "rules without a date"
    return f", verified: signed by {signed_by} under {rules}"


def _date(timestamp: int) -> str:
    if not timestamp:
        return ""
    try:
        return datetime.fromtimestamp(timestamp, timezone.utc).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(timestamp)


def find_for_approval(
    client: CustodyClient, ids: list[str] | None = None, *, include_already_signed: bool = True
) -> dict[str, WhitelistEnvelope]:
    """
    Find the requests that are pending approval by the user, whatever other listings, or their status words, say.

    :param client: the client.
    :param ids: only these requests. Default None: all.
    :param include_already_signed: whether to find also those that the user has signed. Default True.
    :return: the requests by their ids; none for a user who is no signer.
    """
    batches: list[list[str] | None] = [None] if ids is None else [*cut_into_batches(ids)]
    find = partial(client.find_whitelist_requests_for_approval, include_already_signed=include_already_signed)
    try:
        return {row.id: row for batch in batches for row in find(ids=batch)}
    except CustodyError as error:
        # Nothing is pending for somebody who is no signer. Only the service itself can tell.
        if error.not_offered and error.from_service:
            return {}
        raise


def still_pending(
    client: CustodyClient, for_approval: Mapping[str, WhitelistEnvelope], decided: Collection[str]
) -> dict[str, WhitelistEnvelope]:
    """
    Return the requests whose creation is pending, of those that are listed as pending approval by the user.

    A request that is otherwise shown as decided is pending only if the user may still sign it, not its deletion: an
    address is in effect until its deletion is. That takes one more call for each hundred of them.

    :param client: the client.
    :param for_approval: the result of :func:`find_for_approval`.
    :param decided: the ids of those that are listed without asking for pending ones, with a status that says that they
        are in effect, or rejected.
    """
    doubtful = [each for each, row in for_approval.items() if each in decided and not is_deletion(row.action or "")]
    signable = find_for_approval(client, doubtful, include_already_signed=False)
    return {each: row for each, row in for_approval.items() if each not in decided or each in signable}


def pending_deletions(
    for_approval: Mapping[str, WhitelistEnvelope], creations: Collection[str]
) -> dict[str, WhitelistEnvelope]:
    """
    Return the requests in effect whose deletion is pending, of those that are listed as pending approval by the user.

    :param for_approval: the result of :func:`find_for_approval`.
    :param creations: the ids of those whose creation is pending, as :func:`still_pending` found them.
    """
    return {each: row for each, row in for_approval.items() if each not in creations and is_deletion(row.action or "")}


def find_listed(client: CustodyClient, ids: Iterable[str]) -> dict[str, ListedRequest]:
    """
    Find where requests are listed, in two calls for each hundred of them, and one more for those that are settled,
    missing or rejected: are they listed for approval? For those that are settled and listed there, too, one more says
    which can still be signed.

    If the client has pinned keys, those that are settled are verified. A request that does not verify affects no other.

    :param client: the client.
    :param ids: the requests' ids.
    :return: one entry for each id. Of a request that cannot be read, the envelope says so, and it is not verified.
    :raises CustodyError: as :meth:`CustodyClient.find_whitelist_requests` does.
    """
    wanted = list(dict.fromkeys(ids))
    found: dict[str, ListedRequest] = {}
    for batch in cut_into_batches(wanted):
        rows = {row.id: row for row in client.find_whitelist_requests(ids=batch, include_pending=False)}
        for_approval = find_for_approval(client, [each for each in batch if each in rows])
        pending = still_pending(client, for_approval, rows)
        deletions = pending_deletions(for_approval, pending)
        for each, row in rows.items():
            listed = _listed(client.verifier, row, each not in pending, each in pending)
            was_signed = each in for_approval and each not in pending and each not in deletions
            found[each] = replace(listed, was_signed=was_signed, deletion_pending=each in deletions)
        # Last: what takes effect in between is seen as pending, and not as gone.
        if rest := [each for each in batch if each not in rows]:
            more = {row.id: row for row in client.find_whitelist_requests(ids=rest)}
            # Of these, the status word, or that they are not listed, is not to be believed at once.
            doubtful = [each for each in rest if each not in more or has_status(more[each].status, REJECTED_STATUSES)]
            pending = find_for_approval(client, doubtful)
            more = {**pending, **more}
            found.update({each: _listed(None, row, False, each in pending) for each, row in more.items()})
    return {each: found.get(each, ListedRequest(None, settled=False)) for each in wanted}


def _listed(verifier: Verifier | None, envelope: WhitelistEnvelope, settled: bool, for_approval: bool) -> ListedRequest:
    if not settled or not envelope.is_readable:
        return ListedRequest(envelope, settled, for_approval=for_approval)
    # Whatever its status: which words mean that it is in effect, whoever asked knows.
    trust = decide_trust(envelope.wire, "effective", verifier)
    return ListedRequest(envelope, settled, verified=trust.address, unverified=trust.error)


def status_word(status: str | None) -> str:
    """Return a status as the service sent it, of a length that is fit for a report; empty if there is none."""
    return sanitize(status or "", _MAX_STATUS)
