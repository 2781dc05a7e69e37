from __future__ import annotations

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.keys.pinned_keys import pinned

from airflow_custody.client import ClientSettings, CustodyConfigurationError
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks.custody import CustodyHook

TYPE = get_provider_info()["connection-types"][0]


@pytest.mark.filterwarnings("ignore")  # the manager itself is being moved
def test_airflow_knows_the_connection_type() -> None:
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    assert "airflow-provider-custody" in manager.providers
    hook = manager.hooks["custody"]
    assert hook is not None
    assert hook.hook_class_name == TYPE["hook-class-name"]
    assert CustodyHook.conn_type == TYPE["connection-type"]
    assert CustodyHook.hook_name == TYPE["hook-name"]


def test_the_form_of_airflow_2_shows_the_standard_fields_alike() -> None:
    behaviour = TYPE["ui-field-behaviour"]
    assert CustodyHook.get_ui_field_behaviour() == {name.replace("-", "_"): behaviour[name] for name in behaviour}
    assert {"hidden-fields", "relabeling", "placeholders"} == set(behaviour)


@pytest.mark.skipif(AIRFLOW >= (3, 0), reason="the form of Airflow 2")
def test_the_form_of_airflow_2_has_the_same_fields() -> None:
    widgets = CustodyHook.get_connection_form_widgets()
    assert list(widgets) == list(TYPE["conn-fields"])
    kinds = {"number": "StringField", "integer": "IntegerField", "string": "StringField", "boolean": "BooleanField"}
    for name, widget in widgets.items():
        assert widget.field_class.__name__ == kinds[TYPE["conn-fields"][name]["schema"]["type"][0]]
        assert widget.kwargs["description"] == TYPE["conn-fields"][name]["description"]
    # A field that keeps the line ends of what is pasted.
    shown = type(widgets["superadmin_keys"].kwargs["widget"]).__name__
    assert shown == "BS3TextAreaFieldWidget"
    assert TYPE["conn-fields"]["superadmin_keys"]["schema"]["format"] == "multiline"


def test_the_form_takes_the_numbers_that_the_client_takes() -> None:
    settings = {"base_url": "https://custody.example.com", **pinned(1)}
    limits = [(name, each["schema"]) for name, each in TYPE["conn-fields"].items()]
    for bound, beyond in (("minimum", -1), ("maximum", 1)):
        for name, limit in [(name, schema[bound]) for name, schema in limits if bound in schema]:
            ClientSettings.parse({**settings, name: limit})
            with pytest.raises(CustodyConfigurationError, match=name):
                ClientSettings.parse({**settings, name: limit + beyond})
