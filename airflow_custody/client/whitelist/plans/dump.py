"""Write the service's listing as a whitelist file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.client.text import count, name_some, sanitize
from airflow_custody.client.whitelist.addresses.destinations import Destinations, destination_of
from airflow_custody.client.whitelist.files.reading import parse_whitelist
from airflow_custody.client.whitelist.files.writing import dump_whitelist
from airflow_custody.client.whitelist.hidden import describe_hidden
from airflow_custody.client.whitelist.models import FileRow, WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import PlanRow
from airflow_custody.client.whitelist.plans.planner import make_plan
from airflow_custody.client.whitelist.snapshot import Snapshot

_INCOMPLETE = "THIS FILE IS INCOMPLETE. With --prune, a plan would delete the missing requests."


@dataclass
class DumpedWhitelist:
    """
    A whitelist as a file.

    :param text: the file, in YAML. Default empty.
    :param notes: facts that the user should know, such as the number of rejected requests that were left out. They are
        also comments at the top of the file. Default: none.
    :param faults: the parts of the service's listing that the file lacks, or that differ from it. Default: none.
    """

    text: str = ""
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def dump_snapshot(snapshot: Snapshot, service: str) -> DumpedWhitelist:
    """
    Return the service's listing as a file.

    To do so, it makes two plans. A plan for an empty file finds the requests that can be rows. A plan for the resulting
    file finds the content that a row cannot express.

    :param snapshot: all requests that the service lists.
    :param service: the base URL of the service, for the comment at the top.
    """
    dumped = DumpedWhitelist()
    if rejected := sum(each.state == "rejected" for each in snapshot):
        dumped.notes.append(f"left out: {count(rejected, 'rejected request')}")
    groups = _group_by_destination(make_plan([], snapshot).rows, snapshot)
    rows = [FileRow(each.request, f"the row of request {each.ids[0]}") for each in groups]
    planned = make_plan(rows, snapshot).rows
    # Without pinned keys, it is unknown whether a pending request has a valid signature.
    unsigned = [
        row.request_id
        for row in planned[: len(rows)]
        if row.state == "pending" and snapshot[row.request_id].trust.state == "unsigned"
    ]
    comments = {
        index: _comment(row, group.ids, row.request_id in unsigned, dumped)
        for index, (row, group) in enumerate(zip(planned, groups, strict=False))
    }
    # Undeclared and duplicate requests do not count as missing, because the file has a row for their destination.
    for row in planned[len(rows) :]:
        if row.request is None or row.state not in ("undeclared", "duplicate"):
            dumped.faults.append(f"missing: whitelisting request {row.request_id}: {row.note}")
    if snapshot.hidden:
        dumped.faults.append(f"missing: {describe_hidden(snapshot.hidden)}")
    if unsigned:
        are = count(len(unsigned), "row is", "rows are")
        why = f"{are} not proved by any signature: {name_some(unsigned)}"
        dumped.notes.append(f"{why}. Keep only addresses that you requested")
    body = dump_whitelist([each.request for each in rows], comments=comments)
    if rows:
        dumped.faults += _faults_of(body)
    else:
        dumped.notes.append("no listed request can be a row of a file, and a plan refuses a file without addresses")
    top = [f"The whitelist of {service}, written by custody whitelist dump."]
    if dumped.faults:
        top += [_INCOMPLETE, *dumped.faults]
    dumped.text = "".join(f"# {sanitize(line, 1000)}\n" for line in (*top, *dumped.notes)) + body
    return dumped


def _faults_of(text: str) -> list[str]:
    """Return the faults because of which a plan would refuse the file; empty if there are none."""
    try:
        parse_whitelist(text.encode(), "yaml")
    except WhitelistFileError as error:
        return [f"the file would be refused: {each}" for each in error.faults]
    return []


@dataclass(frozen=True, eq=False)
class _Group:
    """
    The requests for one destination.

    :param request: the row of the file for this destination.
    :param ids: the ids of all requests for this destination; the first is the id of ``request``.
    """

    request: WhitelistRequest
    ids: list[str]


def _group_by_destination(listed: Sequence[PlanRow], snapshot: Snapshot) -> list[_Group]:
    """Return the requests that can be rows of a file, grouped by destination, in the plan's order."""
    groups: list[_Group] = []
    destinations: Destinations[_Group] = Destinations()
    # A plan may contain shortened ids. They match no id in this set, but only ids that are not numbers are shortened,
    # and a request with such an id cannot be a row.
    effective = {each.id for each in snapshot if each.reported == "effective"}
    # Sort requests in effect first: if several requests are for one destination, the first becomes the row.
    for each in sorted(listed, key=lambda row: row.request_id not in effective):
        if each.state != "undeclared" or each.request is None:
            continue
        group = _Group(each.request, [each.request_id])
        first = destinations.add(destination_of(each.request), group)
        if first is None:
            groups.append(group)
        else:
            first.ids.append(each.request_id)
    order = {each.request_id: place for place, each in enumerate(listed)}
    return sorted(groups, key=lambda group: order[group.ids[0]])


def _comment(row: PlanRow, ids: Sequence[str], is_unsigned: bool, dumped: DumpedWhitelist) -> str:
    """
    Return a comment with whatever a row cannot express, and add notes and faults to the dumped file.

    :param row: the row of a plan.
    :param ids: the ids of all requests for the row's destination.
    :param is_unsigned: whether the row's request is pending and has no signature.
    :param dumped: the file, to which notes and faults are added.
    """
    found = []
    same = [each for each in ids if each != row.request_id]
    shown = f"whitelisting request {row.request_id}"
    if row.state == "pending":
        found.append(f"{shown} is pending approval (status {row.status or 'not given'})")
        if is_unsigned:
            found[0] += ", and has no signature: keep this row only if you requested it"
    elif row.fields == ("status",):
        # An unknown status is not a fault, because the row expresses the whole content of the request.
        found.append(f"{shown} has the unknown status {row.status or 'not given'}, and may not be in effect")
        dumped.notes += found
    elif row.state != "unchanged":
        what = f" in {', '.join(row.fields)}" if row.fields else ""
        found.append(f"{shown} differs from this row{what}: {row.note or 'a file cannot express the difference'}")
        dumped.faults += found
    if same:
        found.append(f"{count(len(same), 'more request')} for the same destination: {', '.join(same)}")
        dumped.notes.append(f"{shown}: {found[-1]}; a plan lists them as duplicate or undeclared")
    return "; ".join(found)
