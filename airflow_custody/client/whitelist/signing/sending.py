"""
Sign whitelisting requests.

Requests are read, reviewed, read again, signed and sent. If a response is lost, the service is searched for the
signature.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_custody.client.delays import tries_within
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.limits import LOOKUP_WAIT
from airflow_custody.client.signers.key import SigningKey
from airflow_custody.client.text import count, lines, name_some, sanitize
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.expected import compare_effective
from airflow_custody.client.whitelist.ids import check_request_ids, cut_into_batches
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.request import VANISHED, Request, status_word
from airflow_custody.client.whitelist.signing.batches import BatchProgress, same_texts
from airflow_custody.client.whitelist.signing.review import SigningReview, message_to_sign
from airflow_custody.client.whitelist.snapshot import read_snapshot

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.signers import Signer
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

_POLL_INTERVAL = 1.0
# Maximum delay, in seconds, of the listing of requests that this user may sign, compared with the other listings.
_LISTING_LAG = 3.0
_SIGNED_ALREADY = "this user has signed it already"
_MAYBE_SIGNED = "The signature may have been accepted"
_REJECTED = "Rejected requests can no longer be signed. Remove their ids, and sign the other requests."
_NOT_THIS_USERS_TURN = (
    "Each request is decided, already signed by this user, or waiting for another group. Sign a waiting request with "
    "the connection of a user in that group."
)
# Statuses of rejections that may be caused by a change of the request after it was read.
_ABOUT_STATE = (400, 403, 404, 409)


class RequestSigner:
    """
    Signs whitelisting requests, in batches of a hundred.

    One signature covers a whole batch. A batch is signed completely or not at all.

    :param client: the client of the user who signs.
    :param signer: the user's key.
    :param log: the log for the signed contents.
    :param lookup_wait: seconds that the service may take to list a new signature or a new request. Default 30.
    """

    _review: SigningReview
    _is_later_try: bool

    def __init__(
        self, client: CustodyClient, signer: Signer, *, log: logging.Logger, lookup_wait: float = LOOKUP_WAIT
    ) -> None:
        self._client = client
        self._signer = signer
        self._log = log
        self._lookup_wait = lookup_wait

    def sign(
        self,
        ids: Iterable[object],
        expected: Mapping[str, WhitelistRequest] | None,
        comment: str,
        *,
        earlier_try: bool = False,
    ) -> int:
        """
        Review all requests, and then sign them in batches.

        Nothing is signed before all requests have been reviewed. Then each batch is read again, signed, and sent. The
        same ids form the same batches in each try.

        A request that is in effect, or that this user has already signed, needs no signature. Its content must still
        match ``expected``, and its signatures must verify if the client has pinned keys.

        :param ids: the requests' ids; any number.
        :param expected: the expected content of each request, by id; None: any content is signed.
        :param comment: comment for the requests' history.
        :param earlier_try: whether an earlier try may have sent some of these signatures. If so, requests that this
            user has already signed are accepted even without ``expected``. Default False.
        :return: the number of requests, including those that needed no signature.
        :raises CustodyVerificationError: if the client has pinned keys, but these keys have not signed the rules of a
            request, or a signature is invalid.
        :raises CustodyError: if a request does not match or cannot be read, or the service rejects the signature.
            A signature was sent only in the last case. The error reports whether this call signed any request. With
            several batches, the error names the failed batch and the number of signed requests.
        :raises CustodyOutcomeUnknownError: if the response was lost. The error is retryable if the signature was
            certainly not accepted. The same applies to the error of a gateway.
        """
        wanted = check_request_ids(ids, limit=None)
        self._is_later_try = earlier_try
        with _concluding(self._nothing_signed(0)):
            _check_arguments(wanted, expected, comment)
        key = SigningKey(self._signer)
        verifier = verifier_for(self._client, even_unsigned=True)
        self._review = SigningReview(expected, self._client.settings, self._current_user(), key, verifier)
        if verifier is None:
            self._log.info("%s", NOT_PINNED)
        batches = cut_into_batches(wanted)
        progress = BatchProgress("signed", batches, self._log)
        reviewed = self._review_all(batches, progress)
        self._warn_of_same_texts(reviewed.values())
        for number, hashes in reviewed.items():
            with progress.failing_in(number):
                # Read again right before the key is used, so that the current content is signed.
                with _concluding(self._nothing_signed(progress.done)):
                    pending = self._read([*hashes], hashes)
                if pending:
                    self._sign_batch(pending, comment)
                    progress.done_now(number)
                else:
                    progress.done_before(number)
        return progress.done

    def _review_all(self, batches: Sequence[list[str]], progress: BatchProgress) -> dict[int, dict[str, str]]:
        """Review all batches, and return the hashes to sign, by batch number."""
        reviewed: dict[int, dict[str, str]] = {}
        for number, batch in enumerate(batches):
            with progress.failing_in(number), _concluding(self._nothing_signed(progress.done)):
                pending = self._read(batch)
            if pending:
                reviewed[number] = {each: hash_ for each, (hash_, _) in pending.items()}
            else:
                progress.done_before(number)
        return reviewed

    def _nothing_signed(self, done: int) -> str:
        """
        Return what was not signed if an error occurs before a signature is sent.

        :param done: number of requests whose batches are done.
        """
        what = "nothing of this batch was signed" if done else "nothing was signed"
        return f"{what} in this try" if self._is_later_try else what

    def _warn_of_same_texts(self, reviewed: Iterable[Mapping[str, str]]) -> None:
        for same in same_texts(dict(ChainMap(*map(dict, reviewed)))):
            self._log.warning(
                "Whitelisting requests %s have the same text, and may be one request. One signature covers them all.",
                same,
            )

    def _current_user(self) -> WireUser:
        try:
            return self._client.get_current_user()
        except CustodyError as error:
            if not error.not_offered:
                raise
            self._log.warning(
                "%s",
                lines(
                    "This user's details could not be read, so the tenant of the requests cannot be compared with the "
                    "user's tenant. If a response is lost, the signature can be recognized only by the signer's public "
                    "key. The error was:",
                    str(error),
                ),
            )
            return {}

    def _sign_batch(self, pending: Mapping[str, tuple[str, str]], comment: str) -> None:
        """Sign requests and send the signature."""
        for _, line in pending.values():
            self._log.info("%s", line)
        ids, key = [*pending], self._review.key
        hashes = {each: hash_ for each, (hash_, _) in pending.items()}
        signature = key.sign(message_to_sign(hashes.values()))
        self._log.info("Sending the signature of %s, made with the key %r.", ", ".join(ids), key.name)
        sent = threading.Event()
        try:
            taken = self._client.approve_whitelist_requests(
                ids, base64.b64encode(signature).decode(), comment, before_send=sent.set
            )
            if taken != len(ids):
                raise CustodyOutcomeUnknownError(
                    f"the service accepted {count(taken, 'signature')} for {count(len(ids), 'request')}",
                    operation=APPROVE_WHITELIST_REQUESTS.name,
                )
        except CustodyError as error:
            # An error is a rejection only if the service itself returned it, or if nothing is sent. A gateway may
            # return an error after the service has accepted the signature.
            is_refused = error.from_service or error.nothing_sent or not sent.is_set()
            if isinstance(error, CustodyOutcomeUnknownError) or not is_refused:
                self._resolve(hashes, error)
            elif self._is_settled(hashes, error):
                return
            else:
                self._explain(error)
                raise
        self._log.info("Signed: %s.", ", ".join(ids))

    def _explain(self, refusal: CustodyError) -> None:
        """Add to the error of a 400 that the key may belong to another user."""
        if refusal.status == 400:
            user, name = self._client.settings.user_text, sanitize(self._review.key.name, 120)
            whose = f"{user[0].lower()}{user[1:]}"
            refusal.message = f"the signing key {name!r} may not belong to {whose}: {refusal.message}"
            refusal.advice = "If the signature is the reason, use a connection and a key of the same user."

    def _is_settled(self, hashes: Mapping[str, str], refusal: CustodyError) -> bool:
        """
        Tell whether the requests no longer need the rejected signature.

        They no longer need it if the signature of an earlier try has arrived meanwhile, or if they are in effect.
        Otherwise, the rejection is final. If the requests cannot be read, this failure is added to the rejection's
        advice.
        """
        if refusal.status not in _ABOUT_STATE:
            return False
        # The cause of a 409 may be listed late.
        wait = self._lookup_wait if refusal.status == 409 else 0.0
        failure: CustodyError | None = None
        for _ in tries_within(wait, maximum=_POLL_INTERVAL):
            try:
                if not self._read([*hashes], hashes):
                    self._log.warning("Rejected (%s), but no signature is missing.", refusal.message.rstrip("."))
                    return True
                failure = None
            except CustodyError as error:
                failure = error
                if not failure.retryable:
                    break
        if failure is not None:
            refusal.retryable = failure.retryable
            reread = f"Reading the requests again failed: {failure.message.rstrip('.')}."
            refusal.advice = lines(refusal.advice, reread)
        return False

    # --- pending requests --------------------------------------------------------------------------------------

    def _read(self, ids: list[str], hashes: Mapping[str, str] | None = None) -> dict[str, tuple[str, str]]:
        """
        Review requests, and return the requests that need this user's signature.

        This waits until each request is pending this user's signature, or needs no signature.

        :param ids: the requests' ids.
        :param hashes: the hashes from an earlier reading, which must not have changed. Default None: the first reading.
        :return: hash and log entry of each such request, by id.
        """
        found = {}
        for request, row in self._wait_until_pending(ids):
            found[row.id] = str(row.hash), self._review.check(row)
            self._review.check_status(row)
            is_settled = request.is_settled or self._client.settings.status_words.meaning(row.status) == "effective"
            if is_settled and not row.action:
                raise CustodyConflictError(
                    f"{request.name} is listed as settled (status {status_word(row.status) or 'not given'}) and for "
                    "approval, without an action: the signature may approve its deletion",
                    code="request-differs",
                )
            if hashes is not None and row.hash != hashes[row.id]:
                raise CustodyConflictError(f"{request.name} has changed since it was read", code="request-differs")
        return found

    def _wait_until_pending(self, ids: list[str]) -> list[tuple[Request, WhitelistEnvelope]]:
        """
        Wait, and return the requests pending this user's signature, in order, each as listed for approval.

        Each request must become pending this user's signature, or need no signature. New requests may be missing in
        some listings at first.
        """
        deadline = time.monotonic() + self._lookup_wait
        listed_since: dict[str, float] = {}
        while True:
            snapshot = read_snapshot(self._client, ids=ids, verifier=self._review.verifier)
            pending = [(each, each.for_approval) for each in snapshot if each.for_approval is not None]
            done = {each.id: self._why_done(each) for each in snapshot if each.for_approval is None}
            open_ = [snapshot[each] for each, why in done.items() if not why]
            if not open_:
                self._log_done(done)
                return pending
            now = time.monotonic()
            lag = min(_LISTING_LAG, self._lookup_wait)
            listed = [each for each in open_ if each.state != "missing"]
            decided = [each for each in listed if now - listed_since.setdefault(each.id, now) >= lag]
            if decided:
                raise self._not_pending(decided)
            missing = [each.id for each in open_ if each.state == "missing"]
            if missing:
                self._check_deadline(missing, deadline - now)
            time.sleep(min(_POLL_INTERVAL, max(0.05, self._lookup_wait / 4)))

    def _log_done(self, done: Mapping[str, str]) -> None:
        for why in dict.fromkeys(done.values()):
            named = name_some([each for each in done if done[each] == why])
            self._log.info("%s: %s.", why, named)

    def _check_deadline(self, missing: list[str], seconds_left: float) -> None:
        if seconds_left <= 0:
            waited = f"not listed within {self._lookup_wait:g} s"
            raise CustodyNotFoundError(
                f"there is no whitelisting request {name_some(missing)} ({waited})", code="request-rejected"
            )
        self._log.info("Not listed yet: %s. Polling for at most %.0f s.", name_some(missing), seconds_left)

    def _not_pending(self, requests: Iterable[Request]) -> CustodyConflictError:
        """Return the error for requests not pending this user's signature."""
        shown, is_any_rejected = [], False
        for each in requests:
            if each.envelope is not None:
                self._review.check_status(each.envelope)
                unsigned = VANISHED if each.has_vanished else self._review.why_unsigned(each.envelope)
                why = unsigned or "signed by this user"
                shown.append(f"{each.id} (status {sanitize(each.envelope.status or 'not given', 30)}; {why})")
            is_any_rejected = is_any_rejected or each.reported == "rejected"
        return CustodyConflictError(
            f"not pending this user's signature: {name_some(shown)}",
            advice=_REJECTED if is_any_rejected else _NOT_THIS_USERS_TURN,
            code="not-pending",
        )

    def _why_done(self, request: Request) -> str:
        """
        Return why this user need not sign a request, or empty text.

        A request in effect that does not verify has no reason yet, because its last signature may be listed late.

        :param request: a request that is not pending this user's signature.
        :raises CustodyError: if its content is not as expected.
        """
        envelope, expected = request.envelope, self._review.expected
        if envelope is None or request.reported == "rejected" or (expected is None and not self._is_later_try):
            return ""
        may_be_signed = request.reported != "unknown" or self._is_later_try
        if may_be_signed and not self._review.why_unsigned(envelope):
            self._check_signed(envelope)
            return "Already signed"
        if expected is not None and request.reported == "effective" and request.state != "unverified":
            compare_effective(expected[envelope.id], request, self._client.settings)
            return f"Already in effect (status {request.status})"
        return ""

    def _check_signed(self, envelope: WhitelistEnvelope) -> None:
        """
        Review a request that this user has already signed, in another task or by hand.
        """
        with _concluding(_SIGNED_ALREADY):
            self._review.check(envelope)

    # --- lost responses ----------------------------------------------------------------------------------------

    def _resolve(self, hashes: Mapping[str, str], error: CustodyError) -> None:
        """
        Find out whether a signature with a lost response was accepted.

        :raises CustodyError: the error of the lost response, if acceptance cannot be confirmed. Its advice contains the
            known facts.
        """
        self._log.warning("%s", lines(f"The outcome is unknown: {error.message}", "Checking at the service."))
        for _ in tries_within(self._lookup_wait, maximum=_POLL_INTERVAL):
            is_safe = False
            try:
                lacking = self._unsigned(hashes)
                if not lacking:
                    self._log.info("The service lists the signatures: they were accepted.")
                    return
                snapshot = read_snapshot(self._client, ids=hashes, verifier=self._review.verifier)
                is_safe = all(each.for_approval for each in snapshot)
                named = ", ".join(f"{each} ({why})" for each, why in lacking.items())
                words = f"{_MAYBE_SIGNED}: look at the service. Signature not found: {named}."
            except CustodyError as failure:
                words = f"{_MAYBE_SIGNED}; checking at the service failed: {failure.message}."
                if not failure.retryable:
                    break
        if is_safe:
            words = (
                f"The signature had no effect: {self._lookup_wait:g} s later, the requests are still pending this "
                "user's signature. Trying again is safe."
            )
        # Do not retry after a redirect, because the next try would be redirected, too.
        error.retryable = is_safe and error.status not in range(300, 400)
        # Keep the advice of a gateway's error, which may be about a role or a version. The advice of an unknown outcome
        # would only repeat the message.
        error.advice = lines(words, None if isinstance(error, CustodyOutcomeUnknownError) else error.advice)
        raise error

    def _unsigned(self, hashes: Mapping[str, str]) -> dict[str, str]:
        """Return the requests without this user's signature, each with the reason."""
        listed = {each.id: each for each in self._client.find_whitelist_requests(ids=hashes)}
        if others := [each for each, row in listed.items() if row.hash != hashes[each]]:
            # Do not sign again, because the signature of the earlier text may still count.
            raise CustodyConflictError(
                f"the text of whitelisting request {name_some(others)} has changed since it was signed",
                code="request-differs",
            )
        lacking = {each: why for each in hashes if (why := self._review.why_unsigned(listed.get(each)))}
        for row in () if lacking else listed.values():
            self._check_signed(row)
        return lacking


def _check_arguments(ids: Iterable[str], expected: Mapping[str, WhitelistRequest] | None, comment: str) -> None:
    if not comment.strip():
        raise CustodyRequestError("the comment is empty")
    lacking = [] if expected is None else [each for each in ids if each not in expected]
    if lacking:
        raise CustodyRequestError(f"'expected' has no content for {name_some(lacking)}")


@contextmanager
def _concluding(consequence: str) -> Iterator[None]:
    """Append to an error's message what it means for the signatures, for example 'nothing was signed'."""
    try:
        yield
    except CustodyError as error:
        error.operation = error.operation or APPROVE_WHITELIST_REQUESTS.name
        error.message = f"{error.message.rstrip('.')}; {consequence}"
        raise
