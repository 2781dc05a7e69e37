"""A plan as Markdown, JSON and plain text."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from support.whitelist.whitelist_plans import ask, listed
from support.whitelist.whitelist_plans import plan as make

from airflow_custody.client import WhitelistRequest
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.plans.plan import ROW_STATES, PlanRow, WhitelistPlan
from airflow_custody.client.whitelist.plans.report import (
    MAX_REPORT_BYTES,
    approval_question,
    part_to_approve,
    plan_to_json,
    plan_to_markdown,
    plan_to_text,
)

ADDRESS = "0x" + "ab" * 20
REQUEST = WhitelistRequest(label="Treasury", address=ADDRESS, blockchain="ETH")
CREATE = PlanRow("create", "create", REQUEST, where="line 3")
DELETE = PlanRow("undeclared", "delete", REQUEST, request_id="3711", status="APPROVED", hash="ab")
HOSTILE = [
    "a|b a\\|b\\ | a | `code` `` $`x`$ $y$",
    "a\n\n# Heading\n\n| x |\n| --- |\n",
    "<script>alert(1)</script><img src=x onerror=alert(1)> &lt;b&gt; &#124;",
    "[x](javascript:alert(1)) ![x](https://example.com/x.png) <https://example.com>",
    "https://example.com www.example.com someone@example.com @someone #1",
    "{{ var.value.secret }} {% raw %} {# x #} **bold** _it_ ~~gone~~",
    " x",
    "\u202egnp.exe\u200b\u2066\x1b[31mred\x07\r",
    "\ud800",
]


def plan(*rows: PlanRow) -> WhitelistPlan:
    return WhitelistPlan(rows, "https://custody.example.com", "treasury.yaml")


def hostile_row(text: str) -> PlanRow:
    """Return a row that has a text in every place."""
    names = [name for name in WhitelistRequest.model_fields if not name.startswith("linked")]
    request = REQUEST.model_copy(update={**dict.fromkeys(names, text), "linked_wallet_ids": [text]})
    fields = ("label", text)
    return PlanRow(
        "differs", None, request, text, text, text, text, fields, note=text, shown=dict.fromkeys(fields, text)
    )


def parse(text: str) -> list[Token]:
    # GitHub's flavour, without the package that finds bare addresses: the test below has its own eye for them.
    return MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text)


def tables(tokens: list[Token]) -> list[list[list[Token]]]:
    """Return, for each table, its rows, and of each the inline token of each cell."""
    found: list[list[list[Token]]] = []
    in_table = False
    for token in tokens:
        if token.type == "table_open":
            found.append([])
            in_table = True
        elif token.type == "table_close":
            in_table = False
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and in_table:
            found[-1][-1].append(token)
    return found


def text_of(token: Token) -> str:
    return "".join(each.content for each in token.children or ())


def assert_harmless(text: str, rows: int) -> list[list[str]]:
    """Check that a report has the tokens of its frame and no others; return the cells of its rows."""
    tokens = parse(text)
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h2"]
    blocks = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens}
    assert blocks <= {"heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "inline"}
    children = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in children} <= {"text", "text_special", "code_inline", "strong_open", "strong_close"}
    # The rule that finds links and mentions in rendered text ignores code.
    plain = " ".join(child.content for child in children if child.type == "text")
    assert not any(each in plain for each in ("http", "www.", "@", "#", "\\"))
    assert not any(unicodedata.category(each) in ("Cf", "Cs") for each in text)
    assert not any(each in text for each in ("{{", "{%", "{#"))
    *others, counts = tables(tokens) or [[]]
    states = [text_of(row[0]) for row in counts[1:]]
    assert states == [state for state in ROW_STATES if state in states]
    assert all(len(row) == 3 and text_of(row[1]) != "0" for row in counts)
    # A table of operations, and a table of the other rows, each with a header.
    assert len(others) <= 2
    assert sum(len(table) - 1 for table in others) == rows
    assert all(len(row) == 4 for table in others for row in table)
    return [[text_of(cell) for cell in row] for table in others for row in table[1:]]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_value_breaks_out_of_its_cell(text: str) -> None:
    hostile = replace(plan(hostile_row(text), CREATE), name=text, service=text)
    cells = assert_harmless(plan_to_markdown(hostile), 2)
    assert cells[0][:2] == ["create", f"ETH {ADDRESS}"]
    assert_signs(hostile, {"+": 1, "~": 1})
    json.dumps(plan_to_json(hostile))


@given(st.lists(st.text(max_size=40) | st.text("|`\\{}<>[]()!#@&$*_~-:/.\n ab", max_size=40), max_size=4))
def test_a_report_has_exactly_its_rows(texts: list[str]) -> None:
    found = plan(*map(hostile_row, texts))
    assert_signs(found, {"~": len(texts)} if texts else {})
    cells = assert_harmless(plan_to_markdown(found), len(texts))
    for row, text in zip(cells, texts, strict=True):
        if text.isascii() and text.isprintable() and text == " ".join(text.split()) and "\\u" not in text.lower():
            where = f"{text}({text}){text}memo:{text}" if text else ""
            assert [cell.replace(" ", "") for cell in row[1:3]] == [each.replace(" ", "") for each in (where, text)]


def test_shows_all_that_will_be_asked_for() -> None:
    fields: dict[str, Any] = {
        "label": "Trésor",
        "address": ADDRESS,
        "blockchain": "ETH",
        "linked_internal_address_ids": ["12", "13"],
        "linked_wallet_ids": ["7"],
        "network": "mainnet",
        "memo": "007",
        "address_type": "exchange",
        "contract_type": "ERC20",
        "customer_id": "c-1",
        "exchange_account_id": "9",
        "visibility_group_id": "g-2",
    }
    assert {*fields, "currency"} == set(WhitelistRequest.model_fields)
    row = replace(CREATE, request=WhitelistRequest(**fields))
    (cells,) = assert_harmless(plan_to_markdown(plan(row)), 1)
    assert cells == [
        "create",
        f"ETH (mainnet) {ADDRESS} memo: 007",
        "Trésor",
        "linked_internal_address_ids: 12, 13; linked_wallet_ids: 7; address_type: exchange; contract_type: ERC20; "
        "customer_id: c-1; exchange_account_id: 9; visibility_group_id: g-2; line 3",
    ]
    plain = plan_to_text(plan(row))
    assert plan_to_json(plan(row))["rows"][0]["request"] == fields
    for name, value in fields.items():
        assert (", ".join(value) if isinstance(value, list) else value) in plain, name
    by_currency = replace(CREATE, request=WhitelistRequest(label="x", address=ADDRESS, currency="BTC"))
    assert assert_harmless(plan_to_markdown(plan(by_currency)), 1)[0][1] == f"BTC {ADDRESS}"


def test_says_where_values_differ_that_look_the_same() -> None:
    found = make(ask(label="Cafe\u0301"), listed(label="Caf\xe9"))
    difference = "label differs: at character 4: U+0065 U+0301 and U+00E9"
    assert f"\n      label at the service: Caf\xe9\n      {difference}\n" in plan_to_text(found)
    (cells,) = assert_harmless(plan_to_markdown(found), 1)
    assert difference in cells[3]
    assert "label differs" not in plan_to_text(make(ask(label="Cold"), listed(label="Warm")))


TEXT = """\
Plan: 1 to delete, 1 to create, 1 differs, 1 unreadable, 1 pending, 1 unchanged.

  - ETH 0xabababababababababababababababababababab
      to delete, request 3711 (APPROVED)
      label: Treasury
  + ETH 0xabababababababababababababababababababab
      to create, line 3
      label: Treasury
  ~ ETH 0xabababababababababababababababababababab
      differs, line 4, request 3712 (APPROVED)
      label: Treasury
      label at the service: Cold
      linked_wallet_ids at the service: (none)
      differs: envelope
      note: its envelope's chain 'BTC' is not the chain in its payload, 'ETH'
  ! rX
      unreadable, request 3713
      note: its payload is not JSON.
    ETH 0xabababababababababababababababababababab
      pending, line 9, request 3714
      label: Treasury
      note: already requested

Signatures are not verified. {not_pinned}
Plan hash: {hash}"""


def test_reads_well() -> None:
    differs = PlanRow(
        "differs", None, REQUEST, "line 4", "3712", "APPROVED", fields=("label", "linked_wallet_ids", "envelope"),
        note="its envelope's chain 'BTC' is not the chain in its payload, 'ETH'",
        shown={"label": "Cold", "linked_wallet_ids": ""},
    )  # fmt: skip
    unreadable = PlanRow("unreadable", request_id="3713", note="its payload is not JSON.", shown={"address": "rX"})
    rows = [PlanRow("unchanged", request=REQUEST, where="line 1"), differs, DELETE, CREATE, unreadable]
    rows.append(PlanRow("pending", request=REQUEST, where="line 9", request_id="3714", note="already requested"))
    found = plan(*rows)
    report = plan_to_markdown(found)
    assert report.startswith(
        "## Whitelist plan: `treasury.yaml`\n\n"
        "Service: `https://custody.example.com`\n\n"
        "**Create 1, delete 1.**\n\n"
        "Signatures are not verified. No super-administrators' keys are pinned, so the service is trusted "
        "without verification.\n\n"
        "| State | Destination | Label | Details |\n|---|---|---|---|\n| **undeclared: delete** | "
    )
    cells = assert_harmless(report, 5)
    assert [row[0] for row in cells] == ["undeclared: delete", "create", "differs", "unreadable", "pending"]
    assert cells[2][3] == (
        "request 3712; label at the service: Cold; linked_wallet_ids at the service: (none); differs: envelope; "
        "its envelope's chain 'BTC' is not the chain in its payload, 'ETH'; line 4"
    )
    text = plan_to_text(found)
    assert text == TEXT.format(hash=found.plan_hash, not_pinned=NOT_PINNED)
    unchanged = f"\n    ETH {ADDRESS}\n      unchanged, line 1\n      label: Treasury\n"
    assert plan_to_text(found, all_rows=True) == text.replace("\n\nSign", f"{unchanged}\nSign")
    data = plan_to_json(found)
    assert data["plan_hash"] == found.plan_hash
    assert data["counts"] == found.counts
    assert data["has_changes"] is True
    shown = {name: data["rows"][1][name] for name in ("state", "action", "where", "id", "status", "shown")}
    assert [*shown.values()] == ["differs", None, "line 4", "3712", "APPROVED", differs.shown]
    assert data["rows"][4]["request"] is None


REPLACE = replace(CREATE, state="replace")


@pytest.mark.parametrize(
    ("rows", "sentence", "plain"),
    [
        ([CREATE] * 1234 + [DELETE] * 2, "Create 1,234, delete 2.", "2 to delete, 1,234 to create"),
        ([REPLACE, CREATE, DELETE], "Create 1, replace 1, delete 1.", "1 to delete, 1 to create, 1 to replace"),
        ([CREATE, PlanRow("unverified")], "Create 1, delete 0. 1 row is not verified.", "1 to create, 1 unverified"),
        ([], "No changes.", "nothing to create or delete"),
        ([PlanRow("pending")], "No changes.", "nothing to create or delete; 1 pending"),
        (
            [PlanRow("differs")] * 2,
            "Create 0, delete 0; 2 rows still differ from the service.",
            "nothing to create or delete; 2 d",
        ),
        (
            [replace(CREATE, action=None)],
            "Create 0, delete 0; 1 row still differs from the service.",
            "nothing to create or del",
        ),
    ],
)
def test_says_what_applying_does(rows: list[PlanRow], sentence: str, plain: str) -> None:
    report = plan_to_markdown(plan(*rows))
    assert f"\n**{sentence}**\n" in report
    asked = "" if sentence.startswith("No") else f": c{sentence[1:]}"
    assert approval_question(plan(*rows)) == f"Apply the whitelist plan{asked.replace('.', '?', 1) or '?'}"
    assert plan_to_text(plan(*rows)).startswith(f"Plan: {plain}")


def test_warnings_stand_in_the_report_and_are_harmless_there() -> None:
    warnings = ("The service does not list the chain Etherium.", "x\n# All is well\n**yes**")
    report = plan_to_markdown(replace(plan(CREATE), warnings=warnings))
    assert "\nWarning: `The service does not list the chain Etherium.`\n" in report
    assert "\n# All is well" not in report
    assert not any(each.type == "strong_open" and "yes" in each.content for each in parse(report))


def assert_signs(found: WhitelistPlan, signs: dict[str, int]) -> None:
    """Check that a text has a line with a sign for each row that matters, and nothing else that looks like one."""
    text = plan_to_text(found)
    lines = text.split("\n")
    assert Counter(line[2] for line in lines if re.match("  [^ ]", line)) == signs
    assert not any(unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") for each in text.replace("\n", ""))
    start, end = lines.index(""), len(lines) - lines[::-1].index("")
    # A row, and a field of it. A terminal that breaks a line begins the next one with at most one blank.
    for line in lines[start + 1 : end - 1]:
        assert re.match(r" {2}[-+~! ] \S| {6}\S", line)
        assert "  " not in line[4:].lstrip()


def undeclared(number: int, label: str = "Treasury") -> PlanRow:
    return replace(DELETE, request_id=str(number), request=REQUEST.model_copy(update={"label": label}))


def creation(number: int, **fields: str) -> PlanRow:
    address = f"0x{number:040x}"
    return replace(CREATE, request=REQUEST.model_copy(update={"address": address, "label": f"L{number}", **fields}))


UNVERIFIED = PlanRow("unverified", None, REQUEST, request_id="4711", note="nobody signed it " * 20)
PADDED = "|" * 300


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        ([creation(number) for number in range(100)] + [undeclared(number) for number in range(10)], 0),
        ([UNVERIFIED] * 5_000 + [undeclared(1)], 100),
        ([replace(UNVERIFIED, note="|" * 400)] * 100 + [creation(number) for number in range(100)], 20),
        ([], 0),
    ],
    ids=["limits", "many", "padded", "empty"],
)
def test_an_approval_shows_all_operations_whole_and_first(rows: list[PlanRow], others: int) -> None:
    found = plan(*rows)
    assert part_to_approve(found) is found
    report = plan_to_markdown(found)
    assert len(report.encode()) <= MAX_REPORT_BYTES
    operations = found.with_action("delete") + found.with_action("create")
    cells = assert_harmless(report, len(operations) + others)
    for row, shown in zip(operations, cells, strict=False):
        assert row.request is not None
        assert shown[1:3] == [f"ETH {row.request.address}", row.request.label]
        assert row.request_id in shown[3]
    assert all(row[0] == "unverified" for row in cells[len(operations) :])
    left = len(rows) - len(cells)
    assert (f"\nAnd {left:,} more: see `custody whitelist plan`.\n" in report) == bool(left)


@pytest.mark.parametrize(
    ("rows", "fit"),
    [
        ([creation(number, label=PADDED) for number in range(60)], 31),
        ([undeclared(number) for number in range(1_000)], 545),
    ],
    ids=["padded", "deletions"],
)
def test_an_approval_shows_a_part_of_a_plan_that_is_too_large(rows: list[PlanRow], fit: int) -> None:
    found = plan(*rows)
    part = part_to_approve(found)
    assert len(part.operations) == fit
    report = plan_to_markdown(part)
    assert len(report.encode()) <= MAX_REPORT_BYTES
    assert part.plan_hash in report
    assert_harmless(report, fit)
    # A report for a pull request, which needs no approval, contains all operations.
    assert found.plan_hash in plan_to_markdown(found)
    assert plan_to_markdown(found).count("\n| **create** |") == len(found.with_action("create"))
    assert plan_to_markdown(found).count("\n| **undeclared: delete** |") == len(found.with_action("delete"))


OPERATION = st.builds(
    lambda text, number, deletes: undeclared(number, text) if deletes else creation(number, label=text, memo=text),
    st.text(max_size=60)
    | st.sampled_from(["|", "`", "\u202e", "\U000e0041", "|`", "x", "<"]).map(lambda each: each * 900),
    st.integers(0, 99),
    st.booleans(),
)


@given(st.lists(OPERATION, max_size=25), st.lists(st.sampled_from(HOSTILE).map(hostile_row), max_size=120), st.data())
def test_the_hash_follows_all_operations(operations: list[PlanRow], others: list[PlanRow], data: st.DataObject) -> None:
    whole = plan(*data.draw(st.permutations([*operations, *others])))
    found = part_to_approve(whole)
    assert found.operations or not operations
    report = plan_to_markdown(found)
    assert len(report.encode()) <= MAX_REPORT_BYTES
    # However it is cut at its end, and however little of it is left.
    shown, _, _ = report.partition(found.plan_hash)
    assert found.plan_hash in report
    assert sum(len(table) - 1 for table in tables(parse(shown))) == len(found.operations)
    assert "(cut from" not in shown.partition("| State")[2]


def test_a_cut_value_is_marked() -> None:
    request = REQUEST.model_copy(update={"address": "a" * 512, "memo": "1" * 513, "label": "l" * 200})
    row = replace(CREATE, state="differs", action=None, request=request)
    report = plan_to_markdown(plan(row))
    (cells,) = assert_harmless(report, 1)
    assert cells[1].replace(" ", "") == f"ETH{'a' * 512}memo:{'1' * 512}(cutfrom513characters)"
    assert cells[2].replace(" ", "") == f"{'l' * 120}(cutfrom200characters)"
    # A browser breaks lines only between code spans, so a table is as wide as its longest code span.
    assert max(map(len, report[report.index("| State") :].split("`")[1::2])) == 44
    text = plan_to_text(plan(row))
    assert f" {'a' * 512}\n" in text
    assert f" {'1' * 512}… (513 characters)\n" in text


def test_an_operation_is_never_cut() -> None:
    wallets = [str(number) for number in range(10_000, 10_300)]
    request = REQUEST.model_copy(update={"memo": "1" * 900, "label": "l" * 900, "linked_wallet_ids": wallets})
    for row in (replace(CREATE, request=request), replace(DELETE, request=request, note="n" * 900)):
        (cells,) = assert_harmless(plan_to_markdown(plan(row)), 1)
        shown = "".join(cells).replace(" ", "")
        for each in ("1" * 900, "l" * 900, "linked_wallet_ids:" + ",".join(wallets), row.note):
            assert each in shown
        text = plan_to_text(plan(row))
        for each in ("1" * 900, "l" * 900, ", ".join(wallets), row.note):
            assert each in text


@pytest.mark.parametrize(
    ("address", "label", "shown_address", "shown_label"),
    [
        # An o of the Cyrillic alphabet. A label proves nothing, however it is written.
        ("r\u043ex", "Tr\u043easury", "r\\u043ex", "Tr\u043easury"),
        ("rx", "Trésor 金庫", "rx", "Trésor 金庫"),
        ("rx", "a\u00a0b  c ", "rx", "a\\u00a0b \\u0020c\\u0020"),
        ("\\u043e", "\\u0020", "\\u005cu043e", "\\u005cu0020"),
        ("\U00010041", "\U000e0041", "\\U00010041", "\\U000e0041"),
        ("\u10041", "\\U000e0041", "\\u10041", "\\u005cU000e0041"),
    ],
)
def test_values_that_look_alike_are_told_apart(address: str, label: str, shown_address: str, shown_label: str) -> None:
    request = REQUEST.model_copy(update={"address": address, "label": label})
    (cells,) = assert_harmless(plan_to_markdown(plan(replace(CREATE, request=request))), 1)
    assert cells[1:3] == [f"ETH {shown_address}", shown_label]
    text = plan_to_text(plan(replace(CREATE, request=request)))
    assert f"  + ETH {shown_address}\n" in text
    assert f"      label: {shown_label}\n" in text
