"""
Planning: the operations after which the service has what a whitelist file says. Pure functions, no I/O.

A row of the file and a request at the service are for the same destination if they have the same key: see
:mod:`~airflow_custody.client.whitelist.matching`. Everything else is compared strictly, but for what the service fills
in by itself. The order of either does not matter.

What may be there already is never created, and what the file may mean is never deleted. What pinned keys do not verify
takes no row from what they do: it is named, and may be a reason not to create its own destination, and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_custody.client.arguments import MAX_ID, check_identifier
from airflow_custody.client.errors import CustodyError, CustodyRequestError, CustodyResponseError
from airflow_custody.client.text import as_list, read_number, sanitize
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES, decide_trust
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.listing import Listing, status_word, to_request
from airflow_custody.client.whitelist.matching import (
    Destination,
    Destinations,
    compare_spelled,
    destination_of,
    differing,
    is_network_certain,
    is_same,
    names_in,
    read_destination,
    shown_values,
)
from airflow_custody.client.whitelist.models import WhitelistRequest, fetch_items, is_list_of_ids
from airflow_custody.client.whitelist.plan import (
    ONLY_FIELDS,
    Action,
    FileRow,
    PlanRow,
    State,
    WhitelistPlan,
    describe_only,
)
from airflow_custody.client.whitelist.review import ENVELOPE_ACTION, PAYLOAD_KEYS, envelope_faults

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

# The best request at the service for a row comes first.
_PREFERENCE: tuple[State, ...] = ("unchanged", "pending", "differs", "rejected")
# The fields that a new request can have otherwise, for the same destination.
_REPLACEABLE = {*WhitelistRequest.model_fields}.difference(
    Destination._fields, ("blockchain", "currency", "customer_id", "visibility_group_id")
)
# So many requests for a destination are replaced by one. More mean that the service makes of each what differs again.
_MAX_REPLACED = 2
_IGNORED = "ignored, so that it stops no row"


def make_plan(
    rows: Iterable[FileRow],
    listing: Listing,
    *,
    service: str = "",
    name: str = "",
    prune: bool = False,
    replace: bool = False,
    only: Mapping[str, Sequence[str]] | None = None,
    effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES,
    rejected_statuses: Collection[str] = REJECTED_STATUSES,
    accept_fields: str | Collection[str] = (),
    ignore: str | int | Iterable[str | int] = (),
) -> WhitelistPlan:
    """
    Compare a whitelist file with what the service lists.

    :param rows: the rows of the file; no two for the same destination.
    :param listing: all that the service lists.
    :param service: name of the service and the tenant; it becomes part of the plan's hash. Default empty.
    :param name: the file's name. Default empty.
    :param prune: whether requests that the file does not have are to be deleted, and duplicates. Default False.
    :param replace: whether a row gets a new request if the one in effect differs in what a request can say, and whether
        the old one is to be deleted once the new one is in effect. Default False.
    :param only: what the plan is about, as :func:`~airflow_custody.client.whitelist.plan.check_only` returns it. What
        else can be read at the service is neither reported nor deleted. Default None: everything.
    :param effective_statuses: status words, compared without case, of which a request in effect has one; None: not
        being pending is enough.
    :param rejected_statuses: status words, compared without case, that mean that a request was rejected.
    :param accept_fields: keys of a payload that may have a value although the file says nothing about them; and
        ``envelope.action``, which accepts a word that is not known to mean a creation. Default: none.
    :param ignore: ids of requests that cannot be read, or may be for another destination because of the name of their
        chain or network: a person has looked at them, and therefore they stop no row, and are not deleted. Those that
        there are become part of the plan's hash. Default: none.
    :return: the plan.
    :raises CustodyRequestError: if two rows are for the same destination, or a row is not what the plan is about.
    """
    declared = [(row, destination_of(row.request)) for row in rows]
    only = only or {}
    if outside := [
        row.where
        for row, each in declared
        if not _is_within(only, each.chain, row.request.customer_id, row.request.visibility_group_id)
    ]:
        about = sanitize(describe_only(only), 300)
        raise CustodyRequestError(
            f"the plan is only about {about}, and the file has other rows: {name_some(outside)}; nothing was sent",
            advice="Take these rows out of the file, or give 'only' more values.",
            code="file-wrong",
        )
    planner = _Planner(declared, listing, effective_statuses, rejected_statuses, check_ignored(ignore))
    planner.accepted = frozenset(as_list(accept_fields))
    planner.prune, planner.replace, planner.only = prune, replace, only
    found = [planner.declared(row, destination) for row, destination in declared]
    return WhitelistPlan([*found, *planner.others()], service, name, listing.pins, tuple(planner.ignored), only)


def _is_within(only: Mapping[str, Collection[str]], *values: object) -> bool:
    """Tell whether a request is what a plan is about, by its values of the fields that may limit that."""
    return all(str(value) in only.get(name, (str(value),)) for name, value in zip(ONLY_FIELDS, values, strict=True))


def check_ignored(values: Any) -> list[str]:
    """
    Return ids of requests to ignore, each once. An id of the service's may be any text.

    :param values: one id, or several.
    :raises CustodyRequestError: if one is empty, or of another type.
    """
    given = fetch_items(values) if is_list_of_ids(values) else [values]
    return list(dict.fromkeys(check_identifier(f"ignore[{index}]", each) for index, each in enumerate(given)))


@dataclass(eq=False, slots=True)
class _Listed:
    """
    A request at the service, and what is known of it.

    :param envelope: the request.
    :param state: ``unchanged`` if it is in effect, ``pending``, ``rejected``; ``differs`` if it is settled and its
        status word is not known; ``unverified`` if signatures do not prove it, so that all of it is only claimed;
        ``unreadable``.
    :param destination: its destination; None if it is unreadable.
    :param payload: its payload: if signatures prove it, the fields that they cover. Empty if it is unreadable.
    :param note: why it is unverified or unreadable; or what the signatures do not cover.
    :param rows: the places in the file of the rows that it may be.
    """

    envelope: WhitelistEnvelope
    state: State
    destination: Destination | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    rows: list[str] = field(default_factory=list)

    def is_certainly_on_network_of(self, asked: Destination) -> bool:
        """Tell whether a request with the same key is certainly on the requested network."""
        return self.destination is not None and is_network_certain(asked, self.destination)

    def is_within(self, only: Mapping[str, Collection[str]]) -> bool:
        """Tell whether it is what a plan is about; what does not prove to be anything may be."""
        if not self.destination or self.state == "unverified":
            return True
        customer, group = self.payload.get("customerId", ""), self.envelope.visibility_group_id
        is_text = isinstance(customer, (str, int, type(None)))
        return not is_text or _is_within(only, self.destination.chain, customer, group)


def _read(
    envelope: WhitelistEnvelope,
    listing: Listing,
    effective_statuses: Collection[str] | None,
    rejected_statuses: Collection[str],
) -> _Listed:
    """Read a request, and verify it if keys are pinned."""
    if read_number(envelope.id, MAX_ID) is None:
        note = f"whitelisting request {sanitize(envelope.id, 40)} has an id that is no number"
        return _Listed(envelope, "unreadable", note=note)
    try:
        payload = envelope.payload()
        destination = read_destination(envelope, payload)
    except CustodyError as error:
        return _Listed(envelope, "unreadable", note=error.message)
    shown = listing.state_of(envelope, effective_statuses, rejected_statuses)
    state: State = "unchanged" if shown == "effective" else "differs" if shown == "unknown" else shown
    trust = decide_trust(envelope.wire, shown, listing.verifier)
    if trust.error is not None:
        return _Listed(envelope, "unverified", destination, payload, trust.error.reason)
    if trust.address is not None:
        # Of what was signed in a legacy form, only what the signatures cover.
        omitted = ", ".join(trust.address.omitted)
        note = f"signed in a legacy form, which does not cover {omitted}" if omitted else ""
        return _Listed(envelope, state, destination, trust.address.fields, note)
    return _Listed(envelope, state, destination, payload)


class _Planner:
    """Finds the request at the service for each row of a file."""

    def __init__(
        self,
        declared: Sequence[tuple[FileRow, Destination]],
        listing: Listing,
        effective_statuses: Collection[str] | None,
        rejected_statuses: Collection[str],
        ignore: Collection[str],
    ) -> None:
        self.accepted: Collection[str] = ()
        self.prune = self.replace = False
        self.only: Mapping[str, Collection[str]] = {}
        known = names_in(destination for _, destination in declared)
        self._rows: Destinations[str] = Destinations(known)
        for row, destination in declared:
            if (first := self._rows.add(destination, row.where)) != row.where:
                raise CustodyRequestError(f"{first} and {row.where} are for the same destination", code="file-wrong")
        self.listed = [
            _read(each, listing, effective_statuses, rejected_statuses)
            for each in sorted(listing.envelopes, key=lambda each: (len(each.id), each.id))
        ]
        self.ignored = [each.envelope.id for each in self.listed if each.envelope.id in ignore]
        self._index: Destinations[_Listed] = Destinations(known)
        for each in self.listed:
            if each.destination:
                self._index.add(each.destination, each)
            else:
                self._index.unreadable.append(each)
        # The requests that are a row's.
        self._taken: set[_Listed] = set()
        # The rows that have a request, by their places, and that request.
        self._found: dict[str, tuple[FileRow, Destination, State, _Listed]] = {}
        self._leaving = frozenset(each.id for each in listing.deletions)

    def declared(self, row: FileRow, destination: Destination) -> PlanRow:
        """Return what becomes of a row of the file."""
        same, may_be = self._candidates(row, destination)
        claims = [each for each in (*same, *may_be) if each.state == "unverified"]
        same = [each for each in same if each.state != "unverified"]
        uncertain = [each for each in may_be if each.state not in ("unverified", "unreadable")]
        hidden = [each for each in may_be if each.state == "unreadable"]
        alive = [each for each in same if each.state != "rejected"]
        others = [each for each in self._rows.same(destination) if each != row.where]
        if others and not destination.network:
            return _stopped(row, "network", f"it may be the same as {others[0]}: name the network in both")
        if len({each.destination.network for each in alive if each.destination}) > 1 and not destination.network:
            ids = name_some([each.envelope.id for each in alive])
            return _stopped(row, "network", f"requests {ids} are on several networks: name the network")
        others = self._rows.may_be(destination, row.request.address)
        if options := [(self._compared(row, destination, each), each) for each in same or uncertain]:
            found, listed = min(options, key=lambda each: (_PREFERENCE.index(each[0].state), len(each[0].fields)))
            self._taken.add(listed)
            self._found[row.where] = row, destination, found.state, listed
            if found.state == "differs" and self.replace:
                is_sole = not (others or claims or uncertain or hidden)
                return self._replaced(found, destination, options, is_sole)
            return found
        if others:
            note = f"it differs only in case from {others[0]}, which may be the same"
            return _stopped(row, "address", note)
        if claims:
            self._taken.add(claims[0])
            note = f"{claims[0].note}. It may be this one: nothing is created"
            return _row(claims[0], "unverified", request=row.request, where=row.where, note=note)
        if hidden:
            note = f"request {sanitize(hidden[0].envelope.id, 40)} cannot be read, and may be this one"
            return PlanRow("unreadable", request=row.request, where=row.where, note=f"{note}: nothing is created")
        return PlanRow("create", "create", row.request, row.where)

    def _candidates(self, row: FileRow, destination: Destination) -> tuple[list[_Listed], list[_Listed]]:
        """
        Return the requests for a row's destination, and those that may be for it. What a person has had ignored counts
        only if it certainly is for this destination.
        """
        same = [
            each
            for each in self._index.same(destination)
            if each.envelope.id not in self.ignored or each.is_certainly_on_network_of(destination)
        ]
        may_be = [
            each
            for each in self._index.may_be(destination, row.request.address)
            if each.state != "rejected" and each.envelope.id not in self.ignored
        ]
        for each in (*same, *may_be):
            each.rows.append(row.where)
        return same, may_be

    def _replaced(
        self, found: PlanRow, destination: Destination, options: Iterable[tuple[PlanRow, _Listed]], is_sole: bool
    ) -> PlanRow:
        """
        Return a row that differs as one that a new request is created for, if nothing speaks against it.

        :param options: the requests for the destination.
        :param is_sole: whether nothing else may be for it.
        """
        alive = [(row, listed) for row, listed in options if listed.state != "rejected"]
        is_replaced = is_sole and len(alive) <= _MAX_REPLACED
        for row, listed in alive:
            is_certain = listed.state == "unchanged" and listed.is_certainly_on_network_of(destination)
            group = (row.request and row.request.visibility_group_id) or ""
            is_ours = listed.is_within(self.only) and group == (listed.envelope.visibility_group_id or "")
            is_replaced = is_replaced and is_certain and is_ours and {*row.fields} <= _REPLACEABLE
        if not is_replaced:
            note = (
                f"not replaced: that takes requests in effect ({_MAX_REPLACED} at most) for just this destination and "
                f"visibility group, that differ in nothing but {name_some(sorted(_REPLACEABLE))}"
            )
            return dataclasses.replace(found, note="; ".join(filter(None, [found.note, note])))
        ids = tuple(row.request_id for row, _ in alive)
        note = f"{name_some(ids)} {'stays' if len(ids) == 1 else 'stay'} until the new request is in effect"
        return dataclasses.replace(found, state="replace", action="create", note=note, others=ids)

    def _compared(self, row: FileRow, destination: Destination, listed: _Listed) -> PlanRow:
        """Return what becomes of a row if a request is this row's."""
        payload, envelope, shown = listed.payload, listed.envelope, listed.destination
        comparison = compare_spelled(row.request, payload, envelope.network)
        fields, notes = differing(comparison, payload, self.accepted), []
        if unknown := [each for each in fields if each in comparison.unaccounted and each not in PAYLOAD_KEYS]:
            notes.append(f"nobody asked for {name_some(unknown)}: 'accept_fields' accepts what is the service's own")
        if is_uncertain := not (shown and is_same(shown, destination)):
            notes.append("it may be this one under another name or in another case, so nothing is created")
        elif "network" in fields and not destination.network:
            notes.append("the row names no network, and this is not the main one: nothing is created")
        envelope_fields, faults = self._contradictions(listed, row.request)
        fields += envelope_fields
        notes += faults
        if listed.state == "differs":
            fields.append("status")
            notes.append(
                "its status is neither in effective_statuses nor in rejected_statuses: it does not count as in effect"
            )
        filled_in = comparison.filled_in(comparison.unaccounted)
        if not fields and (filled_in := tuple(each for each in filled_in if "." not in each)):
            notes.append(f"filled in by the service: {name_some(filled_in)}")
        notes += [listed.note] if listed.note else []
        state = "differs" if (fields or is_uncertain) and listed.state != "rejected" else listed.state
        if state == "pending" and envelope.status and not notes:
            notes.append(f"asked for already, status {sanitize(envelope.status, 40)}")
        return _row(
            listed,
            state,
            request=row.request,
            where=row.where,
            fields=tuple(dict.fromkeys(fields)),
            note="; ".join(notes),
            shown=shown_values(envelope, payload, fields),
        )

    def _contradictions(self, listed: _Listed, request: WhitelistRequest | None) -> tuple[list[str], list[str]]:
        """Return where an envelope contradicts its payload or what was asked for, as fields, and in words."""
        faults = envelope_faults(listed.envelope, listed.payload, request, accepted=self.accepted)
        if not faults:
            return [], []
        certain = envelope_faults(listed.envelope, listed.payload, request, accepted=(ENVELOPE_ACTION,))
        fields = [*(["envelope"] if certain else []), *([ENVELOPE_ACTION] if len(faults) > len(certain) else [])]
        return fields, [*faults]

    def others(self) -> list[PlanRow]:
        """Return a row for each request that is in no file: at last what is not verified, and what cannot be read."""
        rest = [each for each in self.listed if each not in self._taken and each.state != "rejected"]
        rest.sort(key=lambda each: (each.state == "unreadable", each.state == "unverified"))
        return [self._undeclared(each) for each in rest if each.is_within(self.only)]

    def _kept_beside(self, listed: _Listed) -> tuple[WhitelistEnvelope, tuple[str, ...]] | None:
        """
        Return the request in effect that a row has for just the destination of another one in effect, and the fields in
        which the other one differs from the row. None: nothing of that is certain.
        """
        if listed.state != "unchanged" or len(listed.rows) != 1 or listed.rows[0] not in self._found:
            return None
        row, destination, state, kept = self._found[listed.rows[0]]
        groups = {each.envelope.visibility_group_id or "" for each in (kept, listed)}
        if state != "unchanged" or len(groups) > 1:
            return None
        fields = self._compared(row, destination, listed).fields
        return (kept.envelope, fields) if {*fields} <= _REPLACEABLE else None

    def _undeclared(self, listed: _Listed) -> PlanRow:
        """Return a row for a request that is in no file; what is not clear is for a person to decide, not to delete."""
        envelope = listed.envelope
        ignored = [_IGNORED] if envelope.id in self.ignored else []
        if listed.state == "unreadable":
            shown = {"blockchain": envelope.blockchain or "", "network": envelope.network or ""}
            shown = {name: sanitize(value, 100) for name, value in shown.items()}
            return _row(listed, "unreadable", note="; ".join([listed.note, *ignored]), shown=shown)
        state: State = "undeclared"
        is_wanted, others = self.prune, tuple[str, ...]()
        fields, faults = self._contradictions(listed, None)
        # Whoever approves a deletion reads first what is deleted.
        unknown = f"its status is {status_word(envelope.status) or 'empty'}: whether it is in effect is not known"
        notes = [{"pending": "pending approval", "differs": unknown}.get(listed.state, "in effect")]
        notes += [listed.note] if listed.note else []
        if listed.state == "unverified":
            state, is_wanted, fields, faults, notes = "unverified", False, [], [], notes[1:]
            if listed.rows:
                notes.append(f"it claims to be for the same destination as {listed.rows[-1]}")
        elif beside := self._kept_beside(listed):
            (envelope_kept, differs), kept, state = beside, beside[0].id, "duplicate"
            others, is_wanted = (kept,), self.prune or (self.replace and bool(differs))
            signatures = [{each.signature for each in one.signings} for one in (envelope_kept, envelope)]
            what = f"differs from it in {name_some(differs)}" if differs else "is the same"
            notes[0] = f"in effect twice: {kept} has what the file says, and is kept; this one {what}"
            if kept in self._leaving:
                faults.append(f"the deletion of {kept} is pending, so this one is not deleted")
            elif envelope_kept.hash == envelope.hash and not signatures[0].isdisjoint(signatures[1]):
                faults.append("both have the same signatures, and may be one under two ids, so it is not deleted")
            elif not is_wanted:
                notes.append("'prune' or 'replace' deletes it" if differs else "'prune' deletes it")
        elif listed.rows:
            faults.append(f"may be for the same destination as {listed.rows[-1]}, so it is not deleted")
        faults += ignored
        notes += faults
        request: WhitelistRequest | None = None
        shown = {}
        try:
            request = to_request(envelope, listed.payload)
        except CustodyResponseError as error:
            notes.append(error.message)
            shown = shown_values(envelope, listed.payload, ("blockchain", "network", "address", "memo", "label"))
        action: Action | None = "delete" if is_wanted and request and not faults else None
        return _row(
            listed,
            state,
            action=action,
            request=request,
            fields=tuple(fields),
            note="; ".join(notes),
            shown=shown,
            others=others,
        )


def _row(listed: _Listed, state: State, **given: Any) -> PlanRow:
    """Return a row of the plan about a request at the service."""
    envelope = listed.envelope
    number, hash = sanitize(envelope.id, 100), envelope.hash or ""
    return PlanRow(state, request_id=number, status=status_word(envelope.status), hash=hash, **given)


def _stopped(row: FileRow, field: str, why: str) -> PlanRow:
    """Return a row for which nothing is created, whatever is at the service: what it means is not certain."""
    return PlanRow("differs", request=row.request, where=row.where, fields=(field,), note=f"nothing is created: {why}")
