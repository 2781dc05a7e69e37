"""
Find the operations that make the service match a file. No I/O.

:mod:`~airflow_custody.client.whitelist.matching` finds the requests that are, or may be, for the destination of each
row, and decides whether one of them already serves the row, or blocks the creation of a request. :func:`_plan_row`
turns this decision into a row of the plan, and :func:`_plan_other` decides about each request without a row. The order
of rows and requests does not matter.

A request is created for a row only if no existing request may be for the row's destination, or in order to replace an
existing request. A request is deleted only if no row may need it. An unverified request never counts as the request for
a row. The plan names the unverified request, and creates nothing for a row that it may be for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_custody.client.arguments import check_identifier
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import name_some, sanitize
from airflow_custody.client.verification.keys import SIGNATURE_BYTES
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.addresses.checks import chain_name
from airflow_custody.client.whitelist.addresses.destinations import Destination
from airflow_custody.client.whitelist.comparison import compare
from airflow_custody.client.whitelist.ids import fetch_items, is_list_of_ids
from airflow_custody.client.whitelist.matching import (
    Decision,
    Match,
    compare_with_row,
    decide,
    is_on_network_of,
    match_rows,
    shown_values,
)
from airflow_custody.client.whitelist.models import FileRow, WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import (
    ONLY_FIELDS,
    Action,
    PlanRow,
    RowState,
    WhitelistPlan,
    describe_only,
)
from airflow_custody.client.whitelist.request import VANISHED, Request, to_whitelist_request

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.whitelist.snapshot import Snapshot

# The fields in which a new request may differ from the request that it replaces.
_REPLACEABLE = {*WhitelistRequest.model_fields}.difference(
    Destination._fields, ("blockchain", "currency", "customer_id", "visibility_group_id")
)
# Replace at most two requests per destination. Beyond that, the service itself probably alters what it stores.
_MAX_REPLACED = 2
_HALF = SIGNATURE_BYTES // 2
_IGNORED = "ignored, so it does not prevent the creation of a request"
_DELETION_PENDING = "its deletion is already pending approval at the service, so it is not requested again"
# States of a row of the file whose address is neither in effect nor requested by this plan.
_WITHOUT_EFFECT = ("pending", "rejected", "unreadable")


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
    :param ignore: ids of requests that the user has inspected, because they cannot be read, or their chain, network or
        address is ambiguous. These requests are not deleted, and do not prevent a creation, unless they are certainly
        for the row's destination. The plan's hash covers those of the ids that the service lists. Default: none.
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
    file_rows = [*rows]
    _refuse_rows_outside(file_rows, settings.only)
    matches = match_rows(file_rows, snapshot, frozenset(settings.ignore))
    planned = [_plan_row(each, settings, snapshot.settings) for each in matches]
    context = _Context(settings, snapshot.settings, planned)
    taken = {each.decision.request.id for each in planned if each.decision.request is not None}
    requests = sorted(snapshot, key=lambda each: (len(each.id), each.id))
    rest = [each for each in requests if each.id not in taken and each.state != "rejected"]
    # Sort unverified requests, and after them unreadable ones, to the end.
    rest.sort(key=lambda each: (each.destination is None, each.state == "unverified"))
    others = [_plan_other(each, context) for each in rest if _is_about(each, settings.only)]
    ignored = tuple(each.id for each in requests if each.id in settings.ignore)
    plan_rows = [*(each.row for each in planned), *others]
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


def _refuse_rows_outside(rows: Iterable[FileRow], only: Mapping[str, Sequence[str]]) -> None:
    """
    Refuse a file with rows outside the plan's limits.

    :raises CustodyRequestError: if a row is outside the limits.
    """
    outside = []
    for row in rows:
        if not _is_within(
            only, chain_name(row.request.chain), row.request.customer_id, row.request.visibility_group_id
        ):
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


# --- rows of the file --------------------------------------------------------------------------------------


class _Planned(NamedTuple):
    """
    A row of the file, as planned.

    :param match: the row, with the requests that may be for its destination.
    :param decision: whether one of these requests serves the row, or blocks the creation of a request.
    :param row: the row of the plan.
    """

    match: Match
    decision: Decision
    row: PlanRow


def _plan_row(match: Match, settings: PlanSettings, client_settings: ClientSettings) -> _Planned:
    """Plan a row of the file."""
    decision, asked, where = decide(match, client_settings), match.row.request, match.row.where
    if decision.request is None:
        action: Action | None = "create" if decision.state == "create" else None
        row = PlanRow(decision.state, action, asked, where, fields=decision.fields, note=decision.note)
        return _Planned(match, decision, row)
    row = _row_of(
        decision.request,
        decision.state,
        request=asked,
        where=where,
        fields=decision.fields,
        note=decision.note,
        shown=decision.shown,
    )
    if row.state == "differs" and settings.replace:
        row = _replace(row, match, decision.options, settings)
    return _Planned(match, decision, row)


def _replace(row: PlanRow, match: Match, options: Iterable[Decision], settings: PlanSettings) -> PlanRow:
    """
    Turn a row that differs into a replacement, if possible.

    If it is not certain that the existing request can be replaced, the row keeps the state ``differs``, and gets a
    note.
    """
    requests = {each.request: each.fields for each in options if each.request and each.request.state != "rejected"}
    can_all = all(
        {*fields} <= _REPLACEABLE and _is_certainly_for(request, match, settings)
        for request, fields in requests.items()
    )
    is_only = not (match.similar_rows or match.claims or match.uncertain or match.unreadable)
    if is_only and can_all and len(requests) <= _MAX_REPLACED:
        ids = tuple(sanitize(each.id, 100) for each in requests)
        is_deleted = "request {} is" if len(ids) == 1 else "requests {} are"
        note = f"{is_deleted.format(name_some(ids))} deleted once the new request is in effect"
        return replace(row, state="replace", action="create", note=note, others=ids)
    note = (
        f"not replaced: only requests in effect (at most {_MAX_REPLACED}) for exactly this destination and visibility "
        f"group can be replaced, and only if they differ in nothing but {name_some(sorted(_REPLACEABLE))}"
    )
    return replace(row, note="; ".join(filter(None, [row.note, note])))


def _is_certainly_for(request: Request, match: Match, settings: PlanSettings) -> bool:
    """Tell whether a request is in effect, and certainly for a row's destination and visibility group."""
    return (
        request.state == "effective"
        and is_on_network_of(request, match.destination)
        and _is_about(request, settings.only)
        and _group_of(request) == (match.row.request.visibility_group_id or "")
    )


# --- decisions about requests without a row ----------------------------------------------------------------


class _Context:
    """
    The facts for decisions about requests without a row.

    :param settings: the settings of the plan.
    :param client_settings: the settings of the client that read the requests.
    :param planned: the rows of the file, as planned.
    """

    def __init__(self, settings: PlanSettings, client_settings: ClientSettings, planned: Sequence[_Planned]) -> None:
        self.settings = settings
        self.client_settings = client_settings
        #: Places of rows whose address is not in effect, and is not requested by this plan either.
        self.without_effect = [each.row.where for each in planned if each.row.state in _WITHOUT_EFFECT]
        #: The rows that a request may be for, by the request's id.
        self.rows: dict[str, list[_Planned]] = {}
        for one in planned:
            for each in one.match.candidates:
                self.rows.setdefault(each.id, []).append(one)


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
        notes.append(f"it claims to be for the same destination as {rows[-1].match.row.where}")
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
    (planned,) = rows
    kept = planned.decision.request
    if kept is None or planned.row.state != "unchanged" or _group_of(kept) != _group_of(request):
        return None
    fields = compare_with_row(planned.match, request, context.client_settings).fields
    return (kept, fields) if {*fields} <= _REPLACEABLE else None


def _duplicate_row(request: Request, kept: Request, differs: tuple[str, ...], context: _Context) -> PlanRow:
    settings = context.settings
    # The request is deleted only if there are no faults.
    fields, faults = _contradictions(request, context)
    what = f"this request differs in {name_some(differs)}" if differs else "this request is the same"
    notes = [f"in effect twice: request {kept.id} matches the file, and is kept; {what}"]
    notes += request.legacy_notes
    is_wanted = settings.prune or (settings.replace and bool(differs))
    if request.deletion_pending:
        faults.append(_DELETION_PENDING)
    elif kept.deletion_pending:
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


def _contradictions(request: Request, context: _Context) -> tuple[list[str], list[str]]:
    """Return the fields in which a request's envelope contradicts its signed text, and a text about each of them."""
    found = compare(None, request.shown, request.fields, context.client_settings).contradictions
    return [*dict.fromkeys(each.name for each in found)], [each.text for each in found]


def _may_be_one(one: Request, other: Request) -> bool:
    """
    Tell whether two requests may be one request under two ids.

    This is possible if they have the same signed text, and a signature in common. Signatures are compared by their
    first half (r), because anyone can compute another valid second half (n - s).
    """
    first, second = ({each.signature[:_HALF] for each in request.shown.signings} for request in (one, other))
    return _signed_hash(one) == _signed_hash(other) and not first.isdisjoint(second)


def _signed_hash(request: Request) -> str | None:
    """Return the hash that the signatures cover. It may be the hash of a legacy form of the signed text."""
    return request.shown.hash if request.proved is None else request.proved.hash


def _undeclared_row(request: Request, context: _Context) -> PlanRow:
    settings = context.settings
    # The request is deleted only if there are no faults.
    fields, faults = _contradictions(request, context)
    # The notes begin with the state, because that is the most important fact about a deletion.
    cause = "" if request.has_vanished else f"its status is {request.status or 'empty'}, so "
    notes = [
        {
            "pending": "pending approval",
            "unknown": f"{cause}it is unknown whether it is in effect",
        }.get(request.state, "in effect")
    ]
    notes += request.legacy_notes
    if request.has_vanished:
        faults.append(f"{VANISHED}, so it is not deleted: plan again")
    elif settings.prune and request.deletion_pending:
        faults.append(_DELETION_PENDING)
    elif settings.prune and request.state != "pending" and context.without_effect:
        # One of these rows may replace this request: its address may be the new address of the same destination.
        rows = name_some(context.without_effect)
        faults.append(f"not deleted until these rows are in effect, because one of them may replace it: {rows}")
    faults += _notes_on_rows(request, context)
    faults += _notes_on_ignored(request, settings)
    is_deleted = settings.prune and not faults
    return _with_content(request, "undeclared", [*notes, *faults], is_deleted=is_deleted, fields=fields)


def _notes_on_rows(request: Request, context: _Context) -> list[str]:
    """Return a note if this request is, or may be, for the destination of a row that has another request or none."""
    rows = context.rows.get(request.id)
    if not rows:
        return []
    match, decision, row = rows[-1]
    if decision.request is None or request not in match.same:
        return [f"may be for the same destination as {row.where}, so it is not deleted"]
    other = f"request {sanitize(decision.request.id, 40)} ({row.state})"
    return [f"it is for the same destination as {row.where}, which has {other}, so it is not deleted"]


def _notes_on_ignored(request: Request, settings: PlanSettings) -> list[str]:
    return [_IGNORED] if request.id in settings.ignore else []


def _with_content(request: Request, state: RowState, notes: list[str], *, is_deleted: bool, **given: Any) -> PlanRow:
    """
    Return a row of the plan with the content of a request at the service.

    If a row of a file cannot express the content, the request is not deleted.
    """
    shown: Mapping[str, str] = {}
    content: WhitelistRequest | None = None
    try:
        content = to_whitelist_request(request)
    except RefusalError as refusal:
        notes = [*notes, str(refusal)]
        shown = shown_values(request, ("blockchain", "network", "address", "memo", "label"))
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
