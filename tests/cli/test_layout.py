"""Lines and tables: as wide as they are, or as wide as a terminal."""

from __future__ import annotations

import pytest

from airflow_custody.cli.layout import Layout, Mark, as_line, as_state

ADDRESS = "bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3"
ROWS = [
    {"id": "3711", "state": as_state("ok"), "detail": "the service responds", "empty": None},
    {"id": "9b2f1c9e-0d3c-4c55-8a52-b0b7a7d3ad01", "state": as_state("failed"), "detail": "word " * 40, "empty": ""},
]


def lines(view: object, width: int | None = None, *, in_colour: bool = False) -> list[str]:
    return list(Layout(width, in_colour=in_colour).lines(view))


def test_without_a_width_a_row_is_a_line_and_empty_columns_are_left_out() -> None:
    header, first, second = lines(ROWS)
    assert header.split() == ["ID", "STATE", "DETAIL"]
    assert first == f"3711{'':34}ok      the service responds"
    assert second.endswith("failed  " + " ".join(["word"] * 40))


def test_a_value_stays_on_its_line_in_printable_characters() -> None:
    assert lines([{"name": "x\x1b[2J\ny", "n": "é"}])[1] == r"x\u001b[2J\u000ay  é"
    assert lines({"na\nme": "a\u202eb"}) == [r"na\u000ame: a\u202eb"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_table_is_as_wide_as_the_terminal_and_breaks_no_word(width: int) -> None:
    found = lines(ROWS, width)
    assert max(map(len, found)) <= width
    assert len(found) > len(ROWS) + 1
    assert sum("9b2f1c9e-0d3c-4c55-8a52-b0b7a7d3ad01" in line for line in found) == 1
    assert " ".join(found).split().count("word") == 40


def test_a_row_that_is_too_wide_for_a_table_becomes_a_block_with_the_names_of_its_columns() -> None:
    row = {"id": "3711", "status": "pending", "created_at": "2026-11-28", "address": ADDRESS, "label": "Vault"}
    assert lines([row], 80) == [
        "3711",
        "  status: pending",
        "  created at: 2026-11-28",
        f"  address: {ADDRESS}",
        "  label: Vault",
    ]


def test_a_value_in_a_block_does_not_look_like_another_column() -> None:
    label = "x; verification: verified; status: approved"
    found = lines([{"id": "3711", "status": "pending", "label": label, "address": ADDRESS}], 42)
    assert found == [
        "3711",
        "  status: pending",
        "  label: x; verification: verified;",
        "    status: approved",
        f"  address: {ADDRESS}" if len(ADDRESS) <= 31 else "  address:",
        *([] if len(ADDRESS) <= 31 else [f"    {ADDRESS}"]),
    ]


def test_a_line_is_wrapped_between_words_and_an_address_stays_whole() -> None:
    first, second = lines(f"request 3711 is pending approval for {ADDRESS}", 60)
    assert first == "request 3711 is pending approval for"
    assert second == f"  {ADDRESS}"


def test_nested_values_are_indented_within_the_width() -> None:
    found = lines({"WEBHOOKS": {"list": [{"id": "1", "url": "https://x.test/***", "note": "word " * 30}]}}, 60)
    assert found[:2] == ["WEBHOOKS:", "  list:"]
    assert all(line.startswith("    ") for line in found[2:])
    assert max(map(len, found)) <= 60


@pytest.mark.parametrize(
    ("view", "painted"),
    [
        (as_state("ok"), "\x1b[32mok\x1b[0m"),
        (as_state("Pending"), "\x1b[33mPending\x1b[0m"),
        (as_state("failed", "check: ", "; try again"), "check: \x1b[1;31mfailed\x1b[0m; try again"),
        (as_line("NOT READ: health"), "\x1b[1;31mNOT READ\x1b[0m: health"),
        ({"trust": Mark("UNVERIFIED", "bad")}, "trust: \x1b[1;31mUNVERIFIED\x1b[0m"),
        (as_state("a word of the service"), "a word of the service"),
        (as_line("oldest result: failed"), "oldest result: failed"),
    ],
    ids=["good", "warning", "within a line", "alarm", "value of a key", "unknown word", "no alarm"],
)
def test_the_word_for_a_state_has_its_colour(view: object, painted: str) -> None:
    assert lines(view, in_colour=True) == [painted]


def test_colours_change_no_column() -> None:
    for width in (None, 80):
        plain = lines(ROWS, width)
        coloured = lines(ROWS, width, in_colour=True)
        assert [line.replace("\x1b[32m", "").replace("\x1b[1;31m", "").replace("\x1b[0m", "") for line in coloured] == (
            plain
        )
        assert sum("\x1b[" in line for line in coloured) == 2
