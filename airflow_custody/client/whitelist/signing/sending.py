"""Signing whitelisting requests: read, compare, read again, sign, send, and find out whether it arrived."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.limits import LOOKUP_WAIT
from airflow_custody.client.signers.key import SigningKey
from airflow_custody.client.text import as_list, count, lines, name_some, sanitize
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.expected import compare_effective
from airflow_custody.client.whitelist.ids import check_request_ids, cut_into_batches
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.request import Request, status_word
from airflow_custody.client.whitelist.signing.batches import BatchProgress, same_texts
from airflow_custody.client.whitelist.signing.review import SigningReview, message_to_sign
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.client.whitelist.status_words import DEFAULT_WORDS

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.signers import Signer
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

_POLL_INTERVAL = 1.0
# Seconds that the listing of what this user may sign may lag behind the others.
_LISTING_LAG = 3.0
_NOTHING_SIGNED = "nothing was signed"
_SIGNED_ALREADY = "this user has signed it already"
_MAYBE_SIGNED = "The signature may have been taken"
_REJECTED = "Rejected requests can no longer be signed. Remove them, and sign the rest."
_NOT_THIS_USERS_TURN = (
    "It is decided, this user has signed, or it is another group's turn: sign with the connection of a signer whose "
    "turn it is."
)
# The service's refusals that may be about what has become of a request since it was read.
_ABOUT_STATE = (400, 403, 404, 409)


class RequestSigner:
    """
    Signs whitelisting requests: a hundred with one signature, all of these or none.

    :param client: the client of the user who signs.
    :param signer: the user's key.
    :param log: the log that says what is signed.
    :param lookup_wait: seconds that the service may take to show a signature, or to list a request that was created
        right before. Default 30.
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
        accept_fields: str | Iterable[str] = (),
        earlier_try: bool = False,
    ) -> int:
        """
        Read all requests, account for all of their payloads, and then sign batch after batch.

        A batch is read again, signed, and sent. Nothing is signed before all requests have been reviewed. The ids make
        the same batches in each try.

        A request that is in effect, or that this user has signed, needs no signature. It is left as it is, once its
        content is what is expected, and its signatures are verified if the client has pins.

        :param ids: the requests' ids; any number of them.
        :param expected: the expected content of each, by id; None: whatever it asks for is signed.
        :param comment: comment for the requests' history.
        :param accept_fields: keys of a payload that may have a value although ``expected`` has none, such as
            ``tnParticipantID``. A link is compared by its id; a key that links are not known to have is named with
            the link's key, such as ``linkedWallets.owner``. With ``envelope.action``, a word for what signing does
            that this package does not know is accepted. Default: none.
        :param earlier_try: whether an earlier try may have sent some of these signatures: then a request that this user
            has signed already is no failure without ``expected`` either. Default False.
        :return: the number of requests: those that were signed now, and those that needed no signature.
        :raises CustodyVerificationError: if the client has pins, and a request's rules are not signed as pinned, or a
            signature that it has is not valid.
        :raises CustodyError: if something does not match or cannot be read. Its text says whether something was
            signed; nothing was sent, unless the service itself refuses. With more than one batch, it says which one
            failed and how many requests are signed.
        :raises CustodyOutcomeUnknownError: if its response was lost; retryable if the signature was not taken. So is
            the error of a gateway that refuses it.
        """
        wanted = check_request_ids(ids, limit=None)
        with _concluding(_NOTHING_SIGNED):
            _check_arguments(wanted, expected, comment)
        self._is_later_try = earlier_try
        key = SigningKey(self._signer)
        verifier = verifier_for(self._client, even_unsigned=True)
        accepted = frozenset(as_list(accept_fields))
        self._review = SigningReview(expected, accepted, self._current_user(), key, verifier)
        if verifier is None:
            self._log.info("%s", NOT_PINNED)
        batches = cut_into_batches(wanted)
        progress = BatchProgress("signed", batches, self._log)
        reviewed = self._review_all(batches, progress)
        self._warn_of_same_texts(reviewed.values())
        for number, hashes in reviewed.items():
            with progress.failing_in(number):
                # Right before the key is used: what is signed is what was there then.
                with _concluding(_nothing(progress)):
                    pending = self._read([*hashes], hashes)
                if pending:
                    self._sign_batch(pending, comment)
                    progress.done_now(number)
                else:
                    progress.done_before(number)
        return progress.done

    def _review_all(self, batches: Sequence[list[str]], progress: BatchProgress) -> dict[int, dict[str, str]]:
        """Review all batches, and return the hashes of what is to be signed, by the number of the batch."""
        reviewed: dict[int, dict[str, str]] = {}
        for number, batch in enumerate(batches):
            with progress.failing_in(number), _concluding(_nothing(progress)):
                pending = self._read(batch)
            if pending:
                reviewed[number] = {each: hash_ for each, (hash_, _) in pending.items()}
            else:
                progress.done_before(number)
        return reviewed

    def _warn_of_same_texts(self, reviewed: Iterable[Mapping[str, str]]) -> None:
        for same in same_texts(dict(ChainMap(*map(dict, reviewed)))):
            self._log.warning(
                "Whitelisting requests %s show the same text: who signs it signs it for each, and one may not exist.",
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
                    "The requests' tenant cannot be compared with this user's, and a signature whose response is lost "
                    "is found again only by the signer's public key:",
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
                    f"the service says that it took {count(taken, 'signature')} for {count(len(ids), 'request')}",
                    operation=APPROVE_WHITELIST_REQUESTS.name,
                )
        except CustodyError as error:
            # Only the service itself can say that it refuses: a gateway may, after the service has taken it.
            is_refused = error.from_service or error.nothing_sent or not sent.is_set()
            if isinstance(error, CustodyOutcomeUnknownError) or not is_refused:
                return self._resolve(hashes, error)
            if self._is_settled(hashes, error):
                return None
            if error.status == 400:
                user, name = self._client.settings.user_text, sanitize(key.name, 120)
                whose = f"{user[0].lower()}{user[1:]}"
                error.message = f"the signing key {name!r} may not be that of {whose}: {error.message}"
                error.advice = "If it is about the signature, sign with the connection and the key of the same user."
            raise

    def _is_settled(self, hashes: Mapping[str, str], refusal: CustodyError) -> bool:
        """
        Tell whether the requests need no signature now, although the service has just refused one.

        While the key signed, an earlier try's signature may have arrived, or the request may have come into effect.
        Otherwise, the refusal stands, and its advice says what is known.
        """
        if refusal.status not in _ABOUT_STATE:
            return False
        # What a 409 is about may be listed late.
        wait = self._lookup_wait if refusal.status == 409 else 0.0
        deadline, failure = time.monotonic() + wait, None
        while True:
            try:
                if not self._read([*hashes], hashes):
                    self._log.warning("Refused (%s), but no signature is missing.", refusal.message.rstrip("."))
                    return True
                failure = None
            except CustodyError as error:
                failure = error
            left = deadline - time.monotonic()
            if left <= 0 or (failure is not None and not failure.retryable):
                break
            time.sleep(min(_POLL_INTERVAL, left))
        if failure is not None:
            refusal.retryable = failure.retryable
            refusal.advice = lines(refusal.advice, f"When they were read again: {failure.message.rstrip('.')}.")
        return False

    # --- what is pending ---------------------------------------------------------------------------------------

    def _read(self, ids: list[str], hashes: Mapping[str, str] | None = None) -> dict[str, tuple[str, str]]:
        """
        Return the hashes of requests, and lines for the log, once all are pending this user's signature and accounted
        for; without those that need no signature of this user, which are accounted for, too.

        :param ids: the requests' ids.
        :param hashes: the hashes that they had before, which must be the same. Default None: they are read first.
        """
        found = {}
        for each, row in self._wait_until_pending(ids).items():
            found[each] = str(row.hash), self._review.check(row)
            self._review.check_status(row)
            if not row.action and DEFAULT_WORDS.meaning(row.status) == "effective":
                raise CustodyConflictError(
                    f"whitelisting request {each} is shown as in effect (status {status_word(row.status)}) and without "
                    "an action: what is pending may be its deletion",
                    code="request-differs",
                )
            if hashes is not None and row.hash != hashes[each]:
                raise CustodyConflictError(
                    f"whitelisting request {each} has changed since it was read", code="request-differs"
                )
        return found

    def _wait_until_pending(self, ids: list[str]) -> dict[str, WhitelistEnvelope]:
        """
        Return the requests, in their order, once all are pending this user's signature; without those that need none.

        Requests that were created right before may not be listed yet, or not everywhere.
        """
        deadline = time.monotonic() + self._lookup_wait
        listed_since: dict[str, float] = {}
        while True:
            snapshot = read_snapshot(self._client, ids=ids, verifier=self._review.verifier)
            pending = {each.id: each.for_approval for each in snapshot if each.for_approval is not None}
            done = {each.id: self._why_done(each) for each in snapshot if each.id not in pending}
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
            self._log.info("Nothing to sign for %s: %s.", named, why)

    def _check_deadline(self, missing: list[str], seconds_left: float) -> None:
        if seconds_left <= 0:
            waited = f"not listed within {self._lookup_wait:g} s"
            raise CustodyNotFoundError(
                f"there is no whitelisting request {name_some(missing)}: {waited}", code="request-rejected"
            )
        self._log.info("Not listed yet: %s. Polling for at most %.0f s.", name_some(missing), seconds_left)

    def _not_pending(self, requests: Iterable[Request]) -> CustodyConflictError:
        """Return the error for listed requests that are not pending this user's signature."""
        shown, is_any_rejected = [], False
        for each in requests:
            if each.envelope is not None:
                self._review.check_status(each.envelope)
                why = self._review.why_unsigned(each.envelope) or "signed by this user"
                shown.append(f"{each.id} (status {sanitize(each.envelope.status or 'not given', 30)}; {why})")
            is_any_rejected = is_any_rejected or each.reported == "rejected"
        return CustodyConflictError(
            f"not pending this user's signature: {name_some(shown)}",
            advice=_REJECTED if is_any_rejected else _NOT_THIS_USERS_TURN,
            code="not-pending",
        )

    def _why_done(self, request: Request) -> str:
        """
        Return why a request that is not pending this user's signature needs no signature; empty if it does.

        :param request: the request.
        :raises CustodyError: if it is not what is expected, or does not verify.
        """
        envelope, expected = request.envelope, self._review.expected
        if envelope is None or request.reported == "rejected" or (expected is None and not self._is_later_try):
            return ""
        may_be_signed = request.reported != "unknown" or self._is_later_try
        if may_be_signed and not self._review.why_unsigned(envelope):
            self._check_signed(envelope)
            return "signed by this user already"
        if expected is not None and request.reported == "effective":
            self._review.check_status(envelope)
            compare_effective(expected[envelope.id], request, self._review.accepted)
            return f"it is in effect (status {request.status})"
        return ""

    def _check_signed(self, envelope: WhitelistEnvelope) -> None:
        """Review what this user has signed already: another task, or a person, may have meant something else."""
        with _concluding(_SIGNED_ALREADY):
            self._review.check(envelope)

    # --- did it arrive? ----------------------------------------------------------------------------------------

    def _resolve(self, hashes: Mapping[str, str], error: CustodyError) -> None:
        """
        Find out what became of a signature whose response was lost, or does not confirm that all were taken.

        :raises CustodyError: the same error, whose advice then says what is known.
        """
        self._log.warning("%s", lines(f"The outcome is unknown: {error.message}", "Asking the service."))
        deadline, is_late = time.monotonic() + self._lookup_wait, False
        while not is_late:
            is_late, is_safe = time.monotonic() >= deadline, False
            try:
                lacking = self._unsigned(hashes)
                if not lacking:
                    self._log.info("The service shows the signatures of this user: they were taken.")
                    return
                snapshot = read_snapshot(self._client, ids=hashes, verifier=self._review.verifier)
                is_safe = all(each.for_approval for each in snapshot)
                named = ", ".join(f"{each} ({why})" for each, why in lacking.items())
                words = f"{_MAYBE_SIGNED}: look in the service. Without a certain signature: {named}."
            except CustodyError as failure:
                is_late = is_late or not failure.retryable
                words = f"{_MAYBE_SIGNED}; it could not be found out: {failure.message}."
            time.sleep(min(_POLL_INTERVAL, max(0.0, deadline - time.monotonic())))
        if is_safe:
            words = (
                f"It was not carried out: {self._lookup_wait:g} s later the requests are still pending this user's "
                "signature. Trying again is safe."
            )
        # A redirect comes again.
        error.retryable = is_safe and error.status not in range(300, 400)
        # A gateway's page may be about a role, or a version, all the same; that nobody knows what was done is said.
        error.advice = lines(words, None if isinstance(error, CustodyOutcomeUnknownError) else error.advice)
        raise error

    def _unsigned(self, hashes: Mapping[str, str]) -> dict[str, str]:
        """Return which requests lack this user's signature, and why; if none does, all of them are accounted for."""
        listed = {each.id: each for each in self._client.find_whitelist_requests(ids=hashes)}
        if others := [each for each, row in listed.items() if row.hash != hashes[each]]:
            # An older text may be signed, too.
            raise CustodyConflictError(
                f"another text than the one that was signed is shown now for whitelisting request {name_some(others)}",
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
        raise CustodyRequestError(f"'expected' does not say what {name_some(lacking)} must ask for")


@contextmanager
def _concluding(consequence: str) -> Iterator[None]:
    """Say at the end of an error what came of the signature."""
    try:
        yield
    except CustodyError as error:
        error.operation = error.operation or APPROVE_WHITELIST_REQUESTS.name
        error.message = f"{error.message.rstrip('.')}; {consequence}"
        raise


def _nothing(progress: BatchProgress) -> str:
    return "nothing of this batch was signed" if progress.done else _NOTHING_SIGNED
