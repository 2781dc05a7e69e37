"""What a plan's hash covers, and the limits of a plan."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.whitelist.whitelist_plans import ADDRESS, OTHER, PENDING, ask, listed, plan

from airflow_custody.client.whitelist.plans.plan import PlanLimits, PlanRow, RowState, WhitelistPlan

# --- the hash ----------------------------------------------------------------------------------------------


def test_the_hash_covers_what_is_done_and_where() -> None:
    requests = [ask(address=f"0x{number:040x}", linked_wallet_ids=["2", "1"]) for number in range(20)]
    extra = listed(5, address=OTHER)
    options: dict[str, Any] = {"service": "https://one.example.com", "prune": True}
    found = plan(requests, extra, **options)
    shuffled = random.Random(1).sample(requests, len(requests))
    swapped = [each.model_copy(update={"linked_wallet_ids": ["1", "2"]}) for each in shuffled]
    same = [
        plan(swapped, extra, **options, name="other.yaml"),
        # Facts that are only observed, and not covered by the hash.
        plan([*requests, ask()], [extra, listed()], **options),
        plan([*requests, ask(label="x")], [extra, listed()], **options),
        plan(requests, [listed(5, address=OTHER, wire={"trails": []})], **options),
    ]
    assert {each.plan_hash for each in same} == {found.plan_hash}
    other = [
        plan(requests[1:], extra, **options),
        plan([*requests, ask()], extra, **options),
        plan([requests[0].model_copy(update={"label": "x"}), *requests[1:]], extra, **options),
        plan([requests[0].model_copy(update={"memo": "1"}), *requests[1:]], extra, **options),
        plan(requests, extra, service="https://two.example.com", prune=True),
        plan(requests, extra, service="https://one.example.com"),
        # Another operation, and the same operation with other content.
        plan(requests, listed(6, address=OTHER), **options),
        plan(requests, listed(5, address=OTHER, label="x"), **options),
        # Deleting a pending request and deleting a request in effect are different operations.
        plan(requests, listed(5, address=OTHER, wire=PENDING), **options),
    ]
    assert len({found.plan_hash, *(each.plan_hash for each in other)}) == len(other) + 1
    assert len(found.plan_hash) == 64


# --- limits ------------------------------------------------------------------------------------------------


AT_SERVICE = "requests at the service, but max_delete_percent is 30"
NOT_THERE = "but the file does not have it"


@pytest.mark.parametrize(
    ("limits", "creates", "deletes", "unchanged", "fault"),
    [
        ({}, 100, 10, 100, ""),
        ({}, 101, 0, 0, "it creates 101 requests, but max_creates is 100"),
        ({"max_creates": None}, 10_000, 0, 0, ""),
        ({"max_creates": 0}, 1, 0, 0, "it creates 1 request, but max_creates is 0"),
        ({}, 0, 11, 100, "it deletes 11 requests, but max_deletes is 10"),
        ({"max_deletes": None}, 0, 30, 70, ""),
        ({"max_deletes": None}, 0, 31, 69, f"it deletes 31 of the 100 {AT_SERVICE}"),
        ({}, 0, 9, 0, ""),
        ({}, 0, 10, 0, f"it deletes 10 of the 10 {AT_SERVICE}"),
        ({"max_deletes": None, "max_delete_percent": None}, 0, 100, 0, ""),
        ({"must_keep": ["Treasury", ADDRESS]}, 1, 0, 0, ""),
        ({"must_keep": ADDRESS}, 0, 0, 1, ""),
        # must_keep compares addresses in the same way as the plan.
        ({"must_keep": [ADDRESS.upper(), ADDRESS.removeprefix("0x")]}, 1, 0, 0, ""),
        ({"must_keep": ["treasury"]}, 1, 0, 0, f"must_keep requires 'treasury', {NOT_THERE}"),
        ({"must_keep": [OTHER]}, 1, 0, 0, f"must_keep requires '{OTHER}', {NOT_THERE}"),
        # This address is at the service, but not in the file.
        ({"must_keep": ["Treasury"]}, 0, 1, 0, f"must_keep requires 'Treasury', {NOT_THERE}"),
    ],
)
def test_limits(limits: dict[str, Any], creates: int, deletes: int, unchanged: int, fault: str) -> None:
    rows = [PlanRow("create", "create", ask(), where="line 2")] * creates
    rows += [PlanRow("unchanged", None, ask(), where="line 3", request_id="1")] * unchanged
    rows += [PlanRow("undeclared", "delete", ask(), request_id="2")] * deletes
    faults = PlanLimits(**limits).faults(WhitelistPlan(rows))
    assert len(faults) == bool(fault)
    assert "".join(faults).startswith(fault)


@pytest.mark.parametrize(
    ("state", "only", "counts"),
    [
        ("unchanged", {}, True),
        ("unreadable", {}, True),
        ("unreadable", {"blockchain": ["ETH"]}, False),
        ("unverified", {}, False),
        ("unverified", {"blockchain": ["ETH"]}, False),
    ],
    ids=["in effect", "unreadable", "unreadable, in a scope", "unverified", "unverified, in a scope"],
)
def test_forged_and_foreign_requests_do_not_raise_the_limit_of_deletions(
    state: RowState, only: dict[str, list[str]], counts: bool
) -> None:
    rows = [PlanRow("undeclared", "delete", ask(), request_id="2")] * 10
    rows += [PlanRow(state, None, None, request_id="3")] * 30
    faults = PlanLimits().faults(WhitelistPlan(rows, only=only))
    assert faults == (() if counts else ("it deletes 10 of the 10 " + AT_SERVICE,))
