"""Signers whose keys Airflow keeps: in a connection, and so in any secrets backend."""

from __future__ import annotations

import json

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.signers import PemSigner
from airflow_custody.hooks.custody import mask


class ConnectionSigner(PemSigner):
    """
    A signer with a P-256 key in PEM that is kept in an Airflow connection of any type.

    The key is in the connection's extra ``private_key``, and the password it is encrypted with, if it is, in the
    connection's Password. Both are masked in logs. The connection is read when the task runs. Needs the extra
    ``signing``.

    :param signing_conn_id: id of the connection; also the signer's name.
    """

    def __init__(self, signing_conn_id: str) -> None:
        super().__init__(self._pem, name=signing_conn_id)

    def _pem(self) -> str:
        try:
            connection = BaseHook.get_connection(self.name)
        except AirflowNotFoundException:
            raise super()._unusable("there is no such Airflow connection") from None
        try:
            pem = json.loads(connection.extra or "{}")["private_key"]
        except (ValueError, KeyError, TypeError):
            pem = None
        if not isinstance(pem, str) or not pem:
            raise self._unusable("the connection has no extra 'private_key'")
        # Line by line: a log may show some of the lines, or end them in its own way.
        for line in pem.split():
            if "-----" not in line:
                mask(line)
        self._password = connection.password or None
        if self._password:
            mask(self._password)
        return pem

    def _unusable(self, why: str) -> CustodyConfigurationError:
        error = super()._unusable(why)
        error.advice = f"It comes from the Airflow connection {self.name!r}."
        return error
