from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil

import pytest
from airflow_runs import AIRFLOW

import airflow_custody
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks.custody import CustodyHook

TYPE = get_provider_info()["connection-types"][0]


def test_package_name_is_the_distribution():
    # If they differ, the whole of Airflow fails to import.
    assert get_provider_info()["package-name"] == "airflow-provider-custody"
    distribution = importlib.metadata.distribution("airflow-provider-custody")
    (entry,) = distribution.entry_points.select(group="apache_airflow_provider")
    assert entry.load() is get_provider_info


def test_every_module_is_listed():
    listed = {
        module
        for kind in ("hooks", "operators", "sensors", "triggers")
        for entry in get_provider_info()[kind]
        for module in entry["python-modules"]
    }
    there = {
        f"airflow_custody.{kind}.{module.name}"
        for kind in ("hooks", "operators", "sensors", "triggers")
        for module in pkgutil.iter_modules([f"{airflow_custody.__path__[0]}/{kind}"])
    }
    assert listed == there


@pytest.mark.filterwarnings("ignore")  # the manager itself is being moved
def test_airflow_knows_the_connection_type():
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    assert "airflow-provider-custody" in manager.providers
    assert manager.hooks["custody"].hook_class_name == TYPE["hook-class-name"]
    assert CustodyHook.conn_type == TYPE["connection-type"]
    assert CustodyHook.hook_name == TYPE["hook-name"]


def test_the_info_fits_airflows_schema():
    import json
    from pathlib import Path

    import airflow
    import jsonschema

    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_both_forms_behave_alike():
    behaviour = CustodyHook.get_ui_field_behaviour()
    assert behaviour == {
        "hidden_fields": TYPE["ui-field-behaviour"]["hidden-fields"],
        "relabeling": TYPE["ui-field-behaviour"]["relabeling"],
        "placeholders": TYPE["ui-field-behaviour"]["placeholders"],
    }


@pytest.mark.skipif(AIRFLOW >= (3, 0), reason="the form of Airflow 2")
def test_the_form_of_airflow_2_has_the_same_fields():
    widgets = CustodyHook.get_connection_form_widgets()
    assert list(widgets) == list(TYPE["conn-fields"])
    kinds = {"number": "StringField", "integer": "IntegerField", "string": "StringField", "boolean": "BooleanField"}
    for name, widget in widgets.items():
        assert widget.field_class.__name__ == kinds[TYPE["conn-fields"][name]["schema"]["type"][0]]
        assert widget.kwargs["description"] == TYPE["conn-fields"][name]["description"]


def test_every_extra_of_the_form_is_read_and_may_be_null(monkeypatch):
    for field in TYPE["conn-fields"].values():
        assert "null" in field["schema"]["type"]
    import inspect

    from airflow_custody.client import CustodyClient

    # The key's id goes into the client's auth, as the form's other two secrets do.
    assert set(TYPE["conn-fields"]) - {"api_key_id"} <= set(inspect.signature(CustodyClient).parameters)
