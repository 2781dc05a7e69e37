"""Parts of a plan: the first operations, in the order of the file; the rest follows in later runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.whitelist.whitelist_plans import ask, listed
from support.whitelist.whitelist_plans import plan as make

from airflow_custody.client import CustodyRequestError, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import PlanLimits, PlanRow, WhitelistPlan
from airflow_custody.client.whitelist.plans.report import (
    MAX_REPORT_BYTES,
    approval_question,
    part_to_approve,
    plan_to_json,
    plan_to_markdown,
    plan_to_text,
)

BOTH = {"prune": True, "replace": True}


def address(number: int) -> str:
    return f"0x{number:040x}"


def row(number: int, label: str = "A") -> WhitelistRequest:
    return ask(address=address(number), label=label)


def there(request_id: int, number: int, label: str = "A") -> WhitelistEnvelope:
    return listed(request_id, address=address(number), label=label)


def actions(plan: WhitelistPlan) -> list[tuple[str, str | None]]:
    return [(each.state, each.action) for each in plan.rows]


def size(plan: WhitelistPlan) -> int:
    return len(plan_to_markdown(plan).encode())


# A row to create, one to replace, one that is in effect, one more to create; and a request to delete.
ROWS = [row(1), row(2), row(3), row(4)]
SERVICE = [there(12, 2, "B"), there(13, 3), there(19, 9)]
CREATE, REPLACE, UNCHANGED, DELETE = ("create", "create"), ("replace", "create"), ("unchanged", None), "undeclared"
LATER = ("later", None)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, [CREATE, LATER, UNCHANGED, LATER, LATER]),
        (2, [CREATE, REPLACE, UNCHANGED, LATER, LATER]),
        (3, [CREATE, REPLACE, UNCHANGED, CREATE, LATER]),
        *((whole, [CREATE, REPLACE, UNCHANGED, CREATE, (DELETE, "delete")]) for whole in (4, 5, None)),
    ],
)
def test_a_part_has_the_first_operations_and_deletions_last(
    number: int | None, expected: list[tuple[str, str | None]]
) -> None:
    part = make(ROWS, SERVICE, **BOTH).first(number)
    assert actions(part) == expected
    assert part.counts["later"] == expected.count(LATER)
    assert part.has_changes
    # The hash, and the names of everything that it covers, are those of the part.
    assert len(part.operations) == min(number or 4, 4)
    assert len(part.parts) == len(part.operations) + 1


def test_a_row_for_later_says_what_will_happen() -> None:
    part = make(ROWS, SERVICE, **BOTH).first(1)
    notes = [each.note for each in part.rows if each.state == "later"]
    assert notes == [
        "to be replaced by a later run; request 12 is deleted once the new request is in effect",
        "to be created by a later run",
        "to be deleted by a later run; in effect",
    ]
    assert [each["action"] for each in plan_to_json(part)["rows"]] == ["create", None, None, None, None]


def test_the_hash_of_a_part_is_that_of_a_plan_with_only_its_operations() -> None:
    part = make(ROWS, SERVICE, **BOTH).first(1)
    assert part.plan_hash == make(ROWS[:1], []).plan_hash
    assert part.plan_hash != make(ROWS, SERVICE, **BOTH).plan_hash


def test_the_reports_of_a_part_begin_with_its_size() -> None:
    rows = [row(number) for number in range(3_000)]
    part = make(rows, []).first(500)
    line = "500 of 3,000 operations; the rest follows in the next run."
    assert plan_to_markdown(part).startswith(f"**{line}**\n\n## Whitelist plan")
    assert plan_to_text(part).startswith(f"{line}\nPlan: 500 to create, 2,500 later.\n")
    question = "Apply the whitelist plan: create 500, delete 0? 2,500 operations are left for the next run."
    assert approval_question(part) == question
    assert approval_question(make(rows[:2], []).first(1)).endswith("? 1 operation is left for the next run.")
    assert "next run" not in plan_to_markdown(part.first(500)).replace(line, "")
    assert "next run" not in plan_to_text(make(rows[:2], [])) + approval_question(make(rows[:2], []))


def test_rows_that_need_a_decision_come_before_those_of_a_later_run() -> None:
    rows = [row(number) for number in range(200)]
    pending = listed(998, address=address(1), label="A", wire={"status": "PENDING"})
    part = make(rows, [there(999, 0, "B"), pending], pending=["998"]).first(10)
    others = plan_to_markdown(part).partition("Rows that this plan does not change:")[2]
    assert [others.index(f"**{state}**") for state in ("differs", "pending", "later")] == sorted(
        others.index(f"**{state}**") for state in ("differs", "pending", "later")
    )
    assert "And 90 more" in others


def test_limits_are_about_the_whole_plan() -> None:
    plan = make([row(1), row(2), row(3)], [])
    assert PlanLimits(max_creates=2).faults(plan)
    assert not PlanLimits(max_creates=2).faults(plan.first(2))


# --- what one approval can show -----------------------------------------------------------------------------


@pytest.mark.parametrize("at_most", [None, 2_000, 640, 500])
def test_a_part_to_approve_is_as_large_as_its_report_allows(at_most: int | None) -> None:
    plan = make([row(number, f"Supplier {number}") for number in range(3_000)], [])
    part = part_to_approve(plan, at_most)
    number = len(part.operations)
    assert size(part) <= MAX_REPORT_BYTES
    assert number == at_most if at_most == 500 else 500 < number <= (at_most or number)
    assert part.plan_hash in plan_to_markdown(part)
    # With one more operation, the report would be too long.
    assert at_most in (500, 640) or size(plan.first(number + 1)) > MAX_REPORT_BYTES


def test_a_plan_that_fits_is_whole() -> None:
    plan = make(ROWS, SERVICE, **BOTH)
    assert part_to_approve(plan) is plan
    assert part_to_approve(plan, 4) is plan
    empty = make([], [])
    assert part_to_approve(empty, 1) is empty


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([PlanRow("create", "create", row(1, "l" * 70_000), "line 3")], "the creation of line 3 alone is too long"),
        (
            [PlanRow("undeclared", "delete", row(1, "|" * 10_000), request_id="4711")],
            "the deletion of request 4711 alone is too long",
        ),
    ],
)
def test_only_a_single_operation_can_be_too_long(rows: Sequence[PlanRow], why: str) -> None:
    with pytest.raises(CustodyRequestError, match=why) as caught:
        part_to_approve(WhitelistPlan(rows))
    assert caught.value.code == "plan-over-limits"
    # After other rows, an overlong row only stops the part that begins with it.
    part = part_to_approve(WhitelistPlan([PlanRow("create", "create", row(2), "line 2"), *rows]))
    assert actions(part) == [CREATE, LATER]


# --- part by part -------------------------------------------------------------------------------------------


class Service:
    """The addresses in effect at a service: address and label, by the request's id."""

    def __init__(self, content: Sequence[tuple[int, str]]) -> None:
        self.requests = {f"{number}": each for number, each in enumerate(content, 100)}
        self.created: list[tuple[int, str]] = []
        self.deleted: list[str] = []

    def plan(self, rows: Sequence[tuple[int, str]]) -> WhitelistPlan:
        requests = [row(number, label) for number, label in rows]
        return make(requests, [there(int(key), *each) for key, each in self.requests.items()], **BOTH)

    def apply(self, plan: WhitelistPlan) -> None:
        """Create what the plan creates, and then delete what it deletes and replaces."""
        gone = [each.request_id for each in plan.with_action("delete")]
        for each in plan.with_action("create"):
            assert each.request is not None
            made = (int(each.request.address, 16), each.request.label)
            self.requests[f"{200 + len(self.created)}"] = made
            self.created.append(made)
            gone += each.others
        for request_id in gone:
            del self.requests[request_id]
        self.deleted += gone

    @property
    def content(self) -> list[tuple[int, str]]:
        return sorted(self.requests.values())


NUMBERS, LABELS = st.integers(0, 6), st.sampled_from(["A", "B", "C"])
CONTENT = st.lists(st.tuples(NUMBERS, LABELS), max_size=7)


@given(
    st.lists(st.tuples(NUMBERS, LABELS), min_size=1, max_size=7, unique_by=lambda each: each[0]),
    CONTENT,
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_all_parts_together_do_what_the_whole_plan_does(
    rows: list[tuple[int, str]], content: list[tuple[int, str]], sizes: list[int]
) -> None:
    at_once, in_parts = Service(content), Service(content)
    at_once.apply(at_once.plan(rows))
    # A replacement may leave duplicates, which the next plan deletes.
    at_once.apply(at_once.plan(rows))
    shown: list[str] = []
    for number in range(60):
        whole = in_parts.plan(rows)
        part = whole.first(sizes[number % len(sizes)])
        if not part.operations:
            break
        creates = whole.with_action("create")
        # The order of the file decides, and nothing is deleted while a creation is left.
        assert part.with_action("create") == creates[: len(part.operations)]
        assert not part.with_action("delete") or part.with_action("create") == creates
        shown += [json.dumps(each) for each in part.operations]
        in_parts.apply(part)
    assert in_parts.plan(rows).operations == ()
    assert in_parts.content == at_once.content
    assert sorted(in_parts.created) == sorted(at_once.created)
    assert len({*in_parts.created}) == len(in_parts.created)
    assert len({*shown}) == len(shown)
