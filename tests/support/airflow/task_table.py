"""A table of all operators and sensors, with arguments, for the tests that try each of them."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.providers.common.compat.sdk import BaseOperator
from support.airflow.airflow_runs import AIRFLOW

from airflow_custody._base import PARAMETER_OF
from airflow_custody.assets import webhook_calls_asset
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.webhook import (
    CustodyCreateWebhookOperator,
    CustodyDeleteWebhookOperator,
    CustodyReadWebhookCallsOperator,
    CustodySetWebhookStatusOperator,
)
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
    CustodyVerifyWhitelistOperator,
)
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

ADDRESS = "0x" + "ab" * 20
UUID = "123e4567-e89b-12d3-a456-426614174000"
#: A request of which no value is rendered as a number by a template.
BTC: dict[str, Any] = {"label": "L", "address": "1BpEi6DfDAUFd7GtittLSdBeYJvcoaVggu", "blockchain": "BTC"}
REQUEST: dict[str, Any] = {"label": "L", "address": ADDRESS, "blockchain": "ETH"}

_numbers = itertools.count()


@dataclass(frozen=True)
class Entry:
    """An operator or a sensor, with a good value for each of its templated parameters."""

    task: type[Any]
    #: The smallest set of arguments that is valid.
    minimal: Mapping[str, Any]
    #: Parameters that may be left out, also with ``omit_if_none``.
    optional: Mapping[str, Any] = field(default_factory=dict)
    #: Templated parameters that have their own default.
    others: Mapping[str, Any] = field(default_factory=dict)
    #: Invalid settings. In each dictionary, the last setting is the invalid one.
    wrong: list[dict[str, Any]] = field(default_factory=list)
    #: Parameters for ids, which also accept whole numbers.
    ids: Collection[str] = ()
    #: Parameters for which a None in the DAG file has a meaning.
    none_has_a_meaning: Collection[str] = ()
    #: Parameters that replace another parameter, and the name of the replaced parameter.
    in_place_of: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """Return the minimal arguments with changes."""
        replaced = {self.in_place_of.get(name) for name in changes}
        return {**{name: value for name, value in self.minimal.items() if name not in replaced}, **changes}

    def make(self, **changes: Any) -> Any:
        """Return a new task with the minimal arguments and the changes."""
        return self.task(task_id=f"task_{next(_numbers)}", **self.arguments(**changes))

    @property
    def templated(self) -> dict[str, Any]:
        """The value of each templated parameter, by name."""
        names = [PARAMETER_OF.get(each, each) for each in self.task.template_fields]
        values = {**self.minimal, **self.optional, **self.others, "custody_conn_id": "custody_default"}
        return {name: values[name] for name in names}

    @property
    def settings(self) -> dict[str, Any]:
        """The minimal arguments that are not templated."""
        return {name: value for name, value in self.minimal.items() if name not in self.templated}


_HEALTH_FILTERS = {
    "tenant_id": "1",
    "groups": ["hsm"],
    "components": ["hsm"],
    "checks": ["hsm"],
    "require_results": ["ETH"],
}
#: The result of a plan task.
_PLANNED = {
    "plan_hash": "ab" * 32,
    "source": {
        "path": "list.yaml",
        "prune": False,
        "replace": False,
        "only": {},
        "ignore": [],
        "check_address": True,
        "at_most": None,
        "omit_if_none": [],
    },
}

#: What each task needs, and what it may have. A new operator or sensor without an entry fails the tests.
TABLE = [
    Entry(
        CustodyHealthCheckOperator,
        minimal={},
        optional=_HEALTH_FILTERS,
        others={"healthy_statuses": ["success"]},
        wrong=[{"fail_when_unhealthy": "no"}, {"require_fresh": None}],
        ids=["tenant_id"],
    ),
    Entry(
        CustodyHealthSensor,
        minimal={},
        optional=_HEALTH_FILTERS,
        others={"healthy_statuses": ["success"]},
        wrong=[{"timeout": -1}, {"deferrable": True, "start_from_trigger": True, "tenant_id": 1.5}],
        ids=["tenant_id"],
    ),
    Entry(
        CustodyCreateWhitelistRequestOperator,
        minimal=REQUEST,
        optional={
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
        },
        wrong=[{"if_exists": "x"}, {"on_clear": "x"}, {"lookup_wait": "soon"}, {"check_address": 1}],
        ids=["linked_internal_address_ids", "linked_wallet_ids", "exchange_account_id"],
    ),
    Entry(
        CustodyDeleteWhitelistRequestOperator,
        minimal={"request_id": "3711", "comment": "why"},
        others={"only_if": True},
        ids=["request_id"],
    ),
    Entry(
        CustodyWhitelistRequestSensor,
        minimal={"request_id": "3711"},
        optional={"expected": REQUEST},
        wrong=[{"skip_if_empty": 1}, {"max_wait": "60"}],
        ids=["request_id"],
    ),
    Entry(
        CustodySignWhitelistRequestsOperator,
        minimal={"request_ids": ["3711"], "expected": REQUEST, "signer": object()},
        others={"comment": "why"},
        wrong=[{"lookup_wait": True}, {"signer": "custody_first_key"}],
        ids=["request_ids"],
        none_has_a_meaning=["expected"],
    ),
    Entry(
        CustodyRejectWhitelistRequestsOperator,
        minimal={"request_ids": ["3711"], "comment": "why"},
        wrong=[{"skip_if_empty": 1}],
        ids=["request_ids"],
    ),
    Entry(
        CustodyVerifyWhitelistOperator,
        minimal={},
        optional={"path": "/tmp/evidence.json", "ids": ["3711"]},
        wrong=[{"fail_on_unverified": "no"}],
        ids=["ids"],
    ),
    Entry(
        CustodyPlanWhitelistOperator,
        minimal={"rows": [REQUEST]},
        optional={"only": {"blockchain": ["ETH"]}},
        others={"ignore": ["3711"], "replace": True, "path": "list.yaml", "must_keep": ["L"]},
        wrong=[{"max_creates": 1.5}, {"max_delete_percent": "all"}, {"prune": 1}],
        ids=["ignore"],
        in_place_of={"path": "rows"},
    ),
    Entry(
        CustodyApplyWhitelistPlanOperator,
        minimal={"plan": _PLANNED, "plan_hash": "ab" * 32},
        optional={"rows": [REQUEST]},
        others={"comment": "why"},
        wrong=[{"max_parallel": 33}, {"lookup_wait": -1}],
    ),
    Entry(
        CustodyCompleteWhitelistPlanOperator,
        minimal={"applied": {"completion": None}, "plan_hash": "ab" * 32},
        others={"comment": "why"},
    ),
    # --- webhooks
    Entry(
        CustodySetWebhookStatusOperator,
        minimal={"webhook_id": UUID, "status": "enabled"},
    ),
    Entry(
        CustodyDeleteWebhookOperator,
        minimal={"webhook_id": UUID},
    ),
    Entry(
        CustodyCreateWebhookOperator,
        minimal={
            "webhook_type": "requestStatus.updated",
            "url": "https://hooks.example.com/",
            "secret_conn_id": "custody_default",
        },
        optional={"secret_conn_id": "custody_default"},
        wrong=[{"lookup_wait": "soon"}, {"store_secret": print}],
    ),
    Entry(
        CustodyReadWebhookCallsOperator,
        minimal={"asset": webhook_calls_asset()},
        optional={
            "webhook_ids": [UUID],
            "webhook_types": ["requestStatus.updated"],
            "event_ids": ["e"],
            "statuses": ["success"],
            "data_statuses": ["disabled"],
            "continue_from": "dag/task",
        },
        others={"start": "now", "on_gap": "fail"},
        wrong=[{"asset": "custody"}, {"max_calls": 0}],
    ),
]


def documented_tasks() -> set[type[Any]]:
    """Return the operators and sensors of the modules that the provider's metadata names."""
    info = get_provider_info()
    modules = {module for kind in ("operators", "sensors") for each in info[kind] for module in each["python-modules"]}
    if AIRFLOW < (3, 1):
        modules = {each for each in modules if not each.endswith("_approval")}
    return {each for module in modules for each in vars(importlib.import_module(module)).values() if _is_task(each)}


def _is_task(each: object) -> bool:
    """
    Tell whether an object is one of this package's operators or sensors.

    Their base classes do not count.
    """
    is_operator = isinstance(each, type) and issubclass(each, BaseOperator)
    return is_operator and each.__module__.startswith("airflow_custody.") and "._base" not in each.__module__
