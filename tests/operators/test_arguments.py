"""What an author gives reaches the wire, or the verdict, in every operator and sensor."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow_runs import execute

from airflow_custody.client import CustodyUnhealthyError, WhitelistRequest
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.triggers.health import CustodyHealthTrigger

pytestmark = pytest.mark.usefixtures("connection")

VALUES: dict[str, Any] = {
    "label": "Treasury",
    "address": "0x" + "ab" * 20,
    "blockchain": "ETH",
    "currency": "ETH",
    "linked_internal_address_ids": ["1", "2"],
    "linked_wallet_ids": ["3"],
    "network": "mainnet",
    "memo": "a memo",
    "address_type": "exchange",
    "contract_type": "ERC20",
    "customer_id": "customer-1",
    "exchange_account_id": "42",
    "visibility_group_id": "group-1",
}
WIRE_NAMES = {name: field.alias for name, field in WhitelistRequest.model_fields.items()}


def test_the_values_cover_every_field() -> None:
    assert set(VALUES) == set(WhitelistRequest.model_fields)


def test_every_field_of_a_request_reaches_the_wire(sandbox: Sandbox) -> None:
    execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **VALUES))
    (call,) = sandbox.control.request_log(method="POST", path="/whitelists/addresses")
    assert call["body"] == {WIRE_NAMES[name]: value for name, value in VALUES.items()}


# Each makes the sandbox, which is healthy, count as unhealthy.
CRITERIA: dict[str, Any] = {
    "tenant_id": "999",
    "groups": ["nowhere"],
    "components": ["nothing"],
    "checks": ["none"],
    "require_results": ["XYZ"],
    "healthy_statuses": ["splendid"],
}


@pytest.mark.parametrize("name", CRITERIA)
def test_every_criterion_of_the_operator_counts(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(CustodyUnhealthyError):
        execute(lambda: CustodyHealthCheckOperator(task_id="check", **{name: CRITERIA[name]}))


@pytest.mark.parametrize("name", [*CRITERIA, "require_fresh"])
def test_every_criterion_of_the_sensor_reaches_its_trigger(sandbox: Sandbox, name: str) -> None:
    value = CRITERIA.get(name, False)
    if name == "require_fresh":
        sandbox.control.update_health(group="hsm", status="error")
    with pytest.raises(TaskDeferred) as deferred:
        execute(lambda: CustodyHealthSensor(task_id="wait", deferrable=True, **{name: value}))
    trigger = deferred.value.trigger
    assert isinstance(trigger, CustodyHealthTrigger)
    assert trigger.serialize()[1][name] == value
