"""Read the requests that a user is about to sign, and review them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyNotFoundError
from airflow_custody.client.text import name_some, sanitize
from airflow_custody.client.whitelist.comparison import is_deletion
from airflow_custody.client.whitelist.expected import compare_effective
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.request import VANISHED, Request, status_word
from airflow_custody.client.whitelist.signatures import describe_signatures
from airflow_custody.client.whitelist.signing.review import SigningReview
from airflow_custody.client.whitelist.snapshot import read_snapshot

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

#: Delay between two readings, in seconds.
POLL_INTERVAL = 1.0
# Maximum delay, in seconds, of the listing of requests that this user may sign, compared with the other listings.
_LISTING_LAG = 3.0
_SIGNED_ALREADY = "this user has signed it already"
_REJECTED = "Rejected requests can no longer be signed. Remove their ids, and sign the other requests."
_NOT_THIS_USERS_TURN = "Sign a request that waits for another group with the connection of a user in that group."


class ToSign(NamedTuple):
    """
    A reviewed request that needs this user's signature.

    :param hash: its hash, which is signed.
    :param text: its whole content, for the log.
    """

    hash: str
    text: str


@dataclass(frozen=True)
class SigningReader:
    """
    Reads requests, and reviews them before they are signed.

    :param client: the client of the user who signs.
    :param review: the review.
    :param log: the log.
    :param lookup_wait: seconds that the service may take to list a new signature or a new request.
    :param is_later_try: whether an earlier try may have sent some of the signatures.
    """

    client: CustodyClient
    review: SigningReview
    log: logging.Logger
    lookup_wait: float
    is_later_try: bool

    def read(self, ids: Sequence[str], hashes: Mapping[str, str] | None = None) -> dict[str, ToSign]:
        """
        Review requests, and return those that need this user's signature, in order.

        This waits until each request is pending this user's signature, or needs no signature. New requests may be
        missing in some listings at first. It takes one call for at most a hundred requests that this user may sign,
        and three more if there are other requests.

        :param ids: the requests' ids, at most a hundred.
        :param hashes: the hashes from an earlier reading, which must not have changed. Default None: the first reading.
        :return: each such request, by id.
        :raises CustodyError: if a request is neither pending this user's signature nor in no need of it, or the review
            refuses it.
        """
        deadline = time.monotonic() + self.lookup_wait
        listed_since: dict[str, float] = {}
        logged = ""
        while True:
            # Only the other listings show whether a request without an action is settled. If it is, the signature may
            # approve its deletion.
            listed = {each.id: each for each in self.client.find_whitelist_requests_for_approval(ids=ids)}
            others = self._read_others([each for each in ids if each not in listed or not listed[each].action])
            pending = {**listed, **{each.id: each.for_approval for each in others.values() if each.for_approval}}
            not_pending = [each for each in others.values() if each.for_approval is None]
            done = {each.id: self._why_done(each) for each in not_pending}
            undone = [each for each in not_pending if not done[each.id]]
            if not undone:
                break
            now = time.monotonic()
            listed_since = {each.id: now for each in undone if each.state != "missing"} | listed_since
            missing = self._check_wait(undone, listed_since, deadline)
            if missing not in ("", logged):
                logged = missing
                self.log.info("Not listed yet: %s. Polling for at most %.0f s.", missing, deadline - now)
            time.sleep(min(POLL_INTERVAL, max(0.05, self.lookup_wait / 4)))
        for why in dict.fromkeys(done.values()):
            self.log.info("%s: %s.", why, name_some([each for each in done if done[each] == why]))
        return {
            each: self._check_pending(pending[each], others.get(each), None if hashes is None else hashes[each])
            for each in ids
            if each not in done
        }

    def _read_others(self, ids: Sequence[str]) -> dict[str, Request]:
        """Read requests in all listings."""
        if not ids:
            return {}
        return {each.id: each for each in read_snapshot(self.client, ids=ids, verifier=self.review.verifier)}

    def _check_pending(self, row: WhitelistEnvelope, request: Request | None, hash_: str | None) -> ToSign:
        """
        Review a request that is pending this user's signature.

        :param row: the request, as listed for approval.
        :param request: the request, as found in all listings; None: it has an action, and they were not read.
        :param hash_: its hash in an earlier reading; None: this is the first reading.
        """
        found = ToSign(str(row.hash), self.review.check(row))
        self.review.check_status(row)
        words = self.client.settings.status_words
        is_settled = (request is not None and request.is_settled) or words.meaning(row.status) == "effective"
        name = f"whitelisting request {sanitize(row.id, 40)}"
        if is_settled and not is_deletion(row.action or ""):
            action = f"with the action {sanitize(row.action, 40)!r}" if row.action else "without an action"
            raise CustodyConflictError(
                f"{name} is listed as settled (status {status_word(row.status) or 'not given'}) and for "
                f"approval, {action}: the signature may approve its deletion",
                code="request-differs",
            )
        if hash_ is not None and row.hash != hash_:
            raise CustodyConflictError(f"{name} has changed since it was read", code="request-differs")
        return found

    def _check_wait(self, undone: Sequence[Request], listed_since: Mapping[str, float], deadline: float) -> str:
        """
        Refuse requests that have had enough time to become pending this user's signature.

        :param undone: the requests that are neither pending this user's signature nor in no need of it.
        :param listed_since: when each of them was first listed.
        :param deadline: when missing requests have had enough time.
        :return: the requests that are still missing; empty if none is.
        """
        now = time.monotonic()
        lag = min(_LISTING_LAG, self.lookup_wait)
        listed = [each for each in undone if each.state != "missing"]
        decided = [each for each in listed if now - listed_since[each.id] >= lag]
        if decided:
            raise self._not_pending(decided)
        missing = name_some([each.id for each in undone if each.state == "missing"])
        if missing and deadline <= now:
            waited = f"not listed within {self.lookup_wait:g} s"
            raise CustodyNotFoundError(
                f"there is no whitelisting request {missing} ({waited})",
                advice="Check the id, and the connection. A request that was listed earlier has been deleted.",
                code="request-missing",
            )
        return missing

    def _not_pending(self, requests: Iterable[Request]) -> CustodyConflictError:
        """Return the error for requests not pending this user's signature."""
        shown, is_any_rejected = [], False
        for each in requests:
            if each.envelope is not None:
                self.review.check_status(each.envelope)
                status = sanitize(each.envelope.status or "not given", 30)
                shown.append(f"{each.id} (status {status}; {self._why_not_pending(each, each.envelope)})")
            is_any_rejected = is_any_rejected or each.reported == "rejected"
        return CustodyConflictError(
            f"not pending this user's signature: {name_some(shown)}",
            advice=_REJECTED if is_any_rejected else _NOT_THIS_USERS_TURN,
            code="not-pending",
        )

    def _why_not_pending(self, request: Request, envelope: WhitelistEnvelope) -> str:
        """Return the known reasons why a request is not pending this user's signature."""
        if request.has_vanished:
            return VANISHED
        own = self.review.why_unsigned(envelope) or "signed by this user"
        if request.reported == "pending":
            return f"{describe_signatures(envelope, self.review.verifier)}; {own}"
        decided = {"effective": "in effect", "rejected": "rejected"}.get(request.reported)
        return f"{decided}; {own}" if decided else own

    def _why_done(self, request: Request) -> str:
        """
        Return why this user need not sign a request, or empty text.

        A request in effect that does not verify has no reason yet, because its last signature may be listed late.

        :param request: a request that is not pending this user's signature.
        :raises CustodyError: if its content is not as expected.
        """
        envelope, expected = request.envelope, self.review.expected
        if envelope is None or request.reported == "rejected" or (expected is None and not self.is_later_try):
            return ""
        may_be_signed = request.reported != "unknown" or self.is_later_try
        if may_be_signed and not self.review.why_unsigned(envelope):
            self.check_signed(envelope)
            return "Already signed"
        if expected is not None and request.reported == "effective" and request.state != "unverified":
            compare_effective(expected[envelope.id], request, self.client.settings)
            return f"Already in effect (status {request.status})"
        return ""

    def check_signed(self, envelope: WhitelistEnvelope) -> None:
        """
        Review a request that this user has already signed, in another task or by hand.

        :param envelope: the request.
        :raises CustodyError: if the review refuses it.
        """
        with concluding(_SIGNED_ALREADY):
            self.review.check(envelope)


@contextmanager
def concluding(consequence: str) -> Iterator[None]:
    """
    Append to an error's message what it means for the signatures.

    :param consequence: the meaning, for example 'nothing was signed'.
    """
    try:
        yield
    except CustodyError as error:
        message = f"{error.message.rstrip('.')}; {consequence}"
        operation = error.operation or APPROVE_WHITELIST_REQUESTS.name
        raise error.with_facts(message=message, operation=operation) from None
