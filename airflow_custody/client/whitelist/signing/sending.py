"""Sign whitelisting requests. Each batch is read, reviewed, signed, sent, and confirmed."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_custody.client.arguments import LOOKUP_WAIT
from airflow_custody.client.delays import tries_within
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.signers.key import SigningKey
from airflow_custody.client.text import count, lines, name_some, sanitize
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.ids import check_request_ids, cut_into_batches
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.signing.batches import failing_in, log_progress, same_texts
from airflow_custody.client.whitelist.signing.review import SigningReview, ToSign, concluding, message_to_sign
from airflow_custody.client.whitelist.snapshot import find_for_approval, read_snapshot

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.signers import Signer
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest
    from airflow_custody.client.whitelist.request import Request

# Maximum delay between two readings, in seconds.
_POLL_INTERVAL = 1.0
# Maximum lag, in seconds, of the listing of requests that this user may sign behind the other listings.
_LISTING_LAG = 3.0
# Statuses with which the service may reject a signature because a request has changed after it was read.
_ABOUT_STATE = (400, 403, 404, 409)
_MAYBE_SIGNED = "The signature may have been accepted"


class RequestSigner:
    """
    Signs whitelisting requests, in batches of a hundred.

    One signature covers a whole batch. A batch is signed completely or not at all.

    :param client: the client of the user who signs.
    :param signer: the user's key.
    :param log: the log for the signed contents.
    :param lookup_wait: seconds that the service may take to list a new signature or a new request. Default 30.
    """

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
        same ids form the same batches in each try. This takes three calls for each batch, and at most two more in all,
        for the user and for the rules in force. If a batch has requests that this user may not sign, or that have no
        action, each reading of the batch takes three more calls.

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
        :raises CustodyError: if a request does not match or cannot be read, or the service rejects the signature. Only
            in the last case was a signature sent for the failed batch. The error reports whether this call signed any
            request. With several batches, it names the failed batch and the number of signed requests.
        :raises CustodyOutcomeUnknownError: if the response was lost. The error is retryable if the signature was
            certainly not accepted. The same applies to an error that a gateway returns.
        """
        wanted = check_request_ids(ids, limit=None)
        nothing_signed = "nothing was signed in this try" if earlier_try else "nothing was signed"
        nothing_more = nothing_signed.replace("nothing", "nothing of this batch")
        with concluding(nothing_signed):
            if not comment.strip():
                raise CustodyRequestError("the comment is empty")
            if lacking := [] if expected is None else [each for each in wanted if each not in expected]:
                raise CustodyRequestError(f"'expected' has no content for {name_some(lacking)}")
        key = SigningKey(self._signer)
        verifier = verifier_for(self._client, even_unsigned=True)
        review = SigningReview(
            expected,
            self._client.settings,
            user=self._read_user(),
            key=key,
            verifier=verifier,
            is_later_try=earlier_try,
        )
        if verifier is None:
            self._log.info("%s", NOT_PINNED)
        # A request is counted in `done` once it is signed, or once the first review finds that it needs no signature.
        batches, done = cut_into_batches(wanted), 0

        # First review all batches. A request that needs no signature is not read again.
        reviewed: list[dict[str, str]] = []
        for number, batch in enumerate(batches):
            with failing_in(batches, number, done, "signed"), concluding(nothing_more if done else nothing_signed):
                to_sign = self._read(review, batch)
            reviewed.append({each: found.hash for each, found in to_sign.items()})
            done += 0 if to_sign else len(batch)
        self._warn_of_same_texts(dict(ChainMap(*reviewed)))

        for number, hashes in enumerate(reviewed):
            if not hashes:
                continue
            with failing_in(batches, number, done, "signed"):
                # Read again right before the key is used, so that the current content is signed.
                with concluding(nothing_more if done else nothing_signed):
                    to_sign = self._read(review, [*hashes], hashes)
                if to_sign:
                    self._sign_batch(review, to_sign, comment)
            done += len(batches[number])
            if to_sign:
                log_progress(self._log, batches, number, done, "signed")
        return done

    def _warn_of_same_texts(self, hashes: Mapping[str, str]) -> None:
        for same in same_texts(hashes):
            self._log.warning(
                "Whitelisting requests %s have the same text, and may be one request. One signature covers them all.",
                same,
            )

    def _read_user(self) -> WireUser:
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

    # --- read and review ---------------------------------------------------------------------------------------

    def _read(
        self, review: SigningReview, ids: Sequence[str], hashes: Mapping[str, str] | None = None
    ) -> dict[str, ToSign]:
        """
        Read and review requests, and return those that need this user's signature, in order.

        This waits until each request is pending this user's signature, or needs no signature. New requests may be
        missing in some listings at first. Each reading takes one call for the requests that this user may sign, and
        three more if there are other requests.

        :param review: the review.
        :param ids: the requests' ids, at most a hundred.
        :param hashes: the hashes from an earlier reading, which must not have changed. Default None: the first reading.
        :return: the requests that need this user's signature, by id.
        :raises CustodyError: if a request needs a signature but is not pending this user's, or if the review refuses a
            request.
        """
        started = time.monotonic()
        listed_since: dict[str, float] = {}
        logged = ""
        while True:
            for_approval, others, reasons = self._list(review, ids)
            undone = [others[each] for each, why in reasons.items() if not why]
            if not undone:
                break
            now = time.monotonic()
            listed = [each for each in undone if each.state != "missing"]
            listed_since = {each.id: now for each in listed} | listed_since
            lag = min(_LISTING_LAG, self._lookup_wait)
            if decided := [each for each in listed if now - listed_since[each.id] >= lag]:
                raise review.not_pending(decided)
            missing = name_some([each.id for each in undone if each.state == "missing"])
            left = started + self._lookup_wait - now
            if missing and left <= 0:
                raise CustodyNotFoundError(
                    f"there is no whitelisting request {missing} (not listed within {self._lookup_wait:g} s)",
                    advice="Check the id, and the connection. A request that was listed earlier has been deleted.",
                    code="request-missing",
                )
            if missing not in ("", logged):
                logged = missing
                self._log.info("Not listed yet: %s. Polling for at most %.0f s.", missing, left)
            time.sleep(min(_POLL_INTERVAL, max(0.05, self._lookup_wait / 4)))
        # Each request that this user may not sign now has a reason why it needs no signature.
        for why in dict.fromkeys(reasons.values()):
            self._log.info("%s: %s.", why, name_some([each for each in reasons if reasons[each] == why]))
        return {
            each: review.check_pending(for_approval[each], others.get(each), None if hashes is None else hashes[each])
            for each in ids
            if each not in reasons
        }

    def _list(
        self, review: SigningReview, ids: Sequence[str]
    ) -> tuple[dict[str, WhitelistEnvelope], Mapping[str, Request], dict[str, str]]:
        """
        Return the requests that this user may sign, the other requests, and the reasons why those need no signature.

        A reason is empty if the request does need a signature. Requests without an action are among the other requests,
        too, because only the other listings show whether such a request is settled. If it is, a signature may approve
        its deletion.
        """
        for_approval = {each.id: each for each in self._client.find_whitelist_requests_for_approval(ids=ids)}
        unclear = [each for each in ids if each not in for_approval or not for_approval[each].action]
        others = read_snapshot(self._client, unclear, review.verifier).requests if unclear else {}
        for_approval |= {each.id: each.for_approval for each in others.values() if each.for_approval}
        reasons = {each.id: review.why_done(each) for each in others.values() if each.for_approval is None}
        return for_approval, others, reasons

    # --- sign and send -----------------------------------------------------------------------------------------

    def _sign_batch(self, review: SigningReview, to_sign: Mapping[str, ToSign], comment: str) -> None:
        """Sign requests, send the signature, and confirm it if the response does not."""
        for found in to_sign.values():
            self._log.info("%s", found.text)
        ids, hashes = [*to_sign], {each: found.hash for each, found in to_sign.items()}
        signature = review.key.sign(message_to_sign(hashes.values()))
        self._log.info("Sending the signature of %s, made with the key %r.", ", ".join(ids), review.key.name)
        failure, is_refused = self._send(ids, base64.b64encode(signature).decode(), comment)
        if failure is not None and is_refused:
            self._confirm_settled(review, hashes, failure)
            return
        if failure is not None:
            self._confirm_signed(review, hashes, failure)
        self._log.info("Signed: %s.", ", ".join(ids))

    def _send(self, ids: Sequence[str], signature: str, comment: str) -> tuple[CustodyError | None, bool]:
        """
        Send a signature.

        :return: the error, None if the service reports that it accepted the signature; and whether the signature was
            certainly not accepted.
        """
        sent = threading.Event()
        try:
            accepted = self._client.approve_whitelist_requests(ids, signature, comment, before_send=sent.set)
        except CustodyOutcomeUnknownError as error:
            return error, False
        except CustodyError as error:
            # The signature was certainly not accepted only if the service itself returned the error, or nothing was
            # sent. A gateway may return an error although the service has accepted the signature.
            return error, error.from_service or error.nothing_sent or not sent.is_set()
        if accepted != len(ids):
            text = f"the service accepted {count(accepted, 'signature')} for {count(len(ids), 'request')}"
            return CustodyOutcomeUnknownError(text, operation=APPROVE_WHITELIST_REQUESTS.name), False
        return None, False

    # --- confirm -----------------------------------------------------------------------------------------------

    def _confirm_settled(self, review: SigningReview, hashes: Mapping[str, str], refusal: CustodyError) -> None:
        """
        Return if the requests do not need the rejected signature, and raise the rejection otherwise.

        They do not need it if the signature of an earlier try has arrived meanwhile, or if they are in effect.

        :raises CustodyError: the rejection. If the requests cannot be read again, its advice contains this failure. For
            a 400, its message adds that the key may belong to another user.
        """
        failure: CustodyError | None = None
        # The service may list the change that has caused a 409 late.
        wait = self._lookup_wait if refusal.status == 409 else 0.0
        for _ in tries_within(wait, maximum=_POLL_INTERVAL) if refusal.status in _ABOUT_STATE else ():
            try:
                if not self._read(review, [*hashes], hashes):
                    self._log.warning("Rejected (%s), but no request needs it.", refusal.message.rstrip("."))
                    return
                failure = None
            except CustodyError as error:
                failure = error
                if not failure.retryable:
                    break
        if failure is not None:
            reread = f"Reading the requests again failed: {failure.message.rstrip('.')}."
            refusal = refusal.with_facts(retryable=failure.retryable, advice=lines(refusal.advice, reread))
        if refusal.status == 400:
            user = self._client.settings.user_text
            refusal = refusal.with_facts(
                message=f"the signing key {sanitize(review.key.name, 120)!r} may not belong to "
                f"{user[0].lower()}{user[1:]}: {refusal.message}",
                advice="If the signature is the reason, use a connection and a key of the same user.",
            )
        raise refusal

    def _confirm_signed(self, review: SigningReview, hashes: Mapping[str, str], error: CustodyError) -> None:
        """
        Return if a signature whose response was lost was accepted, and raise the error otherwise.

        :raises CustodyError: the error of the lost response, if the service does not list the signature. Its advice
            says what was found.
        """
        self._log.warning("%s", lines(f"The outcome is unknown: {error.message}", "Checking at the service."))
        is_safe, words = False, _MAYBE_SIGNED
        for _ in tries_within(self._lookup_wait, maximum=_POLL_INTERVAL):
            is_safe = False
            try:
                lacking = self._unsigned(review, hashes)
                if not lacking:
                    self._log.info("The service lists the signatures: they were accepted.")
                    return
                is_safe = find_for_approval(self._client, [*hashes]).keys() >= hashes.keys()
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
        raise error.with_facts(
            # Do not retry after a redirect, because the next try would be redirected, too.
            retryable=is_safe and error.status not in range(300, 400),
            # Keep the advice of a gateway's error, which may be about a role or a version. Drop the advice of an
            # unknown outcome, which would only repeat the message.
            advice=lines(words, None if isinstance(error, CustodyOutcomeUnknownError) else error.advice),
        )

    def _unsigned(self, review: SigningReview, hashes: Mapping[str, str]) -> dict[str, str]:
        """Return the requests without this user's signature, each with the reason."""
        listed = {each.id: each for each in self._client.find_whitelist_requests(ids=hashes)}
        if others := [each for each, row in listed.items() if row.hash != hashes[each]]:
            # Do not sign the new text, because the signature of the earlier text may still count.
            raise CustodyConflictError(
                f"the text of whitelisting request {name_some(others)} has changed since it was signed",
                code="request-differs",
            )
        lacking = {each: why for each in hashes if (why := review.why_unsigned(listed.get(each)))}
        for row in () if lacking else listed.values():
            review.check_signed(row)
        return lacking
