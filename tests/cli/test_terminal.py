"""What fits a terminal: tables, lines and help at 80 and 120 columns, with states in colour."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable
from threading import Thread

import pytest
from support.cli_runs import Create, all_commands

from airflow_custody.cli.main import main
from airflow_custody.sandbox import Sandbox

#: A screen of help. Longer pages name the one that has the rest.
MAX_ROWS = 50
COLOUR = re.compile("\x1b\\[[0-9;]*m")
OnTerminal = Callable[..., list[str]]


@pytest.fixture(params=[80, 120])
def columns(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def on_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """Return a function that runs a command on a pseudo-terminal, and returns the lines that it prints."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def run(*arguments: str) -> list[str]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        printed = bytearray()
        reader = Thread(target=_read_all, args=(master, printed))
        reader.start()
        with open(slave, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "__stdout__", stream)
            main(arguments)
        reader.join()
        os.close(master)
        return printed.decode().replace("\r\n", "\n").splitlines()

    return run


def _read_all(master: int, printed: bytearray) -> None:
    try:
        while data := os.read(master, 4096):
            printed += data
    except OSError:
        # Linux reports an error when the other end of a terminal was closed.
        return


@pytest.fixture
def busy(sandbox: Sandbox, create: Create, signed: Create, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fill the service with requests, webhooks and a failed check, and return the id of a pending request."""
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.token)
    signed(1, label="Treasury of an example with a name that takes some room")
    create(2)
    sandbox.control.update_health(status="failure", group="hsm")
    sandbox.control.add_webhook(url="https://hooks.example.test/custody?key=s3cret")
    return create(3, status="pending", label="A second name that takes some room")


@pytest.mark.parametrize(
    "command",
    ["check", "check --assumptions", "status", "health", "webhooks list", "whitelist show ID", "whitelist verify"],
)
def test_each_command_fits_the_terminal(
    on_terminal: OnTerminal, columns: int, busy: str, sandbox: Sandbox, pins: list[str], command: str
) -> None:
    arguments = [busy if each == "ID" else each for each in command.split()]
    coloured = on_terminal(*arguments, *pins, "--base-url", sandbox.url, "--max-retries", "0")
    printed = [COLOUR.sub("", line) for line in coloured]
    assert printed
    assert [line for line in printed if len(line) > columns] == []
    if command in ("status", "whitelist show ID"):
        # No address is broken.
        assert any(f"0x{3:040x}" in line for line in printed)
    assert any(COLOUR.search(line) for line in coloured)


def test_examples_fit_the_terminal(on_terminal: OnTerminal, columns: int) -> None:
    printed = on_terminal("examples")
    assert max(map(len, printed)) <= columns


@pytest.mark.parametrize("columns", [80], indirect=True)
def test_states_are_coloured_good_ones_and_failures_of_the_service_too(
    on_terminal: OnTerminal, busy: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["health", "--base-url", sandbox.url]
    printed = "\n".join(on_terminal(*arguments))
    assert "\x1b[32msuccess\x1b[0m" in printed
    assert "\x1b[1;31mfailure\x1b[0m" in printed
    assert "\x1b[1;31mthe service is not healthy (" in printed
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "\n".join(on_terminal(*arguments))


@pytest.mark.parametrize("command", ["", "whitelist", "webhooks", *all_commands()])
def test_help_fits_the_terminal_and_a_screen_or_names_the_rest(
    on_terminal: OnTerminal, columns: int, command: str
) -> None:
    printed = on_terminal(*command.split(), "--help")
    assert max(map(len, printed)) <= columns
    assert len(printed) <= MAX_ROWS or printed[-1] == f"See also: custody {command} --help-all"
    options = [number for number, line in enumerate(printed) if line.startswith("connection:")]
    if "--base-url" in "\n".join(printed) and command:
        # The options of the connection come last.
        assert not any(line.endswith("options:") for line in printed[options[0] :])


def test_help_follows_columns(on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, on_terminal("check", "--help-all"))) <= 60
