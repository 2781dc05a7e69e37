"""The base of the subjects' operations."""

from __future__ import annotations

from airflow_custody.client.http.transport import Transport


class ServiceOperations:
    """
    The base of the subjects' operations, which :class:`~airflow_custody.client.CustodyClient` puts together.

    :param transport: the way to the service.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
