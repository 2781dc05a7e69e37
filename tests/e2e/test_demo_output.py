"""What the demos print: words are never cut, and colours are for terminals that have them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import load

DEMO = Path(__file__).parent.parent.parent / "demo"
ADDRESS = "bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3"
TEXT = (
    f"fails: the file: 1 fault; nothing was sent: {ADDRESS!r} is not a valid BTC address: its checksum does not match"
)


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DEMO))
    return load(DEMO / "_output.py")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_no_word_is_cut_at_any_width(output: Any, width: int) -> None:
    lines = output.Style(width, colour=False).step(12.3, "plan", TEXT, TEXT)
    assert " ".join(lines).split() == ["12.3", "s", "plan", *TEXT.split(), *TEXT.split()]
    # A word that is longer than a line has its own.
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


@pytest.mark.parametrize(("width", "first"), [(120, "    State"), (60, "    create")])
def test_a_table_that_is_too_wide_is_a_list(output: Any, width: int, first: str) -> None:
    rows = [("create", "ETH", "0x52908400098527886E0F7030069857D2E4169EE7", "Supplier Gdansk", "line 22")]
    lines = output.Style(width, colour=False).table(("State", "Chain", "Address", "Label", "Details"), rows)
    assert lines[0].startswith(first)
    assert " ".join(lines).split()[-7:] == " ".join(rows[0]).split()
    assert all(len(line) <= width for line in lines)


def test_paragraphs_are_wrapped_and_commands_are_not(output: Any) -> None:
    text = "- One two three\n  four.\n    curl {} \\\n      -d x\n  Five.\n\nSix\nseven.\n"
    lines = output.Style(15, colour=False).paragraphs(text)
    assert lines == ["- One two three", "  four.", "    curl {} \\", "      -d x", "  Five.", "", "Six seven."]


@pytest.mark.parametrize("name", ["_INSTRUCTIONS", "_LAST"])
@pytest.mark.parametrize("width", [60, 80])
def test_the_instructions_of_the_demo_with_the_ui_fit(output: Any, name: str, width: int) -> None:
    url = "http://127.0.0.1:36365"
    text = getattr(load(DEMO / "ui.py"), name).format(airflow=url, sandbox=url, token="t" * 43, webhook="w" * 36)
    lines = output.Style(width, colour=False).paragraphs(text)
    # Commands are to be copied, so they are not wrapped: they fit into 80 columns.
    assert [line for line in lines if len(line) > (80 if line.startswith("    ") else width)] == []
    assert " ".join(lines).split() == text.split()


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_terminals(output: Any, terminal: bool, environment: dict[str, str], colour: bool) -> None:
    leader, follower = os.openpty()
    read, write = os.pipe()
    try:
        style = output.Style.of(follower if terminal else write, environment)
    finally:
        for each in (leader, follower, read, write):
            os.close(each)
    assert ("\x1b" in style.paint("text", "green")) is colour
    line = style.step(1.0, "plan", "fails: all")[0]
    assert re.sub(r"\x1b\[\d+m", "", line) == "  1.0 s  plan                  fails: all"


def test_the_width_is_that_of_the_terminal_or_of_columns(output: Any) -> None:
    read, write = os.pipe()
    try:
        assert output.Style.of(write, {}).width == 100
        assert output.Style.of(write, {"COLUMNS": "60"}).width == 60
        assert output.Style.of(write, {"COLUMNS": "500"}).width == 120
    finally:
        os.close(read)
        os.close(write)


def test_paths_outside_the_project_are_shown_whole(output: Any) -> None:
    relative_path = sys.modules["_environment"].relative_path
    assert relative_path(DEMO / "run.py") == "demo/run.py"
    assert relative_path(Path("/elsewhere/python")) == "/elsewhere/python"
