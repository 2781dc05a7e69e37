"""Whitelisting requests as what is created at most once: one of them, or many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError, CustodyNotFoundError, CustodyResponseError
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES, decide_trust, state_of
from airflow_custody.client.whitelist.listing import find_all
from airflow_custody.client.whitelist.matching import differing_fields
from airflow_custody.client.whitelist.operations import CREATE_WHITELIST_REQUEST
from airflow_custody.client.whitelist.review import compare, reads_alike
from airflow_custody.client.whitelist.spelling import address_key, may_be_respelled
from airflow_custody.idempotency.candidates import Candidate
from airflow_custody.idempotency.create_once import Found

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest
    from airflow_custody.client.verification.rules_in_force import PendingVerifier
    from airflow_custody.client.whitelist.listing import Listing

#: Maximum number of addresses in one search: gateways refuse a URL that is longer than some thousand characters.
MAX_ADDRESSES = 50
_MAX_LABELLED = 50


class TrustChecker:
    """
    Tells which requests do not verify, so that they are not taken for what a task asked for.

    :param client: the client. Without pinned keys, all is the service's word.
    :param effective_statuses: status words, compared without case, of requests in effect; None: being listed as not
        pending is enough. Default ``approved``.
    :param rejected_statuses: status words of rejected requests.
    """

    def __init__(
        self,
        client: CustodyClient,
        effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Collection[str] = REJECTED_STATUSES,
    ) -> None:
        self._client = client
        self._effective_statuses = effective_statuses
        self._rejected_statuses = rejected_statuses

    @cached_property
    def _verifier(self) -> PendingVerifier | None:
        from airflow_custody.client.verification.rules_in_force import verifier_for

        return verifier_for(self._client)

    def why_unverified(self, envelope: WhitelistEnvelope) -> str:
        """
        Return why a request does not verify; empty if it does, or need not.

        :param envelope: the request.
        :raises CustodyError: if what that takes cannot be got from the service now.
        """
        if self._verifier is None:
            return ""
        effective, rejected = self._effective_statuses, self._rejected_statuses
        state = state_of(envelope.status, "anywhere", effective_statuses=effective, rejected_statuses=rejected)
        if state == "effective" and effective is None and not self._is_settled(envelope):
            state = "pending"
        if state == "pending":
            self._verifier.fetch_for([envelope.wire])
        error = decide_trust(envelope.wire, state, self._verifier).error
        return "" if error is None else error.reason

    def unverified(self, envelopes: Iterable[WhitelistEnvelope]) -> set[str]:
        """Return the ids of the requests that do not verify."""
        return {each.id for each in envelopes if self.why_unverified(each)}

    def _is_settled(self, envelope: WhitelistEnvelope) -> bool:
        settled = self._client.find_whitelist_requests(ids=[envelope.id], include_pending=False)
        return any(each.id == envelope.id for each in settled)


class WhitelistRequestCreation:
    """The creation of a whitelisting request."""

    what = "whitelisting request"

    def __init__(self, client: CustodyClient, request: WhitelistRequest, trust: TrustChecker | None = None) -> None:
        self.operation = CREATE_WHITELIST_REQUEST
        self._client = client
        self._trust = trust or TrustChecker(client)
        self._request = request
        self.timeout = client.settings.timeout
        self.which = f"{shorten(request.address)} on {request.chain}"
        self.content: Mapping[str, object] = {
            "service": client.settings.base_url,
            **request.model_dump(exclude_none=True),
        }

    def send(self, before_send: Callable[[], None]) -> str:
        return self._client.create_whitelist_request(self._request, before_send=before_send)

    def find(self, *, thorough: bool) -> Found:
        # Not by the chain: how the service spells it is its own affair.
        filtered = list(self._client.find_whitelist_requests(addresses=[self._request.address]))
        if not thorough:
            return Found([self._candidate(each) for each in filtered])
        # So may be how it spells the address, and what its filter makes of that.
        ids = {each.id for each in filtered}
        listed = find_all(self._client)
        candidates = [self._candidate(each, filtered=each.id in ids) for each in listed]
        # For another address, unless that is all: the service may have encoded it anew.
        candidates = [each for each in candidates if not each.guessed or each.unclear or each.differs == ("address",)]
        return Found(candidates, self._why_inconclusive(listed))

    def get(self, identifier: str) -> Candidate | None:
        try:
            return self._candidate(self._client.get_whitelist_request(identifier))
        except CustodyNotFoundError as error:
            if not error.from_service:
                raise
        # The service may not offer to get one by its id, and then says so in the same way. Its listing knows.
        listed = self._client.find_whitelist_requests(ids=[identifier])
        return next((self._candidate(each) for each in listed if each.id == identifier), None)

    @cached_property
    def _own_ids(self) -> frozenset[str]:
        """The ids of the user who creates; empty if the service does not say."""
        return find_own_ids(self._client)

    def _why_inconclusive(self, listed: Iterable[WhitelistEnvelope]) -> str:
        """Return why a request of this user would not be listed; empty if it would."""
        if not self._own_ids:
            return "the service does not say who the connection's user is, so whether it lists that user's requests"
        group = self._request.visibility_group_id or ""
        if any(each.created_by & self._own_ids and (each.visibility_group_id or "") == group for each in listed):
            return ""
        of_group = f" of the visibility group {group}" if group else ""
        return f"it lists no request{of_group} that the connection's user has created, so it may hide them"

    def _candidate(self, envelope: WhitelistEnvelope, *, filtered: bool = True) -> Candidate:
        found = self._compared(envelope, filtered=filtered)
        # Requests that certainly are for another destination need not be verified.
        if "address" in found.differs or not (why := self._trust.why_unverified(envelope)):
            return found
        return replace(found, same=False, unclear=why)

    def _compared(self, envelope: WhitelistEnvelope, *, filtered: bool) -> Candidate:
        by = envelope.created_by
        facts: dict[str, Any] = {
            "created_at": envelope.created_at,
            "by_other": bool(by and self._own_ids and not by & self._own_ids),
            "filtered": filtered,
        }
        try:
            comparison = compare(self._request, envelope.payload(), network=envelope.network)
        except CustodyResponseError as error:
            return Candidate(envelope.id, same=False, unclear=error.text, guessed=not filtered, **facts)
        differs, open_ = list(comparison.differing), list(comparison.unclear)
        if "address" in differs and reads_alike(self._request.address, envelope):
            # Spelled so differently that they can only be compared by eye.
            differs.remove("address")
            open_.append("address")
        unclear = f"it leaves open: {', '.join(open_)}" if open_ and not differs else ""
        return Candidate(
            envelope.id,
            same=comparison.same,
            unclear=unclear,
            differs=tuple(differs),
            guessed="address" in differs,
            **facts,
        )


def find_own_ids(client: CustodyClient) -> frozenset[str]:
    """Return the ids of the client's user; empty if the service does not say."""
    try:
        user = client.get_current_user()
    except CustodyError as error:
        if error.retryable:
            raise
        return frozenset()
    return frozenset(filter(None, (user.get("id"), user.get("externalUserId"))))


class WhitelistRowsCreation:
    """
    The creation of many whitelisting requests.

    :param client: the client.
    :param requests: the requests, by the row's key.
    :param listing: all that the service listed before.
    :param trust: tells what does not verify. Default: by the usual status words.
    """

    what = "whitelisting request"
    operation = CREATE_WHITELIST_REQUEST

    def __init__(
        self,
        client: CustodyClient,
        requests: Mapping[str, WhitelistRequest],
        listing: Listing,
        trust: TrustChecker | None = None,
    ) -> None:
        self._client = client
        self._requests = requests
        trust = trust or TrustChecker(client)
        self._rows = {key: _RowCreation(self, client, request, trust) for key, request in requests.items()}
        self.timeout = client.settings.timeout
        #: Requests that may belong to any row, and were there before.
        self._unreadable = tuple(each.id for each in listing.envelopes if not _is_readable(each))
        self.listed_before = _Index(listing.envelopes)

    @cached_property
    def own_ids(self) -> frozenset[str]:
        """The ids of the user who creates; empty if the service does not say."""
        return find_own_ids(self._client)

    def which(self, key: str) -> str:
        return self._rows[key].which

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        return self._rows[key].send(before_send)

    def find(self, keys: Collection[str], *, thorough: bool) -> Mapping[str, Found]:
        addresses = list(dict.fromkeys(self._requests[key].address for key in keys))
        listed: list[WhitelistEnvelope] = []
        if thorough:
            listed.extend(find_all(self._client))
        else:
            for start in range(0, len(addresses), MAX_ADDRESSES):
                batch = addresses[start : start + MAX_ADDRESSES]
                listed.extend(self._client.find_whitelist_requests(addresses=batch))
        return self.found_in(_Index({each.id: each for each in listed}.values()), keys)

    def found_in(self, index: _Index, keys: Collection[str]) -> Mapping[str, Found]:
        """Return what may be the rows, of what was listed."""
        # One of them is enough to show that the user's own requests are listed.
        inconclusive: dict[str | None, str] = {}
        found = {}
        for key in keys:
            group = self._requests[key].visibility_group_id
            if group not in inconclusive:
                inconclusive[group] = self._rows[key].why_inconclusive(index.envelopes)
            found[key] = Found(self._rows[key].candidates(index.like(self._requests[key])), inconclusive[group])
        return found

    def known_ids(self, key: str) -> tuple[str, ...]:
        like = [each.id for each in self.listed_before.like(self._requests[key])]
        return tuple(sorted({*like, *self._unreadable}))


class _RowCreation(WhitelistRequestCreation):
    """The creation of one of many, which is recognized although the service has spelled or filled in something."""

    def __init__(
        self, rows: WhitelistRowsCreation, client: CustodyClient, request: WhitelistRequest, trust: TrustChecker
    ) -> None:
        super().__init__(client, request, trust)
        self._all = rows

    @property
    def _own_ids(self) -> frozenset[str]:
        return self._all.own_ids

    def candidates(self, envelopes: Iterable[WhitelistEnvelope]) -> list[Candidate]:
        found = [(each, self._candidate(each)) for each in envelopes]
        return [
            candidate
            for envelope, candidate in found
            if not candidate.guessed
            or candidate.unclear
            or (candidate.differs == ("address",) and self._may_be_respelled(envelope))
        ]

    def _may_be_respelled(self, envelope: WhitelistEnvelope) -> bool:
        shown = envelope.payload().get("address")
        return not isinstance(shown, str) or may_be_respelled(self._request.address, shown)

    def why_inconclusive(self, envelopes: Iterable[WhitelistEnvelope]) -> str:
        return self._why_inconclusive(envelopes)

    def _compared(self, envelope: WhitelistEnvelope, *, filtered: bool) -> Candidate:
        found = super()._compared(envelope, filtered=filtered)
        if not found.unclear or not _is_readable(envelope) or differing_fields(self._request, envelope):
            return found
        return replace(found, unclear="", same=True)


class _Index:
    """Requests by their address and by their label."""

    def __init__(self, envelopes: Iterable[WhitelistEnvelope]) -> None:
        self.envelopes = list(envelopes)
        self._by_address: dict[str, list[WhitelistEnvelope]] = defaultdict(list)
        self._by_label: dict[str, list[WhitelistEnvelope]] = defaultdict(list)
        self._unreadable: list[WhitelistEnvelope] = []
        for each in self.envelopes:
            try:
                payload = each.payload()
            except CustodyError:
                self._unreadable.append(each)
                continue
            self._by_address[address_key(str(payload.get("address") or ""))].append(each)
            self._by_label[str(payload.get("label") or "")].append(each)

    def like(self, request: WhitelistRequest) -> list[WhitelistEnvelope]:
        """Return the requests that may be this one, however the service spells it."""
        labelled = self._by_label.get(request.label, [])
        # A label that many have in common says nothing.
        labelled = labelled if len(labelled) <= _MAX_LABELLED else []
        found = [*self._by_address.get(address_key(request.address), []), *labelled, *self._unreadable]
        return list({each.id: each for each in found}.values())


def _is_readable(envelope: WhitelistEnvelope) -> bool:
    try:
        envelope.payload()
    except CustodyError:
        return False
    return True


def shorten(address: str) -> str:
    """Return enough of an address to recognize it in a log."""
    return address if len(address) <= 16 else f"{address[:8]}…{address[-6:]}"
