"""The service's whitelist as a file. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.verification.trust import decide_trust
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.file import dump_whitelist, parse_whitelist
from airflow_custody.client.whitelist.file_rows import FileRow
from airflow_custody.client.whitelist.listing import ListedState, Listing
from airflow_custody.client.whitelist.matching import Destinations, destination_of
from airflow_custody.client.whitelist.plan import PlanRow
from airflow_custody.client.whitelist.planner import make_plan

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


def dump_listing(listing: Listing, service: str, how: Mapping[str, Any]) -> DumpedWhitelist:
    """
    Return what the service lists as a file.

    A plan for an empty file shows what can be a row, and a plan for the file itself what a row cannot say.

    :param listing: all that the service lists.
    :param service: the base URL of the service, for the comment at the top.
    :param how: how requests are judged: ``effective_statuses``, ``rejected_statuses`` and ``accept_fields``, as
        ``make_plan`` takes them.
    """
    words = how["effective_statuses"], how["rejected_statuses"]
    dumped = DumpedWhitelist()
    states = {each.id: listing.state_of(each, *words) for each in listing.envelopes}
    if rejected := [*states.values()].count("rejected"):
        dumped.notes.append(f"left out: {count(rejected, 'rejected request')}")
    rows, others = _first_of_each_destination(make_plan([], listing, **how).rows, states)
    planned = make_plan(rows, listing, **how).rows
    unsigned = _unsigned(planned[: len(rows)], listing)
    comments = {}
    for index, row in enumerate(planned[: len(rows)]):
        same = [each for each in others[rows[index].where] if each != row.request_id]
        if text := _comment(row, same, row.request_id in unsigned, dumped):
            comments[index] = text
    # Of those that have no row, these are for the same destination as one that has.
    for row in planned[len(rows) :]:
        if row.state != "undeclared":
            dumped.faults.append(f"missing: {row.note}")
        elif row.request is None:
            dumped.faults.append(f"missing: whitelisting request {row.request_id}, {row.note}")
    if unsigned:
        dumped.notes.append(
            f"{count(len(unsigned), 'row is', 'rows are')} only what the service claims: nobody has signed "
            f"{name_some(unsigned)}. Keep in the file only what you asked for"
        )
    body = dump_whitelist([each.request for each in rows], comments=comments)
    try:
        parse_whitelist(body.encode(), "yaml")
    except WhitelistFileError as error:
        if rows:
            dumped.faults += [f"the file would be refused: {each}" for each in error.faults]
        else:
            dumped.notes.append("the service lists nothing that a file can have; a file without addresses is refused")
    top = [f"The whitelist of {service}, as custody whitelist dump found it."]
    if dumped.faults:
        top += [_INCOMPLETE, *dumped.faults]
    dumped.text = "".join(f"# {sanitize(line, 1000)}\n" for line in (*top, *dumped.notes)) + body
    return dumped


def _first_of_each_destination(
    listed: Sequence[PlanRow], states: dict[str, ListedState]
) -> tuple[list[FileRow], dict[str, list[str]]]:
    """Return the rows of the file, in the order of their ids, and the ids of all requests that each is for."""
    rows: list[FileRow] = []
    ids: dict[str, list[str]] = {}
    destinations: Destinations[str] = Destinations()
    # Of several for one destination, the file has one that is in effect.
    for each in sorted(listed, key=lambda row: states[row.request_id] != "unchanged"):
        if each.state != "undeclared" or (request := each.request) is None:
            continue
        where = f"the row of request {each.request_id}"
        first = destinations.add(destination_of(request), where)
        if first == where:
            rows.append(FileRow(request, where))
        ids.setdefault(first, []).append(each.request_id)
    order = {f"the row of request {each.request_id}": place for place, each in enumerate(listed)}
    return sorted(rows, key=lambda row: order[row.where]), ids


def _comment(row: PlanRow, same: list[str], is_unsigned: bool, dumped: DumpedWhitelist) -> str:
    """Return what a row of the file cannot say, and note it if it is no matter of course."""
    found = []
    shown = f"whitelisting request {row.request_id}"
    if row.state == "pending":
        found.append(f"{shown} is pending approval (status {row.status or 'not given'})")
        if is_unsigned:
            found[0] += ", and nobody has signed it: keep it only if you asked for it"
    elif row.fields == ("status",):
        # All that it asks for is in the file.
        found.append(f"{shown} has status {row.status or 'not given'}, which is not known to be in effect")
        dumped.notes += found
    elif row.state != "unchanged":
        what = f" in {', '.join(row.fields)}" if row.fields else ""
        found.append(f"{shown} differs from this{what}: {row.note or 'a file cannot say it'}")
        dumped.faults += found
    if same:
        found.append(f"for the same destination: {count(len(same), 'more request')}: {', '.join(same)}")
        dumped.notes.append(f"{shown}: {found[-1]}; a plan shows them as undeclared")
    return "; ".join(found)


def _unsigned(rows: Sequence[PlanRow], listing: Listing) -> list[str]:
    """Return the ids of pending requests that nobody has signed, if keys are pinned."""
    wires = {each.id: each.wire for each in listing.envelopes}
    pending = [row.request_id for row in rows if row.state == "pending"]
    return [each for each in pending if decide_trust(wires[each], "pending", listing.verifier).state == "unsigned"]
