"""What an author gave is what is meant, in every operator and sensor: a value that the run lacks is refused."""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, BaseOperator
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, Run, failing_at_once, new_dag, run_dag
from support.airflow.floors import modules_of
from support.airflow.task_log import TaskLog

from airflow_custody._base import NOT_GIVEN, CustodyTask
from airflow_custody.assets import webhook_calls_asset
from airflow_custody.client import (
    CustodyClient,
    CustodyConfigurationError,
    CustodyError,
    CustodyRequestError,
)
from airflow_custody.operators._base_plan import WhitelistFileTask
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.webhook import CustodyCreateWebhookOperator, CustodyReadWebhookCallsOperator
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
)
from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

pytestmark = pytest.mark.usefixtures("connection")


def tasks() -> Iterator[type[CustodyTask]]:
    """Yield every operator and sensor; one that is no task of ours fails the tests."""
    for module in modules_of("operators", "sensors"):
        for name, each in vars(module).items():
            own = isinstance(each, type) and each.__module__ == module.__name__ and "._base" not in module.__name__
            if not own or name.startswith("_") or not issubclass(each, BaseOperator):
                continue
            # That one is Airflow's, and calls no service.
            if name != "CustodyApproveWhitelistPlanOperator":
                assert issubclass(each, CustodyTask)
                yield each


ADDRESS = "0x" + "ab" * 20
UUID = "123e4567-e89b-12d3-a456-426614174000"
#: A good value for each parameter. A new one without a value here fails the tests.
VALUES: dict[str, Any] = {
    "custody_conn_id": "custody_default",
    "tenant_id": "1",
    "groups": ["hsm"],
    "components": ["hsm"],
    "checks": ["hsm"],
    "require_results": ["ETH"],
    "healthy_statuses": ["success"],
    "label": "Treasury",
    "address": ADDRESS,
    "blockchain": "ETH",
    "currency": "ETH",
    "linked_internal_address_ids": ["1"],
    "linked_wallet_ids": ["2"],
    "network": "mainnet",
    "memo": "m",
    "address_type": "exchange",
    "contract_type": "ERC20",
    "customer_id": "c",
    "exchange_account_id": "3",
    "visibility_group_id": "g",
    "request_id": "3711",
    "request_ids": ["3711"],
    "ids": ["3711"],
    "accept_fields": ["tnParticipantID"],
    "expected": {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"},
    "comment": "why",
    "effective_statuses": ["approved"],
    "rejected_statuses": ["rejected"],
    "webhook_id": UUID,
    "status": "enabled",
    "webhook_type": "requestStatus.updated",
    "url": "https://hooks.example.com/",
    "secret_conn_id": "custody_default",
    "path": "whitelist.yaml",
    "rows": [{"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}],
    "plan_hash": "ab" * 32,
    "applied": {"completion": None},
    "must_keep": ["Treasury"],
    "replace": True,
    "only": {"blockchain": ["ETH"]},
    "start": "now",
    "webhook_ids": [UUID],
    "webhook_types": ["requestStatus.updated"],
    "event_ids": ["e"],
    "statuses": ["success"],
    "on_gap": "fail",
    "ignore": ["3711"],
}
#: What else a constructor needs.
SETTINGS: dict[str, Any] = {"signer": object()}
#: Where a whole number is taken for its text.
IDS = {
    "tenant_id",
    "ignore",
    "ignore[]",
    "exchange_account_id",
    "request_id",
    "request_ids",
    "ids",
    "ids[]",
    "linked_internal_address_ids[]",
    "linked_wallet_ids[]",
    "request_id[]",
    "request_ids[]",
}
_numbers = itertools.count()
LISTS = {name for name, value in VALUES.items() if isinstance(value, list)}


def fields() -> list[Any]:
    found = []
    for task in tasks():
        names = {field: name for name, field in task.field_names.items()}
        found += [
            pytest.param(task, names.get(field, field), id=f"{task.__name__}-{names.get(field, field)}")
            for field in task.template_fields
        ]
    return found


def parameters_of(task: type[CustodyTask]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a task, and of its bases of this package, by name."""
    bases = [each for each in task.__mro__ if issubclass(each, CustodyTask)]
    return {name: each for base in bases[::-1] for name, each in inspect.signature(base.__init__).parameters.items()}


def make(task: type[CustodyTask], **changes: Any) -> Any:
    """Return a task with a good value for each required parameter."""
    return task(task_id=f"task_{next(_numbers)}", **{**required(task, **changes), **changes})


def required(task: type[CustodyTask], **changes: Any) -> dict[str, Any]:
    """Return a good value for each parameter that a task needs beside others."""
    parameters = parameters_of(task)
    given = {
        name: VALUES[name] if name in VALUES else SETTINGS[name]
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and (name in VALUES or name in SETTINGS)
    }
    if task is CustodyCreateWhitelistRequestOperator:
        given["blockchain"] = "ETH"
    if task is CustodyCreateWebhookOperator:
        given["secret_conn_id"] = "custody_default"
    if task is CustodyReadWebhookCallsOperator:
        given["asset"] = webhook_calls_asset()
    if issubclass(task, WhitelistFileTask) and "rows" not in changes:
        given["path"] = VALUES["path"]
    return given


def context(**values: Any) -> Any:
    return {"ti": FakeTaskInstance(), "dag": None, "run_id": "run", "params": values, **values}


def render_and_execute(operator: Any, dag: DAG, **values: Any) -> Any:
    """Render as a run does, and execute."""
    render(operator, dag, **values)
    return operator.execute(context())


def render(operator: Any, dag: DAG, **values: Any) -> None:
    if not operator.has_dag():
        operator.dag = dag
    operator.render_template_fields({**context(**values), "dag": dag}, dag.get_template_env())


def native() -> DAG:
    """Return a DAG whose templates become values, on both lines of Airflow."""
    return DAG("native", schedule=None, render_template_as_native_obj=True)


def test_there_are_values_for_all_parameters() -> None:
    assert {name for _, name in (param.values for param in fields())} == set(VALUES)


# --- without a value ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "name"), fields())
def test_a_field_without_a_value_is_refused(sandbox: Sandbox, task: type[CustodyTask], name: str) -> None:
    lost, text = f"^{name} was given, and resolved to None", rf"^{name} is the text '(None|null)'"
    cases = [
        ("{{ params.x }}", native(), f"{lost}: the DAG file, a template or an upstream task says so"),
        ("None", native(), lost),
        (["7", "{{ params.x }}"], native(), rf"^{name}\[1\] was given, and resolved to None"),
    ]
    for template in ("{{ params.x }}", " {{ params.x }}", "{{ params.x | tojson }}"):
        cases += [(template, new_dag(), text), (["7", template], new_dag(), text.replace(" is", r"\[1\] is"))]
    for value, dag, pattern in cases:
        with failing_at_once(pattern):
            render_and_execute(make(task, **{name: value}), dag, x=None)
    if name in task.none_is_a_value:
        make(task, **{name: None})._check_given()
    elif task is not CustodyCreateWebhookOperator or name != "secret_conn_id":  # that is refused as the file is parsed
        with failing_at_once(lost):
            render_and_execute(make(task, **{name: None}), new_dag())
    # Airflow copies tasks.
    with failing_at_once(lost):
        render_and_execute(copy.deepcopy(make(task, **{name: "{{ params.x }}"})), native(), x=None)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("task", list(tasks()))
def test_what_is_left_out_is_none_in_the_field_and_in_the_serialized_dag(task: type[CustodyTask]) -> None:
    module = importlib.import_module("airflow.serialization.serialized_objects")
    # Airflow 3.2 renamed it.
    serialized: Any = getattr(module, "DagSerialization", module.SerializedDAG)
    with new_dag() as dag:
        operator = make(task)
    operator._check_given()
    (shown,) = serialized.to_dict(dag)["dag"]["tasks"]
    fields = json.loads(json.dumps({name: shown["__var"].get(name) for name in task.template_fields}))
    assert fields == json.loads(json.dumps({name: getattr(operator, name) for name in task.template_fields}))


# --- of another type -------------------------------------------------------------------------------------------

ODD: list[Any] = [16, 1.5, float("nan"), True, b"x", {"a": 1}, {"a"}, object(), 10**5000, -1, [[]], [1.5], [b"x"], [16]]


@pytest.mark.parametrize(("task", "name"), fields())
def test_a_value_of_another_type_is_refused_by_name(sandbox: Sandbox, task: type[CustodyTask], name: str) -> None:
    for odd in [*ODD, ["7", 1.5], ["7", object()]]:
        number = odd[0] if isinstance(odd, list) else odd
        if number == 16 and (f"{name}[]" if isinstance(odd, list) else name) in IDS and number is not True:
            continue
        if isinstance(odd, set) and name in LISTS and not name.startswith("linked_"):
            continue
        if odd is True and name == "replace":
            continue
        with pytest.raises(CustodyFailException) as caught:
            render_and_execute(make(task, **{name: odd}), new_dag())
        assert isinstance(caught.value.error, (CustodyRequestError, CustodyConfigurationError)), odd
        assert name in str(caught.value.error), odd
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("name", "template", "value"),
    [
        ("memo", "{{ params.x }}", "0x10"),
        ("memo", "{{ params.x | string }}", "0x10"),
        # Named as the author wrote it: the field is called address_label.
        ("label", "{{ params.x }}", "1_000"),
        ("address", ADDRESS, ""),
        ("network", "{{ params.x }}", "True"),
        ("customer_id", "{{ params.x }}", "[1]"),
    ],
)
def test_text_that_native_rendering_rewrites_is_refused(sandbox: Sandbox, name: str, template: str, value: str) -> None:
    operator = make(CustodyCreateWhitelistRequestOperator, **{**XRP, name: template})
    with failing_at_once(f"nothing was sent: {name} must be text, not .*render_template_as_native_obj.*tojson"):
        render_and_execute(operator, native(), x=value)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("value", ["0x10", "1_000", ADDRESS, "007", 'it\'s <b> & "q" ü', "None of it", "[1]", "True"])
def test_what_the_message_advises_keeps_text_as_it_is(sandbox: Sandbox, value: str) -> None:
    operator = make(CustodyCreateWhitelistRequestOperator, **XRP, memo="{{ params.x | tojson }}")
    render_and_execute(operator, native(), x=value)
    assert bodies(sandbox) == [{**XRP, "memo": value}]


def test_ids_that_are_whole_numbers_travel_as_their_text(sandbox: Sandbox) -> None:
    operator = make(CustodyCreateWhitelistRequestOperator, **XRP, linked_wallet_ids=[12, "{{ params.x }}"])
    render_and_execute(operator, native(), x="13")
    assert [each["linkedWalletIds"] for each in bodies(sandbox)] == [["12", "13"]]


# --- in runs ---------------------------------------------------------------------------------------------------

REQUEST: dict[str, Any] = {"label": "L", "address": ADDRESS, "blockchain": "ETH"}
# One that no template takes for a number.
XRP: dict[str, Any] = {"label": "L", "address": "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh", "blockchain": "XRP"}


def bodies(sandbox: Sandbox) -> list[dict[str, Any]]:
    return [call["body"] for call in sandbox.control.request_log(method="POST", path="/whitelists/addresses")]


def nothing(dag: DAG) -> Any:
    from airflow.providers.common.compat.sdk import task

    @task
    def upstream() -> Any:
        return None

    with dag:
        return upstream()


@pytest.mark.usefixtures("airflow_db")
def test_an_upstream_task_that_returned_none_is_refused(sandbox: Sandbox, task_log: TaskLog) -> None:
    dag = new_dag()
    with dag:
        CustodyCreateWhitelistRequestOperator(task_id="create", linked_wallet_ids=nothing(dag), **REQUEST)
        CustodyHealthCheckOperator(task_id="check", require_results=nothing(dag))
        CustodyHealthSensor(task_id="wait", groups=nothing(dag), timeout=1)
        CustodyHealthSensor(task_id="defer", groups=nothing(dag), timeout=1, deferrable=True, retries=2)
    run = run_dag(dag)
    assert {run.state_of(each) for each in ("create", "check", "wait", "defer")} == {"failed"}
    assert {run.tries[each, -1] for each in ("create", "check", "wait", "defer")} == {1}
    assert sandbox.control.request_log() == []
    for name in ("linked_wallet_ids", "require_results", "groups"):
        assert f"{name} was given, and resolved to None" in task_log.text


@pytest.mark.usefixtures("airflow_db")
def test_one_field_without_a_value_may_be_left_out(sandbox: Sandbox) -> None:
    with DAG("omit", schedule=None, params={"x": None}) as dag:
        for number, memo in enumerate((nothing(dag), "{{ params.x }}", "{{ params.x | tojson }}")):
            CustodyCreateWhitelistRequestOperator(
                task_id=f"create_{number}", memo=memo, omit_if_none=("memo",), if_exists="create", **REQUEST
            )
    assert run_dag(dag).state == "success"
    assert bodies(sandbox) == [REQUEST] * 3


def mapped(rows: list[dict[str, Any]], **partial: Any) -> Run:
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator.partial(task_id="create", blockchain="ETH", **partial).expand_kwargs(rows)
    return run_dag(dag)


ROW = {"label": "L", "address": ADDRESS}


@pytest.mark.usefixtures("airflow_db")
def test_mapped_an_absent_key_is_not_given_and_none_is_refused(sandbox: Sandbox, task_log: TaskLog) -> None:
    rows: list[dict[str, Any]] = [ROW, {**ROW, "memo": "m"}, {**ROW, "memo": None}, {**ROW, "label": None}]
    run = mapped(rows, retries=2)
    assert [run.state_of("create", index) for index in range(4)] == ["success", "success", "failed", "failed"]
    assert {run.tries["create", index] for index in range(4)} == {1}
    assert {body.get("memo") for body in bodies(sandbox)} == {None, "m"}
    log = task_log.text
    assert "memo was given, and resolved to None" in log
    assert "write omit_if_none=('memo',)" in log
    assert "label was given, and resolved to None" in log


@pytest.mark.usefixtures("airflow_db")
def test_mapped_a_none_in_the_dag_file_is_given(sandbox: Sandbox, task_log: TaskLog) -> None:
    with DAG("with_defaults", schedule=None, default_args={"network": None}) as dag:
        fields: dict[str, Any] = {"blockchain": "ETH", "label": "L"}
        make_one = CustodyCreateWhitelistRequestOperator.partial
        make_one(task_id="in_defaults", **fields).expand(address=[ADDRESS])
        make_one(task_id="in_partial", memo=None, network="n", **fields).expand(address=[ADDRESS])
        make_one(task_id="left_out", memo=None, omit_if_none=("memo", "network"), **fields).expand(address=[ADDRESS])
    run = run_dag(dag)
    assert {run.state_of("in_defaults", 0), run.state_of("in_partial", 0)} == {"failed"}
    assert run.state_of("left_out", 0) == "success"
    assert bodies(sandbox) == [{**ROW, "blockchain": "ETH"}]
    for name in ("network", "memo"):
        assert f"{name} was given, and resolved to None" in task_log.text


@pytest.mark.usefixtures("airflow_db")
def test_mapped_a_none_that_has_a_meaning_counts_in_partial_only(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "whitelist.yaml"
    path.write_text(f"version: 1\naddresses:\n- {{label: L, address: '{ADDRESS}', blockchain: ETH}}\n")
    make_one = CustodyPlanWhitelistOperator.partial
    with new_dag() as dag:
        make_one(task_id="in_partial", effective_statuses=None).expand(path=[str(path)])
        make_one(task_id="in_a_row", path=str(path)).expand(effective_statuses=[None, ["approved"]])
        make_one(task_id="from_upstream", effective_statuses=nothing(dag)).expand(path=[str(path)])
        CustodyPlanWhitelistOperator(task_id="plain", path=str(path), effective_statuses=None)
    assert {each: state for each, state in run_dag(dag).states.items() if each[0] != "upstream"} == {
        ("in_partial", 0): "success",
        ("in_a_row", 0): "failed",
        ("in_a_row", 1): "success",
        ("from_upstream", 0): "failed",
        ("plain", -1): "success",
    }


#: Tasks whose constructor refuses a setting in a row, and the setting.
REFUSED: list[tuple[type[CustodyTask], dict[str, Any]]] = [
    (CustodyCreateWhitelistRequestOperator, {"on_clear": "x"}),
    (CustodyCreateWhitelistRequestOperator, {"lookup_wait": "soon"}),
    (CustodyCreateWhitelistRequestOperator, {"omit_if_none": ["label"]}),
    (CustodyReadWebhookCallsOperator, {"asset": "custody"}),
    (CustodyPlanWhitelistOperator, {"rows": [REQUEST], "path": "a.yaml"}),
    (CustodyHealthSensor, {"timeout": -1}),
    (CustodyHealthSensor, {"deferrable": True, "start_from_trigger": True, "tenant_id": 1.5}),
]


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(("task", "change"), REFUSED, ids=str)
def test_mapped_a_setting_that_the_constructor_refuses_is_the_end_of_the_log(
    sandbox: Sandbox, task_log: TaskLog, task: type[CustodyTask], change: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=next(reversed(change))):
        make(task, **change)
    row = {name: value for name, value in required(task).items() if name not in change}
    with new_dag() as dag:
        # A second row, so that the index is not that of the first.
        task.partial(task_id="task", retries=2, retry_delay=timedelta(0)).expand_kwargs(
            [{**row, "custody_conn_id": None}, {**row, **change}]
        )
    run = run_dag(dag)
    assert (run.states["task", 1], run.tries["task", 1]) == ("failed", 1)
    check_end_of_log(task_log.text, 1, next(reversed(change)))
    assert sandbox.control.request_log() == []


@pytest.mark.usefixtures("airflow_db")
def test_mapped_an_unknown_key_of_a_row_is_named_at_the_end_of_the_log(sandbox: Sandbox, task_log: TaskLog) -> None:
    run = mapped([ROW, {**ROW, "netwrok": "mainnet"}], retries=2)
    assert run.states == {("create", 0): "success", ("create", 1): "failed"}
    assert run.tries["create", 1] == 1
    check_end_of_log(task_log.text, 1, "there is no parameter 'netwrok'")


@pytest.mark.parametrize("in_a_list", [False, True])
def test_an_operator_instead_of_its_output_is_named(in_a_list: bool) -> None:
    with new_dag():
        create: Any = CustodyCreateWhitelistRequestOperator(task_id="make_it", **REQUEST)
        CustodyWhitelistRequestSensor(task_id="good", request_id=[create.output] if in_a_list else create.output)
        with pytest.raises(ValueError, match=r"^request_id: the task 'make_it' .* write \.output after it"):
            CustodyWhitelistRequestSensor(task_id="bad", request_id=[create] if in_a_list else create)


def check_end_of_log(log: str, index: int, text: str) -> None:
    """Check that a task's log ends with its exception, which names the row."""
    lines = log.splitlines()
    place = f"CustodyFailException: map index {index} (counted from 0): "
    # Airflow 2 logs the exception again, outside the task's log.
    exception, *again = [number for number, line in enumerate(lines) if place in line]
    assert not again or AIRFLOW < (3, 0)
    assert any("Task failed with exception" in line for line in lines[:exception])
    assert text in lines[exception].partition(place)[2]
    assert lines[exception].endswith("(not retried)")
    assert lines[exception + 1] == "[custody/parameter-wrong]"


class TreasuryOperator(CustodyCreateWhitelistRequestOperator):
    """A subclass with a parameter and a field of its own."""

    template_fields = (*CustodyCreateWhitelistRequestOperator.template_fields, "desk")

    def __init__(self, *, wallet: Any = NOT_GIVEN, desk: Any = NOT_GIVEN, **kwargs: Any) -> None:
        super().__init__(linked_wallet_ids=wallet if wallet is NOT_GIVEN else [wallet], memo=desk, **kwargs)
        self.desk = desk
        self._note_given()


def test_in_a_subclass_what_it_hands_on_is_given(sandbox: Sandbox) -> None:
    changes: list[dict[str, Any]] = [{"wallet": "{{ params.x }}"}, {"desk": "{{ params.x }}"}]
    for change in changes:
        with failing_at_once(r"linked_wallet_ids\[0\] was given|memo was given"):
            render_and_execute(make(TreasuryOperator, **XRP, **change), native(), x=None)
    render_and_execute(make(TreasuryOperator, **XRP), native(), x=None)
    assert bodies(sandbox) == [XRP]


@pytest.mark.parametrize(
    ("task", "name"),
    [
        *((CustodyCreateWhitelistRequestOperator, name) for name in ("label", "on_clear", "nonsense")),
        (CustodyHealthCheckOperator, "healthy_statuses"),
        # Approving anything cannot be left to a template.
        (CustodySignWhitelistRequestsOperator, "expected"),
    ],
)
def test_only_optional_parameters_may_be_left_out(task: type[CustodyTask], name: str) -> None:
    with pytest.raises(ValueError, match=f"omit_if_none names '{name}'"):
        make(task, omit_if_none=name)


def test_a_secret_that_is_left_out_is_not_lost(sandbox: Sandbox) -> None:
    operator = make(CustodyCreateWebhookOperator, secret_conn_id="{{ params.x }}", omit_if_none="secret_conn_id")
    with failing_at_once("has to be kept somewhere"):
        render_and_execute(operator, native(), x=None)
    assert sandbox.control.request_log() == []


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poke_interval", "timeout", "max_wait"])
@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1, "60", True, [60], 1e15, pytest.param(object(), id="object")], ids=repr
)
@pytest.mark.parametrize("task", [CustodyHealthSensor, CustodyWhitelistRequestSensor])
def test_odd_times_of_a_sensor_are_refused_when_the_dag_is_read(task: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number from 0 "):
        make(task, **{name: value})


@pytest.mark.parametrize("value", [None, 1, "no", []], ids=repr)
def test_a_flag_is_true_or_false(value: Any) -> None:
    for task, name in (
        (CustodyHealthCheckOperator, "fail_when_unhealthy"),
        (CustodyHealthSensor, "deferrable"),
        (CustodyHealthSensor, "start_from_trigger"),
        (CustodyCreateWhitelistRequestOperator, "check_address"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be True or False"):
            make(task, **{name: value})


# --- in the triggerer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CustodyHealthSensor.template_fields)
def test_after_a_deferral_the_same_is_refused(sandbox: Sandbox, name: str) -> None:
    dag = native()
    sensor = make(CustodyHealthSensor, deferrable=True, start_from_trigger=True, **{name: "{{ params.x }}"})
    render(sensor, dag, x=None)
    event = {"status": "healthy", "result": {"healthy": True, "total": 3}}
    with failing_at_once(f"{name} was given, and resolved to None"):
        sensor.resume_execution("execute_complete", {"event": event}, context())


@pytest.mark.parametrize(
    "event",
    [
        *(None, {}, {"status": "healthy"}, {"status": "healthy", "result": 5}, {"status": "healthy", "result": {}}),
        *({"status": "error"}, {"status": "error", "error": "x"}, {"status": "unknown"}, {"status": ["healthy"]}),
    ],
    ids=repr,
)
def test_an_event_that_lacks_something_is_retried(event: Any) -> None:
    with pytest.raises(CustodyError, match="unknown event") as caught:
        make(CustodyHealthSensor, deferrable=True).execute_complete(context(), event)
    assert caught.value.retryable


def test_a_mapped_sensor_does_not_begin_in_the_triggerer_without_its_parameters(sandbox: Sandbox) -> None:
    with new_dag():
        made = CustodyHealthSensor.partial(task_id="wait", deferrable=True, start_from_trigger=True).expand(
            groups=[["hsm"], ["nowhere"]]
        )
    operator: Any = getattr(made, "operator", made)
    assert operator.start_trigger_args is None


def test_start_from_trigger_takes_no_upstream_output() -> None:
    dag = new_dag()
    with dag, pytest.raises(ValueError, match="groups: with start_from_trigger"):
        CustodyHealthSensor(task_id="wait", deferrable=True, start_from_trigger=True, groups=nothing(dag))


def test_the_client_refuses_the_same(sandbox: Sandbox) -> None:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
        for odd in (None, True, object(), [[]], "x"):
            calls: list[Any] = [
                lambda odd=odd: client.set_webhook_status(odd, "enabled"),
                lambda odd=odd: client.set_webhook_status(UUID, odd),
                lambda odd=odd: client.get_whitelist_request(odd),
                lambda odd=odd: client.delete_whitelist_request(odd, "why"),
                lambda odd=odd: client.reject_whitelist_requests(odd, "why"),
                lambda odd=odd: client.approve_whitelist_requests(odd, "s" * 88, "why"),
            ]
            for call in calls:
                with pytest.raises(CustodyRequestError):
                    call()
    assert sandbox.control.request_log() == []
