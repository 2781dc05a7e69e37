"""
Reports of a plan as Markdown, JSON and plain text. No I/O.

The values of a row come from a file and from the service. Markdown reports write all values in code spans, because code
spans cannot contain links, mentions, markup or HTML. A character that could end a code span or a cell is written as a
character reference between two code spans.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import count, escape, escaped, hidden_difference, sanitize
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.hidden import warn_of_hidden
from airflow_custody.client.whitelist.models import WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import CHANGES, ROW_STATES, describe_only

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.plans.plan import PlanRow, WhitelistPlan

#: Maximum size in bytes of a report that is offered for approval. Airflow on MySQL stores at most 65,535 bytes of the
#: text of an approval.
MAX_REPORT_BYTES = 60_000
# Maximum number of warnings in a report.
_MAX_WARNINGS = 10
# Limits on the part of a report about rows without an operation: numbers of characters, and of rows. Rows with an
# operation are never shortened.
_MAX_EXACT = 512
_MAX_VALUE = 120
_MAX_NOTE = 400
_MAX_OTHER_ROWS = 100
_FIELDS = tuple(WhitelistRequest.model_fields)
# Fields with a column of their own.
_OWN_COLUMN = frozenset({"label", "address", "blockchain", "currency", "network", "memo"})
_MEANINGS = {
    "create": "missing at the service; applying the plan creates a request",
    "replace": "in effect with other values; applying the plan creates a new request, and the old request is deleted "
    "once the new one is in effect",
    "later": "missing, different or not in the file; left for a later run, because this plan is only a part",
    "pending": "already requested, but not in effect yet",
    "unchanged": "in effect, with the content of the file",
    "differs": "the file and the service differ, or the destination is uncertain; needs your decision",
    "duplicate": "in effect, but another request for the same destination is kept",
    "undeclared": "at the service, but not in the file",
    "rejected": "rejected at the service; needs your decision",
    "unreadable": "cannot be read; needs your decision",
    "unverified": "not proved by signatures; needs your decision",
}
_IGNORED = "Ignored requests, which may be for rows of the file"
_ABOUT = "This plan is limited to"
_COLUMNS = ("State", "Destination", "Label", "Details")
# Maximum number of characters that a browser must keep on one line of a table's cell. With these limits, the columns
# fit into the form of Airflow's UI.
_ADDRESS_PIECE = 44
_PIECE = 22


# --- JSON --------------------------------------------------------------------------------------------------


def plan_to_json(plan: WhitelistPlan) -> dict[str, Any]:
    """
    Return a plan as plain JSON data.

    The keys are:

    - ``plan_hash``, ``service``, ``file`` (its name), ``counts`` (rows by state) and ``has_changes``
    - ``pinned``: the number of pinned ``keys`` that the rows were verified against, and the ``minimum`` of keys that
      must have signed the rules; null if nothing was verified
    - ``ignored``: the ids of the requests to ignore, which may be for rows of the file, but do not prevent a creation
    - ``only``: the limits of the plan, as lists of values by field; empty if it covers everything
    - ``hidden``: number of requests that the service counts but does not return
    - ``rows``: all rows

    The keys of a row are:

    - ``state``
    - ``action``: ``create``, ``delete`` or null
    - ``where``: the row's place in the file; empty if the file does not have the row
    - ``id`` and ``status`` of the request at the service; empty if the service has no such request
    - ``fields``: the names of the fields that differ
    - ``shown``: the service's values of these fields, as text
    - ``note``
    - ``others``: the ids of the requests that a new one replaces; for a duplicate, the id of the request that is kept
    - ``request``: the fields that the file sets, by name. If the file does not have the row, the fields of the
      service's request, which are unproved if the state is ``unverified``. Null if the request cannot be read.

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
        "hidden": plan.hidden,
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


# The signs before rows, by the kind that :func:`_kind` returns. A row of any other kind has the sign ``~``.
_SIGNS = {"to delete": "-", "to create": "+", "unverified": "!", "unreadable": "!", "pending": " ", "unchanged": " "}
# The blanks before each field of a row. A value cannot imitate a field, because values contain neither line breaks nor
# two blanks in succession.
_INDENT = " " * 6


def plan_to_text(plan: WhitelistPlan, *, all_rows: bool = False) -> str:
    """
    Return a plan as plain text for logs and terminals.

    Deletions come first, then creations, unverified rows, and all other rows. The first line of a row has a sign in the
    third column: ``-`` to delete, ``+`` to create, ``!`` unverified or unreadable, a blank for pending and unchanged
    rows, and ``~`` for all other rows. Deletions and creations are complete; long values of other rows are cut.

    :param plan: the plan.
    :param all_rows: whether to include unchanged rows. Default False.
    :return: the text, with these lines: the number of operations that are left, if this is a part of a plan; the
        counts, with a warning about hidden requests; the rows; a summary of the verification; and the plan's hash.
    """
    rows = _ordered(plan)
    unchanged = [row for row in plan.rows if row.state == "unchanged"]
    kinds = Counter(map(_kind, [*rows, *unchanged]))
    counts = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
    if not plan.operations:
        counts = f"nothing to create or delete{'; ' if counts else ''}{counts}"
    # Put the warning on the line with the counts, because all rows that follow may be incomplete.
    hidden = f" {warn_of_hidden(plan.hidden)}" if plan.hidden else ""
    head = [*filter(None, [_part_text(plan)]), f"Plan: {counts}.{hidden}"]
    if plan.only:
        head.append(f"{_ABOUT}: {_plain(describe_only(plan.only))}")
    found = [line for row in [*rows, *(unchanged if all_rows else ())] for line in _lines_of(row)]
    tail = [signatures_text(plan)]
    if plan.ignored:
        tail.append(f"{_IGNORED}: {_plain(', '.join(plan.ignored), exact=True)}")
    tail.append(f"Plan hash: {plan.plan_hash}")
    return "\n\n".join("\n".join(each) for each in (head, found, tail) if each)


def _kind(row: PlanRow) -> str:
    """Return the kind of a row: its action, or its state if it has no action."""
    if row.action:
        return "to delete" if row.action == "delete" else f"to {row.state}"
    return row.state


def _lines_of(row: PlanRow) -> Iterator[str]:
    kind, values = _kind(row), _values(row)
    sign = _SIGNS.get(kind, "~")
    limit = None if row.action else _MAX_EXACT
    destination = " ".join(_plain(values[name], limit, exact=True) for name in ("chain", "address") if values[name])
    yield f"  {sign} {destination or '(no address)'}"
    request = row.request_id and f"request {row.request_id}" + (f" ({row.status})" if row.status else "")
    yield _INDENT + _plain(", ".join(filter(None, (kind, row.where, request))), limit)
    fields = [(name, values[name]) for name in ("memo", "label")]
    for name, value in (*fields, *_details(row, values), ("note", row.note)):
        if value:
            is_exact = name.partition(" ")[0] in ("memo", "address")
            yield f"{_INDENT}{_plain(name, limit)}: {_plain(value, limit, exact=is_exact)}"


def _plain(text: str, limit: int | None = _MAX_EXACT, *, exact: bool = False) -> str:
    """Return any text on one line, cut at the limit. None: the text is not cut."""
    shown = _visible(text[:limit], exact=exact)
    return shown if limit is None or len(text) <= limit else f"{shown}… ({count(len(text), 'character')})"


def signatures_text(plan: WhitelistPlan) -> str:
    """Return one or two sentences about the verification of a plan's rows."""
    if plan.pins is None:
        return f"Signatures are not verified. {NOT_PINNED}"
    keys = count(len(plan.pins.fingerprints), "pinned key")
    text = (
        f"Signatures: each request in effect is verified against {keys} ({plan.pins.superadmin_minimum} must have "
        "signed the rules)."
    )
    if plan.counts["unverified"] and plan.counts["create"]:
        text += " Some requests cannot be verified, and one of them may be for a row that is to be created."
    return text


# --- Markdown ----------------------------------------------------------------------------------------------


def plan_to_markdown(plan: WhitelistPlan) -> str:
    """
    Return a plan as Markdown, for a pull request.

    All operations come first, and none of them is shortened, even if the report becomes very large. The plan's hash
    follows the operations, so that a report that was cut has no hash. Up to 100 rows without an operation come next,
    with long values cut, as many as fit into :data:`MAX_REPORT_BYTES`. The report ends with the number of rows in each
    state.

    :param plan: the plan.
    """
    operations = _table([_line(row) for row in _ordered(plan) if row.action])
    return _report(plan, [*operations, f"Plan hash: {_code(plan.plan_hash, None)}", ""])


def part_to_approve(plan: WhitelistPlan, at_most: int | None = None) -> WhitelistPlan:
    """
    Return the first part of a plan: as many operations as one approval can show.

    :param plan: the whole plan.
    :param at_most: maximum number of operations. Default None: as many as fit.
    :return: the largest part whose Markdown report has up to :data:`MAX_REPORT_BYTES`; the plan itself if it is small
        enough.
    :raises CustodyRequestError: if the first operation alone is too long for a report.
    """
    # First find an upper bound of the number of operations, so that reports with 10,000 operations are never written.
    sizes = accumulate(_size([_line(row)]) for row in plan.rows if row.action)
    most = sum(1 for _ in takewhile(lambda size: size <= MAX_REPORT_BYTES, sizes))
    part = plan.first(most if at_most is None else min(most, at_most))
    if not plan.operations or (part.operations and _fits(part)):
        return part
    # Search by bisection, which is possible because a report grows with each operation.
    numbers = range(1, len(part.operations) + 1)
    number = bisect_left(numbers, True, key=lambda each: not _fits(plan.first(each)))
    if number == 0:
        row = next(each for each in plan.rows if each.action)
        what = (
            f"the creation of {row.where}" if row.where else f"the deletion of request {sanitize(row.request_id, 40)}"
        )
        raise CustodyRequestError(
            f"{what} alone is too long for the report of an approval ({MAX_REPORT_BYTES:,} bytes); nothing is sent",
            advice="Shorten the row in the file." if row.where else "Delete the request at the service.",
            code="plan-over-limits",
        )
    return plan.first(number)


def _fits(plan: WhitelistPlan) -> bool:
    return len(plan_to_markdown(plan).encode()) <= MAX_REPORT_BYTES


def _report(plan: WhitelistPlan, operations: Sequence[str]) -> str:
    """
    Return a report.

    :param plan: the plan.
    :param operations: the lines about the operations, which are never shortened.
    """
    part = _part_text(plan)
    head = [
        *([f"**{part}**", ""] if part else []),
        *([f"**{warn_of_hidden(plan.hidden)}**", ""] if plan.hidden else []),
        f"## Whitelist plan{': ' if plan.name else ''}{_code(plan.name, _MAX_VALUE)}",
        "",
        *([f"Service: {_code(plan.service, _MAX_EXACT)}", ""] if plan.service else []),
        *([f"{_ABOUT}: {_code(describe_only(plan.only), _MAX_EXACT)}", ""] if plan.only else []),
        f"**{_sentence(plan)}{_warning(plan)}**",
        "",
        *(line for each in plan.warnings[:_MAX_WARNINGS] for line in (f"Warning: {_code(each, _MAX_EXACT)}", "")),
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
    return "\n".join([*head, *operations, *_others(plan, room), *tail])


def _others(plan: WhitelistPlan, room: int) -> list[str]:
    """
    Return lines about rows without an operation, as many as fit into ``room``, a number of bytes.
    """
    rows = [row for row in _ordered(plan) if not row.action]
    # Reserve space for the lines before and after the table.
    room -= 300
    if not rows or room < 0:
        return []
    lines = [_line(row) for row in rows[:_MAX_OTHER_ROWS]]
    shown = sum(size <= room for size in accumulate(_size([line]) for line in lines))
    more = f"{'And ' if shown else ''}{len(rows) - shown:,} more: see `custody whitelist plan`."
    return [
        "Rows that this plan does not change:",
        "",
        *_table(lines[:shown]),
        *([more, ""] if len(rows) > shown else []),
    ]


def _table(lines: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS), *lines, ""] if lines else []


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _part_text(plan: WhitelistPlan) -> str:
    """Return the number of operations in a part of a plan, as a report's first line; empty if the plan is whole."""
    left, number = plan.counts["later"], len(plan.operations)
    return f"{number:,} of {number + left:,} operations; the rest follows in the next run." if left else ""


def _sentence(plan: WhitelistPlan) -> str:
    if plan.operations:
        creates, deletes = Counter(each.state for each in plan.with_action("create")), len(plan.with_action("delete"))
        replaced = f", replace {creates['replace']:,}" if creates["replace"] else ""
        return f"Create {creates['create']:,}{replaced}, delete {deletes:,}."
    if not plan.has_changes:
        return "No changes."
    rows = sum(plan.counts[state] for state in CHANGES)
    verb = "differs" if rows == 1 else "differ"
    return f"Create 0, delete 0; {count(rows, 'row')} still {verb} from the service."


def approval_question(plan: WhitelistPlan) -> str:
    """
    Return the question that asks for a plan's approval.

    For example: ``Apply the whitelist plan: create 4, delete 0?`` The question about a part also says how many
    operations are left for the next run.

    :param plan: the plan.
    """
    if not plan.has_changes:
        return "Apply the whitelist plan?"
    sentence = _sentence(plan).removesuffix(".")
    left = plan.counts["later"]
    rest = f" {left:,} {'operation is' if left == 1 else 'operations are'} left for the next run." if left else ""
    return f"Apply the whitelist plan: {sentence[0].lower()}{sentence[1:]}?{rest}{_warning(plan)}"


def _warning(plan: WhitelistPlan) -> str:
    rows, hidden = plan.counts["unverified"], plan.hidden
    found = f" {count(rows, 'row')} {'is' if rows == 1 else 'are'} not verified." if rows else ""
    return found + (f" {count(hidden, 'request')} {'is' if hidden == 1 else 'are'} hidden." if hidden else "")


def _ordered(plan: WhitelistPlan) -> list[PlanRow]:
    """
    Return all rows except unchanged ones, the most important first.

    Deletions come first, then creations, then unverified rows, then all other rows. Rows that are left for a later run
    come last, because there may be thousands of them.
    """
    order = {state: index for index, state in enumerate((*CHANGES, "pending"))}
    order["later"] = len(order)
    actions = {"delete": 0, "create": 1, None: 2}
    rows = [row for row in plan.rows if row.action or row.state in order]
    return sorted(rows, key=lambda row: (actions[row.action], order[row.state]))


def _line(row: PlanRow) -> str:
    """Return a row of the plan as a line of the table. Values are cut only if the row has no operation."""
    exact, long, prose = (None, None, None) if row.action else (_MAX_EXACT, _MAX_VALUE, _MAX_NOTE)
    values = _values(row)
    where = (values[name] for name in ("chain", "address", "memo"))
    chain, address, memo = (_code(each, exact, _ADDRESS_PIECE, exact=True) for each in where)
    details = [f"request {_code(row.request_id, long, _PIECE, exact=True)}"] if row.request_id else []
    for name, value in _details(row, values):
        limit = exact if name.startswith(("address", "memo")) else long
        details.append(f"{_prose(name, prose)}: {_code(value, limit, _PIECE)}")
    details += [_prose(text, prose) for text in (row.note, row.where) if text]
    cells = (
        f"**{row.state}: {row.action}**" if row.action == "delete" else f"**{row.state}**",
        f"{chain} {address}{memo and f' memo: {memo}'}",
        _code(values["label"], long, _PIECE),
        "; ".join(details),
    )
    return f"| {' | '.join(cells)} |"


_PROSE = re.compile(r"(?:[A-Za-z0-9 ();'-]|[.,:](?= |$))*")


def _prose(text: str, limit: int | None) -> str:
    """
    Return a sentence as plain Markdown text if possible, and otherwise as code spans.

    Plain text is possible if the sentence has no Markdown syntax, and does not exceed the limit.
    """
    is_whole = limit is None or len(text) <= limit
    return text if is_whole and _PROSE.fullmatch(text) else _code(text, limit)


# Characters that could end a code span or a cell, or begin a template or a formula.
_SPECIAL = re.compile(r"([|`{}<>$])")
# Words that need no escaping, because all of their characters are visible ASCII and none of them is special.
_HARMLESS = re.compile(r"[!-#%-;=?-\[\]-_a-z~]+(?: [!-#%-;=?-\[\]-_a-z~]+)*")


def _code(text: str, limit: int | None, piece: int = _MAX_EXACT, *, exact: bool = False) -> str:
    """
    Return any text as code spans that the text itself cannot end.

    :param text: the text.
    :param limit: maximum length in characters; a cut is marked. None: the text is not cut.
    :param piece: maximum length of a word in one code span. A longer word is split, because browsers break lines only
        between code spans. Default 512.
    :param exact: whether every non-ASCII character is written as ``\\uXXXX``, for values that approvers compare.
        Default False.
    """
    found = "".join(
        f"&#{ord(part)};" if index % 2 else " ".join(map(_span, _split_words(part, piece)))
        for index, part in enumerate(_SPECIAL.split(_visible(text[:limit], exact=exact)))
        if part
    )
    return found if limit is None or len(text) <= limit else f"{found} (cut from {len(text):,} characters)"


def _split_words(text: str, piece: int) -> list[str]:
    """Split a text after each ``piece`` characters of a word that is longer."""
    if len(text) <= piece:
        return [text]
    # NUL is a safe separator, because it is escaped in all texts.
    return re.sub(rf"(\S{{{piece}}})(?=\S)", "\\g<1>\0", text).split("\0")


def _span(text: str) -> str:
    # Markdown removes one space at each end of a code span if both ends have one.
    return f"` {text} `" if text.startswith(" ") and text.endswith(" ") and text.strip() else f"`{text}`"


def _visible(text: str, *, exact: bool) -> str:
    """Return a text with its invisible and misleading characters escaped."""
    # Return nearly every text here, because escaping is slow.
    if not text or _HARMLESS.fullmatch(text):
        return text
    # Escape a literal \uXXXX too, so that it differs from an escaped character.
    text = escape(re.sub(r"\\(?=[uU])", r"\\u005c", text))
    text = re.sub(r"^ | $|(?<= ) ", r"\\u0020", text)
    if text.isascii():
        return text
    return "".join(escaped(each) if not each.isascii() and (exact or each.isspace()) else each for each in text)


# --- what a row holds --------------------------------------------------------------------------------------


def _values(row: PlanRow) -> dict[str, str]:
    """
    Return the fields of a row's request as text, and ``chain``, which is the chain with its network.

    If a row of a file cannot express the request, the values are the service's.
    """
    values = dict.fromkeys(_FIELDS, "")
    if row.request is None:
        values |= row.shown
    else:
        given = {name: value for name, value in row.request if value is not None}
        values |= {name: ", ".join(value) if isinstance(value, list) else value for name, value in given.items()}
        values["blockchain"] = row.request.chain
    values["chain"] = values["blockchain"] + (f" ({values['network']})" if values["network"] else "")
    return values


def _details(row: PlanRow, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """
    Yield names and values for the details of a row.

    The details are the requested fields that have no column of their own, and the service's values of the fields that
    differ.
    """
    for name in _FIELDS:
        if row.request is not None and name not in _OWN_COLUMN and values[name]:
            yield name, values[name]
    for name in row.fields:
        if row.request is None or name not in row.shown:
            yield "differs", name
            continue
        yield f"{name} at the service", row.shown[name] or "(none)"
        if hidden := hidden_difference(values.get(name, ""), row.shown[name], _MAX_VALUE):
            yield f"{name} differs", hidden
