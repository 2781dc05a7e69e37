"""Texts about the difference between a plan and the approved plan."""

from __future__ import annotations

from typing import Any

import pytest
from support.whitelist.whitelist_plans import ADDRESS, OTHER, PENDING, ask, listed, plan, unreadable

from airflow_custody.client.whitelist.plans.difference import describe_difference, lost_creations
from airflow_custody.client.whitelist.plans.plan import WhitelistPlan, check_only

ONE, TWO = ask(), ask(address=OTHER, label="Supplier")
PRUNE = {"prune": True}


def planned(requests: Any = ONE, envelopes: Any = (), **options: Any) -> WhitelistPlan:
    return plan(requests, envelopes, **options)


@pytest.mark.parametrize(
    ("approved", "now", "text"),
    [
        (planned(), planned([ONE, TWO]), "Approved: create 1, delete 0. Now: create 2, delete 0. new: create line 3"),
        (planned(), planned(ask(label="Other")), "Now: create 1, delete 0. changed: create line 2"),
        (planned(), planned(ONE, listed(wire=PENDING)), "no longer planned: create line 2 (now pending)"),
        (
            planned(),
            planned(ONE, listed(3712, address=OTHER), **PRUNE),
            "Now: create 1, delete 1. new: delete request 3712",
        ),
        (
            planned(ONE, listed(3712, address=OTHER, wire=PENDING), **PRUNE),
            planned(TWO, listed(3713, address=ADDRESS[:-1] + "1"), **PRUNE),
            "new: delete request 3713; changed: create line 2; no longer planned: delete request 3712",
        ),
        (planned(service="one"), planned(service="two"), "changed: the service or its tenant"),
        (
            planned(ONE, unreadable(None)),
            planned(ONE, unreadable(None), ignore=["3799"]),
            "new: create line 2, ignored request 3799",
        ),
        (planned(), planned(only=check_only({"blockchain": "ETH"})), "new: the limits 'only'"),
        (planned(), planned([TWO, ONE]), "new: create line 2"),
    ],
    ids=[
        "a new row",
        "another label",
        "requested meanwhile",
        "a deletion",
        "creations first",
        "service",
        "ignore",
        "only",
        "a moved row is the same",
    ],
)
def test_each_difference_is_named(approved: WhitelistPlan, now: WhitelistPlan, text: str) -> None:
    assert approved.plan_hash != now.plan_hash
    assert describe_difference(approved.parts, now).endswith(text)


def test_the_names_are_bounded_and_on_one_line() -> None:
    many = planned([ask(address=f"0x{each:040x}", label=f"Label {each}") for each in range(100)])
    hostile = {f"{each}": f"create line {each}\n\x1b[31m{'x' * 500}" for each in range(1000)}
    text = describe_difference(hostile, many)
    assert text.isprintable()
    assert len(text) < 2500
    assert len(lost_creations(hostile, ["0"])) < 1000
