"""
Planning: the operations after which the service has what a whitelist file says. Pure functions, no I/O.

A row of the file and a request at the service are for the same destination if chain, network, address and memo are the
same. Spelling that is the service's affair is not compared: the case of a chain's symbol, of hexadecimal and of
one-case addresses, an address's prefix or checksum, the known names of a chain and of its main network, what the
service fills in by itself. Everything else is compared strictly. The order of either does not matter.

What may be there already is never created, and what the file may mean is never deleted. What pinned keys do not verify
takes no row from what they do: it is named, and may be a reason not to create, and nothing else.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from airflow_custody.client.errors import CustodyRequestError, CustodyResponseError
from airflow_custody.client.text import as_list, sanitize
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.listed_requests import Claims, read_listed
from airflow_custody.client.whitelist.listing import Listing, to_request
from airflow_custody.client.whitelist.matching import (
    Listed,
    Match,
    Unreadable,
    chain_key,
    contradictions,
    id_order,
    match,
    match_respelled,
    normalize,
    not_covered,
    shown_values,
)
from airflow_custody.client.whitelist.matching_index import Group, RequestIndex, RowIndex
from airflow_custody.client.whitelist.plan import PlanRow, State, WhitelistPlan, create_operation
from airflow_custody.client.whitelist.progress import status_word
from airflow_custody.client.whitelist.spelling import Destinations, address_key

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.models import WhitelistRequest

# The best request at the service for a row comes first.
_PREFERENCE: tuple[State, ...] = ("unchanged", "pending", "differs", "rejected")
# With more unreadable requests than this, any row may be one of them.
_MAX_UNREADABLE_COMPARED = 100
# So many faults, or chains, are named in a message.
_MAX_NAMED = 100
_DRY_RUN = "dry run: nothing is done for this chain"


class DeclaredRow(Protocol):
    """A row of a whitelist file."""

    @property
    def request(self) -> WhitelistRequest:
        """The request."""

    @property
    def where(self) -> str:
        """Its place in the file, such as ``line 12``."""


def make_plan(
    rows: Iterable[DeclaredRow],
    listing: Listing,
    *,
    service: str = "",
    name: str = "",
    prune: bool = False,
    dry_run_chains: Collection[str] = (),
    effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES,
    rejected_statuses: Collection[str] = REJECTED_STATUSES,
    accept_fields: str | Collection[str] = (),
) -> WhitelistPlan:
    """
    Compare a whitelist file with what the service lists.

    :param rows: the rows of the file; no two for the same destination.
    :param listing: all that the service lists.
    :param service: name of the service and the tenant; it becomes part of the plan's hash. Default empty.
    :param name: the file's name. Default empty.
    :param prune: whether requests that the file does not have are to be deleted. Default False.
    :param dry_run_chains: chains, by any name, for which nothing is to be done. Default: none.
    :param effective_statuses: status words, compared without case, of which a request in effect has one; None: not
        being pending is enough.
    :param rejected_statuses: status words, compared without case, that mean that a request was rejected.
    :param accept_fields: keys of a payload that may have a value although the file says nothing about them; and
        ``envelope.action``, which accepts a word that is not known to mean a creation. Default: none.
    :return: the plan.
    :raises CustodyRequestError: if two rows are for the same destination, or a dry run is for a chain that is nowhere.
    """
    rows = list(rows)
    _check_destinations(rows)
    matcher = _Matcher(listing, effective_statuses, rejected_statuses, frozenset(as_list(accept_fields)))
    dry = _dry_run(dry_run_chains, rows, matcher)
    found = [
        _in_chain(replace(row, action="create") if row.state == "create" else row, dry)
        for row in matcher.match_all(rows)
    ]
    found += [
        _in_chain(replace(row, action="delete") if prune and may_be_deleted else row, dry)
        for row, may_be_deleted in matcher.others()
    ]
    return WhitelistPlan(found, service, name, listing.pins)


def _in_chain(row: PlanRow, dry_run_chains: Collection[str]) -> PlanRow:
    if row.action and row.request is not None and chain_key(row.request.chain) in dry_run_chains:
        return replace(row, action=None, note="; ".join(filter(None, [_DRY_RUN, row.note])))
    return row


def _dry_run(names: Collection[str], rows: Iterable[DeclaredRow], matcher: _Matcher) -> set[str]:
    """Return the keys of chains; one that is nowhere is refused, as it may be a mistyped one."""
    known = {chain_key(row.request.chain): row.request.chain for row in rows}
    known = {**matcher.chains(), **known}
    unknown = [each for each in as_list(names) if chain_key(each) not in known]
    # An unreadable request may be on any chain.
    if unknown and "" not in known:
        there = ", ".join(sorted(sanitize(each, 40) for each in known.values())[:_MAX_NAMED]) or "none"
        raise CustodyRequestError(
            f"dry_run_chains names {', '.join(repr(sanitize(each, 40)) for each in unknown)}, and neither the file nor "
            f"the service has such a chain; there are: {there}",
            code="parameter-wrong",
        )
    return {chain_key(each) for each in as_list(names)}


def _check_destinations(rows: Iterable[DeclaredRow]) -> None:
    destinations: Destinations[str] = Destinations()
    faults = []
    for row in rows:
        request = row.request
        for other in destinations.add(request.chain, request.network, request.address, request.memo, row.where):
            faults.append(f"{other} and {row.where} are for the same destination")
    if faults:
        more = [f"and {len(faults) - _MAX_NAMED} more"] if len(faults) > _MAX_NAMED else []
        raise CustodyRequestError("; ".join([*faults[:_MAX_NAMED], *more]), code="file-wrong")


class _Matcher:
    """Finds the request at the service for each row of a file."""

    def __init__(
        self,
        listing: Listing,
        effective_statuses: Collection[str] | None,
        rejected_statuses: Collection[str],
        accepted: Collection[str],
    ) -> None:
        self._accepted = accepted
        self._all: list[Listed] = []
        self._unreadable: list[Unreadable] = []
        claims: list[Listed] = []
        for envelope in sorted(listing.envelopes, key=lambda each: id_order(each.id)):
            found = read_listed(envelope, listing, effective_statuses, rejected_statuses)
            if isinstance(found, Unreadable):
                self._unreadable.append(found)
            else:
                (claims if found.state == "unverified" else self._all).append(found)
        self._unverified, self._claims = claims, Claims(claims)
        self._index = RequestIndex(sorted(self._all, key=lambda each: each.state == "rejected"))
        self._labels: Counter[tuple[str, str]] = Counter()
        self._meant: RowIndex[tuple[DeclaredRow, bool]] = RowIndex()

    def chains(self) -> dict[str, str]:
        """Return the chains of the requests, by their keys."""
        return {each.chain: str(each.payload.get("currency")) for each in (*self._all, *self._unverified)} | {
            each.chain: each.chain for each in self._unreadable
        }

    def match_all(self, rows: Sequence[DeclaredRow]) -> list[PlanRow]:
        """Return a row of the plan for each row of the file."""
        siblings: dict[tuple[str, str, str | None], list[DeclaredRow]] = defaultdict(list)
        # By what they ask for; one that names its network before one that leaves it to the service.
        order = sorted(
            range(len(rows)),
            key=lambda index: (rows[index].request.network is None, create_operation(rows[index].request)),
        )
        for index in order:
            siblings[_sibling_key(rows[index].request)].append(rows[index])
        self._labels.update(_label_key(row.request) for row in rows)
        options = [self._options(row) for row in rows]
        found: list[Match | None] = [None] * len(rows)
        # A request that certainly belongs to a row must not be matched with another that it may belong to.
        passes: list[Callable[[int], Iterable[Match]]] = [
            lambda index: filter(lambda each: each.is_same, options[index]),
            lambda index: filter(lambda each: each.is_certain, options[index]),
            lambda index: chain(options[index], self._without_memo(rows[index])),
        ]
        for candidates in passes:
            for index in order:
                if found[index] is None:
                    found[index] = _take(rows[index], candidates(index))
        # Only then is known which requests are no other row's.
        for index in order:
            if found[index] is None and (option := self._respelled(rows[index])):
                found[index] = _take(rows[index], [option])
                options[index].append(option)
        for index in order:
            match_found = found[index]
            is_sure = match_found is not None and match_found.listed.is_sure
            self._meant.add(rows[index].request, (rows[index], is_sure), is_sure=is_sure)
        return [
            self._declared(row, found[index], options[index], siblings[_sibling_key(row.request)])
            for index, row in enumerate(rows)
        ]

    def _meant_by(self, listed: Listed) -> str:
        """Return where the row is that may mean a request; empty if no row does."""
        for row, _ in self._meant.same(listed):
            if match(row.request, listed, self._accepted):
                return row.where
        for row, _ in self._meant.alike(listed):
            if match(row.request, listed, self._accepted) or match_respelled(row.request, listed, self._accepted):
                return row.where
        return ""

    def _options(self, row: DeclaredRow) -> list[Match]:
        """Return the requests that are, or may be, for a row's destination, and have its memo."""
        found = (match(row.request, each, self._accepted) for each in self._index.exact(row.request))
        return [each for each in found if each is not None]

    def _without_memo(self, row: DeclaredRow) -> Iterator[Match]:
        """Yield requests of which the service may have left out the memo: of those that are alike, the first."""
        if bucket := self._index.without_memo(row.request):
            for group in (*bucket.labelled(row.request), *bucket.groups(row.request)):
                if option := self._first(row, group.free(), match):
                    yield option

    def _respelled(self, row: DeclaredRow) -> Match | None:
        """Return a request that may be what a row asks for, in a spelling of the service's own; None: there is none."""
        alike, others = [*self._index.alike(row.request)], [*self._index.respelled(row.request)]
        # A free one first; or else one whose row is not known.
        for candidates in (
            *map(Group.free, (*alike, *others)),
            *map(Group.unsure_of_network, alike),
            *map(Group.unsure, others),
        ):
            if option := self._first(row, candidates, match_respelled):
                return option
        return None

    def _first(
        self,
        row: DeclaredRow,
        candidates: Iterable[Listed],
        compare: Callable[[WhitelistRequest, Listed, Collection[str]], Match | None],
    ) -> Match | None:
        """Return how the first request compares that a row may have, or may mean."""
        found = (compare(row.request, each, self._accepted) for each in candidates)
        return next((each for each in found if each and (each.listed.row is None or _is_in_doubt(each))), None)

    def _declared(
        self, row: DeclaredRow, found: Match | None, options: Sequence[Match], siblings: Sequence[DeclaredRow]
    ) -> PlanRow:
        if found is None:
            return self._missing(row, options, siblings)
        envelope = found.listed.envelope
        note = found.note
        if found.state == "pending" and envelope.status and not note:
            note = f"asked for already, status {sanitize(envelope.status, 40)}"
        return PlanRow(
            found.state,
            request=row.request,
            where=row.where,
            request_id=envelope.id,
            status=status_word(envelope.status),
            hash=envelope.hash or "",
            fields=found.fields,
            note=note,
            shown=shown_values(found.listed, found.fields),
        )

    def _missing(self, row: DeclaredRow, options: Sequence[Match], siblings: Sequence[DeclaredRow]) -> PlanRow:
        """Return what becomes of a row that no request at the service is left for."""
        for option in chain(filter(_is_in_doubt, options), self._unsure_without_memo(row)):
            note = (
                f"request {option.listed.envelope.id} may be for this row or for {option.listed.row}, so nothing is "
                "created: write in the file what the service has, the network too"
            )
            return PlanRow("differs", request=row.request, where=row.where, fields=option.fields, note=note)
        if row.request.network is None and len(siblings) > 1:
            other = next(each.where for each in siblings if each is not row)
            note = f"the service may take this for the same as {other}, so nothing is created: name the network in both"
            return PlanRow("differs", request=row.request, where=row.where, fields=("network",), note=note)
        has_own_label = self._labels[_label_key(row.request)] == 1
        if claim := self._claims.find(row.request, self._accepted, has_own_label=has_own_label):
            claim.row = claim.row or row.where
            return PlanRow(
                "unverified",
                request=row.request,
                where=row.where,
                request_id=claim.envelope.id,
                status=status_word(claim.envelope.status),
                hash=claim.envelope.hash or "",
                note=f"{claim.why}. It may be this one: nothing is created",
            )
        hidden = self._may_be(row.request)
        if hidden:
            return PlanRow("unreadable", request=row.request, where=row.where, note=hidden.summary())
        return PlanRow("create", request=row.request, where=row.where)

    def _unsure_without_memo(self, row: DeclaredRow) -> Iterator[Match]:
        """Yield requests that another row has, and of which the service may have left out this row's memo."""
        bucket = self._index.without_memo(row.request)
        for group in bucket.groups(row.request) if bucket else ():
            if option := self._first(row, group.unsure(), match):
                yield option

    def _may_be(self, request: WhitelistRequest) -> Unreadable | None:
        """Return an unreadable request that may be what a row asks for; None if there is none."""
        if len(self._unreadable) > _MAX_UNREADABLE_COMPARED:
            return self._unreadable[0]
        if not self._unreadable:
            return None
        known = chain_key(request.chain), address_key(request.address)
        label = json.dumps(request.label, ensure_ascii=False).casefold()
        return next((each for each in self._unreadable if each.may_be(*known, label)), None)

    def others(self) -> Iterator[tuple[PlanRow, bool]]:
        """Yield a row for each request that is in no file, and whether it may be deleted."""
        for listed in self._all:
            if listed.row is not None or listed.state == "rejected":
                continue
            notes = [_progress(listed)]
            notes += [not_covered(listed.omitted)] if listed.omitted else []
            # A person decides on requests that contradict themselves, are being deleted, or may be meant by the file.
            fields, faults = contradictions(listed, None, self._accepted)
            faults += [listed.doubt] if listed.doubt else []
            meant = self._meant_by(listed)
            notes += [f"may be for the same destination as {meant}, so it is not deleted"] if meant else []
            row = _undeclared(listed, "undeclared", [*notes, *faults], fields)
            yield row, row.request is not None and not faults and not meant
        for listed in self._unverified:
            if listed.row is None:
                meant = self._meant_by(listed)
                notes = [f"it claims to be for the same destination as {meant}"] if meant else []
                yield _undeclared(listed, "unverified", [listed.why, *notes]), False
        for each in self._unreadable:
            envelope = each.envelope
            shown = {
                "blockchain": sanitize(envelope.blockchain or "", 100),
                "network": sanitize(envelope.network or "", 100),
            }
            number, status = sanitize(envelope.id, 40), status_word(envelope.status)
            yield PlanRow("unreadable", request_id=number, status=status, note=each.why, shown=shown), False


def _progress(listed: Listed) -> str:
    """Describe the state of a request that is to be deleted."""
    if listed.state == "differs":
        return f"its status is {status_word(listed.envelope.status) or 'empty'}: whether it is in effect is not known"
    return "pending approval" if listed.state == "pending" else "in effect"


def _undeclared(listed: Listed, state: State, notes: Sequence[str], fields: Sequence[str] = ()) -> PlanRow:
    """Return a row of the plan for a request that is in no file."""
    envelope = listed.envelope
    request, shown = None, {}
    try:
        request = to_request(envelope, listed.payload)
    except CustodyResponseError as error:
        notes = [*notes, error.message]
        shown = shown_values(listed, ("blockchain", "network", "address", "memo", "label"))
    return PlanRow(
        state,
        request=request,
        request_id=envelope.id,
        status=status_word(envelope.status),
        hash=envelope.hash or "",
        fields=tuple(fields),
        note="; ".join(notes),
        shown=shown,
    )


def _take(row: DeclaredRow, options: Iterable[Match]) -> Match | None:
    """Return the best of the requests that no other row has, and mark it as this row's."""
    free = [each for each in options if each.listed.row is None]
    best = min(
        free, key=lambda each: (_PREFERENCE.index(each.state), len(each.fields), each.listed.order), default=None
    )
    if best is not None:
        best.listed.row, best.listed.is_sure = row.where, best.is_certain
        best.listed.has_sure_network = best.is_certain and best.has_network
    return best


def _is_in_doubt(option: Match) -> bool:
    """Tell whether a request that another row has may be this row's all the same."""
    # One without a memo is not the same as one with a memo; but the network may be the service's affair, and so may be
    # how everything is spelled.
    return "memo" not in option.fields or not option.listed.is_sure


def _label_key(request: WhitelistRequest) -> tuple[str, str]:
    return normalize(request.label), chain_key(request.chain)


def _sibling_key(request: WhitelistRequest) -> tuple[str, str, str | None]:
    """Return what rows for the same destination have in common, whatever their network is."""
    return chain_key(request.chain), address_key(request.address), request.memo
