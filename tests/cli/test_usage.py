"""Usage: names, exit codes, help. What is documented is what happens."""

from __future__ import annotations

import io
import re
import sys
from contextlib import redirect_stderr
from dataclasses import fields
from pathlib import Path

import pytest
from cli_runs import Run, all_commands, options_of
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.cli import main as cli
from airflow_custody.cli.connection import SETTINGS
from airflow_custody.cli.whitelist import LIMITS
from airflow_custody.client import ClientSettings
from airflow_custody.client.health.verdict import HealthCriteria
from airflow_custody.client.verification.trust import REJECTED_STATUSES
from airflow_custody.client.whitelist.plan import PlanLimits

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).parents[2]


COMMANDS = all_commands()


def test_the_console_script_is_this_one() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["custody"].partition(":")
    assert (module, getattr(sys.modules[module], name)) == (cli.__name__, cli.main)


def test_all_commands_are_there() -> None:
    assert sorted(COMMANDS) == [
        "check",
        "examples",
        "health",
        "status",
        "webhooks list",
        "whitelist delete",
        "whitelist dump",
        "whitelist plan",
        "whitelist schema",
        "whitelist show",
        "whitelist validate",
        "whitelist verify",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_what_it_does_and_its_exit_codes(plain: Run, name: str) -> None:
    ran = plain(*name.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Exit codes: 0 " in ran.out
    assert ("JSON: " in ran.out) is ("--output" in options_of(COMMANDS[name]))
    assert ("CUSTODY_TOKEN" in ran.out) is ("--base-url" in ran.out)


def test_help_has_examples_that_can_be_run_as_far_as_their_usage_goes(plain: Run) -> None:
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
        "nothing",
        "whitelist",
        "whitelist nothing",
        "whitelist plan",
        "whitelist plan one.yaml two.yaml",
        "whitelist plan file.yaml --max-creates many",
        "whitelist plan file.yaml --max-creates -1",
        "whitelist plan file.yaml --max-create-percent nan",
        "whitelist validate",
        "whitelist show",
        "whitelist schema --output json",
        "whitelist verify 3711",
        "whitelist verify --id",
        "health --output foo",
        "health --outp json",
        "health --output",
        "health --unknown",
        "check --conn x",
        "check --output markdown",
        "webhooks list --prune",
        "--unknown check",
    ],
)
def test_wrong_usage_is_an_error_and_never_a_change(plain: Run, arguments: str) -> None:
    ran = plain(*arguments.split())
    assert (ran.code, ran.out) == (1, "")
    assert re.fullmatch(r"custody: .+ \[custody/parameter-wrong\]\nsee custody.* --help\n", ran.err)


@pytest.mark.parametrize("option", ["--conn-id", "--base-url", "--timeout", "--verify", "--group"])
def test_what_an_unset_variable_of_a_shell_leaves_is_refused(plain: Run, option: str) -> None:
    ran = plain("health", option, "")
    assert ran.code == 1
    assert "is empty" in ran.err


@pytest.mark.parametrize("arguments", [["--token", "s3cret-token"], ["--token=s3cret-token"], ["s3cret-token"]])
def test_a_secret_in_an_argument_is_refused_and_not_shown(plain: Run, arguments: list[str]) -> None:
    ran = plain("health", *arguments)
    assert ran.code == 1
    assert "s3cret" not in ran.out + ran.err
    assert ("CUSTODY_TOKEN" in ran.err) is arguments[0].startswith("--")


WORDS = st.sampled_from(
    [
        *" ".join(COMMANDS).split(),
        "file",
        "-o",
        "json",
        "--output=foo",
        "--prune",
        "--max-deletes",
        "1",
        "--",
    ]
)


@given(st.lists(WORDS, max_size=6))
def test_no_usage_whatever_exits_with_2(words: list[str]) -> None:
    parser = cli.make_parser()
    code: object = None
    with redirect_stderr(io.StringIO()) as printed:
        try:
            parser.parse_args(words)
        except SystemExit as ended:
            code = ended.code
    assert code in (None, 1)
    assert ("custody: " in printed.getvalue()) is (code == 1)


# --- what is said in one place ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, each in COMMANDS.items() if "base_url" in options_of(each)])
def test_each_setting_of_a_client_is_an_option(name: str) -> None:
    own = {"base_url", "user_agent", "source"}
    assert {each.name for each in fields(ClientSettings)} - own == set(SETTINGS)
    assert {*SETTINGS, "base_url", "conn_id", "token_stdin"} <= options_of(COMMANDS[name])


def test_each_criterion_of_health_is_an_option() -> None:
    assert {each.name for each in fields(HealthCriteria)} <= options_of(COMMANDS["health"])


def test_each_limit_of_a_plan_is_an_option() -> None:
    assert (
        {each.name for each in fields(PlanLimits)} == {*LIMITS, "must_keep"} <= options_of(COMMANDS["whitelist plan"])
    )


def test_the_words_of_rejected_requests_are_those_that_count(plain: Run) -> None:
    for command in ("verify", "plan", "dump"):
        text = " ".join(plain("whitelist", command, "--help").out.split())
        assert f"Default: {', '.join(REJECTED_STATUSES[:-1])} and {REJECTED_STATUSES[-1]}" in text


def test_a_file_that_is_not_there_is_named_once_and_has_a_code(custody: Run, plain: Run) -> None:
    ran = custody("whitelist", "plan", "/nope.yaml")
    assert ran.err.splitlines() == [
        "custody: /nope.yaml: there is no such file",
        "custody: /nope.yaml: 1 fault; the service was not asked [custody/file-wrong]",
    ]
    ran = plain("whitelist", "validate", "/nope.yaml")
    assert ran.err.splitlines()[-1].endswith("1 fault [custody/file-wrong]")
