from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
from airflow_runs import AIRFLOW
from pinned_keys import pinned

from airflow_custody.client import ClientSettings, CustodyClient, CustodyConfigurationError
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
    assert (shown, TYPE["conn-fields"]["superadmin_keys"]["schema"]["format"]) == (
        "BS3TextAreaFieldWidget",
        "multiline",
    )


# The form has the first under Host; the hook sets the second.
NOT_IN_THE_FORM = {"base_url", "user_agent", "source"}
CREDENTIALS = {"auth", "api_key_id"}


def test_the_form_has_every_setting_of_the_client() -> None:
    settings = {each.name: each.default for each in fields(ClientSettings)}
    assert set(TYPE["conn-fields"]) - CREDENTIALS == set(settings) - NOT_IN_THE_FORM
    for name, field in TYPE["conn-fields"].items():
        # The form saves an empty field as null.
        assert "null" in field["schema"]["type"]
        if isinstance(settings.get(name), (int, float)) and not isinstance(settings[name], bool):
            assert f"Default: {settings[name]:.0f}" in field["description"]


def test_the_form_takes_the_numbers_that_the_client_takes() -> None:
    settings = {"base_url": "https://custody.example.com", **pinned(1)}
    limits = [(name, each["schema"]) for name, each in TYPE["conn-fields"].items()]
    for bound, beyond in (("minimum", -1), ("maximum", 1)):
        for name, limit in [(name, schema[bound]) for name, schema in limits if bound in schema]:
            ClientSettings.parse({**settings, name: limit})
            with pytest.raises(CustodyConfigurationError, match=name):
                ClientSettings.parse({**settings, name: limit + beyond})


def test_the_client_takes_every_setting_as_an_argument() -> None:
    arguments = inspect.signature(CustodyClient).parameters
    settings = {each.name: each.default for each in fields(ClientSettings)}
    assert set(arguments) - {"token", "auth"} == set(settings)
    for name in set(settings) - {"base_url"}:
        assert arguments[name].default == settings[name]
    for name, field in ClientSettings.__pydantic_fields__.items():  # type: ignore[attr-defined]
        assert f":param {name}:" in (CustodyClient.__doc__ or "")
        assert field.description
