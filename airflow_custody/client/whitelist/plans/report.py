"""
A plan for people and for programs: Markdown, JSON, plain text. Pure functions, no I/O.

What a row holds comes from a file and from the service. In Markdown all of it stands in code spans, which have no
links, mentions, markup or HTML; what could end a code span or a cell is a character reference between two of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from airflow_custody.client.text import count, escape, escaped, hidden_difference
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import CHANGES, ROW_STATES, describe_only

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.plans.plan import PlanRow, WhitelistPlan

#: Maximum size in bytes of a report that is offered for approval. Airflow on MySQL stores up to 65,535.
MAX_REPORT_BYTES = 60_000
# Maximum numbers of characters and rows, where nothing is done: an operation is never shortened.
_MAX_EXACT = 512
_MAX_VALUE = 120
_MAX_NOTE = 400
_MAX_OTHER_ROWS = 100
_FIELDS = tuple(WhitelistRequest.model_fields)
# Fields with a column of their own.
_OWN_COLUMN = frozenset({"label", "address", "blockchain", "currency", "network", "memo"})
_MEANINGS = {
    "create": "not at the service: applying creates it",
    "replace": "at the service with other values: a new request is created, and the old one deleted once that is in "
    "effect",
    "pending": "already requested, not in effect yet",
    "unchanged": "in effect as the file says",
    "differs": "at the service with other values: for a person to decide",
    "duplicate": "in effect beside another request for the destination, which is kept",
    "undeclared": "at the service, and not in the file",
    "rejected": "rejected at the service: for a person to decide",
    "unreadable": "cannot be read: for a person to decide",
    "unverified": "signatures do not prove what the service says: for a person to decide",
}
_IGNORED = "Ignored, although each may be a row's"
_ABOUT = "This plan is only about"
_COLUMNS = ("State", "Destination", "Label", "Details")
# Maximum number of characters in one piece of a cell, so that the columns fit in the form of Airflow's UI.
_ADDRESS_PIECE = 44
_PIECE = 22


# --- JSON --------------------------------------------------------------------------------------------------


def plan_to_json(plan: WhitelistPlan) -> dict[str, Any]:
    """
    Return a plan as plain JSON data.

    ``plan_hash``, ``service``, ``file`` (its name), ``pinned`` (how many ``keys`` the rows were verified against, and
    the ``minimum``; null: nothing was verified), ``counts`` (by state), ``has_changes``, ``ignored`` (ids of requests
    that stop no row although they may be one's), ``only`` (what the plan is about: lists of values by field; empty:
    everything), and ``rows``, all of them. A row has ``state``, ``action``
    (``create``, ``delete`` or null), ``where`` (its place in the file, or empty), ``id`` and ``status`` (of the request
    at the service, or empty), ``fields`` (the names of those that differ), ``shown`` (what the service has in them, as
    text), ``note``, ``others`` (the ids of the requests that a new one replaces, or of the one that is kept beside a
    duplicate), and ``request``: the fields that are given, by name, of what the file asks for or else of what the
    service has, or claims to have if the state is ``unverified``; null if that cannot be read.

    :param plan: the plan.
    """
    return {
        "plan_hash": plan.plan_hash,
        "service": plan.service,
        "file": plan.name,
        "pinned": plan.pins and {"keys": len(plan.pins.fingerprints), "minimum": plan.pins.superadmin_minimum},
        "counts": dict(plan.counts),
        "has_changes": plan.has_changes,
        "ignored": list(plan.ignored),
        "only": {name: list(values) for name, values in plan.only.items()},
        "rows": [
            {
                "state": row.state,
                "action": row.action,
                "where": row.where,
                "id": row.request_id,
                "status": row.status,
                "fields": list(row.fields),
                "shown": dict(row.shown),
                "note": row.note,
                "others": list(row.others),
                "request": row.request and row.request.model_dump(mode="json", exclude_none=True),
            }
            for row in plan.rows
        ],
    }


# --- plain text --------------------------------------------------------------------------------------------


# The signs of rows by :func:`_kind`. Of the others, those that are no change have none, and the rest has ``~``.
_SIGNS = {"to delete": "-", "to create": "+", "unverified": "!", "unreadable": "!", "pending": " ", "unchanged": " "}
# Of a row's fields. Nothing in them can look like another field, as no text has two blanks or a line break.
_INDENT = " " * 6


def plan_to_text(plan: WhitelistPlan, *, all_rows: bool = False) -> str:
    """
    Return a plan as plain text for logs and terminals.

    Deletions come first, then creations, what does not verify, and the rest. Only the first line of a row has its sign
    in the third column: ``-`` is deleted, ``+`` is created, ``~`` differs from the file, ``!`` is not proven or cannot
    be read. Nothing is left out of a deletion or a creation; long values of other rows are cut.

    :param plan: the plan.
    :param all_rows: whether to show also the rows that are unchanged. Default False.
    :return: a line with the counts, the rows, what signatures prove, and the plan's hash.
    """
    rows = _ordered(plan)
    unchanged = [row for row in plan.rows if row.state == "unchanged"]
    kinds = Counter(map(_kind, [*rows, *unchanged]))
    counts = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
    if not plan.operations:
        counts = f"nothing to delete or create{'; ' if counts else ''}{counts}"
    head = [f"Plan: {counts}."]
    if plan.only:
        head.append(f"{_ABOUT}: {_plain(describe_only(plan.only))}")
    found = [line for row in [*rows, *(unchanged if all_rows else ())] for line in _lines_of(row)]
    tail = [signatures_text(plan)]
    if plan.ignored:
        tail.append(f"{_IGNORED}: {_plain(', '.join(plan.ignored), exact=True)}")
    tail.append(f"Plan hash: {plan.plan_hash}")
    return "\n\n".join("\n".join(each) for each in (head, found, tail) if each)


def _kind(row: PlanRow) -> str:
    """Return what applying does about a row; its state, if that is nothing."""
    if row.action:
        return "to delete" if row.action == "delete" else f"to {row.state}"
    return row.state


def _lines_of(row: PlanRow) -> Iterator[str]:
    kind = _kind(row)
    sign = _SIGNS.get(kind, "~")
    limit = None if row.action else _MAX_EXACT
    destination = " ".join(_plain(each, limit, exact=True) for each in (_chain(row), _value(row, "address")) if each)
    yield f"  {sign} {destination or '(no address)'}"
    request = row.request_id and f"request {row.request_id}" + (f" ({row.status})" if row.status else "")
    yield _INDENT + _plain(", ".join(filter(None, (kind, row.where, request))), limit)
    fields = [(name, _value(row, name)) for name in ("memo", "label")]
    for name, value in (*fields, *_details(row), ("note", row.note)):
        if value:
            is_exact = name.partition(" ")[0] in ("memo", "address")
            yield f"{_INDENT}{_plain(name, limit)}: {_plain(value, limit, exact=is_exact)}"


def _plain(text: str, limit: int | None = _MAX_EXACT, *, exact: bool = False) -> str:
    """Return any text on one line, cut at the limit; None: whole."""
    shown = _visible(text[:limit], exact=exact)
    return shown if limit is None or len(text) <= limit else f"{shown}… ({count(len(text), 'character')})"


def signatures_text(plan: WhitelistPlan) -> str:
    """Return in one or two sentences what signatures prove of a plan, or that nothing is verified."""
    if plan.pins is None:
        return f"Signatures are not verified. {NOT_PINNED}"
    keys = count(len(plan.pins.fingerprints), "pinned key")
    text = (
        f"Signatures: each row that is in effect is verified against {keys}, of which {plan.pins.superadmin_minimum} "
        "must have signed the rules."
    )
    if plan.counts["unverified"] and plan.counts["create"]:
        text += " As there are requests that do not verify, a row to create may be one that the service hides."
    return text


# --- Markdown ----------------------------------------------------------------------------------------------


def plan_to_markdown(plan: WhitelistPlan) -> str:
    """
    Return a plan as Markdown, for a pull request.

    All operations come first, and none of them is shortened, whatever size that takes. The plan's hash stands behind
    them, so that a report that was cut has none. The rest comes last: up to 100 rows about which nothing is done, with
    long values cut, as far as the report keeps :data:`MAX_REPORT_BYTES`; and how many rows there are of each state.

    :param plan: the plan.
    """
    operations = _table([_line(row) for row in _ordered(plan) if row.action])
    return _report(plan, [*operations, f"Plan hash: {_code(plan.plan_hash, None)}", ""])


def approval_report(plan: WhitelistPlan) -> tuple[str, str]:
    """
    Return a plan as Markdown to be approved, and why it must not be; empty if it may be.

    The report shows all operations. If that is too large for an approval, it shows none of them, says so, and has no
    hash, without which :class:`~airflow_custody.operators.whitelist_plan_approval.CustodyApproveWhitelistPlanOperator`
    requests no approval.

    :param plan: the plan.
    :return: the report, of up to :data:`MAX_REPORT_BYTES`, and why it does not show the operations.
    """
    report = plan_to_markdown(plan)
    size = len(report.encode())
    if size <= MAX_REPORT_BYTES:
        return report, ""
    number = len(plan.operations)
    fault = (
        f"it has {count(number, 'operation')}, too many to show for approval (about {number * MAX_REPORT_BYTES // size}"
        " of them fit): change fewer rows of the file at a time, or give each chain, customer or visibility group a "
        "file and an 'only' of its own"
    )
    return _report(plan, [f"**This plan cannot be approved: {fault}.**", ""], with_others=False), fault


def _report(plan: WhitelistPlan, operations: Sequence[str], *, with_others: bool = True) -> str:
    """
    Return a report.

    :param plan: the plan.
    :param operations: the lines about the operations, which are never shortened.
    :param with_others: whether to show rows about which nothing is done.
    """
    head = [
        f"## Whitelist plan{': ' if plan.name else ''}{_code(plan.name, _MAX_VALUE)}",
        "",
        *([f"Service: {_code(plan.service, _MAX_EXACT)}", ""] if plan.service else []),
        *([f"{_ABOUT}: {_code(describe_only(plan.only), _MAX_EXACT)}", ""] if plan.only else []),
        f"**{_sentence(plan)}{_warning(plan)}**",
        "",
        signatures_text(plan),
        "",
    ]
    states = [
        f"| {state} | {plan.counts[state]:,} | {_MEANINGS[state]} |" for state in ROW_STATES if plan.counts[state]
    ]
    tail = [
        *([f"{_IGNORED}: {_code(', '.join(plan.ignored), _MAX_EXACT)}", ""] if plan.ignored else []),
        *(["| State | Rows | Meaning |", "|---|---:|---|", *states, ""] if states else []),
    ]
    room = MAX_REPORT_BYTES - _size([*head, *operations, *tail])
    others = _others(plan, room) if with_others else []
    return "\n".join([*head, *operations, *others, *tail])


def _others(plan: WhitelistPlan, room: int) -> list[str]:
    """Return the lines about rows about which nothing is done, as many as there is room for in bytes."""
    rows = [row for row in _ordered(plan) if not row.action]
    # For the lines around them.
    room -= 300
    if not rows or room < 0:
        return []
    lines = [_line(row) for row in rows[:_MAX_OTHER_ROWS]]
    shown = sum(size <= room for size in accumulate(_size([line]) for line in lines))
    more = f"{'And ' if shown else ''}{len(rows) - shown:,} more: see `custody whitelist plan`."
    return ["Nothing is done about these rows:", "", *_table(lines[:shown]), *([more, ""] if len(rows) > shown else [])]


def _line(row: PlanRow) -> str:
    return "| " + " | ".join(_cells(row)) + " |"


def _table(lines: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS), *lines, ""] if lines else []


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _sentence(plan: WhitelistPlan) -> str:
    if plan.operations:
        creates, deletes = Counter(each.state for each in plan.with_action("create")), len(plan.with_action("delete"))
        replaced = f", replace {creates['replace']:,}" if creates["replace"] else ""
        return f"Create {creates['create']:,}{replaced}, delete {deletes:,}."
    if not plan.has_changes:
        return "There is nothing to do."
    rows = sum(plan.counts[state] for state in CHANGES)
    verb = "differs" if rows == 1 else "differ"
    return f"Create 0, delete 0; {count(rows, 'row')} {verb} from the service all the same."


def subject_of(report: str) -> str:
    """
    Return the question whether a plan may be applied: ``Apply the whitelist plan: create 4, delete 0?``

    :param report: the plan as Markdown. Without its line of counts, the question has none.
    """
    counts = re.search(r"^\*\*Create ([^.]+)\.(.*)\*\*$", report, re.MULTILINE)
    return f"Apply the whitelist plan: create {counts[1]}?{counts[2]}" if counts else "Apply the whitelist plan?"


def _warning(plan: WhitelistPlan) -> str:
    rows = plan.counts["unverified"]
    return f" {count(rows, 'row')} {'is' if rows == 1 else 'are'} not verified." if rows else ""


def _ordered(plan: WhitelistPlan) -> list[PlanRow]:
    """Return the rows that matter: operations first, then what does not verify."""
    order = {state: index for index, state in enumerate((*CHANGES, "pending"))}
    actions = {"delete": 0, "create": 1, None: 2}
    rows = [row for row in plan.rows if row.action or row.state in order]
    return sorted(rows, key=lambda row: (actions[row.action], order[row.state]))


def _cells(row: PlanRow) -> Iterator[str]:
    """Yield the cells of a row, whole if something is done about it."""
    exact, long, prose = (None, None, None) if row.action else (_MAX_EXACT, _MAX_VALUE, _MAX_NOTE)
    yield f"**{row.state}: {row.action}**" if row.action == "delete" else f"**{row.state}**"
    where = (_chain(row), _value(row, "address"), _value(row, "memo"))
    chain, address, memo = (_code(each, exact, _ADDRESS_PIECE, exact=True) for each in where)
    yield f"{chain} {address}{memo and f' memo: {memo}'}"
    yield _code(_value(row, "label"), long, _PIECE)
    details = [f"request {_code(row.request_id, long, _PIECE, exact=True)}"] if row.request_id else []
    for name, value in _details(row):
        limit = exact if name.startswith(("address", "memo")) else long
        details.append(f"{_prose(name, prose)}: {_code(value, limit, _PIECE)}")
    details += [_prose(text, prose) for text in (row.note, row.where) if text]
    yield "; ".join(details)


_PROSE = re.compile(r"(?:[A-Za-z0-9 ();'-]|[.,:](?= |$))*")


def _prose(text: str, limit: int | None) -> str:
    """Return a sentence as it is if nothing in it means something in Markdown; otherwise as code."""
    is_whole = limit is None or len(text) <= limit
    return text if is_whole and _PROSE.fullmatch(text) else _code(text, limit)


# Characters that could end a code span or a cell, or begin a template or a formula.
_SPECIAL = re.compile(r"([|`{}<>$])")


def _code(text: str, limit: int | None, piece: int = _MAX_EXACT, *, exact: bool = False) -> str:
    """
    Return any text as code spans that nothing in it can end.

    :param text: the text.
    :param limit: maximum length in characters; a cut is marked. None: the text is whole.
    :param piece: maximum length of a word in one code span: a browser breaks lines only between two of them.
    :param exact: whether every character but those of ASCII is written as ``\\uXXXX``: people compare it.
    """
    words = re.compile(rf"(\S{{{piece}}})(?=\S)")
    # No text has a NUL: it is escaped.
    found = "".join(
        f"&#{ord(part)};" if index % 2 else " ".join(map(_span, words.sub("\\g<1>\0", part).split("\0")))
        for index, part in enumerate(_SPECIAL.split(_visible(text[:limit], exact=exact)))
        if part
    )
    return found if limit is None or len(text) <= limit else f"{found} (cut: it has {len(text):,} characters)"


def _span(text: str) -> str:
    # A code span loses one space at each end, if there is one at both.
    return f"` {text} `" if text.startswith(" ") and text.endswith(" ") and text.strip() else f"`{text}`"


def _visible(text: str, *, exact: bool) -> str:
    """Return a text without what cannot be seen, or is easily taken for something else."""
    # So that an escaped character and its escape are not written alike.
    text = escape(re.sub(r"\\(?=[uU])", r"\\u005c", text))
    text = re.sub(r"^ | $|(?<= ) ", r"\\u0020", text)
    return "".join(escaped(each) if not each.isascii() and (exact or each.isspace()) else each for each in text)


# --- what a row holds --------------------------------------------------------------------------------------


def _chain(row: PlanRow) -> str:
    network = _value(row, "network")
    return f"{_value(row, 'blockchain')} ({network})" if network else _value(row, "blockchain")


def _value(row: PlanRow, name: str) -> str:
    """Return a field of what a row is about; of a request that cannot be asked for, what the service shows."""
    return row.shown.get(name, "") if row.request is None else _field(row.request, name)


def _field(request: WhitelistRequest, name: str) -> str:
    value = request.chain if name == "blockchain" else getattr(request, name) if name in _FIELDS else None
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else str(value)


def _details(row: PlanRow) -> Iterator[tuple[str, str]]:
    """Yield name and value of what else is asked for, and of what the service has instead."""
    for name in _FIELDS:
        if row.request is not None and name not in _OWN_COLUMN and (value := _field(row.request, name)):
            yield name, value
    for name in row.fields:
        if row.request is None or name not in row.shown:
            yield "differs", name
            continue
        yield f"{name} at the service", row.shown[name] or "(none)"
        if hidden := hidden_difference(_field(row.request, name), row.shown[name], _MAX_VALUE):
            yield f"{name} differs", hidden
