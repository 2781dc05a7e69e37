"""
How far whitelisting requests have come.

Two things count: where a request is listed, as requests that are pending approval are hidden unless one asks for them,
and its ``status``. The service's makers publish no list of the words of ``status``: one that is not known proves
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT, MAX_PAGE_SIZE
from airflow_custody.client.text import ascii_lower, count, sanitize

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

#: The word of a request in effect, as a published sample has it.
EFFECTIVE_STATUSES = ("approved",)
#: Words, some of them guesses, that say that a request will not take effect any more. A word that the service never
#: uses changes nothing.
REJECTED_STATUSES = ("rejected", "declined", "expired", "canceled", "cancelled")


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

    :param state: ``effective``, ``pending``, ``rejected``, ``missing`` (it is not listed), ``gone`` (it has been
        missing for too long), or ``unknown``: it is not pending any more, and its status does not say whether it is in
        effect.
    :param status: the service's own word, as sent.
    :param signatures: how many users have signed it.
    :param seconds: how long it has been missing. Default 0.
    """

    state: Literal["effective", "pending", "rejected", "missing", "gone", "unknown"]
    status: str | None
    signatures: int
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether it will not take effect any more, however long one waits."""
        return self.state in ("rejected", "gone")

    def summary(self, request_id: str) -> str:
        """Return the progress in words."""
        if self.state == "gone":
            return f"whitelisting request {request_id} does not exist: it has not been listed for {self.seconds:.3g} s"
        if self.state == "missing":
            return f"whitelisting request {request_id} is not listed, for {self.seconds:.3g} s so far"
        words = {"effective": "is in effect", "pending": "is pending approval", "rejected": "was rejected"}
        status = sanitize(self.status or "not given", 40)
        signatures = count(self.signatures, "signature")
        if self.state == "unknown":
            return (
                f"whitelisting request {request_id} is not pending any more, but its status {status!r} is neither in "
                f"effective_statuses nor in rejected_statuses ({signatures}): it does not count as in effect. Name the "
                "word in one of the two"
            )
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
        pending = find_pending_for_user(client, [each for each in batch if each in rows])
        found.update({each: ListedRequest(rows[each], each not in pending) for each in batch if each in rows})
        # Last: what takes effect in between is seen as pending, and not as gone.
        if rest := [each for each in batch if each not in rows]:
            found.update(
                {row.id: ListedRequest(row, settled=False) for row in client.find_whitelist_requests(ids=rest)}
            )
    return {each: found.get(each, ListedRequest(None, settled=False)) for each in wanted}


def find_pending_for_user(client: CustodyClient, ids: list[str] | None = None) -> set[str]:
    """
    Find which requests are pending approval by the user, whatever other listings say.

    :param client: the client.
    :param ids: only these requests. Default None: all.
    :return: their ids; none for a user who is no approver.
    """
    if ids == []:
        return set()
    try:
        rows = client.find_whitelist_requests_for_approval(ids=ids, include_already_signed=True)
        return {row.id for row in rows}
    except CustodyError as error:
        # Nothing is pending for somebody who is no approver. Only the service itself can tell.
        if error.not_offered and error.from_service:
            return set()
        raise


def judge_progress(
    listed: ListedRequest, *, effective_statuses: Iterable[str] | None, rejected_statuses: Iterable[str]
) -> Progress:
    """
    Judge how far a request has come.

    :param listed: where it is listed.
    :param effective_statuses: status words, compared without case, of which a request in effect has one; None: being
        listed as settled is enough.
    :param rejected_statuses: status words, compared without case, that mean it was rejected.
    :return: the progress.
    """
    if listed.envelope is None:
        return Progress("missing", None, 0)
    status = listed.envelope.status
    signatures = len(listed.envelope.signed_by)
    if has_status(listed.envelope, rejected_statuses):
        return Progress("rejected", status, signatures)
    if not listed.settled:
        return Progress("pending", status, signatures)
    effective = effective_statuses is None or has_status(listed.envelope, effective_statuses)
    return Progress("effective" if effective else "unknown", status, signatures)


class GoneJudge:
    """
    Judges how long a request has been missing: a listing may lag, so one that misses it proves nothing.

    A request is gone once it has been missing, in a row, for longer than the service may take to list it.

    :param gone_after: seconds that the service may take. Default 30.
    :param clock: a monotonic clock in seconds; tests turn it. Default: :func:`time.monotonic`.
    """

    def __init__(self, gone_after: float = DEFAULT_LOOKUP_WAIT, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._gone_after = gone_after
        self._clock = clock
        self._since: float | None = None

    def reset(self) -> None:
        """Forget the listings that missed it: nobody knows what the next one would have shown."""
        self._since = None

    def judge(self, progress: Progress) -> Progress:
        """
        Return the progress, with the time that it has been missing if it is.

        :param progress: what one listing shows.
        """
        if progress.state != "missing":
            self._since = None
            return progress
        now = self._clock()
        if self._since is None:
            self._since = now
            return progress
        seconds = now - self._since
        return replace(progress, state="gone" if seconds >= self._gone_after else "missing", seconds=seconds)


def has_status(envelope: WhitelistEnvelope, words: Iterable[str]) -> bool:
    """
    Tell whether a request's status is one of these words.

    :param envelope: the request.
    :param words: the words; compared without case.
    """
    return ascii_lower(envelope.status or "") in {ascii_lower(each) for each in words if each}
