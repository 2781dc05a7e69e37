"""Airflow connections to a sandbox, as environment variables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping


def connection_variables(connection: str, approvers: Iterable[Mapping[str, str]] = ()) -> dict[str, str]:
    """
    Return the connections that the example DAGs need.

    :param connection: ``custody_default``, as JSON.
    :param approvers: approvers as the control returns them. For each there is also a connection to the service, such as
        ``custody_first_approver``, and one with the key, such as ``custody_first_key``.
    """
    variables = {"AIRFLOW_CONN_CUSTODY_DEFAULT": connection}
    for each in approvers:
        prefix = f"AIRFLOW_CONN_CUSTODY_{each['group'].upper()}"
        variables[f"{prefix}_APPROVER"] = json.dumps({**json.loads(connection), "password": each["token"]})
        key = {"conn_type": "generic", "extra": {"private_key": each["private_key"]}}
        variables[f"{prefix}_KEY"] = json.dumps(key)
    return variables
