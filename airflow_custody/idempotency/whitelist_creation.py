"""Create one or many whitelisting requests, each at most once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Literal

from airflow_custody.client.error_codes import known_code
from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyRequestError, CustodyResponseError
from airflow_custody.client.text import name_some, sanitize
from airflow_custody.client.verification.rules_in_force import verifier_for
from airflow_custody.client.verification.trust import what_to_do
from airflow_custody.client.whitelist.addresses.checks import shorten, spellings
from airflow_custody.client.whitelist.addresses.destinations import (
    Destinations,
    Names,
    destination_of,
    find_candidates,
    names_in,
)
from airflow_custody.client.whitelist.chains import ADVICE, ListedChains, read_chains
from airflow_custody.client.whitelist.comparison import ENVELOPE_ACTION, compare
from airflow_custody.client.whitelist.envelopes import UserIds, user_ids
from airflow_custody.client.whitelist.hidden import describe_hidden
from airflow_custody.client.whitelist.ids import check_request_id
from airflow_custody.client.whitelist.matching import Decision, find_existing, index_requests
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.request import VANISHED, ListedRequest, Request, make_request
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot
from airflow_custody.idempotency.create import ONE, Existing
from airflow_custody.idempotency.search import Candidate, SearchResult
from airflow_custody.idempotency.store import Row

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

log = logging.getLogger(__name__)

#: Behaviour if a request with the same content exists already, regardless of its creator.
IfExists = Literal["reuse", "fail", "create"]
#: Maximum number of addresses in one search, because gateways refuse very long URLs (some thousand characters).
MAX_ADDRESSES = 50
# The fields that identify a request's destination: the address on its chain.
_DESTINATION = {"address", "blockchain", "currency", "network", "memo"}


@dataclass(eq=False, repr=False)
class WhitelistCreation:
    """
    The creation of whitelisting requests.

    :param client: the client.
    :param requests: the requests, by the row's key.
    :param before: everything that the service listed before any row was sent. A later listing is compared with it, to
        find new requests without the service's own filter. None (default): it was not read.
    :param replaced: the ids of the requests that a row's request replaces, by the row's key. Default: none.
    :param ignored: the ids of requests that do not prevent a row from being sent. Default: none.
    :param own_ids: returns the ids of the requests that this task has created. Default: none.
    """

    what = "whitelisting request"
    client: CustodyClient
    requests: Mapping[str, WhitelistRequest]
    before: Snapshot | None = None
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ignored: Collection[str] = ()
    own_ids: Callable[[], Collection[str]] = frozenset

    def __post_init__(self) -> None:
        self._index = None if self.before is None else index_requests(self.before, self._known)
        self.timeout = self.client.settings.timeout

    @property
    def content(self) -> Mapping[str, object]:
        """The service, and the content of a single request; see :attr:`Creation.content`."""
        return {"service": self.client.settings.base_url, **self.requests[ONE].model_dump(exclude_none=True)}

    def which(self, key: str) -> str:
        request = self.requests[key]
        return f"{shorten(request.address)} on {request.chain}"

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        return self.client.create_whitelist_request(self.requests[key], before_send=before_send)

    def find(self, keys: Collection[str], *, thorough: bool) -> dict[str, SearchResult]:
        # If complete listings from before sending and from now are compared, the service's filter adds nothing.
        needs_filter = not thorough or self._index is None
        by_filter = self._filter(keys) if needs_filter else Snapshot({}, self.client.settings)
        # A thorough search reads the whole listing, because the service may spell an address differently, and its
        # filter may miss such a spelling.
        listed = read_snapshot(self.client) if thorough else by_filter
        filtered = by_filter.requests if self._index is None else None
        return self.found_in(listed, keys, filtered=filtered, hidden=by_filter.hidden, thorough=thorough)

    def _filter(self, keys: Collection[str]) -> Snapshot:
        """
        Return the requests that the service's own filter finds for the addresses of rows.

        The snapshot's number of hidden requests is the number that the filter counts but does not return.

        :raises CustodyResponseError: if a request cannot be read by its id. If it is missing from the listing by id (it
            was deleted in between, or a listing is out of date), the error is retryable.
        """
        requests = [self.requests[key] for key in keys]
        addresses = list(dict.fromkeys(request.address for request in requests))
        if self._index is None:
            addresses = [
                each for request in requests for each in spellings(request.address, request.memo, request.chain)
            ]
        ids: dict[str, None] = {}
        hidden = 0
        for start in range(0, len(addresses), MAX_ADDRESSES):
            page = self.client.list_whitelist_requests(addresses=addresses[start : start + MAX_ADDRESSES])
            ids |= dict.fromkeys(each.id for each in page.rows)
            hidden += page.hidden
        if not ids:
            return Snapshot({}, self.client.settings, hidden=hidden)
        try:
            snapshot = read_snapshot(self.client, ids)
        except CustodyError as error:
            if not error.not_offered:
                raise
            # Do not report "not offered", because the service has just listed requests.
            raise CustodyResponseError(
                f"the service lists {name_some([*ids])}, but their status cannot be read: {error.reason}",
                code=error.code,
            ) from None
        missing = [each.id for each in snapshot if each.state == "missing"]
        if missing:
            raise CustodyResponseError(
                f"the service lists {name_some(missing)} by address, but not by id: the listing changed meanwhile",
                code="listing-changed",
                retryable=True,
            )
        return replace(snapshot, hidden=hidden)

    def found_in(
        self,
        listed: Snapshot,
        keys: Collection[str],
        *,
        filtered: Collection[str] | None = None,
        hidden: int = 0,
        thorough: bool,
    ) -> dict[str, SearchResult]:
        """
        Return the candidates for rows among listed requests.

        :param listed: the listed requests.
        :param keys: the rows' keys.
        :param filtered: the ids that the service's own filter finds. None (default): all requests count as found by the
            filter. This is right if they are compared with a complete earlier listing, not with an earlier result of
            the filter.
        :param hidden: number of requests that the filter counts, but that the service does not return. Default 0.
        :param thorough: whether ``listed`` has everything that the service lists.
        """
        if not thorough and not listed.requests:
            return {key: SearchResult([], None, hidden) for key in keys}
        index = index_requests(listed, self._known)
        why_inconclusive = cache(partial(self._why_inconclusive, listed))
        found = {}
        for key in keys:
            asked = self.requests[key]
            candidates = [
                self._find(key, each, is_filtered=filtered is None or each.id in filtered)
                for each in find_candidates(index, asked)
            ]
            why = why_inconclusive(asked.visibility_group_id or "") if thorough else None
            found[key] = SearchResult(candidates, why, hidden)
        return found

    def prepare(self, keys: Sequence[str]) -> dict[str, Row]:
        """
        Return the records of a batch's rows before they are sent.

        A row is not sent if another request exists that may be for its destination. Requests that were rejected, that
        the row replaces, that are ignored, or that this task has created do not count. A row is also not sent if the
        service lists its chain as disabled.
        """
        index = index_requests(self._filter(keys), self._known)
        indexes = [index] if self._index is None else [self._index, index]
        own_ids = self.own_ids()
        rows = {key: self._row(key, indexes, own_ids) for key in keys}
        new = [key for key, row in rows.items() if row.state == "sent"]
        if new:
            for each in self._chains.warnings(self.requests[key] for key in new):
                log.warning("%s", each)
        refused = {key: why for key in new if (why := self._chains.why_refused(self.requests[key]))}
        return {key: row.become("refused", refused[key]) if key in refused else row for key, row in rows.items()}

    def check_chain(self) -> None:
        """
        Check the chain of a single request, before it is recorded.

        :raises CustodyRequestError: if the service lists the chain as disabled.
        :raises CustodyError: (of another type) if the service cannot be read now.
        """
        request = self.requests[ONE]
        if why := self._chains.why_refused(request):
            error = f"{why}; nothing is sent"
            raise CustodyRequestError(error, operation=f"create {self.what}", code="chain-disabled", advice=ADVICE)
        for each in self._chains.warnings([request]):
            log.warning("%s", each)

    @cached_property
    def _chains(self) -> ListedChains:
        """The chains that the service lists; read once for all rows, and only if a row is about to be sent."""
        return read_chains(self.client)

    def _row(self, key: str, indexes: Sequence[Destinations[Request]], own_ids: Collection[str]) -> Row:
        asked, replaced = self.requests[key], self.replaced.get(key, ())
        found = {each.id: each for index in indexes for each in find_candidates(index, asked)}
        row = Row(state="sent", known_ids=sorted(found), replaces=[*replaced])
        expected = {*replaced, *self.ignored, *own_ids}
        new = [each for each in found.values() if each.id not in expected and each.reported != "rejected"]
        if not new:
            return row
        decision = find_existing(asked, new, self.client.settings)
        request = decision.request or new[0]
        if decision.state in ("pending", "unchanged"):
            return row.become("found", request.id)
        differs = f"it differs in: {', '.join(decision.fields)}" if decision.fields else ""
        why = sanitize("; ".join(filter(None, [differs, decision.note])), 300)
        return row.become(
            "refused", f"another client has meanwhile created a request for the same destination ({request.id}: {why})"
        )

    def existing(self, if_exists: IfExists, candidates: Iterable[Candidate]) -> Existing | None:
        """
        Return the existing request to reuse, by the rules of a plan with one row.

        :param if_exists: behaviour if a request with the same content is pending or in effect: ``reuse`` or ``fail``.
        :param candidates: the requests that may be for the destination.
        :return: the request to reuse; None if there is none.
        :raises CustodyConflictError: if there is a request that cannot be reused, or that ``if_exists`` forbids to
            reuse. The error is not retryable.
        :raises CustodyResponseError: if the listings contradict each other about a request; the error is retryable.
        """
        asked = self.requests[ONE]
        found = [each.request for each in candidates if each.request is not None]
        if vanished := [each for each in found if each.has_vanished and each.reported == "unknown"]:
            text = f"{vanished[0].name} cannot be compared: {VANISHED}"
            raise CustodyResponseError(text, code="listing-changed", retryable=True)
        decision = find_existing(asked, found, self.client.settings)
        request = decision.request
        if decision.state == "create":
            return None
        if request is None or decision.state not in ("pending", "unchanged"):
            raise _unusable(decision, asked)
        state = _describe_state(request)
        if if_exists == "fail":
            raise CustodyConflictError(
                f"{request.name} already has the same content and is {state}; nothing is sent",
                code="request-exists",
            )
        # Return the content as the service spells it, because the review before signing compares it strictly.
        spelling = compare(asked, request.shown, request.fields, self.client.settings).spelling
        return Existing(request.id, state, asked.model_copy(update=spelling).model_dump(exclude_none=True))

    def get(self, key: str, identifier: str) -> Candidate | None:
        request = self._read(identifier)
        return None if request is None else self._find(key, request)

    def _read(self, identifier: str) -> Request | None:
        """Return a request from the listing, or else by its id; None if the service reports that it does not exist."""
        check_request_id(identifier)
        not_listed: CustodyError | None = None
        try:
            snapshot = read_snapshot(self.client, [identifier])
            if snapshot[identifier].state != "missing":
                return snapshot[identifier]
            if snapshot.hidden:
                text = f"{snapshot[identifier].name} is not listed, but {describe_hidden(snapshot.hidden)}"
                not_listed = CustodyResponseError(text, code="outcome-unknown")
        except CustodyError as error:
            if not error.not_offered_by_service:
                raise
            not_listed = error
        try:
            envelope = self.client.get_whitelist_request(identifier)
        except CustodyError as error:
            if not error.not_offered_by_service:
                raise
            if not_listed is not None:
                raise not_listed from None
            return None
        # For a request that is not listed, only the status word shows whether it is in effect.
        settings = self.client.settings
        is_settled = settings.status_words.meaning(envelope.status) == "effective"
        return make_request(
            ListedRequest(identifier, envelope, is_settled), settings, verifier_for(self.client, [envelope.wire])
        )

    def compare(self, key: str, request: Request) -> Candidate:
        """Compare a request at the service, including its envelope, with a row."""
        envelope, asked = request.envelope, self.requests[key]
        if envelope is None:
            return Candidate(request.id, unclear="it is no longer listed")
        differs: tuple[str, ...] = ()
        contradictions: list[str] = []
        if request.destination is not None:
            compared = compare(asked, envelope, request.fields, self.client.settings)
            differs = compared.differs
            # The envelope's action does not count here, because the review before signing decides about it.
            contradictions = [each.text for each in compared.contradictions if each.name != ENVELOPE_ACTION]
        given = {*asked.model_dump(exclude_none=True), *_DESTINATION}
        return Candidate(
            request.id,
            differs,
            # If the address certainly differs, the request is not the row's, whether it can be trusted or not.
            "" if "address" in differs else _why_not_trusted(request) or "; ".join(contradictions),
            is_rejected=request.reported == "rejected",
            filled_in=tuple(each for each in differs if each not in given),
            request=request,
        )

    def _find(self, key: str, request: Request, *, is_filtered: bool = True) -> Candidate:
        """
        Compare a request that was found with a row, and with the connection's user.

        :raises CustodyError: if the user cannot be read now.
        """
        candidate, envelope = replace(self.compare(key, request), filtered=is_filtered), request.envelope
        if envelope is None:
            return candidate
        by_other = bool(envelope.created_by and self._user_ids and not envelope.created_by & self._user_ids)
        return replace(candidate, created_at=envelope.created_at, by_other=by_other)

    @cached_property
    def _known(self) -> Collection[Names]:
        """The names of chains and networks that the rows use."""
        return names_in(map(destination_of, self.requests.values()))

    @cached_property
    def _user_ids(self) -> UserIds:
        """The ids of the connection's user; empty if the service does not report them."""
        try:
            user = self.client.get_current_user()
        except CustodyError as error:
            if error.retryable:
                raise
            return frozenset()
        return user_ids(user.get("id"), user.get("externalUserId"))

    def _why_inconclusive(self, listed: Snapshot, group: str) -> str:
        """Return why the listing may lack requests that this user has created; empty if it has them."""
        if listed.hidden:
            return f"{describe_hidden(listed.hidden)}, and this request may be among them"
        if not self._user_ids:
            return "the service does not report the connection's user, so it may not list that user's requests"
        for each in listed:
            envelope = each.envelope
            if envelope and envelope.created_by & self._user_ids and (envelope.visibility_group_id or "") == group:
                return ""
        of_group = f" of the visibility group {group}" if group else ""
        return f"it lists no request{of_group} that the connection's user has created, so it may hide such requests"


def _why_not_trusted(request: Request) -> str:
    """Return why a request cannot be trusted, with the request's name; empty if it can be trusted."""
    if request.state == "unverified":
        return f"{request.name} is not verified: {request.reason}"
    return f"{request.name} cannot be read: {request.reason}" if request.state == "unreadable" else ""


def _describe_state(request: Request) -> str:
    by = max((name for _, name in request.shown.created_by), key=len, default="an unknown user")
    state = "pending approval" if request.state == "pending" else "in effect"
    return f"{state} (status {request.status or 'not given'}, created by {sanitize(by, 60)})"


def _unusable(decision: Decision, asked: WhitelistRequest) -> CustodyConflictError:
    """
    Return the error for an existing request for the same destination that cannot be reused.

    :param decision: the decision about the existing request.
    :param asked: the requested content.
    """
    request = decision.request
    name, code, text = "" if request is None else request.name, "request-differs", decision.note
    advice = (
        "Look at the existing request in the service. If it is for another destination, set if_exists='create' to "
        "create a new request."
    )
    if request is not None and decision.state == "rejected":
        code, text = "request-rejected", f"{name} has the same content and was rejected (status {request.status})"
        advice = "If the address is still wanted, if_exists='create' requests it again."
    elif request is not None and decision.state == "unverified":
        code, text, advice = "not-verified", f"{name} is {decision.note}", what_to_do([request.id])
    elif request is not None and decision.state == "differs":
        fields = [_describe_difference(each, asked, decision.shown.get(each, "")) for each in decision.fields]
        verb = "may be" if decision.is_doubtful else "is"
        text = f"{name} {verb} for the same destination, and differs in {', '.join(fields)}"
        text += f": {decision.note}" if decision.note else ""
        if decision.is_doubtful:
            advice = (
                "Spell chain, network and address as the service does, or name the network. If the existing request "
                "is for another destination, set if_exists='create' to create a new request."
            )
        elif decision.fields == ("status",):
            advice = "Once the state of the existing request is known, clear this task."
        else:
            advice = (
                "Correct the task's arguments; or replace the existing request with a plan "
                "(CustodyPlanWhitelistOperator with replace=True), which keeps that request in effect until the new "
                "one is; or delete the existing request at the service."
            )
    return CustodyConflictError(f"{text}; nothing is sent", code=known_code(code), advice=advice)


def _describe_difference(field: str, asked: WhitelistRequest, shown: str) -> str:
    """
    Describe a differing field, with its requested and its existing value.

    Some fields, such as the status, are never requested.
    """
    value = asked.chain if field == "blockchain" else getattr(asked, field, None)
    requested = "" if field not in WhitelistRequest.model_fields else f"requested {_quoted(value)}, "
    return f"{field} ({requested}shown {_quoted(shown)})"


def _quoted(value: str | list[str] | None) -> str:
    text = ", ".join(value) if isinstance(value, list) else value
    return repr(sanitize(text, 80)) if text else "nothing"
