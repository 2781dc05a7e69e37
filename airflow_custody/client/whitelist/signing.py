"""Signing whitelisting requests: read, compare, read again, sign, send, and find out whether it arrived."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.signers.key import SigningKey
from airflow_custody.client.text import as_list, count, sanitize, sentences
from airflow_custody.client.verification.rules_in_force import PendingVerifier, verifier_for
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, NOT_PINNED, REJECTED_STATUSES, has_status
from airflow_custody.client.whitelist.batches import MAX_NAMED_IDS, BatchProgress, name_some, same_texts
from airflow_custody.client.whitelist.expected import compare_listed
from airflow_custody.client.whitelist.models import check_request_ids, cut_into_batches
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.progress import ListedRequest, find_listed, status_word
from airflow_custody.client.whitelist.signing_review import (
    NO_SIGNATURE,
    NOT_LISTED,
    UNIDENTIFIED,
    SigningReview,
    concluding,
    message_to_sign,
)

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.signers import Signer
    from airflow_custody.client.users.models import WireUser
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

_POLL_INTERVAL = 1.0
# Seconds that the listing of what this user may sign may lag behind the others.
_LISTING_LAG = 3.0
# Seconds after which requests are read again before the signature is sent.
_SLOW_SIGNER = 5.0
_NOTHING_SIGNED = "nothing was signed"
_MAYBE_SIGNED = "The signature may have been taken"


class RequestSigner:
    """
    Signs whitelisting requests: a hundred with one signature, all of these or none.

    :param client: the client of the user who signs.
    :param signer: the user's key.
    :param log: the log that says what is signed.
    :param lookup_wait: seconds that the service may take to show a signature, or to list a request that was created
        right before. Default 30.
    """

    _key: SigningKey
    _review: SigningReview
    _verifier: PendingVerifier | None
    _expected: Mapping[str, WhitelistRequest] | None
    _accepted: frozenset[str]
    _is_later_try: bool

    def __init__(
        self, client: CustodyClient, signer: Signer, *, log: logging.Logger, lookup_wait: float = DEFAULT_LOOKUP_WAIT
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
        with concluding(_NOTHING_SIGNED):
            if not comment.strip():
                raise CustodyRequestError("the comment is empty", code="parameter-wrong")
            if expected is not None and (lacking := [each for each in wanted if each not in expected]):
                raise CustodyRequestError(
                    f"'expected' does not say what {name_some(lacking)} must ask for", code="parameter-wrong"
                )
        self._expected = expected
        self._accepted = frozenset(as_list(accept_fields))
        self._is_later_try = earlier_try
        self._key = SigningKey(self._signer)
        self._verifier = verifier_for(self._client, even_unsigned=True)
        self._review = SigningReview(
            expected,
            self._accepted,
            user=self._current_user(),
            key=self._key,
            verifier=self._verifier,
        )
        if self._verifier is None:
            self._log.info("%s", NOT_PINNED)
        batches = cut_into_batches(wanted)
        progress = BatchProgress("signed", batches, self._log)
        reviewed: dict[int, dict[str, str]] = {}
        for number, batch in enumerate(batches):
            with progress.failing_in(number):
                pending = self._read(batch, _nothing(progress))
            if not pending:
                progress.done_before(number)
            else:
                # Of an envelope, its hash is kept: thousands of them may be large.
                reviewed[number] = {each: str(row.hash) for each, row in pending.items()}
        for same in same_texts({each: hash_ for hashes in reviewed.values() for each, hash_ in hashes.items()}):
            self._log.warning(
                "Whitelisting requests %s show the same text: who signs it signs it for each, and one may not exist.",
                same,
            )
        for number, hashes in reviewed.items():
            with progress.failing_in(number):
                is_signed_now = self._sign_batch(hashes, comment, _nothing(progress))
            if is_signed_now:
                progress.done_now(number)
            else:
                progress.done_before(number)
        return progress.done

    def _current_user(self) -> WireUser:
        try:
            return self._client.get_current_user()
        except CustodyError as error:
            if not error.not_offered:
                raise
            self._log.warning(
                "The requests' tenant cannot be compared with this user's, and a signature whose response is lost is "
                "found again only by the signer's public key: %s",
                error,
            )
            return {}

    def _sign_batch(self, hashes: Mapping[str, str], comment: str, nothing: str) -> bool:
        """Sign requests and send the signature; False: none of them needs one any more."""
        # Right before the key is used: what is signed is what was there then.
        pending = self._read([*hashes], nothing, hashes)
        if not pending:
            return False
        ids = [*pending]
        hashes = {each: hashes[each] for each in ids}
        for row in pending.values():
            self._log.info("%s", self._review.describe(row))
        started = time.monotonic()
        signature = self._key.sign(message_to_sign(hashes.values()))
        seconds = time.monotonic() - started
        if seconds >= _SLOW_SIGNER:
            self._log.info("The key took %.1f s: reading the requests again.", seconds)
            if [*self._read(ids, "a signature was made, and not sent", hashes)] != ids:
                # One signature covers all of them.
                return self._sign_batch(hashes, comment, nothing)
        self._log.info("Sending the signature of %s, made with the key %r.", ", ".join(ids), self._key.name)
        sent = threading.Event()
        try:
            taken = self._client.approve_whitelist_requests(
                ids, base64.b64encode(signature).decode(), comment, before_send=sent.set
            )
            if taken != len(ids):
                raise CustodyOutcomeUnknownError(
                    f"the service says that it took {count(taken, 'signature')} for {count(len(ids), 'request')}",
                    operation=APPROVE_WHITELIST_REQUESTS.name,
                    code="outcome-unknown",
                )
        except CustodyError as error:
            # Only the service itself can say that it refuses: a gateway may, after the service has taken it.
            is_refused = error.from_service or error.nothing_sent or not sent.is_set()
            if isinstance(error, CustodyOutcomeUnknownError) or not is_refused:
                self._resolve(hashes, error)
                return True
            if self._is_later_try and error.from_service:
                # It may refuse because what the earlier try sent has arrived meanwhile.
                with suppress(CustodyError):
                    if self._was_signed(ids):
                        return False
            if error.status == 400:
                user, name = self._client.settings.user_text, sanitize(self._key.name, 120)
                whose = f"{user[0].lower()}{user[1:]}"
                error.message = f"the signing key {name!r} may not be that of {whose}: {error.message}"
                error.advice = "If it is about the signature, sign with the connection and the key of the same user."
            raise
        return True

    # --- what is pending ---------------------------------------------------------------------------------------

    def _to_sign(self, ids: list[str]) -> dict[str, WhitelistEnvelope]:
        return self._by_id(self._client.find_whitelist_requests_for_approval(ids=ids))

    def _listed(self, ids: list[str]) -> dict[str, WhitelistEnvelope]:
        return self._by_id(self._client.find_whitelist_requests(ids=ids))

    def _by_id(self, rows: Iterable[WhitelistEnvelope]) -> dict[str, WhitelistEnvelope]:
        found = {each.id: each for each in rows}
        self._fetch_rules(found.values())
        return found

    def _fetch_rules(self, rows: Iterable[WhitelistEnvelope]) -> None:
        if self._verifier is not None:
            self._verifier.fetch_for(each.wire for each in rows)

    def _read(
        self, ids: list[str], consequence: str, hashes: Mapping[str, str] | None = None
    ) -> dict[str, WhitelistEnvelope]:
        """
        Return requests once all are pending this user's signature and accounted for; without those that need no
        signature of this user, which are accounted for, too.

        :param ids: the requests' ids.
        :param consequence: end of an error's text.
        :param hashes: the hashes that they had before, which must be the same. Default None: they are read first.
        """
        pending = self._wait_until_pending(ids, consequence)
        with concluding(consequence):
            for each, row in pending.items():
                hash_ = self._review.check(row)
                self._review.check_status(row)
                if hashes is not None and hash_ != hashes[each]:
                    raise CustodyConflictError(
                        f"whitelisting request {each} has changed since it was read", code="request-differs"
                    )
        return pending

    def _wait_until_pending(self, ids: list[str], consequence: str) -> dict[str, WhitelistEnvelope]:
        """
        Return the requests, in their order, once all are pending this user's signature; without those that need none.

        Requests that were created right before may not be listed yet, or not everywhere.
        """
        started = time.monotonic()
        listed_since: dict[str, float] = {}
        while True:
            pending = self._to_sign(ids)
            found = find_listed(self._client, [each for each in ids if each not in pending])
            self._fetch_rules(row.envelope for row in found.values() if row.envelope is not None)
            done = {each: why for each, row in found.items() if (why := self._why_done(row, consequence))}
            missing = [each for each in found if each not in done]
            if not missing:
                for why in dict.fromkeys(done.values()):
                    named = name_some([each for each in done if done[each] == why])
                    self._log.info("Nothing to sign for %s: %s.", named, why)
                return {each: pending[each] for each in ids if each in pending}
            listed = {each: row for each in missing if (row := found[each].envelope) is not None}
            now = time.monotonic()
            lag = min(_LISTING_LAG, self._lookup_wait)
            decided = {each: row for each, row in listed.items() if now - listed_since.setdefault(each, now) >= lag}
            gone = [each for each in missing if each not in listed]
            if gone and now - started >= self._lookup_wait:
                for each in gone[:MAX_NAMED_IDS]:
                    # The listing may leave out what was rejected.
                    with suppress(CustodyError):
                        decided[each] = self._client.get_whitelist_request(each)
            with concluding(consequence):
                if decided:
                    raise self._not_pending(decided)
                if gone and now - started >= self._lookup_wait:
                    waited = f"not listed within {self._lookup_wait:g} s"
                    raise CustodyNotFoundError(
                        f"there is no whitelisting request {name_some(gone)}: {waited}",
                        code="request-rejected",
                    )
            if gone:
                left = started + self._lookup_wait - now
                self._log.info("Not listed yet: %s. Polling for at most %.0f s.", name_some(gone), left)
            time.sleep(min(_POLL_INTERVAL, max(0.05, self._lookup_wait / 4)))

    def _not_pending(self, decided: Mapping[str, WhitelistEnvelope]) -> CustodyError:
        for row in decided.values():
            self._review.check_status(row)
        return CustodyConflictError(
            "not pending this user's signature: "
            + ", ".join(f"{each} (status {sanitize(row.status or 'not given', 30)})" for each, row in decided.items()),
            advice="What was rejected cannot be signed any more: sign the others without it."
            if any(has_status(each.status, REJECTED_STATUSES) for each in decided.values())
            else "It is decided, this user has signed, or it is another group's turn: sign with the connection of a "
            "signer whose turn it is.",
            code="not-pending",
        )

    # --- did it arrive? ----------------------------------------------------------------------------------------

    def _unsigned(self, ids: Sequence[str], hashes: Mapping[str, str] | None = None) -> dict[str, str]:
        """
        Return which requests lack this user's signature, and why; what has it is accounted for.

        :param hashes: the hashes that were signed. Default None: whatever they show.
        """
        listed = self._listed([*ids])
        if hashes and (others := [each for each in ids if each in listed and listed[each].hash != hashes[each]]):
            # An older text may be signed, too.
            raise CustodyConflictError(
                f"another text than the one that was signed is shown now for whitelisting request {name_some(others)}",
                code="request-differs",
            )
        lacking = self._review.unsigned(ids, listed)
        if not lacking:
            with concluding("it is signed all the same"):
                for each in ids:
                    # The signature may be another task's, or a person's, for something else.
                    self._review.check(listed[each])
        return lacking

    def _was_signed(self, ids: list[str]) -> bool:
        """Tell whether this user's signatures are there; raise if something else was signed, or if nobody can know."""
        lacking = self._unsigned(ids)
        self._refuse_other(lacking)
        return not lacking

    def _refuse_other(self, lacking: Mapping[str, str]) -> None:
        """Refuse what an earlier try of this user may have signed otherwise."""
        with concluding("this try did not sign it"):
            if UNIDENTIFIED in lacking.values():
                raise CustodyOutcomeUnknownError(
                    f"it cannot be known whether an earlier try has signed {name_some([*lacking])}: {UNIDENTIFIED}",
                    code="outcome-unknown",
                    advice="Look in the service whether this user has signed them.",
                )
            if wrong := {each: why for each, why in lacking.items() if why not in (NOT_LISTED, NO_SIGNATURE)}:
                raise CustodyConflictError(
                    f"this user has signed something else: {_list(wrong)}", code="request-differs"
                )

    def _why_done(self, row: ListedRequest, consequence: str) -> str:
        """
        Return why a request that is not pending this user's signature needs no signature; empty if it does.

        :param row: the request.
        :param consequence: end of an error's text.
        :raises CustodyError: if it is not what is expected, or does not verify.
        """
        envelope, state = row.envelope, row.state(EFFECTIVE_STATUSES)
        if envelope is None or state == "rejected" or (self._expected is None and not self._is_later_try):
            return ""
        lacking = self._review.unsigned([envelope.id], {envelope.id: envelope})
        if not lacking and (state != "unknown" or self._is_later_try):
            with concluding("it is signed all the same"):
                # The signature may be another task's, or a person's, for something else.
                self._review.check(envelope)
            return "signed by this user already"
        if self._expected is None or state != "effective":
            self._refuse_other(lacking if self._is_later_try else {})
            return ""
        with concluding(consequence):
            self._review.check_status(envelope)
            compare_listed(self._expected[envelope.id], row, self._accepted)
        return f"it is in effect (status {status_word(envelope.status)})"

    def _resolve(self, hashes: Mapping[str, str], error: CustodyError) -> None:
        """
        Find out what became of a signature whose response was lost, or does not confirm that all were taken.

        :raises CustodyError: the same error, whose advice then says what is known.
        """
        self._log.warning("%s", sentences(f"The outcome is unknown: {error.message}", "Asking the service."))
        ids, deadline = [*hashes], time.monotonic() + self._lookup_wait
        while True:
            is_late = time.monotonic() >= deadline
            try:
                lacking = self._unsigned(ids, hashes)
                if not lacking:
                    self._log.info("The service shows the signatures of this user: they were taken.")
                    return
                still_pending = self._to_sign(ids).keys() == {*ids}
            except CustodyError as failure:
                if is_late or not failure.retryable:
                    raise _explained(
                        error, f"{_MAYBE_SIGNED}; it could not be found out: {failure.message}."
                    ) from failure
            else:
                if is_late and still_pending:
                    words = (
                        f"It was not carried out: {self._lookup_wait:g} s later the requests are still pending this "
                        "user's signature. Trying again is safe."
                    )
                    raise _explained(error, words, is_safe=True)
                if is_late:
                    raise _explained(
                        error, f"{_MAYBE_SIGNED}: look in the service. Without a certain signature: {_list(lacking)}."
                    )
            time.sleep(min(_POLL_INTERVAL, max(0.05, deadline - time.monotonic())))


def _nothing(progress: BatchProgress) -> str:
    return "nothing of this batch was signed" if progress.done else _NOTHING_SIGNED


def _explained(error: CustodyError, words: str, *, is_safe: bool = False) -> CustodyError:
    """Return an error whose outcome was looked into. Retryable if that is safe; a redirect comes again."""
    error.retryable = is_safe and not 300 <= (error.status or 0) < 400
    # A gateway's page may be about a role, or a version, all the same. That nobody knows what was done is known now.
    hint = "" if isinstance(error, CustodyOutcomeUnknownError) else error.advice
    error.advice = f"{words} {hint}" if hint else words
    return error


def _list(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{each} ({why})" for each, why in reasons.items())
