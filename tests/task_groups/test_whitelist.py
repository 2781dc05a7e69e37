"""The task groups: their tasks and the order of these, and settings that are refused when the DAG file is parsed."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowOptionalProviderFeatureException,
    task_group,
)
from support.airflow.airflow_runs import AIRFLOW, new_dag

from airflow_custody._base import NOT_GIVEN
from airflow_custody.client import WhitelistRequest
from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup, CustodyWhitelistRequestTaskGroup

SIGNERS = {"custody_first_signer": ConnectionSigner("first_key"), "custody_second_signer": ConnectionSigner("key_2")}
SIGN = ("sign_custody_first_signer", "sign_custody_second_signer")
ADDRESS: dict[str, Any] = {"label": "Treasury", "address": "0x" + "1" * 40, "blockchain": "ETH"}
HAS_APPROVALS = AIRFLOW >= (3, 1)
with_approvals = pytest.mark.skipif(not HAS_APPROVALS, reason="it has no approvals")
without_approvals = pytest.mark.skipif(HAS_APPROVALS, reason="it has approvals")

Make = Callable[..., Any]


def of_file(**arguments: Any) -> Any:
    with new_dag():
        return CustodyWhitelistFileTaskGroup(
            **{"path": "whitelist.yaml", "signers": SIGNERS, "approve": False, **arguments}
        )


def of_request(**arguments: Any) -> Any:
    with new_dag():
        return CustodyWhitelistRequestTaskGroup(**{**ADDRESS, "signers": SIGNERS, "approve": False, **arguments})


both = pytest.mark.parametrize("make", [of_file, of_request])


def order(group: Any) -> list[str]:
    """Return the names of the group's tasks, and check that each waits for the one before it."""
    tasks = list(group.dag.topological_sort())
    for before, task in itertools.pairwise(tasks):
        assert before.task_id in task.upstream_task_ids or task.task_id.endswith(".prove")
    return [each.task_id.removeprefix(f"{group.group_id}.") for each in tasks]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, ["wait_until_healthy", "plan", "apply", *SIGN, "wait_until_effective", "complete"]),
        ({"check_health": False, "signers": {}}, ["plan", "apply", "wait_until_effective", "complete"]),
        (
            {"check_health": False, "signers": {}, "evidence": "/srv/evidence", "prove": True},
            ["plan", "apply", "wait_until_effective", "complete", "verify", "prove"],
        ),
        pytest.param(
            {"approve": True, "check_health": False},
            ["plan", "approve", "apply", *SIGN, "wait_until_effective", "complete"],
            marks=with_approvals,
        ),
    ],
    ids=["default", "short", "with evidence", "with approval"],
)
def test_the_tasks_of_a_file_in_order(arguments: dict[str, Any], names: list[str]) -> None:
    assert order(of_file(**arguments)) == names


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, ["wait_until_healthy", "create", *SIGN, "wait_until_effective"]),
        ({"check_health": False, "signers": {}}, ["create", "wait_until_effective"]),
        pytest.param(
            {"approve": True, "check_health": False},
            ["create", "approve", *SIGN, "wait_until_effective"],
            marks=with_approvals,
        ),
    ],
    ids=["default", "short", "with approval"],
)
def test_the_tasks_of_a_request_in_order(arguments: dict[str, Any], names: list[str]) -> None:
    assert order(of_request(**arguments)) == names


@both
def test_each_task_is_reachable_by_its_name(make: Make) -> None:
    group = make(approve=HAS_APPROVALS, **({"evidence": "/srv", "prove": True} if make is of_file else {}))
    dag = group.dag
    assert [each.task_id for each in group.signatures] == [f"{group.group_id}.{each}" for each in SIGN]
    for task in dag.tasks:
        name = task.task_id.removeprefix(f"{group.group_id}.")
        assert group.get_child_by_label(name) is task
        assert name.startswith("sign_") or getattr(group, name) is task
    copy.deepcopy(dag)
    assert len(make(prefix_group_id=False).dag.task_dict.keys() & {"wait_until_healthy", "wait_until_effective"}) == 2


def test_a_group_belongs_to_the_dag_that_it_is_given() -> None:
    dag = new_dag()
    CustodyWhitelistRequestTaskGroup(**ADDRESS, signers={}, approve=False, dag=dag)
    assert len(dag.tasks) == 3


# --- settings ----------------------------------------------------------------------------------------------------


def test_a_setting_is_written_once() -> None:
    group = of_file(
        path=NOT_GIVEN,
        rows="{{ rows }}",
        only={"blockchain": "ETH"},
        replace=True,
        prove=True,
        custody_conn_id="custody_treasury",
        evidence="s3://aws@bucket/custody/",
        task_arguments={
            "plan": {"max_creates": 500, "omit_if_none": ("memo",)},
            "sign": {"comment": "both", "lookup_wait": 7},
            SIGN[1]: {"comment": "second"},
            "wait_until_effective": {"deferrable": False, "timeout": 60},
        },
    )
    assert (group.plan.replace, group.plan.max_creates, group.plan.skip_if_nothing_to_do) == (True, 500, True)
    assert (group.prove.rows, group.prove.only, group.prove.max_creates) == ("{{ rows }}", {"blockchain": "ETH"}, 500)
    assert (group.prove.fail_on_changes, group.prove.fail_on_pending) == (True, True)
    assert group.apply.rows == "{{ rows }}"
    assert [each.comment for each in group.signatures] == ["both", "second"]
    assert [each.lookup_wait for each in group.signatures] == [7, 7]
    assert [each.custody_conn_id for each in group.signatures] == [*SIGNERS]
    others = {each.custody_conn_id for each in group.dag.tasks if each not in group.signatures}
    assert others == {"custody_treasury"}
    assert (group.wait_until_effective.deferrable, group.wait_until_effective.timeout) == (False, 60)
    assert group.verify.path.startswith("s3://aws@bucket/custody/{{ dag.dag_id }}-")


@both
def test_default_args_apply_but_not_to_the_order(make: Make) -> None:
    given = {"custody_conn_id": "custody_treasury", "retries": 7, "trigger_rule": "all_done"}
    group = make(default_args=given)
    assert {each.retries for each in group.dag.tasks} == {7}
    assert {str(each.trigger_rule.value) for each in group.dag.tasks} == {"all_success"}
    signing = {each.custody_conn_id for each in group.signatures}
    assert {each.custody_conn_id for each in group.dag.tasks} - signing == {"custody_treasury"}
    assert signing == {*SIGNERS}


@with_approvals
@both
def test_the_approval_has_the_settings_of_default_args(make: Make) -> None:
    carol = [{"id": "carol", "name": "carol"}]
    given = {
        "assigned_users": carol,
        "response_timeout": timedelta(hours=8),
        # Not the time in which a user must respond.
        "execution_timeout": timedelta(minutes=10),
        "timeout": 60,
    }
    group = make(approve=True, default_args=given)
    assert group.approve.assigned_users == carol
    assert group.approve.response_timeout == timedelta(hours=8)
    assert group.approve.execution_timeout is None
    assert group.wait_until_effective.timeout == 60
    other = make(approve=True, default_args={"execution_timeout": timedelta(minutes=10)})
    assert other.approve.response_timeout is None


def test_the_last_tasks_run_even_if_there_was_nothing_to_do() -> None:
    group = of_file(evidence="/srv", prove=True)
    assert {each.trigger_rule.value for each in (group.verify, group.prove)} == {"none_failed"}


def test_a_request_has_all_fields_of_the_create_task() -> None:
    parameters = inspect.signature(CustodyWhitelistRequestTaskGroup.__init__).parameters
    assert WhitelistRequest.model_fields.keys() <= parameters.keys()
    for name in WhitelistRequest.model_fields.keys() - {"label"}:
        assert getattr(of_request(**{name: "given"}).create, name) == "given"


# --- what is refused ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_arguments": {"aply": {}}}, "no task 'aply'. Its tasks: .*sign, sign_custody_first_signer"),
        ({"task_arguments": {"approve": {}}}, "no task 'approve'"),
        ({"task_arguments": {"sign": {"expected": None}}}, r"\['sign'\] must not contain expected"),
        ({"task_arguments": {SIGN[0]: {"signer": None}}}, "must not contain signer"),
        ({"task_arguments": {"wait_until_effective": {"request_id": "1"}}}, "must not contain request_id"),
        ({"task_arguments": {"sign": {"trigger_rule": "all_done"}}}, "must not contain trigger_rule"),
        ({"task_arguments": {"sign": {"task_id": "x"}}}, "must not contain task_id"),
        ({"task_arguments": {"sign": {"coment": "x"}}}, "unknown parameter 'coment': did you mean comment"),
        ({"task_arguments": {"sign": ["x"]}}, r"\['sign'\] must map names of parameters to values"),
        ({"signers": [ConnectionSigner("key")]}, "signers must map connection ids"),
        ({"signers": {"custody_first_signer": "key"}}, r"use ConnectionSigner\('key'\)"),
        ({"approve": "no"}, "approve must be True or False"),
        ({"check_health": None}, "check_health must be True or False"),
        (
            {"assigned_users": [{"id": "carol", "name": "carol"}]},
            "no approval is requested, so assigned_users would have no effect",
        ),
        (
            {"response_timeout": timedelta(hours=1)},
            "no approval is requested, so response_timeout would have no effect",
        ),
    ],
)
def test_a_wrong_setting_is_refused_when_the_file_is_parsed(
    make: Make, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_arguments": {"plan": {"prune": True}}}, r"\['plan'\] must not contain prune, because the task group"),
        ({"task_arguments": {"apply": {"plan": {}, "plan_hash": ""}}}, "must not contain plan, plan_hash"),
        ({"task_arguments": {"prove": {}}}, "no task 'prove'"),
        ({"prove": True, "task_arguments": {"prove": {"only": {}}}}, "must not contain only"),
        ({"evidence": "/srv", "task_arguments": {"verify": {"path": "/x"}}}, "must not contain path"),
        ({"evidence": ""}, "evidence must be the path of a folder"),
        ({"evidence": "/"}, "evidence must be the path of a folder"),
        ({"evidence": True}, "evidence must be the path of a folder"),
        ({"prove": "no"}, "prove must be True or False"),
    ],
)
def test_a_wrong_setting_of_a_file_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of_file(**arguments)


@without_approvals
@both
def test_no_approval_is_left_out_silently(make: Make) -> None:
    with pytest.raises(AirflowOptionalProviderFeatureException, match=r"Airflow 3\.1 or later.*approve=False"):
        make(approve=True)


@with_approvals
@both
def test_no_response_is_a_rejection(make: Make) -> None:
    users = [{"id": "carol", "name": "carol"}]
    approve = make(approve=True, assigned_users=users, response_timeout=timedelta(hours=8)).approve
    assert (approve.defaults, approve.assigned_users) == (["Reject"], users)
    assert approve.response_timeout == timedelta(hours=8)
    assert approve.ignore_downstream_trigger_rules
    for name, value in (("defaults", "Approve"), ("assigned_users", [])):
        with pytest.raises(ValueError, match=f"must not contain {name}"):
            make(approve=True, task_arguments={"approve": {name: value}})


@with_approvals
@both
def test_an_empty_list_of_approvers_lets_nobody_approve(make: Make) -> None:
    with pytest.raises(ValueError, match="assigned_users is empty, so that any user could approve"):
        make(approve=True, assigned_users=[])


@with_approvals
def test_an_approval_in_a_mapped_group_is_refused() -> None:
    with DAG("mapped", schedule=None):

        @task_group
        def one(label: str) -> None:
            CustodyWhitelistRequestTaskGroup(**{**ADDRESS, "label": label}, signers=SIGNERS)

        with pytest.raises(ValueError, match="in a mapped task group, because a rejection would not skip its tasks"):
            one.expand(label=["a", "b"])
