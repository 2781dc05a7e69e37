"""Approving whitelisting requests: read, compare, read again, sign, send, and find out whether it arrived."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.text import as_list, count, sanitize
from airflow_custody.client.verification.rules_in_force import PendingVerifier, verifier_for
from airflow_custody.client.verification.trust import NOT_PINNED, REJECTED_STATUSES, has_status
from airflow_custody.client.whitelist.approval_batch import (
    NO_SIGNATURE,
    NOTHING_OF_BATCH_SIGNED,
    NOTHING_SIGNED,
    UNIDENTIFIED,
    ApprovalBatch,
    failed,
    message_to_sign,
)
from airflow_custody.client.whitelist.approval_key import SigningKey, explain_refusal
from airflow_custody.client.whitelist.batches import BatchProgress, name_some, same_texts
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.models import check_request_ids, cut_into_batches

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.signers import Signer
    from airflow_custody.client.users.models import WireUser
    from airflow_custody.client.whitelist.models import WhitelistRequest

_POLL_INTERVAL = 1.0
# Seconds that the listing of what this user may approve may lag behind the others.
_APPROVAL_LAG = 3.0


class Approver:
    """
    Approves whitelisting requests: a hundred with one signature, all of these or none.

    :param client: the client of the user who approves.
    :param signer: the user's key.
    :param log: the log that says what is signed.
    :param lookup_wait: seconds that the service may take to show a signature, or to list a request that was created
        right before. Default 30.
    :param sleep: waits between look-ups; tests turn it. Default: :func:`time.sleep`.
    """

    #: Seconds after which a signer is slow: the requests are then read again before the signature is sent. A test's
    #: subclass may turn it.
    slow_signer: ClassVar[float] = 5.0

    def __init__(
        self,
        client: CustodyClient,
        signer: Signer,
        *,
        log: logging.Logger,
        lookup_wait: float = DEFAULT_LOOKUP_WAIT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._signer = signer
        self._log = log
        self._lookup_wait = lookup_wait
        self._sleep = sleep
        self._verifier: PendingVerifier | None = None

    def approve(
        self,
        ids: Iterable[object],
        expected: Mapping[str, WhitelistRequest] | None,
        comment: str,
        *,
        accept_fields: str | Iterable[str] = (),
        earlier_try: bool = False,
    ) -> int:
        """
        Read all requests, account for all of their payloads, and then approve batch after batch.

        A batch is read again, signed, and sent. Nothing is signed before all requests have been reviewed. The ids make
        the same batches in each try.

        :param ids: the requests' ids; any number of them.
        :param expected: the expected content of each, by id; None: whatever it asks for is signed.
        :param comment: comment for the requests' history.
        :param accept_fields: keys of a payload that may have a value although ``expected`` has none, such as
            ``tnParticipantID``. A link is compared by its id; a key that links are not known to have is named with
            the link's key, such as ``linkedWallets.owner``. With ``envelope.action``, a word for what approving does
            that this package does not know is accepted. Default: none.
        :param earlier_try: whether an earlier try may have sent some of these approvals: then a batch that this user
            has signed already is no failure, and is left as it is. Default False.
        :return: the number of signatures that the service took or already had.
        :raises CustodyVerificationError: if the client has pins, and a request's rules are not signed as pinned, or a
            signature that it has is not valid.
        :raises CustodyError: if something does not match or cannot be read. Its text says whether something was
            signed; nothing was sent, unless the service itself refuses. With more than one batch, it says which one
            failed and how many requests are signed.
        :raises CustodyOutcomeUnknownError: if it cannot be known whether the approval was taken; it is retryable if
            it was not.
        """
        wanted = check_request_ids(ids, limit=None)
        if not comment.strip():
            raise _refused("the comment is empty", "parameter-wrong")
        if expected is not None and (lacking := [each for each in wanted if each not in expected]):
            raise _refused(f"'expected' does not say what {name_some(lacking)} must ask for", "parameter-wrong")
        key = SigningKey(self._signer)
        self._verifier = verifier = verifier_for(self._client, even_unsigned=True)
        user = self._current_user(key)
        if verifier is None:
            self._log.info("%s", NOT_PINNED)
        accepted = frozenset(as_list(accept_fields))
        batches = [
            ApprovalBatch(batch, expected, accepted, public_key=key.public_key, user=user, verifier=verifier)
            for batch in cut_into_batches(wanted)
        ]
        progress = BatchProgress("signed", [batch.ids for batch in batches], self._log)
        to_sign: list[tuple[int, ApprovalBatch, list[str]]] = []
        for number, batch in enumerate(batches):
            if progress.done:
                batch.nothing_signed = NOTHING_OF_BATCH_SIGNED
            with progress.failing_in(number):
                hashes = self._review(batch, earlier_try)
            if hashes is None:
                progress.done_before(number)
            else:
                # Of an envelope, its hash is kept: thousands of them may be large.
                to_sign.append((number, batch, hashes))
        self._warn_of_same_texts(to_sign)
        if len(batches) > 1:
            self._log.info(
                "Reviewed %s: %s to sign, %d signed before.",
                count(len(wanted), "request"),
                count(len(to_sign), "batch", "batches"),
                len(batches) - len(to_sign),
            )
        for number, batch, hashes in to_sign:
            if progress.done:
                batch.nothing_signed = NOTHING_OF_BATCH_SIGNED
            with progress.failing_in(number):
                self._approve_batch(batch, hashes, comment, key)
            progress.done_now(number)
        return progress.done

    def _review(self, approval: ApprovalBatch, earlier_try: bool) -> list[str] | None:
        """Return the requests' hashes, once all of them are accounted for; None if an earlier try has signed them."""
        pending = self._wait_until_pending(approval, earlier_try)
        if pending is None:
            self._log.info("An earlier try has signed %s.", ", ".join(approval.ids))
            return None
        return [approval.review(pending[each]) for each in approval.ids]

    def _warn_of_same_texts(self, reviewed: Iterable[tuple[int, ApprovalBatch, list[str]]]) -> None:
        hashes_by_id = {
            each: hash_ for _, batch, found in reviewed for each, hash_ in zip(batch.ids, found, strict=True)
        }
        for ids in same_texts(hashes_by_id):
            self._log.warning(
                "Whitelisting requests %s show the same text: who signs it signs it for each, and one may not exist.",
                ids,
            )

    def _approve_batch(self, approval: ApprovalBatch, hashes: list[str], comment: str, key: SigningKey) -> None:
        # Right before the key is used: what is signed is what was there then.
        pending = self._wait_until_pending(approval, earlier_try=False) or {}
        self._refuse_changes(approval, pending, hashes, "was read", approval.nothing_signed)
        for each in approval.ids:
            self._log.info("%s", approval.describe(pending[each]))
        signature = self._sign(approval, hashes, key)
        self._log.info("Approving %s with the key %r.", ", ".join(approval.ids), key.name)
        sent = threading.Event()
        try:
            taken = self._client.approve_whitelist_requests(approval.ids, signature, comment, before_send=sent.set)
            if taken != len(approval.ids):
                raise failed(
                    CustodyOutcomeUnknownError,
                    f"the service says that it took {count(taken, 'signature')} for "
                    f"{count(len(approval.ids), 'request')}",
                    code="outcome-unknown",
                )
        except CustodyError as error:
            # Only the service itself can say that it refuses: a gateway may, after the service has taken it.
            if not isinstance(error, CustodyOutcomeUnknownError) and (error.from_service or not sent.is_set()):
                explain_refusal(error, self._client, key, approval.user)
                raise
            self._resolve(approval, hashes, error)

    def _current_user(self, key: SigningKey) -> WireUser:
        try:
            return self._client.get_current_user()
        except CustodyError as error:
            if not error.not_offered:
                raise
            self._log.warning(
                "The requests' tenant cannot be compared with this user's%s: %s",
                ""
                if key.public_key
                else ", and what becomes of the approval may not be found out if its response is lost",
                error,
            )
            return {}

    def _pending(self, approval: ApprovalBatch) -> dict[str, WhitelistEnvelope]:
        return self._by_id(self._client.find_whitelist_requests_for_approval(ids=approval.ids))

    def _listed(self, ids: list[str]) -> dict[str, WhitelistEnvelope]:
        return self._by_id(self._client.find_whitelist_requests(ids=ids))

    def _by_id(self, rows: Iterable[WhitelistEnvelope]) -> dict[str, WhitelistEnvelope]:
        found = {each.id: each for each in rows}
        if self._verifier is not None:
            self._verifier.fetch_for(each.wire for each in found.values())
        return found

    def _refuse_changes(
        self,
        approval: ApprovalBatch,
        now: Mapping[str, WhitelistEnvelope],
        hashes: Sequence[str],
        since: str,
        consequence: str,
    ) -> None:
        """Refuse to go on if a request is no longer what it was."""
        for each, hash_ in zip(approval.ids, hashes, strict=True):
            if each not in now or approval.review(now[each], consequence=consequence) != hash_:
                raise failed(
                    CustodyConflictError,
                    f"whitelisting request {each} has changed since it {since}; {consequence}",
                    code="request-differs",
                )

    def _sign(self, approval: ApprovalBatch, hashes: Sequence[str], key: SigningKey) -> str:
        started = time.monotonic()
        signature = key.sign(message_to_sign(hashes))
        seconds = time.monotonic() - started
        if seconds >= self.slow_signer:
            self._log.info("The key took %.1f s: reading the requests again.", seconds)
            self._refuse_changes(
                approval, self._pending(approval), hashes, "was signed", "a signature was made, and not sent"
            )
        return base64.b64encode(signature).decode()

    def _wait_until_pending(self, approval: ApprovalBatch, earlier_try: bool) -> dict[str, WhitelistEnvelope] | None:
        """
        Return the requests once all are pending this user's approval; None if an earlier try has signed them.

        Requests that were created right before may not be listed yet, or not everywhere.
        """
        started = listed_since = time.monotonic()
        while True:
            pending = self._pending(approval)
            missing = [each for each in approval.ids if each not in pending]
            if not missing:
                return pending
            if earlier_try and self._was_signed_earlier(approval):
                return None
            listed = self._listed(missing)
            now = time.monotonic()
            if self._is_decided(approval, listed):
                raise _not_pending(approval, listed)
            if len(listed) < len(missing):
                listed_since = now
                gone = ", ".join(each for each in missing if each not in listed)
                if now - started >= self._lookup_wait:
                    raise failed(
                        CustodyNotFoundError,
                        f"there is no whitelisting request {gone}: not listed within {self._lookup_wait:g} s; "
                        f"{approval.nothing_signed}",
                        code="request-rejected",
                    )
                left = started + self._lookup_wait - now
                self._log.info("Not listed yet: %s. Polling for at most %.0f s.", gone, left)
            else:
                left = listed_since + min(_APPROVAL_LAG, self._lookup_wait) - now
                if left <= 0:
                    raise _not_pending(approval, listed)
            self._sleep(min(_POLL_INTERVAL, max(0.05, left)))

    def _is_decided(self, approval: ApprovalBatch, listed: Mapping[str, WhitelistEnvelope]) -> bool:
        """Tell whether waiting is in vain: one is no longer pending, or has this user's signature."""
        if not listed:
            return False
        if approval.has_signed(listed) or any(has_status(each.status, REJECTED_STATUSES) for each in listed.values()):
            return True
        return any(True for _ in self._client.find_whitelist_requests(ids=list(listed), include_pending=False))

    # --- did it arrive? ------------------------------------------------------------------------------------

    def _was_signed_earlier(self, approval: ApprovalBatch) -> bool:
        """Tell whether this user's signatures are there; raise if something else was signed, or if nobody can know."""
        listed = self._listed(approval.ids)
        if not all(each in listed for each in approval.ids):
            return False
        lacking = approval.unsigned(listed)
        if not lacking:
            for each in approval.ids:
                # The signature may be another task's, or a person's, for something else.
                approval.review(listed[each], consequence="it was signed before all the same")
            return True
        if not approval.is_identified(listed):
            raise failed(
                CustodyOutcomeUnknownError,
                f"it cannot be known whether an earlier try has signed {', '.join(approval.ids)}: {UNIDENTIFIED}; "
                "this try signed nothing",
                code="outcome-unknown",
                advice="Look in the service whether this user has signed them.",
            )
        if wrong := {each: why for each, why in lacking.items() if why != NO_SIGNATURE}:
            raise failed(
                CustodyConflictError,
                f"this user has signed something else: {_list(wrong)}; this try signed nothing",
                code="request-differs",
            )
        return False

    def _resolve(self, approval: ApprovalBatch, hashes: Sequence[str], error: CustodyError) -> None:
        """
        Find out what became of an approval whose response was lost, or is not the service's word that all were taken.

        :raises CustodyError: the same error, whose advice then says what is known.
        """
        self._log.warning("The outcome is unknown: %s. Asking the service.", error.message.rstrip("."))
        deadline = time.monotonic() + self._lookup_wait
        while True:
            late = time.monotonic() >= deadline
            try:
                listed = self._listed(approval.ids)
                approval.refuse_other_texts(listed, hashes)
                lacking = approval.unsigned(listed, consequence="it may have been signed all the same")
                if not lacking:
                    for each in approval.ids:
                        approval.review(listed[each], consequence="it was signed all the same")
                    self._log.info("The service shows the signatures of this user: the approval was taken.")
                    return
                still_pending = set(self._pending(approval)) == set(approval.ids)
            except CustodyError as failure:
                if late or not failure.retryable:
                    raise _unresolved(error, f"It could not be found out: {failure.message.rstrip('.')}.") from failure
            else:
                if late and still_pending:
                    raise _not_carried_out(error, self._lookup_wait)
                if late:
                    raise _unresolved(
                        error, f"Look in the service. Without a signature that is certain: {_list(lacking)}."
                    )
            self._sleep(min(_POLL_INTERVAL, max(0.05, deadline - time.monotonic())))


_NOT_ITS_OWN = "The response is not the service's own"


def _unresolved(error: CustodyError, advice: str) -> CustodyError:
    if isinstance(error, CustodyOutcomeUnknownError):
        error.advice = advice
    else:
        error.advice = " ".join(
            filter(None, [f"{_NOT_ITS_OWN}, so the approval may have been taken.", advice, error.advice])
        )
    # Whatever the type says: nobody knows whether the signature is there.
    error.retryable = False
    return error


def _not_carried_out(error: CustodyError, seconds: float) -> CustodyError:
    advice = (
        f"It was not carried out: {seconds:g} s later the requests are still pending this user's approval. Trying "
        "again is safe."
    )
    if isinstance(error, CustodyOutcomeUnknownError):
        error.retryable = True
        error.advice = advice
    else:
        # Whether trying again helps, the type says.
        error.advice = " ".join(filter(None, [f"{_NOT_ITS_OWN}.", advice, error.advice]))
    return error


def _not_pending(approval: ApprovalBatch, listed: Mapping[str, WhitelistEnvelope]) -> CustodyError:
    for row in listed.values():
        approval.refuse_unsigned(row)
    words = ", ".join(f"{each} (status {sanitize(row.status or 'not given', 30)})" for each, row in listed.items())
    return failed(
        CustodyConflictError,
        f"not pending this user's approval: {words}; {approval.nothing_signed}",
        advice="What was rejected cannot be signed any more: sign the others without it."
        if any(has_status(each.status, REJECTED_STATUSES) for each in listed.values())
        else "It is decided, this user has signed, or it is another group's turn: sign with the connection of an "
        "approver whose turn it is.",
        code="not-pending",
    )


def _list(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{each} ({why})" for each, why in reasons.items())


def _refused(why: str, code: ErrorCode) -> CustodyError:
    return failed(CustodyRequestError, f"{why}; {NOTHING_SIGNED}", code=code)
