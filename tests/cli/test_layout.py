"""Lines and tables: as wide as their content, or as the terminal."""

from __future__ import annotations

import pytest

from airflow_custody.cli.output import Layout, as_state

ADDRESS = "bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3"
ID = "9b2f1c9e-0d3c-4c55-8a52-b0b7a7d3ad01"
ROWS = [
    {"id": "3711", "state": as_state("ok"), "empty": None, "detail": "the service responds"},
    {"id": ID, "state": as_state("failed"), "empty": "", "detail": "word " * 40},
]
LABEL = "x; verification: verified; status: approved"
PENDING = {"id": "3711", "status": "pending", "created_at": "2026-11-28", "address": ADDRESS, "label": "Vault"}
WIDE = {"id": 3711, "verified": True, "label": LABEL, "address": ADDRESS}


def lines(view: object, width: int | None = None) -> list[str]:
    return list(Layout(width).lines(view))


@pytest.mark.parametrize(
    ("view", "width", "expected"),
    [
        ({"na\nme": "a\u202eb", "none": None, "empty": [], "no": False}, None, [r"na\u000ame: a\u202eb", "no: no"]),
        ([{"name": "x\x1b[2J\ny", "n": "é"}], None, [f"NAME{'':15}N", r"x\u001b[2J\u000ay  é"]),
        ([{"a": ""}], None, []),
        (f"request 3711 waits for {ADDRESS}", 60, ["request 3711 waits for", f"  {ADDRESS}"]),
        ([WIDE], 42, ["3711", "  verified: yes", "  label: x; verification: verified;", "    status: approved"]),
        (
            [PENDING],
            80,
            ["3711", "  status: pending", "  created at: 2026-11-28", f"  address: {ADDRESS}", "  label: Vault"],
        ),
        (
            {"A": {"list": [{"id": "1", "note": "two words and more"}]}},
            40,
            ["A:", "  list:", "    ID  NOTE", "    1   two words and more"],
        ),
    ],
    ids=["pairs", "hostile text", "no values", "long line", "value in a block", "block", "nested"],
)
def test_lines(view: object, width: int | None, expected: list[str]) -> None:
    assert lines(view, width)[: len(expected)] == expected
    assert bool(lines(view, width)) is bool(expected)


@pytest.mark.parametrize(("width", "is_table"), [(75, False), (76, True)])
def test_the_last_column_of_a_table_is_wrapped_if_it_has_room(width: int, is_table: bool) -> None:
    found = lines(ROWS, width)
    assert max(map(len, found)) <= width
    assert found[0].startswith("ID ") is is_table
    assert sum(ID in line for line in found) == 1
    assert " ".join(found).split().count("word") == 40
