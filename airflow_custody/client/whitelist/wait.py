"""Waiting until whitelisting requests are in effect: the same in a worker and in the triggerer."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody.client.arguments import check_names
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyVerificationError,
)
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.text import count, count_of, sanitize
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, NOT_PINNED, REJECTED_STATUSES, what_to_do
from airflow_custody.client.wait_state import WaitState
from airflow_custody.client.whitelist.batches import MAX_NAMED_IDS, name_some, same_texts
from airflow_custody.client.whitelist.expected import compare_listed, expected_by_id
from airflow_custody.client.whitelist.listing import (
    ListedRequest,
    describe_verified,
    find_listed,
    status_word,
    verified_facts,
)
from airflow_custody.client.whitelist.models import check_request_ids, cut_into_batches, is_list_of_ids

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

    #: Where requests are listed, by id, or why one could not be looked up.
    Found = Mapping[str, "ListedRequest | CustodyError"]

# Maximum number of look-ups in one poll to find the requests that make a look-up of many fail.
_MAX_ISOLATING_LOOKUPS = 48
# Statuses with which a service may refuse a whole look-up because of one request in it.
_STATUSES_OF_ONE = (400, 404, 413, 414, 422, 431, 500)
# A summary names so many groups: the commonest.
_MAX_GROUPS = 5
_IN_WORDS = {
    "pending": "pending approval",
    "missing": "not listed",
    "unknown": "with a status that is not known",
}
# How requests that end a wait are counted, by the type of the error; the first type that there is counts.
_ENDINGS = {
    CustodyVerificationError: "not verified",
    CustodyResponseError: "not readable",
    CustodyRequestError: "not what was asked for",
    CustodyConflictError: "not going to take effect",
}


class RequestWait:
    """
    A wait until a whitelisting request is in effect, or all of several are.

    It fails as soon as one was rejected, is gone, does not verify, or is not what is expected. A listing may lag: a
    request is gone when it has been missing from all listings for 30 seconds in a row, and does not verify when that
    was so twice, 5 seconds apart.

    :param request_id: the request's id, or a list of ids; one that is repeated is taken once.
    :param effective_statuses: status words, compared without case, of which a request in effect has one. Default
        ``approved``. None: being listed as not pending is enough.
    :param rejected_statuses: status words, compared without case, that mean it was rejected. Default: five words.
    :param expected: what the requests must ask for, as for :func:`expected_by_id`. Default None: anything.
    :param accept_fields: keys of a payload that may have a value although ``expected`` says nothing about them.
    :raises CustodyRequestError: if one of these is malformed.
    """

    #: Seconds that a request must be missing, in a row, to be gone.
    gone_after: ClassVar[float] = DEFAULT_LOOKUP_WAIT
    #: Seconds that the service may take to show the last signature of a request that it shows as in effect.
    unverified_after: ClassVar[float] = 5.0

    def __init__(
        self,
        request_id: object,
        *,
        effective_statuses: object = EFFECTIVE_STATUSES,
        rejected_statuses: object = REJECTED_STATUSES,
        expected: object = None,
        accept_fields: object = (),
    ) -> None:
        self._is_list = is_list_of_ids(request_id)
        self.ids = check_request_ids(request_id, "request_id", limit=None, merge=True)
        self.effective_statuses = check_names("effective_statuses", effective_statuses)
        self.rejected_statuses = check_names("rejected_statuses", rejected_statuses, may_be_empty=True) or []
        self._accepted = frozenset(check_names("accept_fields", accept_fields, may_be_empty=True) or ())
        self._expected = {}
        if expected is not None:
            self._expected = expected_by_id(self.ids, expected, consequence="nothing was sent")
            if lacking := [each for each in self.ids if each not in self._expected]:
                raise CustodyRequestError(f"'expected' does not say what {name_some(lacking)} must ask for")
        self._missing_since: dict[str, float] = {}
        self._warned_of: set[str | None] = set()

    @property
    def request_id(self) -> str | list[str]:
        """The id, or the ids if a list was given, in ascending order."""
        return self.ids if self._is_list else self.ids[0]

    def poll(self, client: CustodyClient) -> WaitState:
        """
        Poll the service once, and return the state.

        :raises CustodyError: if a request cannot be looked up.
        """
        return self.update(look_up(client, [self]))

    def update(self, found: Found) -> WaitState:
        """
        Return the state after a poll.

        :param found: the result of :func:`look_up`.
        :raises CustodyError: if a request could not be looked up; with several of these, the one that ends the wait, or
            asks for the longest pause.
        """
        states, ended, failed = dict[str, str](), dict[str, CustodyError](), list[CustodyError]()
        for each in self.ids:
            listed = found[each]
            if isinstance(listed, CustodyError):
                failed.append(listed)
                # What this poll would have shown, nobody knows.
                self._missing_since.pop(each, None)
                continue
            states[each] = self.state_of(listed)
            if states[each] != "missing":
                self._missing_since.pop(each, None)
            if error := self._error(each, states[each], listed):
                ended[each] = error
        if failed and not ended:
            raise max(failed, key=lambda error: (not error.transient, error.retry_after or 0.0))
        rows = {each: row for each in states if isinstance(row := found[each], ListedRequest)}
        effective = {each: row for each, row in rows.items() if states[each] == "effective"}
        still_open = [each for each in self.ids if each not in effective]
        is_done = not ended and not still_open
        # Of thousands, only the hashes of their texts.
        verified = {each: row.verified.hash for each, row in effective.items() if row.verified is not None}
        warnings = []
        for each, row in rows.items():
            # Each status once.
            if states[each] == "unknown" and row.envelope and row.envelope.status not in self._warned_of:
                self._warned_of.add(row.envelope.status)
                warnings.append(_describe(each, "unknown", row))
        if is_done:
            words = "have the same signed text: signatures do not show that each of them exists"
            warnings += [f"whitelisting requests {ids} {words}" for ids in same_texts(verified)]
        summary = self._summary(states, rows, verified, still_open)
        return WaitState(
            is_done,
            summary if verified or not is_done else f"{summary}. {NOT_PINNED}",
            self._result(rows, len(verified)) if is_done else {},
            error=self._combine(ended) if ended else None,
            in_doubt=bool(self._missing_since),
            warnings=warnings,
            advice="".join(
                f"`custody whitelist show {each}` shows who has signed. If approvals take longer, raise 'timeout'."
                for each in still_open[:1]
            ),
        )

    def state_of(self, listed: ListedRequest) -> str:
        """
        Return the state of a request: ``effective``, ``pending``, ``rejected``, ``missing``, ``unverified`` (it is
        shown as in effect, and its signatures do not prove it), ``unreadable``, or ``unknown``: it is not pending any
        more, and its status does not say whether it is in effect.
        """
        if listed.envelope is None:
            return "missing"
        if not listed.envelope.is_readable:
            return "unreadable"
        state = listed.state(self.effective_statuses, self.rejected_statuses)
        return "unverified" if state == "effective" and listed.unverified is not None else state

    def _error(self, request_id: str, state: str, listed: ListedRequest) -> CustodyError | None:
        """Return the error that a request ends the wait with; None: it does not."""
        if state == "missing":
            now = time.monotonic()
            since = self._missing_since.setdefault(request_id, now)
            # Nothing is decided by one poll.
            if now == since or now - since < self.gone_after:
                return None
            text = f"whitelisting request {request_id} does not exist: it has not been listed for {now - since:.3g} s"
            return CustodyConflictError(text, code="request-rejected")
        text = _describe(request_id, state, listed)
        if state == "rejected":
            advice = "If the address is still wanted, create another request."
            return CustodyConflictError(text, advice=advice, code="request-rejected")
        if state == "unreadable":
            return CustodyResponseError(text, code="request-differs")
        if state == "unverified" and (error := listed.unverified) is not None:
            return CustodyVerificationError(text, advice=error.advice, code=error.code)
        if state == "effective" and request_id in self._expected:
            try:
                compare_listed(self._expected[request_id], listed, self._accepted)
            except CustodyError as error:
                return error
        return None

    def _combine(self, errors: Mapping[str, CustodyError]) -> CustodyError:
        """Return one error that names up to ten requests that ended the wait."""
        words, of_first = [], list[str]()
        for kind, ending in _ENDINGS.items():
            if ids := [each for each in errors if isinstance(errors[each], kind)]:
                more = [f"and {len(ids) - MAX_NAMED_IDS} more"] if len(ids) > MAX_NAMED_IDS else []
                named = "; ".join([*(errors[each].message for each in ids[:MAX_NAMED_IDS]), *more])
                counted = count_of(len(ids), len(self.ids), "whitelisting request")
                words.append(f"{counted} {ending}: {named}" if self._is_list else named)
                of_first = of_first or ids
        first = errors[of_first[0]]
        is_unverified = isinstance(first, CustodyVerificationError)
        advice = what_to_do(of_first, first.advice) if is_unverified else first.advice
        return type(first)("; ".join(words), advice=advice, code=first.code)

    def _summary(
        self,
        states: Mapping[str, str],
        rows: Mapping[str, ListedRequest],
        verified: Collection[str],
        still_open: Sequence[str],
    ) -> str:
        if not self._is_list:
            return _describe(self.ids[0], states[self.ids[0]], rows[self.ids[0]])
        text = f"{count_of(len(self.ids) - len(still_open), len(self.ids), 'whitelisting request')} in effect"
        text += f", {len(verified)} verified" if verified else ""
        numbers = Counter(states.values())
        counts = ", ".join(f"{numbers[state]} {words}" for state, words in _IN_WORDS.items() if numbers[state])
        turns = Counter(_turn(row.envelope) for each, row in rows.items() if states[each] == "pending")
        groups = ", ".join(f"{group!r} for {number}" for group, number in turns.most_common(_MAX_GROUPS) if group)
        turn = f"; it is the turn of {groups}" if groups else ""
        return f"{text} ({counts}); not yet: {name_some(still_open)}{turn}" if still_open else text

    def _result(self, rows: Mapping[str, ListedRequest], verified: int) -> dict[str, Any]:
        """Return the result as plain JSON data: for a list, of the same size for any number of requests."""
        envelopes = [row.envelope for row in rows.values() if row.envelope is not None]
        if self._is_list:
            statuses = Counter(status_word(each.status) for each in envelopes)
            return {
                "state": "effective",
                "count": len(self.ids),
                "statuses": dict(sorted(statuses.items())),
                "verified": verified,
            }
        proved = rows[self.ids[0]].verified
        return {
            "id": self.ids[0],
            "state": "effective",
            "status": status_word(envelopes[0].status),
            "signatures": len(envelopes[0].signed_by),
            "verified": proved is not None,
            **({} if proved is None else verified_facts(proved)),
        }


def look_up(client: CustodyClient, waits: Sequence[RequestWait]) -> dict[str, ListedRequest | CustodyError]:
    """
    Find where the requests of some waits are listed, each once; in a thread that may take long.

    What is shown as in effect and does not verify is looked up once more, after a pause: a listing may lag.

    :param client: the client.
    :param waits: the waits.
    :return: where each request is listed, or why it could not be looked up.
    """
    found = _find(client, list(dict.fromkeys(each for wait in waits for each in wait.ids)))
    again = {
        each
        for wait in waits
        for each in wait.ids
        if isinstance(listed := found[each], ListedRequest) and wait.state_of(listed) == "unverified"
    }
    if again:
        time.sleep(RequestWait.unverified_after)
        found.update(_find(client, sorted(again)))
    return found


def _find(client: CustodyClient, ids: Sequence[str]) -> dict[str, ListedRequest | CustodyError]:
    """
    Find where requests are listed, by the hundred.

    A look-up that fails for a reason that one request may have is halved until that request is alone, so that the
    others go on.
    """
    found: dict[str, ListedRequest | CustodyError] = {}
    failed: list[tuple[list[str], CustodyError]] = []
    # In another order each time: if there are too many such requests for one poll, all get their turn.
    batches = cut_into_batches(random.sample(ids, len(ids)))
    lookups = _MAX_ISOLATING_LOOKUPS
    while batches:
        batch = batches.pop()
        try:
            found.update(find_listed(client, batch))
        except CustodyError as error:
            if not _may_be_of_one(error):
                # It is the service's own trouble: the rest would fare no better.
                return {**dict.fromkeys(ids, error), **found}
            if len(batch) > 1 and lookups > 0:
                lookups -= 2
                batches += [batch[::2], batch[1::2]]
            else:
                failed.append((batch, error))
    works = bool(found)
    for batch, why in failed:
        if works and len(batch) > 1:
            # Which of these it is, a later poll will tell.
            text = f"one of {count(len(batch), 'request')} makes their look-up fail: {why.reason}"
            why = CustodyResponseError(text, code=why.code, retryable=True)
        elif len(batch) == 1 < len(ids):
            why.advice = " ".join(filter(None, [f"It is about whitelisting request {batch[0]}.", why.advice]))
        found.update(dict.fromkeys(batch, why))
    return found


def _may_be_of_one(error: CustodyError) -> bool:
    """Tell whether a look-up of many may have failed because of one of them: a bad id, or an unreadable row."""
    unreadable = isinstance(error, CustodyResponseError) and (error.status is None or error.status < 300)
    return unreadable or error.status in _STATUSES_OF_ONE


def _describe(request_id: str, state: str, listed: ListedRequest) -> str:
    """Return the state of a request in words."""
    name = f"whitelisting request {request_id}"
    envelope = listed.envelope
    if envelope is None:
        return f"{name} is not listed"
    if state == "unreadable":
        return f"{name} cannot be read"
    status = sanitize(envelope.status or "not given", 40)
    signatures = count(len(envelope.signed_by), "signature")
    if state == "unverified" and listed.unverified is not None:
        why = listed.unverified.message.removeprefix(f"{name} is not verified: ")
        return (
            f"{name} is not verified: the service says that it is in effect (status {status}, {signatures}), but {why}"
        )
    if state == "unknown":
        return (
            f"{name} is not pending any more, but its status {status!r} is neither in effective_statuses nor in "
            f"rejected_statuses ({signatures}): it does not count as in effect. Name the word in one of the two"
        )
    words = {"effective": "is in effect", "pending": "is pending approval", "rejected": "was rejected"}[state]
    more = ""
    if state == "effective" and listed.verified is not None:
        more = describe_verified(verified_facts(listed.verified))
    elif state == "pending" and (group := _turn(envelope)):
        more = f"; it is the turn of the group {group!r}"
    return f"{name} {words} (status {status}, {signatures}){more}"


def _turn(envelope: WhitelistEnvelope | None) -> str:
    """Return the group whose turn it is to sign; empty: it is not known, as with several ways."""
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        if envelope is not None:
            (way,) = envelope.wire["approvers"]["parallel"]
            left = len(envelope.signed_by)
            for each in way["sequential"]:
                left -= max(1, each.get("minimumSignatures") or 1)
                if left < 0:
                    return sanitize(each["externalGroupID"], 40)
    return ""
