"""The service's whitelist as a file. A pure function, no I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from airflow_custody.client.errors import CustodyError, WhitelistFileError
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES, has_status
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.client.whitelist.file import dump_whitelist, parse_whitelist
from airflow_custody.client.whitelist.file_rows import FileRow
from airflow_custody.client.whitelist.listed_requests import read_listed
from airflow_custody.client.whitelist.listing import Listing, to_request
from airflow_custody.client.whitelist.matching import Unreadable, id_order
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.planner import make_plan
from airflow_custody.client.whitelist.spelling import Destinations

_MAX_LINE = 1000
_INCOMPLETE = "THIS FILE IS NOT COMPLETE. With --prune, a plan would delete what is missing."


@dataclass
class DumpedWhitelist:
    """
    A whitelist as a file.

    :param text: the file, in YAML.
    :param notes: what else there is to know.
    :param faults: what is missing in the file, or differs from what the service has.
    """

    text: str = ""
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass
class _Entry:
    """A row of the file, the ids of all requests for its destination, and of those that nobody has signed."""

    request: WhitelistRequest
    ids: list[str]
    unsigned: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class StatusWords:
    """
    What status words mean.

    :param effective: words of which a request in effect has one; None: not being pending is enough.
    :param rejected: words that mean that a request was rejected.
    """

    effective: Collection[str] | None = EFFECTIVE_STATUSES
    rejected: Collection[str] = REJECTED_STATUSES


def dump_listing(
    listing: Listing, service: str, words: StatusWords, *, accept_fields: Collection[str] = ()
) -> DumpedWhitelist:
    """
    Return what the service lists as a file.

    :param listing: all that the service lists.
    :param service: the base URL of the service, for the comment at the top.
    :param words: what status words mean.
    :param accept_fields: keys of a payload that may be missing in the file, and ``envelope.action``. Default: none.
    """
    dumped = DumpedWhitelist()
    entries = _entries(listing, words, dumped)
    comments = _comments(entries, listing, words, accept_fields, dumped)
    body = dump_whitelist([each.request for each in entries], comments=comments)
    if entries:
        dumped.faults += _file_faults(body)
    else:
        dumped.notes.append("the service lists nothing that a file can have; a file without addresses is refused")
    top = [f"The whitelist of {service}, as custody whitelist dump found it."]
    if dumped.faults:
        top += [_INCOMPLETE, *dumped.faults]
    top += dumped.notes
    dumped.text = "".join(f"# {sanitize(line, _MAX_LINE)}\n" for line in top) + body
    return dumped


def _entries(listing: Listing, words: StatusWords, dumped: DumpedWhitelist) -> list[_Entry]:
    """Return the rows, in the order of their ids; what cannot be one is noted."""
    entries: list[_Entry] = []
    destinations: Destinations[_Entry] = Destinations()
    rejected = 0
    for envelope in sorted(listing.envelopes, key=lambda each: _order(each, listing, words)):
        if has_status(envelope.status, words.rejected):
            rejected += 1
            continue
        found = read_listed(envelope, listing, words.effective, words.rejected)
        if isinstance(found, Unreadable) or found.why:
            dumped.faults.append(f"missing: {found.why}")
            continue
        try:
            request = to_request(envelope, found.payload)
        except CustodyError as error:
            dumped.faults.append(f"missing: {error.message}")
            continue
        entry = _Entry(request, [])
        same = destinations.add(request.chain, request.network, request.address, request.memo, entry)
        if not same:
            entries.append(entry)
        known = (*same, entry)[0]
        known.ids.append(envelope.id)
        if found.is_unsigned:
            known.unsigned.add(envelope.id)
    if rejected:
        dumped.notes.append(f"left out: {count(rejected, 'rejected request')}")
    return sorted(entries, key=lambda each: id_order(each.ids[0]))


def _order(envelope: WhitelistEnvelope, listing: Listing, words: StatusWords) -> tuple[bool, tuple[bool, int, str]]:
    """Order requests so that one in effect comes before others for the same destination."""
    state = listing.state_of(envelope, words.effective, words.rejected)
    return (state != "unchanged", id_order(envelope.id))


def _comments(
    entries: list[_Entry],
    listing: Listing,
    words: StatusWords,
    accept_fields: Collection[str],
    dumped: DumpedWhitelist,
) -> dict[int, str]:
    """Return what a row cannot say, by its index: found by planning with the file that is being made."""
    comments: dict[int, str] = {}
    unsigned: list[str] = []
    rows = [FileRow(each.request, f"the row of request {each.ids[0]}") for each in entries]
    plan = make_plan(
        rows,
        listing,
        effective_statuses=words.effective,
        rejected_statuses=words.rejected,
        accept_fields=accept_fields,
    )
    for index, (entry, row) in enumerate(zip(entries, plan.rows[: len(rows)], strict=True)):
        notes = []
        shown = f"whitelisting request {row.request_id or entry.ids[0]}"
        if row.state == "pending":
            notes.append(f"request {row.request_id} is pending approval (status {row.status or 'not given'})")
            if row.request_id in entry.unsigned:
                notes[-1] += ", and nobody has signed it: keep it only if you asked for it"
                unsigned.append(row.request_id)
        elif row.fields == ("status",):
            # All that it asks for is in the file.
            notes.append(f"{shown} has status {row.status or 'not given'}, which is not known to be in effect")
            dumped.notes.append(notes[-1])
        elif row.state != "unchanged":
            what = f" in {', '.join(row.fields)}" if row.fields else ""
            notes.append(f"{shown} differs from this{what}: {row.note or 'a file cannot say it'}")
            dumped.faults.append(notes[-1])
        if others := [each for each in entry.ids if each != row.request_id]:
            notes.append(f"for the same destination: {count(len(others), 'more request')}: {', '.join(others)}")
            dumped.notes.append(f"{shown}: {notes[-1]}; a plan shows them as undeclared")
        if notes:
            comments[index] = "; ".join(notes)
    if unsigned:
        dumped.notes.append(
            f"{count(len(unsigned), 'row is', 'rows are')} only what the service claims: nobody has signed "
            f"{name_some(unsigned)}. Keep in the file only what you asked for"
        )
    return comments


def _file_faults(body: str) -> tuple[str, ...]:
    """Return why the file would be refused."""
    try:
        parse_whitelist(body.encode(), "yaml")
    except WhitelistFileError as error:
        return tuple(f"the file would be refused: {each}" for each in error.faults)
    return ()
