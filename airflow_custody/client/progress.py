"""
How far whitelisting requests have come.

Published knowledge, not part of the given interface. The words of ``status`` are not published, so what counts is
where a request is listed: requests that wait are hidden unless one asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import NOT_OFFERED, CustodyError
from airflow_custody.client.text import readable

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.envelopes import WhitelistEnvelope

#: The most ids that are asked for at once: as many as one page holds.
_AT_ONCE = 100


@dataclass(frozen=True)
class Listed:
    """
    Say where a request was listed.

    :param envelope: what was listed; None: nowhere.
    :param settled: whether it is listed without asking for those that wait, and not among those that wait for the
        client's user.
    """

    envelope: WhitelistEnvelope | None
    settled: bool


@dataclass(frozen=True)
class Progress:
    """
    Say how far a request has come.

    :param state: ``effective``, ``waiting``, ``rejected``, or ``gone``.
    :param status: the service's own word, as sent.
    :param signatures: how many users have signed it.
    """

    state: Literal["effective", "waiting", "rejected", "gone"]
    status: str | None
    signatures: int

    def summary(self, request_id: str) -> str:
        """Return the progress in words."""
        if self.state == "gone":
            return f"whitelisting request {request_id} is not there (any more)"
        words = {
            "effective": "has taken effect",
            "waiting": "waits for approval",
            "rejected": "was rejected",
        }
        status = readable(self.status or "not given", 40)
        return f"whitelisting request {request_id} {words[self.state]} (status {status}, signed by {self.signatures})"

    def to_json(self, request_id: str) -> dict[str, Any]:
        """Return the progress as plain JSON data."""
        return {
            "id": request_id,
            "state": self.state,
            "status": self.status or "",
            "signatures": self.signatures,
        }


def find_listed(client: CustodyClient, ids: Iterable[str]) -> dict[str, Listed]:
    """
    Find where requests are listed, in two calls for each hundred of them, and one more for those that do not wait.

    :param client: the client.
    :param ids: the requests' ids.
    :return: one entry for each id.
    :raises CustodyError: as :meth:`CustodyClient.find_whitelist_requests` does.
    """
    wanted = list(dict.fromkeys(ids))
    found: dict[str, Listed] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        batch = wanted[start : start + _AT_ONCE]
        rows = {row.id: row for row in client.find_whitelist_requests(ids=batch, include_waiting=False)}
        waiting = _waiting_for_user(client, [each for each in batch if each in rows])
        found.update({each: Listed(rows[each], each not in waiting) for each in batch if each in rows})
        # Last: what takes effect in between is seen as waiting, and not as gone.
        if rest := [each for each in batch if each not in rows]:
            found.update({row.id: Listed(row, settled=False) for row in client.find_whitelist_requests(ids=rest)})
    return {each: found.get(each, Listed(None, settled=False)) for each in wanted}


def _waiting_for_user(client: CustodyClient, ids: list[str]) -> set[str]:
    """Find which requests are among those that wait for the user, whatever other listings say."""
    if not ids:
        return set()
    try:
        rows = client.find_whitelist_requests_for_approval(ids=ids, include_already_signed=True)
        return {row.id for row in rows}
    except CustodyError as error:
        # For somebody who is no approver nothing waits.
        if error.status in NOT_OFFERED and not error.from_gateway:
            return set()
        raise


def judge_progress(
    listed: Listed, *, effective_statuses: Iterable[str] | None, rejected_statuses: Iterable[str]
) -> Progress:
    """
    Judge how far a request has come.

    :param listed: where it is listed.
    :param effective_statuses: status words, compared without case, of which one is needed to have taken effect; None:
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
    return Progress("effective" if effective else "waiting", status, signatures)
