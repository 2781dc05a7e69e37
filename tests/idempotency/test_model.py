"""
A model of planning and applying: files change, the service drifts, responses are lost, tasks are killed and cleared.

Whatever happens in whatever order, nothing is created twice, nothing is deleted that the approved plan did not show,
what is in effect for a row stays so, and a last plan finds nothing to do. ``make model`` runs more sequences, and
prints what happened in them; ``KEPT`` are those that found a mistake once it was made on purpose.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from support.airflow.apply_tries import ApplyTask, address, complete, plan
from support.airflow.task_tries import CREATE, RowsStore, needs_store, somebody_creates

from airflow_custody.client import CustodyError
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db", "waits"), needs_store]

NUMBERS, LABELS, PARALLEL = st.integers(1, 3), st.sampled_from(["A", "B"]), st.sampled_from([1, 4])
DELETE = {"method": "POST", "path": "/whitelists/addresses/delete"}
#: What may happen to a call that changes something: lost before and after the work, refused by a gateway, failed.
FAULTS = st.tuples(
    st.sampled_from([CREATE, DELETE]),
    st.sampled_from(
        [
            {"kind": "drop", "work": True},
            {"kind": "drop", "work": False},
            {"kind": "truncate_body", "keep": 5},
            {"kind": "html", "status": 502, "work": True},
            {"kind": "html", "status": 403},
            {"kind": "status", "status": 503},
            {"kind": "rate_limit", "retry_after": 1},
        ]
    ),
    st.integers(0, 2),
)
#: The maximum number of operations of a plan; the rest follows in later runs.
AT_MOST = st.none() | st.integers(1, 3)
WRITES = st.none() | st.tuples(st.integers(1, 6), st.booleans())


class Model(RuleBasedStateMachine):
    """The file, the service, and at most one task that applies; each check looks at the service itself."""

    sandbox: Sandbox
    path: Path
    happened: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.sandbox.control.reset()
        # A file without rows is refused: the first one stays.
        self.rows = {0: "A", 1: "A"}
        self.is_reversed = False
        self.task: ApplyTask | None = None
        self.shown, self.is_creating = "", False
        # The data from which a second task completes a plan: the XCom, the plan's hash, its report and rows, and the
        # store.
        self.applied: tuple[dict[str, Any], str, str, set[str], RowsStore] | None = None
        # The requests that applying has created: address and label, by id.
        self.created: dict[str, tuple[str, str]] = {}
        self.write()

    # --- the file ---

    @rule(number=NUMBERS, label=st.none() | LABELS)
    def change_a_row(self, number: int, label: str | None) -> None:
        """Add a row, change its label, or remove it."""
        self.rows.pop(number, None)
        if label is not None:
            self.rows[number] = label
        self.write()

    @rule()
    def reorder_the_file(self) -> None:
        self.is_reversed = not self.is_reversed
        self.write()

    def write(self) -> None:
        rows = sorted(self.rows.items(), reverse=self.is_reversed)
        lines = [f"  - {{label: {label}, address: '{address(each)}', blockchain: ETH}}\n" for each, label in rows]
        self.path.write_text("version: 1\naddresses:\n" + "".join(lines))

    # --- the service ---

    def there(self, *statuses: str) -> dict[str, tuple[str, str]]:
        """Return address and label of the requests with one of these statuses; by default, of all but rejected ones."""
        found = self.sandbox.control.whitelist_requests()
        return {
            each["id"]: (each["address"], each["label"])
            for each in found
            if (each["status"] in statuses if statuses else each["status"] != "rejected")
        }

    @rule(number=NUMBERS, label=LABELS)
    def somebody_creates(self, number: int, label: str) -> None:
        # If there are more than two for one destination, a user must choose.
        if sum(each[0] == address(number) for each in self.there().values()) < 2:
            somebody_creates(self.sandbox, label=label, address=address(number))

    @rule(status=st.sampled_from(["APPROVED", "rejected"]), which=st.integers(0, 9))
    def somebody_decides(self, status: str, which: int) -> None:
        """Let a pending request take effect or be rejected, as if another user had decided."""
        for each in [*self.there("pending")][which : which + 1]:
            self.sandbox.control.set_whitelist_status(each, status)

    @rule(which=st.integers(0, 9))
    def somebody_deletes(self, which: int) -> None:
        for each in [*self.there()][which : which + 1]:
            self.sandbox.control.set_whitelist_status(each, "removed")

    # --- the tasks ---

    @rule(prune=st.booleans(), replace=st.booleans(), max_parallel=PARALLEL, at_most=AT_MOST)
    def approve_a_plan(self, prune: bool, replace: bool, max_parallel: int = 1, at_most: int | None = None) -> None:
        """Start a run: plan, and approve the displayed plan."""
        arguments = {"prune": prune, "replace": replace, "at_most": at_most}
        found = plan(str(self.path), max_deletes=None, max_delete_percent=None, **arguments)
        # The part of the report after the hash is not executed by this plan, but may be executed by a later one.
        self.shown = found["report"].partition(found["plan_hash"])[0]
        self.happened["parts"] += bool(found["counts"]["later"])
        self.is_creating = bool(found["counts"]["create"] or found["counts"]["replace"])
        self.task = ApplyTask(found, RowsStore(), max_parallel=max_parallel)
        self.happened["plans"] += 1

    @rule(
        prune=st.booleans(),
        replace=st.booleans(),
        faults=st.lists(FAULTS, max_size=3),
        killed=WRITES,
        max_parallel=PARALLEL,
        at_most=AT_MOST,
    )
    def run_at_once(
        self,
        prune: bool,
        replace: bool,
        faults: list[Any],
        killed: tuple[int, bool] | None,
        max_parallel: int = 1,
        at_most: int | None = None,
    ) -> None:
        """Approve a plan, and apply it before anything else happens."""
        self.approve_a_plan(prune=prune, replace=replace, max_parallel=max_parallel, at_most=at_most)
        self.apply_it(faults=faults, killed=killed, cleared=False)

    @precondition(lambda self: self.task is not None)
    @rule(faults=st.lists(FAULTS, max_size=3), killed=WRITES, cleared=st.booleans())
    def apply_it(self, faults: list[Any], killed: tuple[int, bool] | None, cleared: bool) -> None:
        """Run a try of the task: its first one, a retry, after it was cleared, or once more."""
        task = self.task
        assert task is not None
        assert task.store is not None
        if cleared:
            task.clear()
        for operation, fault, skip in faults:
            self.sandbox.control.add_fault(**operation, **fault, skip=skip, times=1)
        task.store.writes, (task.store.dies_at, task.store.dies_before) = 0, killed or (None, True)
        before, effective = self.there(), {each[0] for each in self.there("APPROVED").values()}
        self.sandbox.control.clear_request_log()
        try:
            result = task.attempt()
            if result["completion"] is not None:
                addresses = {address(each) for each in self.rows}
                self.applied = result, task.arguments["plan_hash"], self.shown, addresses, RowsStore()
        except (CustodyError, CustodyFailException) as caught:
            error: Any = getattr(caught, "error", caught)
            self.happened[f"ends with {error.code}"] += 1
            if error.code == "plan-changed":
                assert not self.sandbox.control.request_log("POST"), "sent, although the plan has changed"
        except RuntimeError as error:
            assert str(error) == "killed"  # noqa: PT017
            self.happened["kills"] += 1
        finally:
            self.sandbox.control.clear_faults()
            task.store.dies_at = None
        assert not self.is_creating or before.keys() <= self.there().keys(), "deleted by a task that creates"
        self.check(before, effective, self.shown, {address(each) for each in self.rows})

    @precondition(lambda self: self.applied is not None)
    @rule(faults=st.lists(FAULTS, max_size=3), killed=WRITES)
    def complete_it(self, faults: list[Any], killed: tuple[int, bool] | None) -> None:
        """Run a try of the task that completes the plan: its first one, a retry, or once more."""
        assert self.applied is not None
        result, plan_hash, shown, declared, store = self.applied
        for operation, fault, skip in faults:
            self.sandbox.control.add_fault(**operation, **fault, skip=skip, times=1)
        store.writes, (store.dies_at, store.dies_before) = 0, killed or (None, True)
        before, effective = self.there(), {each[0] for each in self.there("APPROVED").values()}
        try:
            complete(result, plan_hash, store)
        except (CustodyError, CustodyFailException) as caught:
            error: Any = getattr(caught, "error", caught)
            self.happened[f"completing ends with {error.code}"] += 1
        except RuntimeError as error:
            assert str(error) == "killed"  # noqa: PT017
            self.happened["kills"] += 1
        finally:
            self.sandbox.control.clear_faults()
            store.dies_at = None
        after = self.there()
        assert after.keys() <= before.keys(), "created by a task that deletes"
        is_in_effect = {*result["request_ids"]} <= self.there("APPROVED").keys()
        assert is_in_effect or after == before, "deleted before what was created is in effect"
        self.check(before, effective, shown, declared)

    def check(self, before: dict[str, tuple[str, str]], effective: set[str], shown: str, declared: set[str]) -> None:
        after = self.there()
        new = {each: after[each] for each in after.keys() - before.keys()}
        self.created |= new
        mine = Counter(each for request_id, each in self.created.items() if request_id in after)
        assert all(number == 1 for number in mine.values()), f"created twice: {mine}"
        gone = before.keys() - after.keys()
        assert all(each in shown for each in gone), f"deleted, and not shown: {gone}"
        assert all(each in shown for each, _ in new.values()), f"created, and not shown: {new}"
        still = {each[0] for each in self.there("APPROVED").values()}
        assert not (effective & declared) - still, "what was in effect for a row is gone"
        self.happened.update(creates=len(new), deletions=len(gone), tries=1)

    def teardown(self) -> None:
        """Let people act as each day, until nothing is left to do."""
        self.happened["sequences"] += 1
        for each in self.there("rejected"):
            self.sandbox.control.set_whitelist_status(each, "removed")
        for _ in range(3):
            self.approve_a_plan(prune=True, replace=True)
            self.apply_it(faults=[], killed=None, cleared=False)
            for each in self.there("pending"):
                self.sandbox.control.set_whitelist_status(each, "APPROVED")
            if self.applied is not None:
                self.complete_it(faults=[], killed=None)
        counts = plan(str(self.path), prune=True, replace=True, max_deletes=None, max_delete_percent=None)["counts"]
        left = {state: number for state, number in counts.items() if number and state != "unchanged"}
        # Two indistinguishable requests may be one request under two ids, so both are kept.
        twins = Counter(self.there().values())
        assert left.pop("duplicate", 0) == sum(number - 1 for number in twins.values()), (left, twins)
        assert not left
        assert counts["unchanged"] == len(self.rows)


@pytest.fixture
def model(sandbox: Sandbox, tmp_path: Path) -> type[Model]:
    class Here(Model):
        """The model, at this test's sandbox."""

    Here.sandbox, Here.path, Here.happened = sandbox, tmp_path / "whitelist.yaml", Counter()
    return Here


LOST = (CREATE, {"kind": "drop", "work": True}, 0)
NOT_DELETED = (DELETE, {"kind": "html", "status": 403}, 0)
REFUSED = (CREATE, {"kind": "html", "status": 403}, 0)
ONCE: dict[str, Any] = {"prune": False, "replace": False, "faults": [], "killed": None}
AGAIN: dict[str, Any] = {"faults": [], "killed": None, "cleared": False}
KEPT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "lost": [("run_at_once", ONCE | {"faults": [LOST]}), ("apply_it", AGAIN | {"cleared": True})],
    "lost, killed while it is looked for, and the file has one row more": [
        ("run_at_once", ONCE | {"faults": [LOST], "killed": (3, True)}),
        ("change_a_row", {"number": 2, "label": "A"}),
        ("apply_it", AGAIN),
        ("run_at_once", ONCE),
    ],
    "killed between the record and the request, then cleared": [
        ("run_at_once", ONCE | {"killed": (1, False)}),
        ("apply_it", AGAIN | {"cleared": True}),
        ("apply_it", AGAIN),
    ],
    "somebody creates the row after the plan was approved": [
        ("approve_a_plan", {"prune": False, "replace": False}),
        ("somebody_creates", {"number": 1, "label": "B"}),
        ("apply_it", AGAIN),
        ("apply_it", AGAIN | {"cleared": True}),
    ],
    "a label is changed, the old request's deletion is lost, and the file goes back": [
        ("run_at_once", ONCE),
        ("somebody_decides", {"status": "APPROVED", "which": 0}),
        ("somebody_decides", {"status": "APPROVED", "which": 0}),
        ("change_a_row", {"number": 1, "label": "B"}),
        ("run_at_once", ONCE | {"replace": True, "faults": [(DELETE, LOST[1], 0)]}),
        ("change_a_row", {"number": 1, "label": "A"}),
        ("apply_it", AGAIN),
        ("run_at_once", ONCE | {"replace": True}),
    ],
    "a label is changed, and completing is killed between the record and the request, then run twice": [
        ("run_at_once", ONCE),
        ("somebody_decides", {"status": "APPROVED", "which": 0}),
        ("somebody_decides", {"status": "APPROVED", "which": 0}),
        ("change_a_row", {"number": 1, "label": "B"}),
        ("run_at_once", ONCE | {"replace": True, "prune": True}),
        ("complete_it", {"faults": [], "killed": None}),
        ("somebody_decides", {"status": "APPROVED", "which": 0}),
        ("complete_it", {"faults": [], "killed": (1, False)}),
        ("complete_it", {"faults": [NOT_DELETED], "killed": None}),
        ("complete_it", {"faults": [], "killed": None}),
        ("complete_it", {"faults": [], "killed": None}),
    ],
    "a part is killed, and the rest is applied in parts": [
        ("change_a_row", {"number": 2, "label": "A"}),
        ("change_a_row", {"number": 3, "label": "B"}),
        ("run_at_once", ONCE | {"at_most": 2, "killed": (3, False)}),
        ("apply_it", AGAIN),
        ("run_at_once", ONCE | {"at_most": 1, "faults": [LOST]}),
        ("reorder_the_file", {}),
        ("approve_a_plan", {"prune": True, "replace": True, "at_most": 1}),
        ("apply_it", AGAIN),
    ],
    "a row goes and another one is refused": [
        ("run_at_once", ONCE),
        ("change_a_row", {"number": 1, "label": None}),
        ("change_a_row", {"number": 2, "label": "A"}),
        ("run_at_once", ONCE | {"prune": True, "faults": [REFUSED]}),
        ("apply_it", AGAIN | {"faults": [NOT_DELETED]}),
        ("apply_it", AGAIN | {"cleared": True}),
    ],
}


@pytest.mark.parametrize("steps", KEPT.values(), ids=KEPT)
def test_kept_sequences(model: type[Model], steps: list[tuple[str, dict[str, Any]]]) -> None:
    here = model()
    for name, arguments in steps:
        getattr(here, name)(**arguments)
    here.teardown()


@pytest.mark.slow
def test_no_sequence_of_events_breaks_a_promise(model: type[Model], capsys: pytest.CaptureFixture[str]) -> None:
    sequences = int(os.environ.get("MODEL_SEQUENCES") or 0)
    chosen = settings(
        max_examples=sequences or 15,
        stateful_step_count=20,
        derandomize=not sequences,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(model, settings=chosen)
    if sequences:
        with capsys.disabled():
            print("\nmodel:", ", ".join(f"{number} {name}" for name, number in sorted(model.happened.items())))
