"""Names, exit codes and help of the commands. The commands behave as documented."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from support.cli_runs import Run, all_commands, options_of

from airflow_custody.cli import main as cli
from airflow_custody.cli.connection import SETTINGS
from airflow_custody.cli.whitelist import LIMITS
from airflow_custody.client import ClientSettings
from airflow_custody.client.health.verdict import HealthCriteria
from airflow_custody.client.whitelist.plans.plan import PlanLimits
from airflow_custody.sandbox import Sandbox

COMMANDS = all_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_full_help_has_exit_codes_and_json(plain: Run, name: str) -> None:
    short, ran = (plain(*name.split(), option) for option in ("--help", "--help-all"))
    assert short.code == ran.code == 0
    assert ran.err == ""
    assert "Exit codes: 0 " in ran.out
    assert ("JSON: " in ran.out) is ("--output" in options_of(COMMANDS[name]))
    assert ("CUSTODY_TOKEN" in ran.out) is ("--base-url" in ran.out)
    assert short.out == ran.out or f"See also: custody {name} --help-all" in short.out


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


@pytest.mark.parametrize("option", ["--conn-id", "--group"])
def test_an_empty_value_is_rejected(plain: Run, option: str) -> None:
    ran = plain("health", option, "")
    assert ran.code == 1
    assert "is empty" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        "--token s3cret-token status",
        "s3cret-token",
        "whitelist s3cret-token",
        "status -ps3cret-token",
        "status --token=s3cret-token",
        "status s3cret-token",
    ],
)
def test_a_secret_in_an_argument_is_rejected_and_not_shown(plain: Run, arguments: str) -> None:
    ran = plain(*arguments.split())
    assert ran.code == 1
    assert ran.out == ""
    assert "s3cret" not in ran.err
    assert ("CUSTODY_TOKEN" in ran.err) is arguments.startswith("status --token")


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


def test_webhooks_are_listed(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("webhooks", "list")
    assert ran.code == 0
    assert ran.out == "none\n"
    sandbox.control.add_webhook(url="https://hooks.example.test/custody?key=s3cret")
    assert "https://hooks.example.test/***" in custody("webhooks", "list").out
    ran = custody("webhooks", "list", "-o", "json")
    (row,) = ran.data
    assert list(row) == ["id", "type", "status", "url", "timeout_until", "created_at", "updated_at"]
    assert "s3cret" not in ran.out
