"""Usage: names, exit codes, help. What is documented is what happens."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli_runs import Run, all_commands, options_of

from airflow_custody.cli import main as cli
from airflow_custody.cli.connection import SETTINGS
from airflow_custody.cli.whitelist import LIMITS
from airflow_custody.client import ClientSettings
from airflow_custody.client.health.verdict import HealthCriteria
from airflow_custody.client.whitelist.plans.plan import PlanLimits
from airflow_custody.sandbox import Sandbox

COMMANDS = all_commands()
WHITELIST = ("delete", "dump", "plan", "schema", "show", "validate", "verify")


def test_all_commands_are_there() -> None:
    names = ["check", "examples", "health", "status", "webhooks list", *(f"whitelist {each}" for each in WHITELIST)]
    assert sorted(COMMANDS) == names


@pytest.mark.parametrize("name", COMMANDS)
def test_full_help_has_exit_codes_and_json(plain: Run, name: str) -> None:
    ran = plain(*name.split(), "--help-all")
    assert ran.code == 0
    assert ran.err == ""
    assert "Exit codes: 0 " in ran.out
    assert ("JSON: " in ran.out) is ("--output" in options_of(COMMANDS[name]))
    assert ("CUSTODY_TOKEN" in ran.out) is ("--base-url" in ran.out)


def test_examples_in_help_are_correct_usage(plain: Run) -> None:
    ran = plain("--help")
    assert ran.code == 0
    assert re.search(r"^ +0 +nothing to do.*^ +2 .*^ +1 +error", ran.out, re.MULTILINE | re.DOTALL)
    examples = re.findall(r"custody ((?:check|health|whitelist).*?)(?:  |>|$)", ran.out, re.MULTILINE)
    assert len(examples) == 6
    for example in examples:
        assert cli.make_parser().parse_args(example.split()).custody_run


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "whitelist",
        "whitelist nothing",
        "whitelist plan",
        "whitelist plan file.yaml --max-creates many",
        "whitelist plan file.yaml --max-delete-percent nan",
        "whitelist schema --output json",
        "health --outp json",
        "check --output markdown",
        "--unknown check",
    ],
)
def test_wrong_usage_exits_with_1(plain: Run, arguments: str) -> None:
    ran = plain(*arguments.split())
    assert ran.code == 1
    assert ran.out == ""
    assert re.fullmatch(r"custody: .+ \[custody/parameter-wrong\]\nsee custody.* --help\n", ran.err)


@pytest.mark.parametrize("option", ["--conn-id", "--base-url", "--timeout", "--verify", "--group"])
def test_an_empty_value_is_rejected(plain: Run, option: str) -> None:
    ran = plain("health", option, "")
    assert ran.code == 1
    assert "is empty" in ran.err


@pytest.mark.parametrize(
    "arguments",
    ["--token s3cret-token status", "s3cret-token", "whitelist s3cret-token", "status -ps3cret-token"],
    ids=["before the command", "as the command", "as a command of a group", "attached to a short option"],
)
def test_a_secret_in_place_of_a_command_is_not_shown(custody: Run, arguments: str) -> None:
    ran = custody(*arguments.split())
    assert ran.code == 1
    assert "s3cret" not in ran.out + ran.err
    assert "unknown " in ran.err


@pytest.mark.parametrize("arguments", [["--token", "s3cret-token"], ["--token=s3cret-token"], ["s3cret-token"]])
def test_a_secret_in_an_argument_is_rejected_and_not_shown(plain: Run, arguments: list[str]) -> None:
    ran = plain("health", *arguments)
    assert ran.code == 1
    assert "s3cret" not in ran.out + ran.err
    assert ("CUSTODY_TOKEN" in ran.err) is arguments[0].startswith("--")


MORE = ["file", "-o", "json", "--output=foo", "--prune", "--max-deletes", "1", "--"]


@given(st.lists(st.sampled_from([*" ".join(COMMANDS).split(), *MORE]), max_size=6))
def test_no_usage_exits_with_2(words: list[str]) -> None:
    code: object = None
    with redirect_stderr(io.StringIO()) as printed:
        try:
            cli.make_parser().parse_args(words)
        except SystemExit as ended:
            code = ended.code
    assert code in (None, 1)
    assert ("custody: " in printed.getvalue()) is (code == 1)


def test_each_setting_criterion_and_limit_is_an_option() -> None:
    own = {"base_url", "user_agent", "source"}
    assert {each.name for each in fields(ClientSettings)} - own == set(SETTINGS)
    for parser in COMMANDS.values():
        if "base_url" in options_of(parser):
            assert {*SETTINGS, "conn_id", "token_stdin"} <= options_of(parser)
    assert {each.name for each in fields(HealthCriteria)} <= options_of(COMMANDS["health"])
    assert {each.name for each in fields(PlanLimits)} == {*LIMITS, "must_keep"}
    assert {*LIMITS, "must_keep"} <= options_of(COMMANDS["whitelist plan"])


# --- webhooks ------------------------------------------------------------------------------------------------


def test_webhooks_are_listed(custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = custody("webhooks", "list")
    assert ran.code == 0
    assert ran.out == "none\n"
    sandbox.control.add_webhook(url="https://hooks.example.test/custody?key=s3cret")
    ran = custody("webhooks", "list")
    assert ran.code == 0
    assert "https://hooks.example.test/***" in ran.out
    assert "s3cret" not in ran.out
    (row,) = custody("webhooks", "list", "-o", "json").data
    assert list(row) == ["id", "type", "status", "url", "timeout_until", "created_at", "updated_at"]
    for role, code in (("TPUser", 1), ("AdminReadOnly", 0)):
        monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token([role]))
        ran = custody("webhooks", "list")
        assert ran.code == code
        assert ("needs one of the roles admin, adminreadonly" in ran.err) is bool(code)
