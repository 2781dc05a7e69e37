"""If a row of a mapped task comes from an upstream task, its text is data, and no operator or sensor renders it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, task, task_group
from support.airflow.airflow_runs import AIRFLOW, new_dag, run_dag
from support.airflow.task_log import TaskLog
from support.airflow.task_table import TABLE

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

pytestmark = pytest.mark.usefixtures("connection", "airflow_db")

create = CustodyCreateWhitelistRequestOperator.partial
# An id that no native template converts to a number.
ADDRESS = "1BpEi6DfDAUFd7GtittLSdBeYJvcoaVggu"
ROW = {"label": "L", "address": ADDRESS, "blockchain": "BTC"}


class Calls(list[str]):
    """The names that templates have called in a run: ``{{ called('label') }}``."""

    def __call__(self, name: str) -> str:
        self.append(name)
        return name


def dag_with(called: Calls, **settings: Any) -> DAG:
    return DAG(new_dag().dag_id, schedule=None, user_defined_macros={"called": called}, **settings)


def returned(value: Any, task_id: str = "upstream") -> Any:
    """Return the output of an upstream task that returns a value."""

    @task(task_id=task_id)
    def upstream() -> Any:
        return value

    return upstream()


def bodies(sandbox: Sandbox) -> list[dict[str, Any]]:
    return [call["body"] for call in sandbox.control.request_log(method="POST", path="/whitelists/addresses")]


# --- every parameter of every task --------------------------------------------------------------------------------


def all_tasks() -> list[tuple[type[Any], dict[str, Any], dict[str, Any]]]:
    """Return each task with a value for each templated parameter, and its required settings."""
    found = [(each.task, each.templated, each.settings) for each in TABLE]
    if AIRFLOW >= (3, 1):
        from airflow_custody.operators.whitelist_approval import CustodyApproveWhitelistRequestOperator
        from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator

        for each in (CustodyApproveWhitelistRequestOperator, CustodyApproveWhitelistPlanOperator):
            found.append((each, dict.fromkeys(each.template_fields, ""), {}))
    return found


def with_templates(value: Any, template: str) -> Any:
    """Return a copy of a value in which each part is replaced by a template."""
    if isinstance(value, dict):
        return {key: with_templates(each, template) for key, each in value.items()}
    return [with_templates(each, template) for each in value] if isinstance(value, list) else template


def map_all(source: Callable[[list[Any]], Any]) -> set[str]:
    """Map each task over a row, and return the names that templates in the row have called."""
    called = set()
    for operator, templated, settings in all_tasks():
        names = {name: f"{operator.__name__}.{name}" for name in templated}
        row = {name: with_templates(templated[name], f"{{{{ called('{names[name]}') }}}}") for name in names}
        called |= set(names.values())
        operator.partial(task_id=operator.__name__, **settings).expand_kwargs(source([row]))
    return called


@pytest.mark.parametrize("native", [False, True])
def test_upstream_text_is_rendered_in_no_parameter_of_any_task(sandbox: Sandbox, native: bool) -> None:
    called = Calls()
    with dag_with(called, render_template_as_native_obj=native) as dag:
        map_all(lambda rows: returned(rows))
    run = run_dag(dag)
    assert {state for (name, _), state in run.states.items() if not name.startswith("upstream")} == {"failed"}
    assert called == []
    assert sandbox.control.request_log() == []


def test_each_parameter_of_every_task_is_rendered_if_the_dag_file_says_it(sandbox: Sandbox) -> None:
    called = Calls()
    with dag_with(called) as dag:
        names = map_all(lambda rows: rows)
    run_dag(dag)
    assert set(called) == names


# --- attacks ------------------------------------------------------------------------------------------------------


def test_a_label_that_asks_for_a_signers_key_is_sent_as_it_is(
    sandbox: Sandbox, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_FIRST_KEY", '{"conn_type": "x", "extra": {"private_key": "MHcCAQEEIBx7"}}')
    label = "{{ conn.custody_first_key.extra_dejson.private_key | replace('x', 'x ') }}"
    with new_dag() as dag:
        create(task_id="create").expand_kwargs(returned([{**ROW, "label": label}]))
    run = run_dag(dag)
    assert run.state == "success"
    assert bodies(sandbox) == [{**ROW, "label": label}]
    assert run.xcom("create", 0, "request")["label"] == label
    assert "MHcCAQEEIBx" not in task_log.text


TEMPLATE = "{{ called('row') }}"
HOSTILE = {"label": TEMPLATE, "memo": TEMPLATE}


@task_group
def group(label: Any, memo: Any) -> None:
    CustodyCreateWhitelistRequestOperator(
        task_id="create", address=ADDRESS, blockchain="BTC", label=label, memo=memo, if_exists="create"
    )


#: The ways in which a row may reach a task.
SOURCES: dict[str, Callable[[], Any]] = {
    "output": lambda: returned([HOSTILE]),
    "zip": lambda: returned([HOSTILE]).zip(returned(["x"])).map(lambda pair: pair[0]),
    "one of a list": lambda: [returned(HOSTILE)],
    "mapped upstream": lambda: task(task_id="each")(lambda row: row).expand(row=returned([HOSTILE])),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_row_stays_text_on_every_path(sandbox: Sandbox, source: str) -> None:
    called = Calls()
    with dag_with(called) as dag:
        create(task_id="create", address=ADDRESS, blockchain="BTC").expand_kwargs(SOURCES[source]())
    assert run_dag(dag).state == "success"
    assert called == []
    assert bodies(sandbox) == [{**ROW, **HOSTILE}]


def test_values_of_expand_and_of_a_mapped_group_stay_text(sandbox: Sandbox) -> None:
    called = Calls()
    with dag_with(called) as dag:
        group.expand_kwargs(returned([HOSTILE]))
        create(task_id="create", if_exists="create", **ROW).expand(memo=returned([TEMPLATE]))
    run = run_dag(dag)
    assert run.state == "success", run.states
    assert called == []
    assert [each["memo"] for each in bodies(sandbox)] == [TEMPLATE] * 2


def test_templates_of_the_author_beside_a_row_are_rendered(sandbox: Sandbox) -> None:
    called = Calls()
    with dag_with(called, default_args={"customer_id": "{{ called('default') }}"}) as dag:
        rows = returned([{"memo": TEMPLATE}, {"memo": "7", "label": "{{ called('over') }}", "if_exists": "create"}])
        make = create(task_id="create", address=ADDRESS, blockchain="BTC", label="{{ called('partial') }}")
        make.expand_kwargs(rows, strict=False)
    assert run_dag(dag).state == "success"
    assert sorted(called) == ["default", "default", "partial"]
    common = {**ROW, "customerId": "default"}
    assert sorted(bodies(sandbox), key=lambda body: body["memo"]) == [
        {**common, "label": "{{ called('over') }}", "memo": "7"},
        {**common, "label": "partial", "memo": TEMPLATE},
    ]


def test_an_authors_row_between_others_is_rendered(sandbox: Sandbox) -> None:
    called = Calls()
    with dag_with(called) as dag:
        written = {**ROW, "label": "{{ called('written') }}", "linked_wallet_ids": ["{{ called('1') }}"]}
        create(task_id="create").expand_kwargs([returned({**ROW, **HOSTILE}), written])
    assert run_dag(dag).state == "success"
    assert called == ["written", "1"]
    written = {**ROW, "label": "written", "linkedWalletIds": ["1"]}
    assert sorted(bodies(sandbox), key=lambda body: body["label"]) == [written, {**ROW, **HOSTILE}]


@pytest.fixture
def pending(sandbox: Sandbox) -> str:
    """Return the id of a request that stays pending."""
    request = WhitelistRequest(label="L", address=ADDRESS, blockchain="BTC")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        return client.create_whitelist_request(request)


def test_a_sensor_renders_no_row_when_it_resumes(pending: str) -> None:
    called = Calls()
    row = {"request_id": pending, "expected": {**ROW, "label": TEMPLATE}}
    conn_id = "custody_default{{ called('partial')[:0] }}"
    with dag_with(called) as dag:
        CustodyWhitelistRequestSensor.partial(
            task_id="wait", poke_interval=0.1, timeout=0.5, custody_conn_id=conn_id, deferrable=True
        ).expand_kwargs(returned([row]))
    assert run_dag(dag).state_of("wait", 0) == "failed"
    assert set(called) == {"partial"}


def test_a_rendered_value_is_not_rendered_again_after_a_deferral(pending: str) -> None:
    called = Calls()
    with dag_with(called, params={"text": TEMPLATE}) as dag:
        CustodyWhitelistRequestSensor(
            task_id="wait",
            request_id=pending,
            expected=returned({**ROW, "label": TEMPLATE, "memo": "m"}),
            deferrable=True,
            poke_interval=0.1,
            timeout=0.5,
            retries=1,
            retry_delay=timedelta(0),
        )
    assert run_dag(dag).state_of("wait") == "failed"
    assert called == []
