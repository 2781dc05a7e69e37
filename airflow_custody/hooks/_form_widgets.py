"""
The fields of Airflow 2's connection form.

They are in a module of their own, because it imports the libraries of Airflow 2's UI, which later versions do not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask_appbuilder.fieldwidgets import BS3TextAreaFieldWidget, BS3TextFieldWidget
from wtforms import BooleanField, IntegerField, StringField
from wtforms.validators import NumberRange, Optional


def make_widgets(fields: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the extra fields of the form.

    :param fields: the fields in Airflow 3's format: ``conn-fields`` of the provider info.
    """
    # Do not use a FloatField, because Airflow 2 drops a connection type whose form has one.
    kinds = {"number": StringField, "integer": IntegerField, "string": StringField}
    widgets: dict[str, Any] = {}
    for name, spec in fields.items():
        kind, schema = spec["schema"]["type"][0], spec["schema"]
        if kind == "boolean":
            widgets[name] = BooleanField(spec["label"], description=spec["description"])
            continue
        validators = [Optional()]
        if kind == "integer":
            validators.append(NumberRange(min=schema["minimum"], max=schema.get("maximum")))
        widgets[name] = kinds[kind](
            spec["label"],
            validators=validators,
            description=spec["description"],
            widget=BS3TextAreaFieldWidget() if schema.get("format") == "multiline" else BS3TextFieldWidget(),
        )
    return widgets
