"""Connections of Airflow: finding one, and masking its secrets."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Connection


def find_connection(
    conn_id: str, advice: str, *, setting: str, get: Callable[[str], Connection] = BaseHook.get_connection
) -> Connection:
    """
    Return a connection.

    :param conn_id: its id.
    :param advice: what to do if there is none.
    :param setting: what named it.
    :param get: returns it. Default: from Airflow.
    :raises CustodyConfigurationError: if Airflow does not find it. Airflow does not say so if it could not read it.
    """
    from airflow_custody.client.errors import CustodyConfigurationError

    with suppress(AirflowNotFoundException):
        return get(conn_id)
    what, variable = "is not defined", f"AIRFLOW_CONN_{conn_id.upper()}"
    if variable in os.environ:
        what = f"cannot be read from the environment variable {variable}"
        advice = "Correct the variable: a URI, or a JSON object of Airflow's fields, in which password is a string."
    raise CustodyConfigurationError(
        f"the Airflow connection {conn_id!r} {what}", setting=setting, advice=advice, code="setting-wrong"
    )


def mask(secret: str) -> None:
    """Register a secret with Airflow's masker, wherever this Airflow has it."""
    try:
        from airflow.sdk.log import mask_secret
    except ImportError:
        from airflow.utils.log.secrets_masker import mask_secret  # type: ignore[no-redef]
    mask_secret(secret)
