"""Where commands print, and how they end if something goes wrong: Ctrl-C, a reader that closes its end, a crash."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli_runs import Create, Run

from airflow_custody.cli.output import Output, as_state, keep_clean, message
from airflow_custody.client import CustodyClient
from airflow_custody.sandbox import Sandbox

CUSTODY = [sys.executable, "-m", "airflow_custody.cli"]


def test_a_closed_pipe_does_not_change_the_exit_code(sandbox: Sandbox, create: Create, tmp_path: Path) -> None:
    create(1)
    file = tmp_path / "list.yaml"
    file.write_text("version: 1\naddresses:\n- {label: a, address: b, blockchain: BTC}\n")
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*CUSTODY, "whitelist", "plan", str(file), "--no-check-addresses", "--base-url", sandbox.url],
        env={**os.environ, "CUSTODY_TOKEN": sandbox.token},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert ended.returncode == 2
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("command", "end", "message"),
    [
        ("whitelist schema", ">&-", "standard output cannot be written: it is closed"),
        ("whitelist schema", ">/dev/full", "standard output cannot be written: No space left on device"),
        ("whitelist dump --base-url http://127.0.0.1:9 --token-stdin", "<&-", "standard input is closed or empty"),
        ("whitelist nothing", "2>&-", ""),
        ("whitelist dump --base-url http://127.0.0.1:9 --token-stdin", "<&- 2>/dev/full", ""),
    ],
    ids=["output closed", "output full", "input closed", "errors closed", "errors full"],
)
def test_streams_that_are_closed_or_full_are_an_error_without_a_traceback(command: str, end: str, message: str) -> None:
    # Writing unbuffered output fails at once, and argparse ignores the failure.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    line = f"{' '.join(CUSTODY)} {command} {end}"
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=600, check=False, env=env)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert message in ran.stderr
    assert ran.stderr.count("\n") == bool(message)


def test_ctrl_c_ends_quietly(custody: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object, *args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CustodyClient, "list_health_checks", interrupt)
    ran = custody("health")
    assert ran.code == 130
    assert ran.out == ""
    assert ran.err == ""


@pytest.mark.parametrize("is_debug", [False, True])
def test_an_unexpected_error_is_reported_by_its_type_and_quoted_only_in_debug_without_the_token(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, is_debug: bool
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError(f"not expected: {sandbox.token}\x1b[2J")

    monkeypatch.setattr(CustodyClient, "list_health_checks", fail)
    ran = custody("health", *["--debug"] * is_debug)
    assert ran.code == 1
    assert ran.out == ""
    assert "RuntimeError" in ran.err
    assert ("RuntimeError: not expected: ***" in ran.err) is ("Traceback" in ran.err) is is_debug
    assert sandbox.token not in ran.err
    assert "\x1b" not in ran.err


def test_a_message_is_one_line_without_terminal_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    message("red \x1b[31m\nand more")
    assert capsys.readouterr().err == "custody: red [31m and more\n"


def test_output_is_utf_8_in_every_locale() -> None:
    bytes_ = io.BytesIO()
    stream = io.TextIOWrapper(bytes_, encoding="ascii")
    Output("table", stream).text("Zürich")
    assert bytes_.getvalue() == "Zürich\n".encode()


def test_log_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("test_log_lines_go_to_standard_error")
    # Other tests may have left handlers at the root logger.
    log.propagate = False
    handler = logging.StreamHandler(sys.stdout)
    log.addHandler(handler)
    try:
        with keep_clean(sys.stdout):
            log.warning("one")
            print("two")
        log.warning("three")
    finally:
        log.removeHandler(handler)
    printed = capsys.readouterr()
    assert printed.out == "three\n"
    assert printed.err == "one\ntwo\n"


VIEW = [
    "WRONG: [red]a[/red] :smile:",
    {"rows": [{"id": "1", "memo": None, "label": "x" * 300 + "\x1b[2J\n"}], "no": ""},
]
PLAN = "Plan: 1 to delete.\n\n  - ETH  0xab\n      label: x\n  + ETH\n        0xcd\n  ~ ETH\n  ! ETH\n    ETH\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variable", "value", "is_coloured"), [("NO_COLOR", "", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False)]
)
def test_a_terminal_has_colours_unless_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, is_coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv(variable, value)
    terminal = Terminal()
    output = Output("table", terminal)
    output.signed(PLAN)
    output.data(None, "word " * 20)
    output.data(None, [as_state("failed", "check: ", "; try again"), as_state("a word of the service")])
    printed = terminal.getvalue()
    painted = [
        f"\x1b[{colour}m{line}\x1b[0m"
        for colour, line in (("31", "  - ETH  0xab"), ("32", "  + ETH"), ("33", "  ~ ETH"), ("1;31", "  ! ETH"))
    ]
    painted.append("check: \x1b[1;31mfailed\x1b[0m; try again")
    assert [line for line in printed.splitlines() if "\x1b" in line] == (painted if is_coloured else [])
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    assert text.startswith(PLAN)
    assert max(map(len, text.splitlines())) == 59


def test_piped_output_is_neither_coloured_nor_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    output = Output("table", stream)
    output.data({}, VIEW)
    output.signed(PLAN)
    assert stream.getvalue().removesuffix(PLAN).splitlines() == [
        "WRONG: [red]a[/red] :smile:",
        "rows:",
        "  ID  LABEL",
        "  1   " + "x" * 300 + r"\u001b[2J\u000a",
    ]
