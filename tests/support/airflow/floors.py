"""Import the modules of operators, sensors, triggers and hooks that this Airflow supports."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException
from support.airflow.airflow_runs import AIRFLOW

import airflow_custody


def modules_of(*floors: str) -> Iterator[ModuleType]:
    """Yield the modules of these packages, without those that need a newer Airflow."""
    for floor in floors:
        for found in pkgutil.iter_modules([f"{airflow_custody.__path__[0]}/{floor}"], f"airflow_custody.{floor}."):
            if found.name == "airflow_custody.hooks._form_widgets" and AIRFLOW >= (3,):
                # This module imports libraries that only Airflow 2 has.
                continue
            try:
                yield importlib.import_module(found.name)
            except AirflowOptionalProviderFeatureException:
                assert AIRFLOW < (3, 1), found.name
