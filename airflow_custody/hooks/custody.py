"""The hook, which turns an Airflow connection into a client of the custody service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseHook

from airflow_custody.client.errors import CustodyError
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks._lookup import find_connection
from airflow_custody.metrics import call_observer, measure_health

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_custody.client import ClientSettings, CustodyClient
    from airflow_custody.client.health.verdict import HealthCriteria, HealthVerdict


class CustodyHook(BaseHook):
    """
    The hook of an Airflow connection of type ``custody``.

    Host is the base URL: ``https://custody.example.com``, with a path prefix if needed. Host may also be a bare host
    name, with the protocol in Schema (default ``https``) and the port in Port.

    There are three ways to authenticate, and the fields that are filled in decide which one is used:

    * Only Password: it is the API token.
    * Login and Password: they are a user's name and password.
    * The extra ``api_key_id``, and Password: they are an API key's id and its secret.

    To enforce one of these ways, set the extra ``auth`` to ``bearer``, ``password`` or ``api_key``.

    The other extras have the names and defaults of parameters of :class:`~airflow_custody.client.CustodyClient`, and
    the form lists all of them. A path in ``superadmin_keys`` must be absolute; the file is read when the client is
    created. The pinned keys are not secret, but they determine what is trusted, so restrict the permission to edit the
    connection.

    Unknown extras are refused. The Custody page and ``custody status`` read responses of at most 8 MiB, even if
    ``max_response_bytes`` is larger.

    Use the hook in a ``with`` block, or call :meth:`close`.

    :param custody_conn_id: id of the connection. Default ``custody_default``.
    """

    conn_name_attr = "custody_conn_id"
    default_conn_name = "custody_default"
    conn_type = "custody"
    hook_name = "Custody"
    #: Whether calls and health are measured in Airflow's metrics.
    sends_metrics: ClassVar[bool] = True

    def __init__(self, custody_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.custody_conn_id = custody_conn_id
        self._client: CustodyClient | None = None
        # Returns the client's settings, given the connection's settings; None: the connection's settings are used.
        self._adapt_settings: Callable[[ClientSettings], ClientSettings] | None = None
        self._connected_with: object = None
        # Whether the connection is being tested. Airflow's API server generates an id for it then, which messages must
        # not name.
        self._is_tested = False

    def get_conn(self) -> CustodyClient:
        """
        Return a client for the connection.

        The Airflow connection is read at each call, so that a long wait uses a token that was replaced meanwhile. As
        long as the Airflow connection is unchanged, the same client is returned, with its open network connections.

        :return: a client; close the client or the hook when done.
        :raises CustodyConfigurationError: if the connection does not exist, or a setting in it is missing or wrong.
        """
        from airflow_custody.hooks._connection import ConnectionReader

        advice = "Create a connection with this id and the type Custody."
        found = find_connection(self.custody_conn_id, advice, setting="custody_conn_id", get=self.get_connection)
        reader = ConnectionReader(found, named=not self._is_tested)
        if self._client is None or reader.values != self._connected_with:
            if self._client is not None:
                self.close()
            self._client = reader.make_client(self._adapt_settings)
            self._connected_with = reader.values
            if self.sends_metrics and (observer := call_observer(self.custody_conn_id)) is not None:
                self._client.observe(observer)
        return self._client

    def check_health(self, criteria: HealthCriteria) -> HealthVerdict:
        """
        Fetch the health listing and evaluate it.

        :param criteria: which checks are evaluated and what makes them healthy.
        :return: the verdict.
        :raises CustodyError: if the listing cannot be fetched.
        """
        from airflow_custody.client.health.verdict import judge

        listing = measure_health(
            lambda: self.get_conn().list_health_checks(criteria.tenant_id),
            self.custody_conn_id,
            criteria,
            is_measured=self.sends_metrics,
        )
        return judge(listing, criteria)

    def test_connection(self) -> tuple[bool, str]:
        """
        Test the connection with read-only authenticated calls.

        The calls read the health listing, the user, the tenant's configuration and the currencies. With pinned keys,
        the service's current rules are also read and verified. An operation that the service does not offer is ignored,
        except for the health listing.

        :return: whether the test succeeded, and the text for the user, including missing roles.
        """
        from airflow_custody.hooks._connection_test import try_client

        self._is_tested = True
        try:
            return try_client(self.get_conn())
        except CustodyError as error:
            return False, error.shorten()
        finally:
            self.close()

    def close(self) -> None:
        """Close the client's network connections; the next call opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> CustodyHook:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """
        Return the standard fields of Airflow 2's connection form. Airflow 3 reads them from the provider info.
        """
        behaviour = _connection_type()["ui-field-behaviour"]
        return {name.replace("-", "_"): value for name, value in behaviour.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """
        Return the extra fields of Airflow 2's connection form, which are derived from the fields that Airflow 3 reads.
        """
        from airflow_custody.hooks._form_widgets import make_widgets

        return make_widgets(_connection_type()["conn-fields"])


def _connection_type() -> dict[str, Any]:
    found: dict[str, Any] = get_provider_info()["connection-types"][0]
    return found
