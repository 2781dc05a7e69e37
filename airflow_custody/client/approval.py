"""
Approving whitelisting requests: look, compare, sign, look again, send.

Published knowledge, not part of the given interface.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_custody.client.envelopes import WhitelistEnvelope, compare
from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.text import readable

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.models import WhitelistRequest
    from airflow_custody.client.signers import Signer

#: The most requests that one call decides on.
MOST_AT_ONCE = 100
_OPERATION = "approve whitelisting requests"
_NOT_SENT = "; nothing was signed or sent"
_PAUSE = 1.0


def message_to_sign(hashes: Sequence[str]) -> bytes:
    """
    Return the bytes that an approval signs.

    :param hashes: the requests' current hashes, in ascending order of the requests' ids.
    :return: a JSON array of them, without white space.
    """
    return json.dumps(list(hashes), separators=(",", ":"), ensure_ascii=False).encode()


def in_order(ids: Iterable[object]) -> list[str]:
    """
    Return ids as a batch wants them.

    :param ids: ids of whitelisting requests: decimal numbers.
    :return: the ids in ascending numeric order.
    :raises CustodyRequestError: if there is none, one is not a number or there twice, or there are more than 100.
    """
    texts = [str(each) for each in ids]
    wrong = [text for text in texts if not text.isascii() or not text.isdigit()]
    if wrong:
        raise CustodyRequestError(f"{readable(repr(wrong[0]), 40)} is not the id of a whitelisting request{_NOT_SENT}")
    if not texts:
        raise CustodyRequestError(f"there are no ids{_NOT_SENT}")
    if len({int(text) for text in texts}) != len(texts):
        raise CustodyRequestError(f"an id is there twice{_NOT_SENT}")
    if len(texts) > MOST_AT_ONCE:
        raise CustodyRequestError(f"{len(texts)} ids are more than the {MOST_AT_ONCE} of one batch{_NOT_SENT}")
    return sorted(texts, key=int)


class Approving:
    """
    Approve whitelisting requests with one signature, all or none.

    :param client: the client of the user who approves.
    :param signer: the user's key.
    :param log: where to tell what is signed.
    :param lookup_wait: seconds that the service may take to show a signature. Default 30.
    """

    def __init__(
        self, client: CustodyClient, signer: Signer, *, log: logging.Logger, lookup_wait: float = 30.0
    ) -> None:
        self._client = client
        self._signer = signer
        self._log = log
        self._lookup_wait = lookup_wait

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
        :param comment: what the trail of the requests will say.
        :param earlier_try: whether somebody may have sent this approval before: then requests that this user has
            signed already are no failure.
        :return: the number of signatures that the service says it took.
        :raises CustodyError: as the types say; nothing was signed then, but see CustodyOutcomeUnknownError.
        :raises CustodyOutcomeUnknownError: if it can not be known whether the approval was taken; it is retryable if
            it was not.
        """
        wanted = in_order(ids)
        if not comment.strip():
            raise _refused("the comment is empty")
        if expected is not None and (lacking := [each for each in wanted if each not in expected]):
            raise _refused(f"it is not said what {', '.join(lacking)} must ask for")
        check = getattr(self._signer, "check", None)
        if check is not None:
            check()
        waiting = self._waiting(wanted)
        if missing := [each for each in wanted if each not in waiting]:
            if earlier_try and self._signed_by_me(wanted, expected):
                self._log.info("An earlier try has signed %s.", ", ".join(wanted))
                return len(wanted)
            raise self._why_missing(missing)
        hashes = [self._verified(waiting[each], expected) for each in wanted]
        signature = self._sign(message_to_sign(hashes))
        # Somebody may have changed one while the key was asked, which can be a person's or a machine's slow work.
        again = self._waiting(wanted)
        for each, hash_ in zip(wanted, hashes, strict=True):
            if each not in again or self._verified(again[each], expected) != hash_:
                raise CustodyConflictError(
                    f"whitelisting request {each} has changed since it was read; nothing was signed",
                    operation=_OPERATION,
                )
        self._log.info("Approving %s with the key %r.", ", ".join(wanted), self._signer.name)
        try:
            return self._client.approve_whitelist_requests(wanted, signature, comment)
        except CustodyOutcomeUnknownError as error:
            return self._after_lost_answer(wanted, expected, error)

    def _waiting(self, ids: list[str]) -> dict[str, WhitelistEnvelope]:
        return {each.id: each for each in self._client.find_whitelist_requests_for_approval(ids=ids)}

    def _verified(
        self,
        envelope: WhitelistEnvelope,
        expected: Mapping[str, WhitelistRequest] | None,
        *,
        but: str = "nothing was signed",
    ) -> str:
        """Return a request's hash, once it is certain what is behind it."""
        payload = envelope.payload()
        if expected is not None:
            found = compare(expected[envelope.id], payload)
            if not found.same:
                named = [*found.differing, *(f"{name} (not clear)" for name in found.unclear)]
                raise CustodyRequestError(
                    f"whitelisting request {envelope.id} is not what was asked for: {', '.join(named)}; {but}",
                    operation=_OPERATION,
                )
        return str(envelope.hash)

    def _sign(self, message: bytes) -> str:
        signature = self._signer.sign(message)
        if not isinstance(signature, bytes) or len(signature) != 64:
            raise CustodyConfigurationError(
                f"the signer {self._signer.name!r} gave no 64 bytes r||s (DER? raw_signature() converts it); nothing "
                "was signed",
                setting="signer",
            )
        return base64.b64encode(signature).decode()

    def _why_missing(self, missing: list[str]) -> CustodyError:
        there = {each.id: each for each in self._client.find_whitelist_requests(ids=missing)}
        gone = [each for each in missing if each not in there]
        if gone:
            return CustodyNotFoundError(f"there is no whitelisting request {', '.join(gone)}", operation=_OPERATION)
        words = ", ".join(f"{each} (status {readable(there[each].status or 'not given', 30)})" for each in missing)
        return CustodyConflictError(
            f"not waiting for this user's approval: {words}. They were signed by this user already, it is not the "
            "turn of a group this user is in, or they do not wait any more; nothing was signed",
            operation=_OPERATION,
        )

    def _signed_by_me(self, ids: list[str], expected: Mapping[str, WhitelistRequest] | None) -> bool:
        me = self._client.get_current_user().get("id")
        there = {each.id: each for each in self._client.find_whitelist_requests(ids=ids)}
        if me is None or not all(each in there and me in there[each].signed_by for each in ids):
            return False
        for each in ids:
            # The signature may be another task's, or a person's, for something else.
            self._verified(there[each], expected, but="it was signed before all the same")
        return True

    def _after_lost_answer(
        self, ids: list[str], expected: Mapping[str, WhitelistRequest] | None, error: CustodyOutcomeUnknownError
    ) -> int:
        self._log.warning("It is not known what became of it: %s. Looking at the service.", error.message.rstrip("."))
        deadline = time.monotonic() + self._lookup_wait
        while True:
            late = time.monotonic() >= deadline
            try:
                if self._signed_by_me(ids, expected):
                    self._log.info("The service shows the signatures of this user: the approval was taken.")
                    return len(ids)
                still_waiting = set(self._waiting(ids)) == set(ids)
            except CustodyError as failure:
                if late or not failure.retryable:
                    raise error from failure
            else:
                if late and still_waiting:
                    error.retryable = True
                    error.advice = (
                        f"It was not done: {self._lookup_wait:g} s later the requests still wait for this user. "
                        "Trying again is safe."
                    )
                if late:
                    raise error
            time.sleep(min(_PAUSE, max(0.05, deadline - time.monotonic())))


def _refused(why: str) -> CustodyRequestError:
    return CustodyRequestError(f"{why}; nothing was signed", operation=_OPERATION)
