"""
Find the requests at the service that are for a row's destination, and decide whether one serves or blocks the row.

A row is a requested content: a row of a file, or the content of a single create. First, :func:`match_rows` finds the
requests that are, or may be, for the destination of each row. Then :func:`decide` compares these requests with the row.
Nothing here reads from the service.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import count, name_some, sanitize
from airflow_custody.client.whitelist.addresses.checks import EVM_CHAINS
from airflow_custody.client.whitelist.addresses.destinations import (
    Destination,
    Destinations,
    Names,
    destination_of,
    is_network_certain,
    is_same,
    names_in,
)
from airflow_custody.client.whitelist.comparison import ENVELOPE_ACTION, PAYLOAD_KEYS, Comparison, compare
from airflow_custody.client.whitelist.models import FileRow
from airflow_custody.client.whitelist.request import VANISHED, Request

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.whitelist.models import WhitelistRequest

#: Whether an existing request serves or blocks a row. ``create``: no request exists for the row. ``pending`` and
#: ``unchanged``: a request with the row's content is pending or in effect. In all other states, the row is blocked:
#: nothing is created for it.
DecisionState = Literal["create", "pending", "unchanged", "differs", "rejected", "unreadable", "unverified"]
#: The decision about a row, by the state of a request with the row's content.
_STATES_BY_REQUEST: Mapping[str, DecisionState] = {
    "effective": "unchanged",
    "pending": "pending",
    "rejected": "rejected",
    "unknown": "differs",
}
# If several requests match a row, the request whose decision comes first in this list is used.
_PREFERENCE: tuple[DecisionState, ...] = ("unchanged", "pending", "differs", "rejected")
#: The fields that say which destination a request is for.
DESTINATION_FIELDS = frozenset({"blockchain", "network", "address"})
_TWO_SPELLINGS = "some services name this chain itself, others write ETH and name it as the network"
_KEYS = {key.field: name for name, key in PAYLOAD_KEYS.items() if key.field}
_MAX_SHOWN = 1_000


# --- by destination ----------------------------------------------------------------------------------------


def index_requests(requests: Iterable[Request], known: Collection[Names] = ()) -> Destinations[Request]:
    """
    Return an index of requests by their destinations.

    :param requests: the requests.
    :param known: additional known names of chains and networks; see :func:`names_in`. Default: none.
    """
    index: Destinations[Request] = Destinations(known)
    for each in requests:
        if each.destination is None:
            index.unreadable.append(each)
        else:
            index.add(each.destination, each)
    return index


def find_duplicates(requests: Iterable[Request]) -> list[tuple[str, ...]]:
    """
    Return groups of requests for the same destination, by id.

    A request without a network matches any network.

    :param requests: requests in effect. Unreadable requests are left out.
    :return: the groups of at least two ids, each in the order of the requests.
    """
    readable = [each for each in requests if each.destination is not None]
    index = index_requests(readable)
    groups: dict[tuple[str, ...], frozenset[str]] = {}
    for each in readable:
        ids = tuple(other.id for other in index.same(each.destination))  # type: ignore[arg-type]
        if len(ids) > 1:
            groups[ids] = frozenset(ids)
    # Drop groups that are part of a larger one.
    return [ids for ids, group in groups.items() if not any(group < other for other in groups.values())]


# --- the requests that may be for a row --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Match:
    """
    A row, with all requests and rows that may share its destination.

    :param row: the row.
    :param destination: its destination.
    :param same: the requests for this destination. Default: none.
    :param uncertain: the requests that may be for this destination: they name the chain or network differently, differ
        in case, or are on another network of ``ETH``. Default: none.
    :param claims: unverified requests that claim to be for this destination. Default: none.
    :param unreadable: unreadable requests, which may be for any destination. Default: none.
    :param same_rows: other rows with the same chain, address and memo, which may be on the same network. Default: none.
    :param similar_rows: other rows whose destination differs only in case, or in the spelling of the chain. Default:
        none.
    """

    row: FileRow
    destination: Destination
    same: Sequence[Request] = ()
    uncertain: Sequence[Request] = ()
    claims: Sequence[Request] = ()
    unreadable: Sequence[Request] = ()
    same_rows: Sequence[FileRow] = ()
    similar_rows: Sequence[FileRow] = ()

    @property
    def candidates(self) -> list[Request]:
        """All requests that are, or may be, for the destination."""
        return [*self.same, *self.uncertain, *self.claims, *self.unreadable]


def match_rows(file_rows: Iterable[FileRow], requests: Iterable[Request], ignored: Collection[str] = ()) -> list[Match]:
    """
    Find the requests that may be for each row's destination.

    :param file_rows: the rows, each for another destination.
    :param requests: the requests, in any order.
    :param ignored: the ids of requests that a user has inspected and excluded. They are left out, unless they are
        certainly for a row's destination. Default: none.
    :raises CustodyRequestError: if two rows are for the same destination.
    """
    declared = [(row, destination_of(row.request)) for row in file_rows]
    known = names_in(destination for _, destination in declared)
    rows: Destinations[FileRow] = Destinations(known)
    for row, destination in declared:
        first = rows.add(destination, row)
        if first is not None:
            raise CustodyRequestError(f"{first.where} and {row.where} are for the same destination", code="file-wrong")
    index = index_requests(sorted(requests, key=lambda each: (len(each.id), each.id)), known)
    return [_match_row(row, destination, rows, index, ignored) for row, destination in declared]


def _match_row(
    row: FileRow,
    destination: Destination,
    rows: Destinations[FileRow],
    index: Destinations[Request],
    ignored: Collection[str],
) -> Match:
    other_rows = [*rows.same(destination), *rows.may_be(destination, row.request)]
    same_rows = [
        each
        for each in other_rows
        if each is not row and _differs_in_network_only(destination_of(each.request), destination)
    ]
    # A request that is certainly for this destination cannot be ignored.
    same = [each for each in index.same(destination) if each.id not in ignored or is_on_network_of(each, destination)]
    possible: list[Request] = []
    unreadable: list[Request] = []
    for each in index.may_be(destination, row.request):
        if each.state != "rejected" and each.id not in ignored:
            (unreadable if each.destination is None else possible).append(each)
    return Match(
        row,
        destination,
        same=[each for each in same if each.state != "unverified"],
        uncertain=[each for each in possible if each.state != "unverified"],
        claims=[each for each in (*same, *possible) if each.state == "unverified"],
        unreadable=unreadable,
        same_rows=same_rows,
        similar_rows=[each for each in other_rows if each is not row and each not in same_rows],
    )


def _differs_in_network_only(one: Destination, other: Destination) -> bool:
    """Tell whether two destinations with the same memo have the same chain and address."""
    return (one.chain, one.address) == (other.chain, other.address)


def is_on_network_of(request: Request, destination: Destination) -> bool:
    """Tell whether a matching request is certainly on a destination's network."""
    return request.destination is not None and is_network_certain(destination, request.destination)


# --- decisions about rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decision:
    """
    Whether an existing request serves or blocks a row.

    :param state: the decision.
    :param request: the request that serves or blocks the row. Default None: there is none, or it cannot be read.
    :param fields: the names of the fields that differ. Default: none.
    :param note: further facts, as text. Default empty.
    :param shown: the service's values of the fields that differ, as text. Default: none.
    :param options: one decision for each request for the row's destination; this decision is the best of them. Default:
        none.
    """

    state: DecisionState
    request: Request | None = None
    fields: tuple[str, ...] = ()
    note: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[Decision] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether the destination itself differs, so that it is uncertain whether the request is for the row."""
        return self.state == "differs" and not DESTINATION_FIELDS.isdisjoint(self.fields)


def find_existing(asked: WhitelistRequest, requests: Iterable[Request], settings: ClientSettings) -> Decision:
    """
    Decide whether an existing request serves or blocks the content of a single create.

    A rejected request with different content is left out, because it says nothing about this content.

    :param asked: the requested content.
    :param requests: the listed requests to consider, in any order.
    :param settings: the client's settings, with the accepted fields.
    """
    found = [*requests]
    while True:
        (match,) = match_rows([FileRow(asked, "this task")], found)
        decision = decide(match, settings)
        if decision.state != "rejected" or not decision.fields:
            return decision
        found = [each for each in found if each is not decision.request]


def decide(match: Match, settings: ClientSettings) -> Decision:
    """
    Decide about a row.

    :param match: the row, with the requests that may be for it.
    :param settings: the client's settings, with the accepted fields.
    """
    if ambiguous := _why_ambiguous(match):
        return _stopped("network", ambiguous)
    options = [compare_with_row(match, each, settings) for each in match.same or match.uncertain]
    if options:
        best = min(options, key=lambda each: (_PREFERENCE.index(each.state), len(each.fields)))
        return dataclasses.replace(best, options=options)
    if match.similar_rows:
        other = match.similar_rows[0]
        if destination_of(other.request).chain != match.destination.chain:
            note = f"{other.where} may be for the same destination: {_TWO_SPELLINGS}. Keep one of the two rows"
            return _stopped("blockchain", note)
        return _stopped("address", f"the address differs only in case from {other.where}, and may be the same address")
    if match.claims:
        claim = match.claims[0]
        note = f"not verified: {claim.reason}. This request may be for the row, so nothing is created"
        return Decision("unverified", claim, note=note)
    if match.unreadable:
        unreadable = sanitize(match.unreadable[0].id, 40)
        note = f"request {unreadable} cannot be read, and may be for this row, so nothing is created"
        return Decision("unreadable", note=note)
    return Decision("create")


def _stopped(name: str, why: str) -> Decision:
    """Return the decision about an ambiguous row: nothing is created for it, whatever the service lists."""
    return Decision("differs", fields=(name,), note=f"nothing is created: {why}")


def _why_ambiguous(match: Match) -> str:
    """Return why a row without a network is ambiguous, or empty text."""
    if match.destination.network:
        return ""
    if match.same_rows:
        return f"it may be for the same destination as {match.same_rows[0].where}; add the network to both rows"
    alive = [
        each
        for each in (*match.same, *match.uncertain)
        if each.state != "rejected"
        and each.destination
        and _differs_in_network_only(each.destination, match.destination)
    ]
    if len({each.destination.network for each in alive if each.destination}) > 1:
        return f"requests {name_some([each.id for each in alive])} are on different networks; add the network"
    return ""


def compare_with_row(match: Match, request: Request, settings: ClientSettings) -> Decision:
    """Decide about a row and one of the requests that may be for it."""
    envelope, asked = request.shown, match.row.request
    comparison = compare(asked, envelope, request.fields, settings)
    fields = [*comparison.differs, *comparison.unknown]
    is_certain = request.destination is not None and is_same(request.destination, match.destination)
    if not is_certain and DESTINATION_FIELDS.isdisjoint(fields):
        # The network may differ although its key is in `accept_fields`. On ETH, it may even name another chain, so it
        # still counts as different.
        fields = [*fields, "network"]
    notes = []
    if comparison.unknown:
        place = settings.name("accept_fields")
        unknown = name_some(comparison.unknown)
        notes.append(f"not requested: {unknown}; if the service fills them in, add them to {place}")
    notes += _notes_on_destination(match, request.destination, fields, is_certain=is_certain)
    fields += [each.name for each in comparison.contradictions]
    notes += [each.text for each in comparison.contradictions]
    if request.state == "unknown":
        if request.has_vanished:
            notes.append(f"{VANISHED}: plan again")
        else:
            fields.append("status")
            notes.append(request.reason)
    if not fields:
        notes += _notes_on_filled_in(comparison)
    notes += request.legacy_notes
    is_different = bool(fields) or not is_certain
    state = "differs" if is_different and request.state != "rejected" else _STATES_BY_REQUEST[request.state]
    if state == "pending" and envelope.status and not notes:
        notes.append(f"already requested, status {sanitize(envelope.status, 40)}")
    names = tuple(dict.fromkeys(fields))
    return Decision(state, request, names, "; ".join(notes), shown_values(request, names))


def _notes_on_filled_in(comparison: Comparison) -> list[str]:
    """Return a note on the values that the service filled in, except those of links."""
    filled_in = [each for each in (*comparison.filled_in, *comparison.unaccounted) if "." not in each]
    return [f"filled in by the service: {name_some(filled_in)}"] if filled_in else []


def _notes_on_destination(
    match: Match, shown: Destination | None, fields: Iterable[str], *, is_certain: bool
) -> list[str]:
    asked = match.destination
    if shown is not None and shown.chain != asked.chain and {shown.chain, asked.chain} <= {*EVM_CHAINS}:
        return [f"this request may be for the row, so nothing is created: {_TWO_SPELLINGS}"]
    if shown is not None and _differs_in_network_only(shown, asked):
        if "network" in fields and not asked.network:
            return ["the row has no network, but the request is not on the main network, so nothing is created"]
        if not is_certain and not shown.network:
            return ["the request has no network, and may be on any network of ETH, so nothing is created"]
    if not is_certain:
        return ["this request may be for the row, under another name or in another case, so nothing is created"]
    return []


def shown_values(request: Request, fields: Iterable[str]) -> dict[str, str]:
    """Return the values that the service returned for some fields of a request, as text."""
    envelope, payload = request.shown, request.fields
    values = {
        **{name: payload.get(key) for name, key in _KEYS.items()},
        "network": payload.get("network") or envelope.network,
        "status": envelope.status,
        ENVELOPE_ACTION: envelope.action,
    }
    names = [each for each in fields if each in values or (each != "envelope" and "." not in each)]
    return {name: _value_text(values[name] if name in values else payload.get(name)) for name in names}


def _value_text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        value = ", ".join(str(each.get("id")) for each in value)
    if not isinstance(value, str):
        value = "" if value is None else json.dumps(value)
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}… ({count(len(value), 'character')})"
