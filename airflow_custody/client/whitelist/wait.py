"""Wait until whitelisting requests are in effect, in a worker or in the triggerer."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody.client.arguments import LOOKUP_WAIT
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyVerificationError,
)
from airflow_custody.client.text import MAX_NAMED, count, count_of, name_some, sanitize
from airflow_custody.client.verification.trust import NOT_PINNED, what_to_do
from airflow_custody.client.wait_state import WaitState
from airflow_custody.client.whitelist.expected import expected_by_id
from airflow_custody.client.whitelist.hidden import HIDDEN_ADVICE, describe_hidden
from airflow_custody.client.whitelist.ids import check_request_ids, cut_into_batches, is_list_of_ids
from airflow_custody.client.whitelist.request import (
    VANISHED,
    Request,
    RequestState,
    compare_effective,
    describe_verified,
)
from airflow_custody.client.whitelist.signing.batches import same_texts
from airflow_custody.client.whitelist.snapshot import read_snapshot

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

# If a look-up of several requests fails, the maximum number of further look-ups per poll that isolate the cause.
_MAX_ISOLATING_LOOKUPS = 48
# HTTP statuses with which a service may reject a whole look-up because of a single request in it.
_STATUSES_OF_ONE = (400, 404, 413, 414, 422, 431, 500)
# Maximum number of groups in a summary. The most frequent groups are named.
_MAX_GROUPS = 5
_WHO_HAS_SIGNED = "`custody whitelist show {id}` shows who has signed. If approvals take longer, raise 'timeout'."
_IN_WORDS: dict[RequestState, str] = {
    "pending": "pending approval",
    "missing": "not listed",
    "unknown": "in an unknown state",
}
# How a message describes the requests that end a wait, by error type. The first matching type is used.
_ENDINGS = {
    CustodyVerificationError: "not verified",
    CustodyResponseError: "not readable",
    CustodyRequestError: "different from the requested content",
    CustodyConflictError: "not going to take effect",
}


@dataclass(frozen=True)
class PollResult:
    """
    The result of a poll.

    :param requests: each request, or the error of its look-up, by the request's id.
    :param settings: the settings of the client.
    """

    requests: Mapping[str, Request | CustodyError]
    settings: ClientSettings


class RequestWait:
    """
    A wait until one whitelisting request, or several, are in effect.

    The wait fails as soon as a request is rejected, missing, unverified, or different from what is expected. Because
    listings may be late, a request is missing only after 30 seconds without being listed, and unverified only after two
    failed verifications, 5 seconds apart. While the service counts requests that it does not return, a request that is
    not listed may be one of them, so it does not count as missing.

    :param request_id: the request's id, or a list of ids; repeated ids count once.
    :param expected: the content that the requests must have; see :func:`expected_by_id`. Default None: any content.
    :raises CustodyRequestError: if an argument is malformed.
    """

    #: A request counts as missing after this many seconds without being listed.
    gone_after: ClassVar[float] = LOOKUP_WAIT
    #: Seconds after which a request in effect whose verification has failed is looked up again, because the service may
    #: list its last signature late.
    unverified_after: ClassVar[float] = 5.0

    def __init__(self, request_id: object, *, expected: object = None) -> None:
        self._is_list = is_list_of_ids(request_id)
        self.ids = check_request_ids(request_id, "request_id", limit=None, merge=True)
        self._expected = {}
        if expected is not None:
            self._expected = expected_by_id(self.ids, expected, consequence="nothing is sent")
            if lacking := [each for each in self.ids if each not in self._expected]:
                raise CustodyRequestError(f"'expected' has no content for {name_some(lacking)}")
        self._missing_since: dict[str, float] = {}
        self._warned_of: set[str | None] = set()

    @property
    def request_id(self) -> str | list[str]:
        """The id; for a list, the ids in ascending order."""
        return self.ids if self._is_list else self.ids[0]

    def poll(self, client: CustodyClient) -> WaitState:
        """
        Poll the service once, and return the state.

        :raises CustodyError: if a request cannot be looked up.
        """
        return self.update(poll_requests(client, [self]))

    def update(self, found: PollResult) -> WaitState:
        """
        Return the state after a poll.

        :param found: the result of :func:`poll_requests`.
        :raises CustodyError: if a request could not be looked up. If there are several errors, the one that ends
            the wait is raised, or else the one with the longest retry delay.
        """
        requests = {each: one for each in self.ids if isinstance(one := found.requests[each], Request)}
        missing_before = self._missing_since
        errors = self._errors(requests.values(), found.settings)
        failures = [one for each in self.ids if isinstance(one := found.requests[each], CustodyError)]
        if failures and not errors:
            raise max(failures, key=lambda error: (not error.transient, error.retry_after or 0.0))
        # Keep only the hashes of the signed texts, because there may be thousands of requests.
        verified = {
            id_: each.proved.hash for id_, each in requests.items() if each.phase == "effective" and each.proved
        }
        still_open = [each for each in self.ids if each not in requests or requests[each].phase != "effective"]
        summary = self._summary(requests, len(verified), still_open)
        warnings = self._warnings(requests.values(), missing_before)
        if errors or still_open:
            return WaitState(
                False,
                summary,
                {},
                error=self._combine(errors),
                in_doubt=bool(self._missing_since),
                warnings=warnings,
                advice=_WHO_HAS_SIGNED.format(id=still_open[0]) if still_open else "",
            )
        same = "have the same signed text, so signatures do not prove that each of them exists"
        warnings += [f"whitelisting requests {ids} {same}" for ids in same_texts(verified)]
        result = self._result(requests, len(verified))
        return WaitState(True, summary if verified else f"{summary}. {NOT_PINNED}", result, warnings=warnings)

    def _errors(self, requests: Iterable[Request], settings: ClientSettings) -> dict[str, CustodyError]:
        """Return the errors of the requests that end the wait, by id."""
        errors: dict[str, CustodyError] = {}
        missing_since, self._missing_since = self._missing_since, {}
        for request in requests:
            if request.state == "missing":
                error = self._missing_error(request, missing_since)
            else:
                error = self._error(request, settings)
            if error is not None:
                errors[request.id] = error
        return errors

    def _warnings(self, requests: Iterable[Request], missing_before: Mapping[str, float]) -> list[str]:
        """Return warnings about unknown status words, each once, and about requests that are newly missing."""
        warnings = []
        for each in requests:
            if each.phase == "unknown" and not each.has_vanished and each.status not in self._warned_of:
                self._warned_of.add(each.status)
                warnings.append(_describe(each))
        if newly := [each for each in self._missing_since if each not in missing_before]:
            waits = f"It may list a new request late, so the wait fails only after {self.gone_after:g} s"
            warnings.append(f"The service lists no whitelisting request {name_some(newly)}. {waits}")
        return warnings

    def _error(self, request: Request, settings: ClientSettings) -> CustodyError | None:
        """Return the error with which a request ends the wait; None if the request does not end the wait."""
        state = request.phase
        if state == "rejected":
            advice = "If the address is still wanted, create another request."
            return CustodyConflictError(_describe(request), advice=advice, code="request-rejected")
        if state == "unreadable":
            return CustodyResponseError(_describe(request), code="request-differs")
        if state == "unverified" and (error := request.trust.error) is not None:
            return CustodyVerificationError(_describe(request), advice=error.advice, code=error.code)
        if state == "effective" and request.id in self._expected:
            try:
                compare_effective(self._expected[request.id], request, settings)
            except CustodyError as error:
                return error
        return None

    def _missing_error(self, request: Request, missing_since: Mapping[str, float]) -> CustodyError | None:
        """
        Return the error for a request that has been missing for too long; None if it has not.

        :param request: the request.
        :param missing_since: the time since when each request has been missing, by id, as of the previous poll. A
            request that was listed, or could not be looked up, at that poll is not included.
        """
        now = time.monotonic()
        since = self._missing_since[request.id] = missing_since.get(request.id, now)
        seconds = now - since
        if seconds == 0 or seconds < self.gone_after:
            return None
        text = f"{request.name} does not exist: not listed for {seconds:.3g} s"
        advice = "Check the id, and the connection. A request that was listed earlier has been deleted."
        return CustodyConflictError(text, advice=advice, code="request-missing")

    def _combine(self, errors: Mapping[str, CustodyError]) -> CustodyError | None:
        """Return one error that names up to ten requests that end the wait; None if there are none."""
        if not errors:
            return None
        words, of_first = [], list[str]()
        for kind, ending in _ENDINGS.items():
            if ids := [each for each in errors if isinstance(errors[each], kind)]:
                more = [f"and {len(ids) - MAX_NAMED} more"] if len(ids) > MAX_NAMED else []
                named = "; ".join([*(errors[each].message for each in ids[:MAX_NAMED]), *more])
                counted = count_of(len(ids), len(self.ids), "whitelisting request")
                words.append(f"{counted} {ending}: {named}" if self._is_list else named)
                of_first = of_first or ids
        first = errors[of_first[0]]
        is_unverified = isinstance(first, CustodyVerificationError)
        advice = what_to_do(of_first, first.advice) if is_unverified else first.advice
        return type(first)("; ".join(words), advice=advice, code=first.code)

    def _summary(self, requests: Mapping[str, Request], verified: int, still_open: Sequence[str]) -> str:
        if not self._is_list:
            return _describe(requests[self.ids[0]])
        text = f"{count_of(len(self.ids) - len(still_open), len(self.ids), 'whitelisting request')} in effect"
        text += f", {verified} verified" if verified else ""
        if not still_open:
            return text
        numbers = Counter(each.phase for each in requests.values())
        counts = ", ".join(f"{numbers[state]} {words}" for state, words in _IN_WORDS.items() if numbers[state])
        return f"{text} ({counts}); not yet: {name_some(still_open)}{_turns(requests.values())}"

    def _result(self, requests: Mapping[str, Request], verified: int) -> dict[str, Any]:
        """Return the result as plain JSON data, whose size does not depend on the number of requests."""
        if self._is_list:
            statuses = Counter(each.status for each in requests.values())
            return {
                "state": "effective",
                "count": len(self.ids),
                "statuses": dict(sorted(statuses.items())),
                "verified": verified,
            }
        request = requests[self.ids[0]]
        return {
            "id": request.id,
            "state": "effective",
            "status": request.status,
            "signatures": len(request.signed_by),
            "verified": request.proved is not None,
            **(request.facts or {}),
        }


def poll_requests(client: CustodyClient, waits: Sequence[RequestWait]) -> PollResult:
    """
    Look up the requests of several waits, each request once. This may take long.

    If the verification of a request in effect fails, the request is looked up again after a delay, because the service
    may list its last signature late.

    :param client: the client.
    :param waits: the waits.
    """
    found = _find(client, list(dict.fromkeys(each for wait in waits for each in wait.ids)))
    again = [each for each, one in found.items() if isinstance(one, Request) and one.phase == "unverified"]
    if again:
        time.sleep(RequestWait.unverified_after)
        found.update(_find(client, again))
    return PollResult(found, client.settings)


def _find(client: CustodyClient, ids: Sequence[str]) -> dict[str, Request | CustodyError]:
    """
    Look up requests in batches of a hundred.

    If a single request may have caused the failure of a batch, the batch is halved until that request is isolated, so
    that the other requests can be looked up.
    """
    found: dict[str, Request | CustodyError] = {}
    failed: list[tuple[list[str], CustodyError]] = []
    # Use a random order. If many requests cause failures, one poll cannot isolate all of them, but with another order,
    # the next poll isolates others.
    batches = cut_into_batches(random.sample(ids, len(ids)))
    lookups = _MAX_ISOLATING_LOOKUPS
    while batches:
        batch = batches.pop()
        try:
            snapshot = read_snapshot(client, batch)
        except CustodyError as error:
            is_unreadable = isinstance(error, CustodyResponseError) and (error.status is None or error.status < 300)
            if not is_unreadable and error.status not in _STATUSES_OF_ONE:
                # The service itself has failed, so other look-ups would fail, too.
                return {**dict.fromkeys(ids, error), **found}
            if len(batch) > 1 and lookups > 0:
                lookups -= 2
                batches += [batch[::2], batch[1::2]]
            else:
                failed.append((batch, error))
            continue
        for each in snapshot:
            found[each.id] = each
            if each.state == "missing" and snapshot.hidden:
                # The request may exist and be hidden, so it does not count as missing: its look-up has failed.
                found[each.id] = CustodyResponseError(
                    f"{each.name} is not listed, but {describe_hidden(snapshot.hidden)}, and it may be among them",
                    code="response-unusable",
                    retryable=True,
                    advice=HIDDEN_ADVICE,
                )
    works = bool(found)
    for batch, why in failed:
        if works and len(batch) > 1:
            # Stop searching in this poll. A later poll isolates the request that causes the failure.
            text = f"the look-up of {count(len(batch), 'request')} fails because of one of these requests: {why.reason}"
            why = CustodyResponseError(text, code=why.code, retryable=True)
        elif len(batch) == 1 < len(ids):
            advice = " ".join(filter(None, [f"The error is about whitelisting request {batch[0]}.", why.advice]))
            why = why.with_facts(advice=advice)
        found.update(dict.fromkeys(batch, why))
    return found


def _describe(request: Request) -> str:
    """Return a description of a request's state."""
    envelope, state = request.envelope, request.phase
    if envelope is None:
        return f"{request.name} is not listed"
    if state == "unreadable":
        return f"{request.name} cannot be read: {request.reason}"
    status = sanitize(envelope.status or "not given", 40)
    signatures = count(len(request.signed_by), "signature")
    if state == "unverified":
        claim = f"the service reports it as in effect (status {status}, {signatures})"
        return f"{request.name} is not verified: {claim}, but {request.reason}"
    if state == "unknown":
        if request.has_vanished:
            return f"{request.name} may have been deleted: {VANISHED}, so it does not count as in effect"
        return f"{request.name} is no longer pending ({signatures}), but {request.reason}"
    words = {"effective": "is in effect", "pending": "is pending approval", "rejected": "was rejected"}[state]
    more = ""
    if state == "effective" and request.facts is not None:
        more = f", verified: {describe_verified(request.facts)}"
    elif state == "pending" and (group := _turn(envelope)):
        more = f"; it is the turn of the group {group!r}"
    return f"{request.name} {words} (status {status}, {signatures}){more}"


def _turns(requests: Iterable[Request]) -> str:
    """Return the groups whose turn it is to sign, the most frequent ones first; empty if unknown."""
    groups = Counter(_turn(each.envelope) for each in requests if each.phase == "pending")
    named = [f"{group!r} for {number}" for group, number in groups.most_common(_MAX_GROUPS) if group]
    return f"; it is the turn of {', '.join(named)}" if named else ""


def _turn(envelope: WhitelistEnvelope | None) -> str:
    """Return the group whose turn it is to sign; empty if unknown or ambiguous."""
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        if envelope is not None:
            (way,) = envelope.wire["approvers"]["parallel"]
            left = len(envelope.signed_by)
            for each in way["sequential"]:
                left -= max(1, each.get("minimumSignatures") or 1)
                if left < 0:
                    return sanitize(each["externalGroupID"], 40)
    return ""
