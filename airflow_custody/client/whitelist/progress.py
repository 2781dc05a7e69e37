"""
The progress of whitelisting requests.

Two things count: where a request is listed, as requests that are pending approval are hidden unless one asks for them,
and its ``status``. The service's makers publish no list of the words of ``status``: one that is not known proves
nothing. With pinned keys a third counts: both are the service's word, and only signatures prove that a request is in
effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyResponseError,
    CustodyVerificationError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT, MAX_PAGE_SIZE
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.verification.trust import (
    REJECTED_STATUSES,
    ListedAs,
    RequestState,
    decide_trust,
    has_status,
    state_of,
    what_to_do,
)
from airflow_custody.client.whitelist.batches import MAX_NAMED_IDS, name_some
from airflow_custody.client.whitelist.for_approval import find_for_approval, pending_deletions, still_pending

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.verification.verifier import VerifiedAddress, Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

#: Seconds that the service may take to show the last signature of a request that it shows as in effect.
DEFAULT_UNVERIFIED_AFTER = 5.0
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


@dataclass(frozen=True)
class Progress:
    """
    The progress of a request.

    :param state: ``effective``, ``pending``, ``rejected``, ``missing`` (it is not listed), ``gone`` (it has been
        missing for too long), ``unverified`` (the service shows it as in effect, and its signatures do not prove it),
        or ``unknown``: it is not pending any more, and its status does not say whether it is in effect.
    :param status: the service's own word, as sent.
    :param signatures: number of users who have signed it, in the service's word.
    :param seconds: seconds for which it has been missing or unverified. Default 0.
    :param patience: for how many more seconds a lag of the service may explain that. Default 0.
    :param confirmed: whether it has been unverified for longer than a lag explains, or to the end. Default False.
    :param verified: the facts that its signatures prove, if it is in effect and keys are pinned. Default None.
    :param unverified: why they prove nothing, if it is unverified. Default None.
    :param created_at: creation time, if it is pending and says so. Default None.
    """

    state: Literal["effective", "pending", "rejected", "missing", "gone", "unverified", "unknown"]
    status: str | None
    signatures: int
    seconds: float = 0.0
    patience: float = 0.0
    confirmed: bool = False
    verified: VerifiedAddress | None = None
    unverified: CustodyVerificationError | None = None
    created_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether the wait for it has failed: it will not take effect any more, or it does not verify."""
        return self.state in ("rejected", "gone") or self.confirmed

    def failure(self, request_id: str) -> CustodyError:
        """Return the error of a wait that has failed."""
        if self.unverified is not None:
            advice = what_to_do([request_id], self.unverified.advice)
            return CustodyVerificationError(self.summary(request_id), advice=advice, code=self.unverified.code)
        again = "If the address is still wanted, create another request." if self.state == "rejected" else None
        return CustodyConflictError(self.summary(request_id), advice=again, code=self.failure_code)

    @property
    def failure_code(self) -> ErrorCode:
        """The code of a wait that has failed."""
        if self.unverified is not None:
            return self.unverified.code
        return "request-rejected"

    def summary(self, request_id: str) -> str:
        """Return the progress in words."""
        if self.state == "gone":
            return f"whitelisting request {request_id} does not exist: it has not been listed for {self.seconds:.3g} s"
        if self.state == "missing":
            return f"whitelisting request {request_id} is not listed, for {self.seconds:.3g} s so far"
        words = {"effective": "is in effect", "pending": "is pending approval", "rejected": "was rejected"}
        status = sanitize(self.status or "not given", 40)
        signatures = count(self.signatures, "signature")
        if self.unverified is not None:
            start = f"whitelisting request {request_id} is not verified: "
            why = self.unverified.message.removeprefix(start)
            return f"{start}the service says that it is in effect (status {status}, {signatures}), but {why}"
        if self.state == "unknown":
            return (
                f"whitelisting request {request_id} is not pending any more, but its status {status!r} is neither in "
                f"effective_statuses nor in rejected_statuses ({signatures}): it does not count as in effect. Name the "
                "word in one of the two"
            )
        text = f"whitelisting request {request_id} {words[self.state]} (status {status}, {signatures})"
        return text if self.verified is None else text + describe_verified(verified_facts(self.verified))

    def to_json(self, request_id: str) -> dict[str, Any]:
        """Return the progress as plain JSON data; with what is verified, if keys are pinned."""
        return {
            "id": request_id,
            "state": self.state,
            "status": status_word(self.status),
            "signatures": self.signatures,
            "verified": self.verified is not None,
            **({} if self.verified is None else verified_facts(self.verified)),
        }


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


def find_listed(client: CustodyClient, ids: Iterable[str], *, strict: bool = True) -> dict[str, ListedRequest]:
    """
    Find where requests are listed, in two calls for each hundred of them, and one more for those that are settled,
    missing or rejected: are they listed for approval? For those that are settled and listed there, too, one more says
    which can still be signed.

    If the client has pinned keys, those that are settled are verified. A request that does not verify affects no other.

    :param client: the client.
    :param ids: the requests' ids.
    :param strict: whether a request that cannot be read is an error. Otherwise its envelope says that it cannot, and it
        is not verified. Default True.
    :return: one entry for each id.
    :raises CustodyError: as :meth:`CustodyClient.find_whitelist_requests` does.
    """
    wanted = list(dict.fromkeys(ids))
    found: dict[str, ListedRequest] = {}
    for start in range(0, len(wanted), MAX_PAGE_SIZE):
        batch = wanted[start : start + MAX_PAGE_SIZE]
        rows = {row.id: row for row in client.find_whitelist_requests(ids=batch, include_pending=False)}
        for_approval = find_for_approval(client, [each for each in batch if each in rows])
        pending = still_pending(client, for_approval, rows)
        deletions = pending_deletions(for_approval, pending)
        for each, row in rows.items():
            listed = _listed(client.verifier, row, each not in pending, each in pending, strict)
            was_signed = each in for_approval and each not in pending and each not in deletions
            found[each] = replace(listed, was_signed=was_signed, deletion_pending=each in deletions)
        # Last: what takes effect in between is seen as pending, and not as gone.
        if rest := [each for each in batch if each not in rows]:
            more = {row.id: row for row in client.find_whitelist_requests(ids=rest)}
            # Of these, the status word, or that they are not listed, is not to be believed at once.
            doubtful = [each for each in rest if each not in more or has_status(more[each].status, REJECTED_STATUSES)]
            pending = find_for_approval(client, doubtful)
            more = {**pending, **more}
            found.update({each: _listed(None, row, False, each in pending, strict) for each, row in more.items()})
    return {each: found.get(each, ListedRequest(None, settled=False)) for each in wanted}


def _listed(
    verifier: Verifier | None, envelope: WhitelistEnvelope, settled: bool, for_approval: bool, strict: bool
) -> ListedRequest:
    if not envelope.is_readable and not strict:
        return ListedRequest(envelope, settled, for_approval=for_approval)
    if not envelope.is_readable:
        # Nothing is known of it, and that is no success, whatever counts as one.
        raise CustodyResponseError(f"whitelisting request {envelope.id} cannot be read", code="request-differs")
    if not settled:
        return ListedRequest(envelope, settled, for_approval=for_approval)
    # Whatever its status: which words mean that it is in effect, whoever asked knows.
    trust = decide_trust(envelope.wire, "effective", verifier)
    return ListedRequest(envelope, settled, verified=trust.address, unverified=trust.error)


def judge_progress(
    listed: ListedRequest, *, effective_statuses: Iterable[str] | None, rejected_statuses: Iterable[str]
) -> Progress:
    """
    Judge the progress of a request.

    :param listed: its place in the listings.
    :param effective_statuses: status words, compared without case, of which a request in effect has one; None: being
        listed as settled is enough.
    :param rejected_statuses: status words, compared without case, that mean it was rejected.
    :return: the progress.
    """
    if listed.envelope is None:
        return Progress("missing", None, 0)
    status = listed.envelope.status
    signatures = len(listed.envelope.signed_by)
    state = listed.state(effective_statuses, rejected_statuses)
    if state == "pending":
        return Progress("pending", status, signatures, created_at=listed.envelope.created_at)
    if state != "effective":
        return Progress(state, status, signatures)
    if listed.unverified is not None:
        return Progress("unverified", status, signatures, unverified=listed.unverified)
    return Progress("effective", status, signatures, verified=listed.verified)


class GracePeriod:
    """
    The time for which a request may be missing or unverified before that counts.

    A listing may lag: one that misses a request, or shows it without its last signature, proves nothing. A request is
    gone once it has been missing, in a row, for longer than the service may take to list it; and one that is still
    unverified after the time that it may take to show a signature is so for good.

    A request that was unverified counts as such until it is verified, whatever is shown in between: what is shown now
    like this and now like that must not be waited for without end. A listed request is not missing any more.

    :param gone_after: seconds that the service may take to list a request. Default 30.
    :param unverified_after: seconds that it may take to show a signature. Default 5.
    :param clock: a monotonic clock in seconds; tests turn it. Default: :func:`time.monotonic`.
    """

    def __init__(
        self,
        gone_after: float = DEFAULT_LOOKUP_WAIT,
        unverified_after: float = DEFAULT_UNVERIFIED_AFTER,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits: Mapping[str, float] = {"missing": gone_after, "unverified": unverified_after}
        self._clock = clock
        self._since: dict[str, float] = {}
        #: The last poll that showed it as in effect, and not verified; None: none did since it was verified.
        self.unverified: Progress | None = None

    def reset(self) -> None:
        """Forget how long it has been missing: nobody knows what the next listing would have shown."""
        self._since.pop("missing", None)

    def take_over(self, progress: Progress) -> None:
        """Take over a poll of another process that was unverified, as if it were of now."""
        self.unverified = progress
        self._since["unverified"] = self._clock()

    @property
    def unverified_patience(self) -> float:
        """Seconds for which a lag may still explain that it is unverified; 0 if it is not."""
        since = self._since.get("unverified")
        return 0.0 if since is None else max(0.0, self._limits["unverified"] - (self._clock() - since))

    def judge(self, progress: Progress) -> Progress:
        """
        Return the progress, with the time that it has been missing or unverified if it is.

        :param progress: the progress by one listing.
        """
        if progress.state != "missing":
            self.reset()
        if progress.state == "unverified":
            self.unverified = progress
        elif progress.state == "effective":
            self.unverified = None
            self._since.clear()
        if progress.state not in self._limits:
            return progress
        limit, now = self._limits[progress.state], self._clock()
        if progress.state not in self._since:
            # Nothing is decided by one poll.
            self._since[progress.state] = now
            return replace(progress, patience=limit)
        seconds = now - self._since[progress.state]
        if seconds < limit:
            return replace(progress, seconds=seconds, patience=limit - seconds)
        if progress.state == "missing":
            return replace(progress, state="gone", seconds=seconds)
        return replace(progress, seconds=seconds, confirmed=True)


def unverified_to_json(unverified: Mapping[str, Progress]) -> dict[str, Any]:
    """
    Return polls that showed requests as in effect, and not verified, as plain JSON data.

    :param unverified: the polls, by the requests' ids. Of those beyond the first ten, only the ids are kept.
    """
    found: dict[str, Any] = {}
    for number, (each, progress) in enumerate(unverified.items()):
        found[each] = {}
        if number < MAX_NAMED_IDS and progress.unverified is not None:
            error = progress.unverified.to_json()
            found[each] = {"status": status_word(progress.status), "signatures": progress.signatures, "error": error}
    return found


def unverified_from_json(data: Mapping[str, Any]) -> dict[str, Progress]:
    """Return what :func:`unverified_to_json` was given."""
    found = {}
    for each, facts in data.items():
        error = CustodyError.from_json(facts["error"]) if "error" in facts else None
        if not isinstance(error, CustodyVerificationError):
            error = CustodyVerificationError(
                "when that was seen first, its signatures did not prove it", code="not-verified"
            )
        found[each] = Progress("unverified", facts.get("status"), facts.get("signatures", 0), unverified=error)
    return found


def status_word(status: str | None) -> str:
    """Return the service's word for a status, of a length that is fit for a report; empty if there is none."""
    return sanitize(status or "", _MAX_STATUS)
