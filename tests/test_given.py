"""Every operator and sensor uses its parameters unchanged, and refuses a value that is missing in the run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jinja2
import pytest
from airflow.providers.common.compat.sdk import DAG, ObjectStoragePath, task
from support.airflow.airflow_runs import FakeTaskInstance, failing_at_once, new_dag, run_dag
from support.airflow.task_log import TaskLog
from support.airflow.task_table import ADDRESS, BTC, REQUEST, TABLE, Entry, documented_tasks

from airflow_custody._base import NOT_GIVEN, PARAMETER_OF
from airflow_custody.client import CustodyConfigurationError, CustodyRequestError
from airflow_custody.operators.webhook import CustodyCreateWebhookOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator, CustodyVerifyWhitelistOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors._base import CustodySensor
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

pytestmark = pytest.mark.usefixtures("connection")

LOST = "is None: check the DAG file"
each_task = pytest.mark.parametrize("entry", [pytest.param(each, id=each.task.__name__) for each in TABLE])


def entry_of(task: type[Any]) -> Entry:
    return next(each for each in TABLE if each.task is task)


CREATE = entry_of(CustodyCreateWhitelistRequestOperator)


def text_dag() -> DAG:
    """Return a DAG whose templates become text, on both lines of Airflow."""
    return new_dag()


def native_dag() -> DAG:
    """Return a DAG whose templates become values, on both lines of Airflow."""
    return DAG("native", schedule=None, render_template_as_native_obj=True)


def context(**params: Any) -> Any:
    return {"ti": FakeTaskInstance(), "dag": None, "run_id": "run", "params": params}


def render(operator: Any, dag: DAG, **params: Any) -> None:
    """Render a task as Airflow does it."""
    if not operator.has_dag():
        operator.dag = dag
    operator.render_template_fields({**context(**params), "dag": dag}, dag.get_template_env())


def render_and_execute(operator: Any, dag: DAG, **params: Any) -> None:
    render(operator, dag, **params)
    operator.execute(context())


def value_of(operator: Any, name: str) -> Any:
    """Return the value of the field that belongs to a parameter."""
    (field,) = [each for each in operator.template_fields if PARAMETER_OF.get(each, each) == name]
    return getattr(operator, field)


def bodies(sandbox: Sandbox) -> list[dict[str, Any]]:
    return [call["body"] for call in sandbox.control.request_log(method="POST", path="/whitelists/addresses")]


def test_the_table_has_every_operator_and_sensor() -> None:
    # The approval tasks are Airflow's own, and do not call the service.
    found = {each for each in documented_tasks() if not each.__name__.startswith("CustodyApprove")}
    assert {each.task for each in TABLE} == found


# --- a value that is missing in the run ----------------------------------------------------------------------


@each_task
def test_a_template_without_a_value_is_refused(sandbox: Sandbox, entry: Entry) -> None:
    for name in entry.templated:
        with failing_at_once(f"^{name} {LOST}"):
            render_and_execute(entry.make(**{name: "{{ params.x }}"}), native_dag(), x=None)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("make_dag", "template", "message"),
    [
        (native_dag, "None", LOST),
        (text_dag, " {{ params.x }}", LOST),
        (text_dag, "{{ [{'id': params.x}] }}", LOST),
        (text_dag, "{{ 'None' }}", "is the text 'None'"),
        (text_dag, "{{ params.x | tojson }}", "is the text 'null'"),
    ],
)
def test_a_value_that_is_lost_is_refused_in_each_form_and_in_a_list(
    sandbox: Sandbox, make_dag: Callable[[], DAG], template: str, message: str
) -> None:
    for given, place in (({"memo": template}, "memo"), ({"linked_wallet_ids": ["7", template]}, "linked_wallet_ids")):
        with failing_at_once(rf"^{place}(\[1\])? {message}"):
            render_and_execute(CREATE.make(**given), make_dag(), x=None)
    assert sandbox.control.request_log() == []


@each_task
def test_a_none_in_the_dag_file_is_refused(sandbox: Sandbox, entry: Entry) -> None:
    for name in entry.templated.keys() - entry.none_has_a_meaning:
        with failing_at_once(f"^{name} {LOST}"):
            render_and_execute(entry.make(**{name: None}), text_dag())
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("sensor", [CustodyHealthSensor, CustodyWhitelistRequestSensor])
def test_after_a_deferral_the_same_is_refused(sandbox: Sandbox, sensor: type[CustodySensor]) -> None:
    entry = entry_of(sensor)
    for name in entry.templated:
        operator = entry.make(deferrable=True, **{name: "{{ params.x }}"})
        render(operator, native_dag(), x=None)
        with failing_at_once(f"^{name} {LOST}"):
            operator.resume_execution("execute_complete", {"event": {"status": sensor.target_state}}, context())


@each_task
def test_an_omitted_parameter_is_none_in_the_serialized_dag_and_in_the_run(entry: Entry) -> None:
    module = importlib.import_module("airflow.serialization.serialized_objects")
    # Airflow 3.2 renamed it.
    serialized: Any = getattr(module, "DagSerialization", module.SerializedDAG)
    with new_dag() as dag:
        operator = entry.make()
    # The error is the same as for a DAG file.
    dag.resolve_template_files()  # type: ignore[no-untyped-call]
    (shown,) = serialized.to_dict(dag)["dag"]["tasks"]
    render(operator, dag)
    operator._check_given()
    for name in entry.optional.keys() - entry.minimal.keys():
        assert value_of(operator, name) is None
        # Airflow 2 displays the value as text.
        assert shown["__var"].get(name) in (None, "None")


# --- omit_if_none -------------------------------------------------------------------------------------------------


@each_task
def test_an_optional_parameter_may_be_left_out(entry: Entry) -> None:
    for name in entry.optional:
        operator = entry.make(**{name: "{{ params.x | tojson }}"}, omit_if_none=name)
        render(operator, text_dag(), x=None)
        operator._check_given()
        assert value_of(operator, name) is None


@each_task
def test_a_required_parameter_cannot_be_left_out(entry: Entry) -> None:
    for name in entry.templated.keys() - entry.optional.keys():
        with pytest.raises(ValueError, match=f"omit_if_none contains '{name}'"):
            entry.make(omit_if_none=name)
    with pytest.raises(ValueError, match="omit_if_none must be a name or a list of names, not None"):
        entry.make(omit_if_none=None)


def test_a_secret_that_is_left_out_is_not_lost(sandbox: Sandbox) -> None:
    entry = entry_of(CustodyCreateWebhookOperator)
    operator = entry.make(secret_conn_id="{{ params.x }}", omit_if_none="secret_conn_id")
    with failing_at_once("must be stored in one place"):
        render_and_execute(operator, native_dag(), x=None)
    assert sandbox.control.request_log() == []


# --- a value of another type --------------------------------------------------------------------------------------


@each_task
def test_a_value_of_another_type_is_refused_by_name(sandbox: Sandbox, entry: Entry) -> None:
    others: list[Any] = [1.5, b"x", 10**5000, [[]], ["7", 1.5]]
    for name in entry.templated:
        for value in others:
            with pytest.raises(CustodyFailException, match=name) as caught:
                render_and_execute(entry.make(**{name: value}), text_dag())
            assert isinstance(caught.value.error, (CustodyRequestError, CustodyConfigurationError)), (name, value)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("name", "template", "value"),
    [
        ("memo", "{{ params.x | string }}", "0x10"),
        # The error has the name that the author wrote, although the field is called address_label.
        ("label", "{{ params.x }}", "1_000"),
        ("address", ADDRESS, ""),
        ("customer_id", "{{ params.x }}", "[1]"),
    ],
)
def test_text_that_native_rendering_rewrites_is_refused(sandbox: Sandbox, name: str, template: str, value: str) -> None:
    with failing_at_once(f"nothing is sent: {name} must be text, not .*render_template_as_native_obj.*tojson"):
        render_and_execute(CREATE.make(**{**BTC, name: template}), native_dag(), x=value)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("value", ["0x10", "007", 'it\'s <b> & "q" ü', "[1]", "True"])
def test_the_advised_filter_keeps_text_unchanged(sandbox: Sandbox, value: str) -> None:
    render_and_execute(CREATE.make(**BTC, memo="{{ params.x | tojson }}"), native_dag(), x=value)
    assert bodies(sandbox) == [{**BTC, "memo": value}]


# --- a wrong setting ----------------------------------------------------------------------------------------------

NO_OPTIONAL = {"omit_if_none": "nonsense"}


@each_task
def test_a_wrong_setting_is_refused_when_the_dag_file_is_parsed(entry: Entry) -> None:
    for change in [*entry.wrong, NO_OPTIONAL]:
        with pytest.raises(ValueError, match=next(reversed(change))):
            entry.make(**change)


@each_task
def test_an_operator_in_place_of_its_output_is_refused(entry: Entry) -> None:
    with new_dag():
        other = CREATE.make()
        for name in entry.templated:
            entry.make(**{name: [other.output]})
            for given in (other, [other]):
                with pytest.raises(ValueError, match=rf"^{name}: the task '{other.task_id}' .* append \.output"):
                    entry.make(**{name: given})


@pytest.mark.usefixtures("airflow_db")
def test_mapped_each_fault_of_a_row_is_the_end_of_its_log(sandbox: Sandbox, task_log: TaskLog) -> None:
    faults: dict[str, dict[str, Any]] = {
        f"label {LOST}": {"label": None},
        "if_exists must be": {"if_exists": "x"},
        "omit_if_none contains 'nonsense'": {"omit_if_none": "nonsense"},
        "unknown parameter 'netwrok': did you mean network?": {"netwrok": "mainnet"},
    }
    rows = [{**REQUEST, **each} for each in faults.values()]
    with new_dag() as dag:
        make = CustodyCreateWhitelistRequestOperator.partial(task_id="task", retries=2, retry_delay=timedelta(0))
        make.expand_kwargs(rows, strict=False)
    run = run_dag(dag)
    lines = task_log.text.splitlines()
    for index, fault in enumerate(faults):
        assert (run.states["task", index], run.tries["task", index]) == ("failed", 1)
        place = f"CustodyFailException: map index {index} (counted from 0): "
        number = next(number for number, line in enumerate(lines) if place in line)
        assert fault in lines[number]
        assert lines[number + 1] == "[custody/parameter-wrong]"
    assert sandbox.control.request_log() == []


# --- in runs ------------------------------------------------------------------------------------------------------


def nothing(dag: DAG) -> Any:

    @task
    def upstream() -> Any:
        return None

    with dag:
        return upstream()


@pytest.mark.usefixtures("airflow_db")
def test_an_upstream_task_that_returned_none_is_refused(sandbox: Sandbox, task_log: TaskLog) -> None:
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator(task_id="create", linked_wallet_ids=nothing(dag), **REQUEST)
        CustodyHealthSensor(task_id="wait", groups=nothing(dag), timeout=1)
    run = run_dag(dag)
    for task_id, name in (("create", "linked_wallet_ids"), ("wait", "groups")):
        assert (run.state_of(task_id), run.tries[task_id, -1]) == ("failed", 1)
        assert f"{name} {LOST}" in task_log.text
    assert sandbox.control.request_log() == []


ROW = {"label": "L", "address": ADDRESS}


@pytest.mark.usefixtures("airflow_db")
def test_mapped_an_absent_key_is_not_given(sandbox: Sandbox, task_log: TaskLog) -> None:
    rows: list[dict[str, Any]] = [ROW, {**ROW, "memo": "m"}, {**ROW, "memo": None}]
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator.partial(task_id="create", blockchain="ETH").expand_kwargs(rows)
    run = run_dag(dag)
    assert [run.state_of("create", index) for index in range(3)] == ["success", "success", "failed"]
    assert {body.get("memo") for body in bodies(sandbox)} == {None, "m"}
    assert "write omit_if_none=('memo',)" in task_log.text


@pytest.mark.usefixtures("airflow_db")
def test_mapped_a_none_in_the_dag_file_is_given(sandbox: Sandbox, task_log: TaskLog) -> None:
    with DAG("with_defaults", schedule=None, default_args={"network": None}) as dag:
        make_one = CustodyCreateWhitelistRequestOperator.partial
        make_one(task_id="given", blockchain="ETH").expand_kwargs([ROW])
        make_one(task_id="left_out", blockchain="ETH", omit_if_none="network").expand_kwargs([ROW])
    run = run_dag(dag)
    assert (run.state_of("given", 0), run.state_of("left_out", 0)) == ("failed", "success")
    assert bodies(sandbox) == [REQUEST]
    assert f"network {LOST}" in task_log.text


# --- in a subclass ------------------------------------------------------------------------------------------------


class TreasuryOperator(CustodyCreateWhitelistRequestOperator):
    """A subclass with a parameter and a field of its own."""

    template_fields = (*CustodyCreateWhitelistRequestOperator.template_fields, "desk")

    def __init__(self, *, wallet: Any = NOT_GIVEN, desk: Any = NOT_GIVEN, **kwargs: Any) -> None:
        super().__init__(linked_wallet_ids=wallet if wallet is NOT_GIVEN else [wallet], memo=desk, **kwargs)
        self.desk = desk


@pytest.mark.parametrize(("parameter", "field"), [("wallet", r"linked_wallet_ids\[0\]"), ("desk", "memo")])
def test_in_a_subclass_what_it_hands_on_is_given(sandbox: Sandbox, parameter: str, field: str) -> None:
    operator = TreasuryOperator(task_id="create", **BTC, **{parameter: "{{ params.x }}"})
    with failing_at_once(f"^{field} {LOST}"):
        render_and_execute(operator, native_dag(), x=None)
    assert bodies(sandbox) == []


def test_in_a_subclass_what_it_does_not_hand_on_is_left_out(sandbox: Sandbox) -> None:
    render_and_execute(TreasuryOperator(task_id="create", **BTC), native_dag(), x=None)
    assert bodies(sandbox) == [BTC]


# --- a None inside other text -------------------------------------------------------------------------------------

INSIDE = "memo: an expression of its template resolved to None inside other text; nothing is sent"
#: Templates of a memo, and the memo if params.x is None; empty: the task refuses it.
PARTLY = [
    ("INV-{{ params.x }}", ""),
    ("{{ params.x }}-{{ run_id }}", ""),
    ("INV-{{ params.x or '7' }}", "INV-7"),
    ("INV-{{ 'None' }}", "INV-None"),
]


@pytest.mark.parametrize("dag", [text_dag, native_dag])
@pytest.mark.parametrize(("template", "memo"), PARTLY)
def test_a_none_inside_other_text_is_refused(
    sandbox: Sandbox, template: str, memo: str, dag: Callable[[], DAG]
) -> None:
    operator = CREATE.make(**BTC, memo=template)
    if memo:
        render_and_execute(operator, dag(), x=None)
        assert bodies(sandbox) == [{**BTC, "memo": memo}]
    else:
        with failing_at_once(INSIDE):
            render_and_execute(operator, dag(), x=None)
        assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (CustodyWhitelistRequestSensor, "expected", {**BTC, "memo": "INV-{{ params.x }}"}),
        (CustodyVerifyWhitelistOperator, "path", ObjectStoragePath("file:///{{ params.x }}/evidence.json")),
    ],
    ids=["nested", "path"],
)
def test_a_none_inside_a_nested_text_or_a_path_is_refused(sandbox: Sandbox, kind: Any, name: str, value: Any) -> None:
    with failing_at_once(f"{name}: an expression of its template resolved to None inside other text"):
        render_and_execute(entry_of(kind).make(**{name: value}), text_dag(), x=None)
    assert sandbox.control.request_log() == []


def test_an_undefined_name_is_refused_although_the_dag_allows_it(sandbox: Sandbox) -> None:
    dag = DAG("lenient", schedule=None, template_undefined=jinja2.Undefined)  # type: ignore[arg-type]
    with failing_at_once(INSIDE):
        render_and_execute(CREATE.make(**BTC, memo="INV-{{ nothing }}"), dag)
    assert sandbox.control.request_log() == []


def test_the_dags_own_finalize_still_counts(sandbox: Sandbox) -> None:
    own = {"finalize": lambda value: "7" if value is None else value}
    render_and_execute(
        CREATE.make(**BTC, memo="INV-{{ params.x }}"),
        DAG("finalized", schedule=None, jinja_environment_kwargs=own),
        x=None,
    )
    assert bodies(sandbox) == [{**BTC, "memo": "INV-7"}]


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_a_task_and_a_mapped_task_refuse_it(sandbox: Sandbox, task_log: TaskLog) -> None:
    with DAG(new_dag().dag_id, schedule=None, params={"x": None}) as dag:
        CustodyWhitelistRequestSensor(task_id="wait", request_id=["37{{ params.x }}"], timeout=5)
        CustodyCreateWhitelistRequestOperator.partial(task_id="rows").expand_kwargs(
            [{**BTC, "memo": "I{{ params.x }}"}]
        )
    assert {*run_dag(dag).states.values()} == {"failed"}
    for name in ("request_id", "memo"):
        assert f"{name}: an expression of its template resolved to None inside other text" in task_log.text
    assert sandbox.control.request_log() == []


# --- misspelled names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "near"), [("conn_id", "custody_conn_id"), ("adress", "address")])
def test_an_unknown_parameter_is_answered_with_the_right_name(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"unknown parameter '{name}': did you mean {near}\\?"):
        CREATE.make(**BTC, **{name: "x"})
