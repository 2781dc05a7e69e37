"""
How far whitelisting requests have come.

What the service calls a request's ``status`` is not known beforehand, so what counts is where a request is listed:
requests that are pending approval are hidden unless one asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import count, sanitize

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.whitelist.models import WhitelistEnvelope


@dataclass(frozen=True)
class ListedRequest:
    """
    A request, and where it is listed.

    :param envelope: what is listed; None: nothing is.
    :param settled: whether it is listed without asking for pending ones, and not among those that are pending
        approval by the client's user.
    """

    envelope: WhitelistEnvelope | None
    settled: bool


@dataclass(frozen=True)
class Progress:
    """
    How far a request has come.

    :param state: ``effective``, ``pending``, ``rejected``, or ``gone``.
    :param status: the service's own word, as sent.
    :param signatures: how many users have signed it.
    """

    state: Literal["effective", "pending", "rejected", "gone"]
    status: str | None
    signatures: int

    def summary(self, request_id: str) -> str:
        """Return the progress in words."""
        if self.state == "gone":
            return f"whitelisting request {request_id} does not exist"
        words = {"effective": "is in effect", "pending": "is pending approval", "rejected": "was rejected"}
        status = sanitize(self.status or "not given", 40)
        signatures = count(self.signatures, "signature")
        return f"whitelisting request {request_id} {words[self.state]} (status {status}, {signatures})"

    def to_json(self, request_id: str) -> dict[str, Any]:
        """Return the progress as plain JSON data."""
        return {
            "id": request_id,
            "state": self.state,
            "status": self.status or "",
            "signatures": self.signatures,
        }


def find_listed(client: CustodyClient, ids: Iterable[str]) -> dict[str, ListedRequest]:
    """
    Find where requests are listed, in two calls for each hundred of them, and one more for those that are settled.

    :param client: the client.
    :param ids: the requests' ids.
    :return: one entry for each id.
    :raises CustodyError: as :meth:`CustodyClient.find_whitelist_requests` does.
    """
    wanted = list(dict.fromkeys(ids))
    found: dict[str, ListedRequest] = {}
    for start in range(0, len(wanted), MAX_PAGE_SIZE):
        batch = wanted[start : start + MAX_PAGE_SIZE]
        rows = {row.id: row for row in client.find_whitelist_requests(ids=batch, include_pending=False)}
        pending = _pending_for_user(client, [each for each in batch if each in rows])
        found.update({each: ListedRequest(rows[each], each not in pending) for each in batch if each in rows})
        # Last: what takes effect in between is seen as pending, and not as gone.
        if rest := [each for each in batch if each not in rows]:
            found.update(
                {row.id: ListedRequest(row, settled=False) for row in client.find_whitelist_requests(ids=rest)}
            )
    return {each: found.get(each, ListedRequest(None, settled=False)) for each in wanted}


def _pending_for_user(client: CustodyClient, ids: list[str]) -> set[str]:
    """Find which requests are pending approval by the user, whatever other listings say."""
    if not ids:
        return set()
    try:
        rows = client.find_whitelist_requests_for_approval(ids=ids, include_already_signed=True)
        return {row.id for row in rows}
    except CustodyError as error:
        # Nothing is pending for somebody who is no approver. Only the service itself can tell.
        if error.not_offered and not error.from_gateway:
            return set()
        raise


def judge_progress(
    listed: ListedRequest, *, effective_statuses: Iterable[str] | None, rejected_statuses: Iterable[str]
) -> Progress:
    """
    Judge how far a request has come.

    :param listed: where it is listed.
    :param effective_statuses: status words, compared without case, of which one is needed to be in effect; None:
        being listed as settled is enough.
    :param rejected_statuses: status words that mean it was rejected.
    :return: the progress.
    """
    if listed.envelope is None:
        return Progress("gone", None, 0)
    status = listed.envelope.status
    word = (status or "").casefold()
    signatures = len(listed.envelope.signed_by)
    if word in {each.casefold() for each in rejected_statuses}:
        return Progress("rejected", status, signatures)
    effective = listed.settled and (
        effective_statuses is None or word in {each.casefold() for each in effective_statuses}
    )
    return Progress("effective" if effective else "pending", status, signatures)
