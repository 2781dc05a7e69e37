from __future__ import annotations

import json
import re

import pytest
from cli_runs import Run

from airflow_custody.sandbox import Sandbox


def test_healthy_is_0_and_unhealthy_is_2(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("health")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("the service is healthy: 9 of 9 checks are healthy\n")
    sandbox.control.update_health(status="failed\x1b[2J", group="hsm")
    ran = custody("health")
    assert (ran.code, ran.err) == (2, "")
    assert "NOT HEALTHY: hsm / " in ran.out
    assert "\x1b" not in ran.out


def test_a_service_that_cannot_be_asked_is_1(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=503, method="GET", path="/health")
    ran = custody("health", "-o", "json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("custody: list health checks failed: ")


def test_what_a_gate_can_name_is_listed(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("health", "--group", "blockchain")
    header, row, *_ = ran.out.splitlines()
    assert header.split() == ["GROUP", "COMPONENT", "CHECK", "STATUS", "RESULTS"]
    assert row.split()[:6] == ["blockchain", "chain-gateway", "nodes", "success", "BTC", "success,"]
    listed = json.loads(custody("health", "-o", "json").out)["listed"]
    criteria = {name: {each[name] for each in listed} for name in ("group", "component", "check")}
    results = {key for each in listed for key in each["results"]}
    assert len(listed) == 9 - 1
    # Each of them can be asked for.
    asked = [f"--{name}={each}" for name, names in criteria.items() for each in names]
    assert custody("health", *asked, *(f"--require-results={key}" for key in results)).code == 0
    sandbox.control.update_health(check="synchronisation", report={"status": "success", "results": {"ADA": "failure"}})
    ran = custody("health")
    assert re.search(r"^blockchain +chain-gateway +synchronisation +success +ADA failure$", ran.out, re.MULTILINE)


def test_a_name_that_does_not_exist_is_said_once_with_its_option(custody: Run) -> None:
    ran = custody("health", "--group", "hms")
    assert (ran.out + ran.err).count("no group named") == 1
    assert "the groups are 'blockchain', 'database', 'hsm'. Correct --group: names are compared exactly." in ran.err
    # To choose from.
    assert {"blockchain", "database", "hsm"} == {line.split()[0] for line in ran.out.splitlines()[1:-1]}


def test_data_for_programs(custody: Run) -> None:
    data = json.loads(custody("health", "--output", "json").out)
    assert (data["healthy"], data["total"], data["groups"]["hsm"]) == (True, 9, {"total": 3, "unhealthy": 0})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--group", "hsm", "--group", "database"], 0),
        (["--group", "nothing"], 1),
        (["--component", "nothing"], 1),
        (["--check", "nothing"], 1),
        (["--require-results", "nothing"], 1),
        (["--healthy-status", "fine"], 2),
        (["--healthy-status", "fine", "--healthy-status", "SUCCESS"], 0),
        (["--no-require-fresh"], 0),
        (["--tenant-id", "1"], 0),
        (["--tenant-id", "99"], 2),
    ],
)
def test_criteria(custody: Run, options: list[str], code: int) -> None:
    ran = custody("health", *options)
    assert ran.code == code
    assert ran.err.endswith("names are compared exactly. [custody/parameter-wrong]\n" if code == 1 else "")
    assert bool(ran.err) is (code == 1)


def test_a_result_that_has_expired(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.update_health(group="hsm", validUntilDate="2020-01-01T00:00:00Z")
    assert custody("health").code == 2
    assert custody("health", "--no-require-fresh").code == 0
