"""
Find the operations that make the service match a file. No I/O.

Planning compares rows with requests in two steps. First, :func:`_match_rows` finds the requests that are, or may be,
for the destination of each row. Then :func:`_plan_row` decides about each row, and :func:`_plan_other` about each
request without a row. A row and a request are for the same destination if they have the same key: see
:mod:`~airflow_custody.client.whitelist.addresses.destinations`. All other fields are compared strictly, except for the
values that the service fills in. The order of rows and requests does not matter.

A request is created for a row only if no existing request may be for the row, or to replace such a request. A request
is deleted only if no row may need it. An unverified request never counts as the request for a row. The plan names it,
and creates nothing for a row that it may be for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_custody.client.arguments import check_identifier
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import name_some, sanitize
from airflow_custody.client.verification.keys import SIGNATURE_BYTES
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.addresses.checks import EVM_CHAINS
from airflow_custody.client.whitelist.addresses.destinations import (
    Destination,
    Destinations,
    destination_of,
    is_network_certain,
    is_same,
    names_in,
)
from airflow_custody.client.whitelist.comparison import Comparison, compare
from airflow_custody.client.whitelist.ids import fetch_items, is_list_of_ids
from airflow_custody.client.whitelist.models import FileRow, WhitelistRequest
from airflow_custody.client.whitelist.plans.matching import index_requests, shown_values
from airflow_custody.client.whitelist.plans.plan import (
    ONLY_FIELDS,
    PlanRow,
    RowState,
    WhitelistPlan,
    describe_only,
)
from airflow_custody.client.whitelist.request import VANISHED, Request, status_word, to_whitelist_request

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.whitelist.snapshot import Snapshot

#: The state of a row with a matching request, by the state of the request.
_STATES_BY_REQUEST: Mapping[str, RowState] = {
    "effective": "unchanged",
    "pending": "pending",
    "rejected": "rejected",
    "unknown": "differs",
}
# If several requests match a row, the row gets the request with the first of these states.
_PREFERENCE: tuple[RowState, ...] = ("unchanged", "pending", "differs", "rejected")
# The fields in which a new request may differ from the request that it replaces.
_REPLACEABLE = {*WhitelistRequest.model_fields}.difference(
    Destination._fields, ("blockchain", "currency", "customer_id", "visibility_group_id")
)
# Replace at most two requests per destination. Beyond that, the service itself probably alters what it stores.
_MAX_REPLACED = 2
_HALF = SIGNATURE_BYTES // 2
_TWO_SPELLINGS = "some services name this chain itself, others write ETH and name it as the network"
_IGNORED = "ignored, so it does not prevent the creation of a request"


@dataclass(frozen=True)
class PlanSettings:
    """
    The settings of a plan, the same for planning and applying.

    :param prune: whether to delete duplicates, and requests that the file does not have. Default False.
    :param replace: whether to create a new request for a row if the requests in effect (at most two) differ, but not in
        the destination, the customer or the visibility group; and to delete the old ones once the new one is in effect.
        Default False.
    :param only: the limits of the plan, in the form that :func:`check_only` returns. Requests outside these limits are
        never deleted. They are reported only if they may be for a row, or are unreadable or unverified. Default:
        everything.
    :param ignore: ids of requests that the user has inspected: they cannot be read, or their chain, network or address
        is ambiguous. They are not deleted, and do not prevent a creation, unless they are certainly for the row's
        destination. The ids that exist become part of the plan's hash. Default: none.
    """

    prune: bool = False
    replace: bool = False
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ignore: Collection[str] = ()


def make_plan(
    rows: Iterable[FileRow],
    snapshot: Snapshot,
    settings: PlanSettings = PlanSettings(),
    *,
    service: str = "",
    name: str = "",
) -> WhitelistPlan:
    """
    Compare a whitelist file with the requests at the service.

    :param rows: the rows of the file, each for another destination.
    :param snapshot: all requests that the service lists.
    :param settings: the settings of the plan. Default: those of :class:`PlanSettings`.
    :param service: name of the service and the tenant; it becomes part of the plan's hash. Default empty.
    :param name: the file's name. Default empty.
    :return: the plan.
    :raises CustodyRequestError: if two rows are for the same destination, or a row is outside the plan's limits.
    """
    declared = [(row, destination_of(row.request)) for row in rows]
    _refuse_rows_outside(declared, settings.only)
    requests = sorted(snapshot, key=lambda each: (len(each.id), each.id))
    matches = _match_rows(declared, requests, frozenset(settings.ignore))
    decisions = [_plan_row(each, settings, snapshot.settings) for each in matches]
    context = _Context(settings, matches, decisions, snapshot.settings)
    others = [_plan_other(each, context) for each in _not_taken(requests, decisions) if _is_about(each, settings.only)]
    ignored = tuple(each.id for each in requests if each.id in settings.ignore)
    plan_rows = [*(each.row for each in decisions), *others]
    return WhitelistPlan(plan_rows, service, name, snapshot.pins, ignored, settings.only, snapshot.hidden)


def check_ignored(values: Any) -> list[str]:
    """
    Return ids of requests to ignore, each once.

    An id may be any text, because an unreadable request may have a malformed id.

    :param values: one id, or several.
    :raises CustodyRequestError: if an id is empty, or not a text or number.
    """
    given = fetch_items(values) if is_list_of_ids(values) else [values]
    return list(dict.fromkeys(check_identifier(f"ignore[{index}]", each) for index, each in enumerate(given)))


# --- the limits of a plan ----------------------------------------------------------------------------------


def _refuse_rows_outside(declared: Iterable[tuple[FileRow, Destination]], only: Mapping[str, Sequence[str]]) -> None:
    """
    Refuse a file with rows outside the plan's limits.

    :raises CustodyRequestError: if a row is outside the limits.
    """
    outside = []
    for row, destination in declared:
        if not _is_within(only, destination.chain, row.request.customer_id, row.request.visibility_group_id):
            outside.append(row.where)
    if outside:
        about = sanitize(describe_only(only), 300)
        raise CustodyRequestError(
            f"the plan is limited to {about}, but the file has other rows: {name_some(outside)}; nothing is sent",
            advice="Remove these rows from the file, or add their values to 'only'.",
            code="file-wrong",
        )


def _is_within(only: Mapping[str, Collection[str]], *values: object) -> bool:
    """Tell whether the values of :data:`ONLY_FIELDS` are within the limits."""
    return all(str(value) in only.get(name, (str(value),)) for name, value in zip(ONLY_FIELDS, values, strict=True))


def _is_about(request: Request, only: Mapping[str, Collection[str]]) -> bool:
    """
    Tell whether a request may be within the plan's limits.

    Unreadable and unverified requests may always be within the limits.
    """
    if request.destination is None or request.state == "unverified":
        return True
    customer, group = request.fields.get("customerId", ""), _group_of(request)
    is_readable = isinstance(customer, (str, int, type(None)))
    return not is_readable or _is_within(only, request.destination.chain, customer, group)


# --- the requests that may be for a row --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Match:
    """
    A row, with all requests and rows that may share its destination.

    :param row: the row.
    :param destination: its destination.
    :param same: the requests for this destination. Default: none.
    :param uncertain: the requests that may be for this destination, under another name or in another case, or on
        another network of ``ETH``. Default: none.
    :param claims: unverified requests that claim to be for this destination. Default: none.
    :param unreadable: unreadable requests, which may be for this destination. Default: none.
    :param same_rows: other rows that may be on the same network. Default: none.
    :param similar_rows: other rows that differ only in case, or in the spelling of the chain. Default: none.
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


def _match_rows(
    declared: Sequence[tuple[FileRow, Destination]], requests: Sequence[Request], ignored: Collection[str]
) -> list[_Match]:
    """
    Find the requests that may be for each row's destination.

    :raises CustodyRequestError: if two rows are for the same destination.
    """
    known = names_in(destination for _, destination in declared)
    rows: Destinations[FileRow] = Destinations(known)
    for row, destination in declared:
        first = rows.add(destination, row)
        if first is not None:
            raise CustodyRequestError(f"{first.where} and {row.where} are for the same destination", code="file-wrong")
    index = index_requests(requests, known)
    return [_match_row(row, destination, rows, index, ignored) for row, destination in declared]


def _match_row(
    row: FileRow,
    destination: Destination,
    rows: Destinations[FileRow],
    index: Destinations[Request],
    ignored: Collection[str],
) -> _Match:
    other_rows = [*rows.same(destination), *rows.may_be(destination, row.request)]
    same_rows = [
        each
        for each in other_rows
        if each is not row and _differs_in_network_only(destination_of(each.request), destination)
    ]
    # A user can ignore a request only as long as its destination is not certain.
    same = [each for each in index.same(destination) if each.id not in ignored or _is_on_network_of(each, destination)]
    possible: list[Request] = []
    unreadable: list[Request] = []
    for each in index.may_be(destination, row.request):
        if each.state != "rejected" and each.id not in ignored:
            (unreadable if each.destination is None else possible).append(each)
    return _Match(
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


def _is_on_network_of(request: Request, destination: Destination) -> bool:
    """Tell whether a matching request is certainly on a destination's network."""
    return request.destination is not None and is_network_certain(destination, request.destination)


# --- decisions about rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Decision:
    """
    The decision about a row.

    :param row: the row of the plan.
    :param request: the request that matches the row, or prevents its creation. Default None: there is none.
    """

    row: PlanRow
    request: Request | None = None


def _plan_row(match: _Match, settings: PlanSettings, client_settings: ClientSettings) -> _Decision:
    """Decide about a row of the file."""
    if ambiguous := _why_ambiguous(match):
        return _Decision(_stopped(match.row, "network", ambiguous))
    options = [(_compare(match, each, client_settings), each) for each in match.same or match.uncertain]
    if options:
        row, request = min(options, key=lambda each: (_PREFERENCE.index(each[0].state), len(each[0].fields)))
        if row.state == "differs" and settings.replace:
            row = _replace(row, match, options, settings)
        return _Decision(row, request)
    if match.similar_rows:
        other = match.similar_rows[0]
        if destination_of(other.request).chain != match.destination.chain:
            note = f"{other.where} may be for the same destination: {_TWO_SPELLINGS}. Keep one of the two rows"
            return _Decision(_stopped(match.row, "blockchain", note))
        note = f"it differs only in case from {other.where}, which may be the same address"
        return _Decision(_stopped(match.row, "address", note))
    if match.claims:
        claim = match.claims[0]
        note = f"not verified: {claim.reason}. This request may be for the row, so nothing is created"
        row = _row_of(claim, "unverified", request=match.row.request, where=match.row.where, note=note)
        return _Decision(row, claim)
    if match.unreadable:
        unreadable = sanitize(match.unreadable[0].id, 40)
        note = f"request {unreadable} cannot be read, and may be for this row, so nothing is created"
        return _Decision(PlanRow("unreadable", request=match.row.request, where=match.row.where, note=note))
    return _Decision(PlanRow("create", "create", match.row.request, match.row.where))


def _why_ambiguous(match: _Match) -> str:
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


def _replace(
    row: PlanRow, match: _Match, options: Iterable[tuple[PlanRow, Request]], settings: PlanSettings
) -> PlanRow:
    """
    Return a differing row as a replacement.

    If it is not certain that the request can be replaced, the row keeps the state ``differs``, and gets a note.
    """
    alive = [(each, request) for each, request in options if request.state != "rejected"]
    is_only = not (match.similar_rows or match.claims or match.uncertain or match.unreadable)
    can_all = all(_can_be_replaced(each, request, match, settings) for each, request in alive)
    if is_only and can_all and len(alive) <= _MAX_REPLACED:
        ids = tuple(each.request_id for each, _ in alive)
        is_deleted = "request {} is" if len(ids) == 1 else "requests {} are"
        note = f"{is_deleted.format(name_some(ids))} deleted once the new request is in effect"
        return dataclasses.replace(row, state="replace", action="create", note=note, others=ids)
    note = (
        f"not replaced: only requests in effect (at most {_MAX_REPLACED}) for exactly this destination and visibility "
        f"group can be replaced, and only if they differ in nothing but {name_some(sorted(_REPLACEABLE))}"
    )
    return dataclasses.replace(row, note="; ".join(filter(None, [row.note, note])))


def _can_be_replaced(row: PlanRow, request: Request, match: _Match, settings: PlanSettings) -> bool:
    """Tell whether a new request for the row may replace this request."""
    is_certain = request.state == "effective" and _is_on_network_of(request, match.destination)
    is_ours = _is_about(request, settings.only) and _group_of(request) == (match.row.request.visibility_group_id or "")
    return is_certain and is_ours and {*row.fields} <= _REPLACEABLE


def _compare(match: _Match, request: Request, settings: ClientSettings) -> PlanRow:
    """Return the plan's row for a file's row and a request."""
    envelope, asked = request.shown, match.row.request
    comparison = compare(asked, envelope, request.fields, settings)
    fields = [*comparison.differs, *comparison.unknown]
    is_certain = request.destination is not None and is_same(request.destination, match.destination)
    if not is_certain and {"blockchain", "network", "address"}.isdisjoint(fields):
        # On ETH, the network may name another chain, so accepting the key does not make the networks equal.
        fields = [*fields, "network"]
    notes = []
    if comparison.unknown:
        place = settings.name("accept_fields")
        unknown = name_some(comparison.unknown)
        notes.append(f"not requested: {unknown}; if the service fills them in, add them to {place}")
    notes += _notes_on_destination(match, request.destination, fields, is_certain=is_certain)
    for names, faults in (_contradictions(comparison), _notes_on_unknown(request)):
        fields += names
        notes += faults
    notes += [] if fields else _notes_on_filled_in(comparison)
    notes += _notes_on_signatures(request)
    is_different = bool(fields) or not is_certain
    state: RowState = "differs" if is_different and request.state != "rejected" else _STATES_BY_REQUEST[request.state]
    if state == "pending" and envelope.status and not notes:
        notes.append(f"already requested, status {sanitize(envelope.status, 40)}")
    return _row_of(
        request,
        state,
        request=asked,
        where=match.row.where,
        fields=tuple(dict.fromkeys(fields)),
        note="; ".join(notes),
        shown=shown_values(envelope, request.fields, fields),
    )


def _notes_on_destination(
    match: _Match, shown: Destination | None, fields: Iterable[str], *, is_certain: bool
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


def _notes_on_unknown(request: Request) -> tuple[list[str], list[str]]:
    """Return the fields that make a request's state unknown, and why."""
    if request.state != "unknown":
        return [], []
    return ([], [f"{VANISHED}: plan again"]) if request.has_vanished else (["status"], [request.reason])


def _notes_on_filled_in(comparison: Comparison) -> list[str]:
    filled_in = [each for each in (*comparison.filled_in, *comparison.unaccounted) if "." not in each]
    return [f"filled in by the service: {name_some(filled_in)}"] if filled_in else []


def _notes_on_signatures(request: Request) -> list[str]:
    """Return a note on fields that a verified request's signatures omit."""
    if request.proved is None or not request.proved.omitted:
        return []
    return [f"signed in a legacy form that does not cover {', '.join(request.proved.omitted)}"]


def _contradictions(comparison: Comparison) -> tuple[list[str], list[str]]:
    """Return the names of the contradictory fields of an envelope, and descriptions of the contradictions."""
    found = comparison.contradictions
    return [*dict.fromkeys(each.name for each in found)], [each.text for each in found]


# --- decisions about requests without a row ----------------------------------------------------------------


class _Context:
    """
    The facts for decisions about requests without a row.

    :param settings: the settings of the plan.
    :param matches: the rows, with the requests that may be for them.
    :param decisions: the decisions about the rows.
    :param client_settings: the settings of the client that read the requests.
    """

    def __init__(
        self,
        settings: PlanSettings,
        matches: Sequence[_Match],
        decisions: Sequence[_Decision],
        client_settings: ClientSettings,
    ) -> None:
        self.settings = settings
        self.client_settings = client_settings
        #: The rows that a request may be for, by the request's id.
        self.rows: dict[str, list[tuple[_Match, _Decision]]] = {}
        for match, decision in zip(matches, decisions, strict=True):
            for each in match.candidates:
                self.rows.setdefault(each.id, []).append((match, decision))


def _not_taken(requests: Iterable[Request], decisions: Iterable[_Decision]) -> list[Request]:
    """
    Return the requests without a row, except rejected ones.

    Unverified and unreadable requests come last.
    """
    taken = {each.request.id for each in decisions if each.request is not None}
    rest = [each for each in requests if each.id not in taken and each.state != "rejected"]
    return sorted(rest, key=lambda each: (each.destination is None, each.state == "unverified"))


def _plan_other(request: Request, context: _Context) -> PlanRow:
    """Return the plan's row for a request that has no row in the file."""
    if request.destination is None:
        return _unreadable_row(request, context.settings)
    if request.state == "unverified":
        return _unverified_row(request, context)
    kept = _kept_beside(request, context)
    if kept is not None:
        return _duplicate_row(request, *kept, context)
    return _undeclared_row(request, context)


def _unreadable_row(request: Request, settings: PlanSettings) -> PlanRow:
    envelope = request.shown
    shown = {
        "blockchain": sanitize(envelope.blockchain or "", 100),
        "network": sanitize(envelope.network or "", 100),
    }
    note = "; ".join([request.reason, *_notes_on_ignored(request, settings)])
    return _row_of(request, "unreadable", note=note, shown=shown)


def _unverified_row(request: Request, context: _Context) -> PlanRow:
    notes = [f"not verified: {request.reason}"]
    if rows := context.rows.get(request.id):
        notes.append(f"it claims to be for the same destination as {rows[-1][0].row.where}")
    notes += _notes_on_ignored(request, context.settings)
    return _with_content(request, "unverified", notes, is_deleted=False)


def _kept_beside(request: Request, context: _Context) -> tuple[Request, tuple[str, ...]] | None:
    """
    Return the request to keep if this request is a duplicate.

    Both requests must be in effect, and certainly for the same destination and visibility group.

    :return: the request to keep, and the fields in which this request differs from the row; None if this request is not
        certainly a duplicate.
    """
    rows = context.rows.get(request.id, [])
    if request.state != "effective" or len(rows) != 1:
        return None
    ((match, decision),) = rows
    kept = decision.request
    if kept is None or decision.row.state != "unchanged":
        return None
    if _group_of(kept) != _group_of(request):
        return None
    fields = _compare(match, request, context.client_settings).fields
    return (kept, fields) if {*fields} <= _REPLACEABLE else None


def _duplicate_row(request: Request, kept: Request, differs: tuple[str, ...], context: _Context) -> PlanRow:
    settings = context.settings
    # Each fault prevents the deletion.
    fields, faults = _contradictions(_compare_itself(request, context))
    what = f"this request differs in {name_some(differs)}" if differs else "this request is the same"
    notes = [f"in effect twice: request {kept.id} matches the file, and is kept; {what}"]
    notes += _notes_on_signatures(request)
    is_wanted = settings.prune or (settings.replace and bool(differs))
    if kept.deletion_pending:
        faults.append(f"the deletion of {kept.id} is pending, so this request is not deleted")
    elif _may_be_one(request, kept):
        faults.append(
            "both have the same text and a signature in common, and may be one request with two ids, so this request "
            "is not deleted"
        )
    elif not is_wanted:
        notes.append("to delete it, use 'prune' or 'replace'" if differs else "to delete it, use 'prune'")
    faults += _notes_on_ignored(request, settings)
    is_deleted = is_wanted and not faults
    return _with_content(
        request, "duplicate", [*notes, *faults], is_deleted=is_deleted, fields=fields, others=(kept.id,)
    )


def _compare_itself(request: Request, context: _Context) -> Comparison:
    """Compare a request that has no row of the file only with itself."""
    return compare(None, request.shown, request.fields, context.client_settings)


def _may_be_one(one: Request, other: Request) -> bool:
    """
    Tell whether two requests may be one request under two ids.

    This is possible if they have the same signed text, and a signature in common. Signatures are compared by their
    first half (r), because anyone can compute another valid second half (n - s).
    """
    first, second = ({each.signature[:_HALF] for each in request.shown.signings} for request in (one, other))
    return _signed_hash(one) == _signed_hash(other) and not first.isdisjoint(second)


def _signed_hash(request: Request) -> str | None:
    """Return the hash that the signatures cover, which may be of a legacy form of the text."""
    return request.shown.hash if request.proved is None else request.proved.hash


def _undeclared_row(request: Request, context: _Context) -> PlanRow:
    settings = context.settings
    # Each fault prevents the deletion.
    fields, faults = _contradictions(_compare_itself(request, context))
    # The notes begin with the state, because that is the most important fact about a deletion.
    status = status_word(request.shown.status) or "empty"
    cause = "" if request.has_vanished else f"its status is {status}, so "
    notes = [
        {
            "pending": "pending approval",
            "unknown": f"{cause}it is unknown whether it is in effect",
        }.get(request.state, "in effect")
    ]
    notes += _notes_on_signatures(request)
    if request.has_vanished:
        faults.append(f"{VANISHED}, so it is not deleted: plan again")
    faults += _notes_on_rows(request, context)
    faults += _notes_on_ignored(request, settings)
    is_deleted = settings.prune and not faults
    return _with_content(request, "undeclared", [*notes, *faults], is_deleted=is_deleted, fields=fields)


def _notes_on_rows(request: Request, context: _Context) -> list[str]:
    """Return a note on a row that has another request, although this request is, or may be, for its destination."""
    rows = context.rows.get(request.id)
    if not rows:
        return []
    match, decision = rows[-1]
    if decision.request is None or request not in match.same:
        return [f"may be for the same destination as {match.row.where}, so it is not deleted"]
    other = f"request {sanitize(decision.request.id, 40)} ({decision.row.state})"
    return [f"it is for the same destination as {match.row.where}, which has {other}, so it is not deleted"]


def _notes_on_ignored(request: Request, settings: PlanSettings) -> list[str]:
    return [_IGNORED] if request.id in settings.ignore else []


def _with_content(request: Request, state: RowState, notes: list[str], *, is_deleted: bool, **given: Any) -> PlanRow:
    """
    Return a row with the requested content.

    A request that a file cannot express is not deleted.
    """
    envelope = request.shown
    shown: Mapping[str, str] = {}
    content: WhitelistRequest | None = None
    try:
        content = to_whitelist_request(request)
    except RefusalError as refusal:
        notes = [*notes, str(refusal)]
        shown = shown_values(envelope, request.fields, ("blockchain", "network", "address", "memo", "label"))
    return _row_of(
        request,
        state,
        action="delete" if is_deleted and content is not None else None,
        request=content,
        note="; ".join(notes),
        shown=shown,
        **{name: tuple(value) for name, value in given.items()},
    )


# --- rows of the plan --------------------------------------------------------------------------------------


def _group_of(request: Request) -> str:
    return request.shown.visibility_group_id or ""


def _row_of(listed: Request, state: RowState, **given: Any) -> PlanRow:
    """Return a row of the plan about a request at the service."""
    return PlanRow(
        state, request_id=sanitize(listed.id, 100), status=listed.status, hash=listed.shown.hash or "", **given
    )


def _stopped(row: FileRow, field: str, why: str) -> PlanRow:
    """
    Return an ambiguous row of the file.

    No request is created for it, whatever the service lists.
    """
    return PlanRow("differs", request=row.request, where=row.where, fields=(field,), note=f"nothing is created: {why}")
