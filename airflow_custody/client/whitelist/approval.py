"""Approving whitelisting requests: read, compare, sign, read again, send."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.models import WhitelistEnvelope, check_request_ids
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.review import compare

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.signers import Signer
    from airflow_custody.client.whitelist.models import WhitelistRequest

_POLL_INTERVAL = 1.0


def message_to_sign(hashes: Sequence[str]) -> bytes:
    """
    Return the bytes that an approval signs.

    :param hashes: the requests' current hashes, in ascending order of the requests' ids.
    :return: a JSON array of them, without white space.
    """
    return json.dumps(list(hashes), separators=(",", ":"), ensure_ascii=False).encode()


class Approver:
    """
    Approves whitelisting requests with one signature: all of them, or none.

    :param client: the client of the user who approves.
    :param signer: the user's key.
    :param log: the log that says what is signed.
    :param lookup_wait: seconds that the service may take to show a signature. Default 30.
    :param sleep: waits between look-ups; tests turn it. Default: :func:`time.sleep`.
    """

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

    def approve(
        self,
        ids: Iterable[object],
        expected: Mapping[str, WhitelistRequest] | None,
        comment: str,
        *,
        earlier_try: bool = False,
    ) -> int:
        """
        Read the requests, verify and compare them, sign, read them again, and send the approval.

        :param ids: the requests' ids; at most 100.
        :param expected: what each must ask for, by id; None: whatever it asks for is signed.
        :param comment: what the history of the requests will say.
        :param earlier_try: whether an earlier try may have sent this approval: then requests that this user has
            signed already are no failure. Default False.
        :return: the number of signatures that the service says it took.
        :raises CustodyError: if something does not match or cannot be read; nothing was signed then.
        :raises CustodyOutcomeUnknownError: if it cannot be known whether the approval was taken; it is retryable if
            it was not.
        """
        wanted = check_request_ids(ids)
        if not comment.strip():
            raise _refused("the comment is empty")
        if expected is not None and (lacking := [each for each in wanted if each not in expected]):
            raise _refused(f"'expected' does not say what {', '.join(lacking)} must ask for")
        check = getattr(self._signer, "check", None)
        if check is not None:
            check()
        pending = self._pending(wanted)
        if missing := [each for each in wanted if each not in pending]:
            if earlier_try and self._signed_by_me(wanted, expected):
                self._log.info("An earlier try has signed %s.", ", ".join(wanted))
                return len(wanted)
            raise self._why_missing(missing)
        hashes = [self._verified_hash(pending[each], expected) for each in wanted]
        signature = self._sign(message_to_sign(hashes))
        # Somebody may have changed one while the key was asked, which can be a person's or a machine's slow work.
        again = self._pending(wanted)
        for each, hash_ in zip(wanted, hashes, strict=True):
            if each not in again or self._verified_hash(again[each], expected) != hash_:
                raise _failed(
                    CustodyConflictError,
                    f"whitelisting request {each} has changed since it was read; nothing was signed",
                )
        self._log.info("Approving %s with the key %r.", ", ".join(wanted), self._signer.name)
        try:
            return self._client.approve_whitelist_requests(wanted, signature, comment)
        except CustodyOutcomeUnknownError as error:
            return self._resolve(wanted, expected, error)

    def _pending(self, ids: list[str]) -> dict[str, WhitelistEnvelope]:
        return {each.id: each for each in self._client.find_whitelist_requests_for_approval(ids=ids)}

    def _verified_hash(
        self,
        envelope: WhitelistEnvelope,
        expected: Mapping[str, WhitelistRequest] | None,
        *,
        consequence: str = "nothing was signed",
    ) -> str:
        """Return a request's hash, once it is certain what is behind it."""
        payload = envelope.payload()
        if expected is not None:
            comparison = compare(expected[envelope.id], payload)
            if not comparison.same:
                fields = [*comparison.differing, *(f"{name} (unclear)" for name in comparison.unclear)]
                raise _failed(
                    CustodyRequestError,
                    f"whitelisting request {envelope.id} is not what was asked for: {', '.join(fields)}; {consequence}",
                )
        return str(envelope.hash)

    def _sign(self, message: bytes) -> str:
        signature = self._signer.sign(message)
        if not isinstance(signature, bytes) or len(signature) != 64:
            raise CustodyConfigurationError(
                f"the signer {self._signer.name!r} did not return 64 bytes r||s (is it DER? raw_signature() converts "
                "it); nothing was signed",
                setting="signer",
            )
        return base64.b64encode(signature).decode()

    def _why_missing(self, missing: list[str]) -> CustodyError:
        listed = {each.id: each for each in self._client.find_whitelist_requests(ids=missing)}
        gone = [each for each in missing if each not in listed]
        if gone:
            return _failed(CustodyNotFoundError, f"there is no whitelisting request {', '.join(gone)}")
        words = ", ".join(f"{each} (status {sanitize(listed[each].status or 'not given', 30)})" for each in missing)
        return _failed(
            CustodyConflictError,
            f"not pending this user's approval: {words}. This user has signed them already, it is not the "
            "turn of a group this user is in, or they are no longer pending; nothing was signed",
        )

    def _signed_by_me(self, ids: list[str], expected: Mapping[str, WhitelistRequest] | None) -> bool:
        me = self._client.get_current_user().get("id")
        listed = {each.id: each for each in self._client.find_whitelist_requests(ids=ids)}
        if me is None or not all(each in listed and me in listed[each].signed_by for each in ids):
            return False
        for each in ids:
            # The signature may be another task's, or a person's, for something else.
            self._verified_hash(listed[each], expected, consequence="it was signed before all the same")
        return True

    def _resolve(
        self, ids: list[str], expected: Mapping[str, WhitelistRequest] | None, error: CustodyOutcomeUnknownError
    ) -> int:
        """Find out what became of an approval whose response was lost."""
        self._log.warning("The outcome is unknown: %s. Looking at the service.", error.message.rstrip("."))
        deadline = time.monotonic() + self._lookup_wait
        while True:
            late = time.monotonic() >= deadline
            try:
                if self._signed_by_me(ids, expected):
                    self._log.info("The service shows the signatures of this user: the approval was taken.")
                    return len(ids)
                still_pending = set(self._pending(ids)) == set(ids)
            except CustodyError as failure:
                if late or not failure.retryable:
                    raise error from failure
            else:
                if late and still_pending:
                    error.retryable = True
                    error.advice = (
                        f"It was not carried out: {self._lookup_wait:g} s later the requests are still pending this "
                        "user's approval. Trying again is safe."
                    )
                if late:
                    raise error
            self._sleep(min(_POLL_INTERVAL, max(0.05, deadline - time.monotonic())))


def _refused(why: str) -> CustodyError:
    return _failed(CustodyRequestError, f"{why}; nothing was signed")


def _failed(error_type: type[CustodyError], message: str) -> CustodyError:
    return error_type(message, operation=APPROVE_WHITELIST_REQUESTS.name)
