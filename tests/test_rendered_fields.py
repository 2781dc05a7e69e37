"""The rendered value of each templated field in Airflow's UI."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, Run, new_dag, run_dag
from support.airflow.apply_tries import address
from support.airflow.task_table import documented_tasks

from airflow_custody._base import PARAMETER_OF
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

each_task = pytest.mark.parametrize("owner", sorted(documented_tasks(), key=str))
ROW = {"label": "Label 1", "address": address(1), "blockchain": "ETH"}
#: What Airflow stores for a field whose parameter was not given.
OMITTED = None if AIRFLOW >= (3, 0) else "None"


def annotation_of(owner: type[Any], field: str) -> str:
    """Return the annotation of the parameter of a templated field; empty for a field of Airflow's own."""
    name = PARAMETER_OF.get(field, field)
    for base in inspect.getmro(owner):
        if base.__module__.startswith("airflow_custody.") and "__init__" in vars(base):
            parameter = inspect.signature(vars(base)["__init__"]).parameters.get(name)
            if parameter is not None:
                return str(parameter.annotation)
    return ""


@each_task
def test_each_list_and_each_mapping_is_shown_as_json(owner: type[Any]) -> None:
    structured = set()
    for field in owner.template_fields:
        annotation = annotation_of(owner, field)
        parts = annotation.split(" | ")
        is_structured = any(each in annotation for each in ("Mapping[", "Iterable[", "Sequence[", "list[", "dict["))
        # For a number, such as a single id, Airflow 2's renderer of JSON shows nothing.
        if is_structured and "int" not in parts:
            structured.add(field)
    assert owner.template_fields_renderers == dict.fromkeys(structured, "json")


@each_task
def test_each_templated_parameter_accepts_an_upstream_output(owner: type[Any]) -> None:
    annotations = {field: annotation_of(owner, field) for field in owner.template_fields}
    assert {field for field, each in annotations.items() if each and "XComArg" not in each.split(" | ")} == set()


@pytest.fixture
def shown(connection: None, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run tasks whose fields are given in each way; some of the tasks fail."""
    monkeypatch.setenv("AIRFLOW_CONN_HIDDEN", '{"conn_type": "generic", "password": "hidden-customer"}')
    rows = [ROW, {**ROW, "label": "{{ conn.hidden.password }}", "address": address(2)}]
    with new_dag() as dag:
        plan = CustodyPlanWhitelistOperator(
            task_id="plan", rows=rows, only={"blockchain": "{{ 'ET' }}H"}, must_keep=("Label 1",)
        )
        plan_hash = plan.output["plan_hash"]
        apply = CustodyApplyWhitelistPlanOperator(
            task_id="apply", plan=plan.output, plan_hash=plan_hash, rows=rows, lookup_wait=0.2
        )
        CustodySignWhitelistRequestsOperator(
            task_id="sign",
            request_ids=apply.output["request_ids"],
            expected=apply.output["requests"],
            signer=_NoSigner(),
        )
        CustodySignWhitelistRequestsOperator(task_id="blind", request_ids=3711, expected=None, signer=_NoSigner())
        CustodyHealthCheckOperator(task_id="health", groups=["hsm"], healthy_statuses="success")
        CustodyWhitelistRequestSensor.partial(task_id="wait", poke_interval=0.1, timeout=0.1).expand(
            request_id=["1", ["2", "3"]]
        )
    return run_dag(dag)


class _NoSigner:
    name = "none"

    def sign(self, message: bytes) -> bytes:
        raise PermissionError


def test_rendered_values_are_what_the_task_gets(shown: Run) -> None:
    plan = shown.rendered("plan")
    assert plan["rows"] == [ROW, {**ROW, "label": "***", "address": address(2)}]
    assert plan["only"] == {"blockchain": "ETH"}
    assert plan["must_keep"] == ["Label 1"]
    assert plan["path"] == OMITTED
    apply = shown.rendered("apply")
    assert apply["plan"]["counts"]["create"] == 2
    assert apply["rows"] == plan["rows"]
    sign = shown.rendered("sign")
    assert [each["label"] for each in sign["expected"]] == ["Label 1", "***"]
    assert [each["id"] for each in sign["expected"]] == sign["request_ids"]
    assert shown.rendered("blind") | {"comment": ""} == {
        "request_ids": 3711,
        "expected": OMITTED,
        "comment": "",
        "custody_conn_id": "custody_default",
    }
    health = shown.rendered("health")
    assert (health["groups"], health["healthy_statuses"], health["checks"]) == (["hsm"], "success", OMITTED)
    assert [shown.rendered("wait", each)["request_id"] for each in (0, 1)] == ["1", ["2", "3"]]
    assert shown.rendered("wait", 1)["expected"] == OMITTED


@pytest.mark.skipif(AIRFLOW >= (3, 0), reason="the UI of Airflow 3 formats each list and each mapping as JSON itself")
def test_no_rendered_value_is_lost_in_the_ui_of_airflow_2(shown: Run) -> None:
    renderers = importlib.import_module("airflow.www.utils").get_attr_renderer()
    for task_id, owner in (
        ("plan", CustodyPlanWhitelistOperator),
        ("apply", CustodyApplyWhitelistPlanOperator),
        ("sign", CustodySignWhitelistRequestsOperator),
        ("blind", CustodySignWhitelistRequestsOperator),
        ("health", CustodyHealthCheckOperator),
    ):
        fields = shown.rendered(task_id)
        for name, renderer in owner.template_fields_renderers.items():
            html = str(renderers[renderer](fields[name]))
            assert html, (task_id, name)
            assert "hidden-customer" not in html
    assert "Label 1" in str(renderers["json"](shown.rendered("plan")["rows"]))
