"""
The client of the custody service.

It combines the settings with the operations of every area: health, whitelist, approvals, webhooks, users, rules and
tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

from pydantic import SecretStr

from airflow_custody.client.approvals.operations import ApprovalOperations
from airflow_custody.client.auth import Authentication, BearerToken
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.health.operations import HealthOperations
from airflow_custody.client.http.responses import Observation
from airflow_custody.client.http.transport import Transport
from airflow_custody.client.rules.operations import RulesOperations
from airflow_custody.client.secrets import as_secret
from airflow_custody.client.settings import (
    DEFAULT_MAX_RESPONSE_BYTES,
    DEFAULT_MAX_RETRIES,
    DEFAULT_TIMEOUT,
    ClientSettings,
)
from airflow_custody.client.tenant.operations import TenantOperations
from airflow_custody.client.users.operations import UserOperations
from airflow_custody.client.verification.verifier import Verifier
from airflow_custody.client.webhooks.operations import WebhookOperations
from airflow_custody.client.whitelist.operations import WhitelistOperations


class CustodyClient(
    HealthOperations,
    WhitelistOperations,
    ApprovalOperations,
    WebhookOperations,
    UserOperations,
    RulesOperations,
    TenantOperations,
):
    """
    A client of one custody service, independent of Airflow.

    Use the client in a ``with`` block, or call :meth:`close`. Creating a client sends nothing. Several threads may
    share a client.

    Reads (GET), and changes and deletions of webhooks (PATCH, DELETE), are repeated after connection errors and after
    the statuses 429, 502, 503 and 504, with growing delays. ``Retry-After`` is respected, up to a minute. All other
    operations, including the deletion of a whitelisting request, are POST requests, and are repeated only if their body
    was not sent. With :class:`PasswordSignIn`, any call is also repeated once after a 401, with a new token; but a
    create or a signature is repeated only if the 401 comes from the service itself.

    Every method raises a :class:`CustodyError`, whose type identifies the failure: see
    :mod:`airflow_custody.client.errors`. The methods list only their specific errors. Operations marked
    *undocumented* are not in the API description that this package implements. They are known from the vendor's other
    publications, and not every service offers them.

    :param base_url: URL of the service, ``https://custody.example.com``; a path prefix is allowed. Plain HTTP is
        refused except to this machine.
    :param token: the API token, without ``Bearer``.
    :param auth: another way to authenticate, instead of a token: :class:`PasswordSignIn` or :class:`ApiKey`.
    :param timeout: seconds allowed for connecting, for each wait for data, and for reading the whole response body.
        Each retry gets the full time again. Default: 30.
    :param verify: whether to verify the service's TLS certificate (true or false), or the path of a CA bundle to verify
        it with. Environment variables do not change it. Default: true.
    :param client_cert: path of a PEM file with certificate and key, or the paths of two files, comma-separated or as a
        pair. Default: none.
    :param proxy: URL of a proxy, ``http://`` or ``https://``. Default: for an HTTPS base URL, the proxy in the
        environment variable ``HTTPS_PROXY``, or else ``ALL_PROXY``, unless ``NO_PROXY`` excludes the host; for plain
        HTTP, none.
    :param max_retries: maximum number of retries of a call that is safe to repeat. Default: 3.
    :param max_response_bytes: maximum size of a response in bytes. A larger response is refused, and so is a response
        with more JSON values than this size divided by 64. Default: 33554432 (32 MiB).
    :param allow_http: whether the token may travel unencrypted, over plain HTTP, to another machine. Default: no.
    :param superadmin_keys: public keys of the super-administrators, for verifying whitelisted addresses: PEM text, or
        the path of a file, which must be absolute in a connection. Get the keys from the people who hold them, not from
        the service. Default: none; then no address is verified, and the service's data is trusted.
    :param superadmin_minimum: number of the super-administrators' keys that must have signed the rules. Required if
        keys are set.
    :param networks: names of the accepted networks, as a list or as comma-separated text. Default: any network.
    :param allow_legacy_signatures: whether to accept addresses that were signed in a legacy form, which does not cover
        all fields. Default: no.
    :param rules_not_before: oldest accepted date of the rules: a date such as 2026-01-31, or Unix time in seconds.
        Default: no limit.
    :param effective_statuses: status words of requests in effect, as a list or as comma-separated text, compared
        without regard to case. A request with an unknown word never counts as in effect. Default: ``approved``, from a
        published example.
    :param rejected_statuses: status words of rejected requests, as a list or as comma-separated text, compared without
        regard to case. Default: ``rejected``, ``declined``, ``expired``, ``canceled`` and ``cancelled``, some of them
        guesses. Your words replace the default.
    :param accept_fields: keys of a request's payload that may have a value that was not requested, as a list or as
        comma-separated text: keys that this service fills in, such as ``tnParticipantID``. Write an unknown key of a
        link after the link's own key, such as ``linkedWallets.owner``. ``envelope.action`` accepts an unknown action
        word. Default: none.
    :param user_agent: text to add to the ``User-Agent``, which names this package and its version. Default: none.
    :param source: where the user can change these settings; named in error messages. Default: none.
    :raises CustodyConfigurationError: if a setting is missing or wrong; ``setting`` names it.
    """

    def __init__(
        self,
        base_url: str,
        token: str | SecretStr | None = None,
        *,
        auth: Authentication | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        verify: bool | str = True,
        client_cert: str | tuple[str, str] | None = None,
        proxy: str | SecretStr | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        allow_http: bool = False,
        superadmin_keys: str | Sequence[str] | None = None,
        superadmin_minimum: int | None = None,
        networks: Collection[str] | None = None,
        allow_legacy_signatures: bool = False,
        rules_not_before: int | str | None = None,
        effective_statuses: Collection[str] = (),
        rejected_statuses: Collection[str] = (),
        accept_fields: Collection[str] = (),
        user_agent: str | None = None,
        source: str | None = None,
    ) -> None:
        token = as_secret(token) if isinstance(token, str) else token
        proxy = as_secret(proxy) if isinstance(proxy, str) else proxy
        if auth is not None and token is not None:
            raise CustodyConfigurationError(
                "either 'token' or 'auth' must be given, not both", setting="auth", code="credentials-missing"
            )
        settings = ClientSettings(
            base_url=base_url,
            timeout=timeout,
            verify=verify,
            client_cert=client_cert,
            proxy=proxy,
            max_retries=max_retries,
            max_response_bytes=max_response_bytes,
            allow_http=allow_http,
            superadmin_keys=superadmin_keys,
            superadmin_minimum=superadmin_minimum,
            networks=networks,
            allow_legacy_signatures=allow_legacy_signatures,
            rules_not_before=rules_not_before,
            effective_statuses=effective_statuses,
            rejected_statuses=rejected_statuses,
            accept_fields=accept_fields,
            user_agent=user_agent,
            source=source,
        )
        self._open(settings, auth if auth is not None else BearerToken(token or ""))

    def _open(self, settings: ClientSettings, auth: Authentication) -> None:
        #: The client's settings.
        self.settings = settings
        #: The way the client authenticates; its ``repr`` contains no secret.
        self.auth = auth
        self._transport = Transport(settings, auth)

    @classmethod
    def from_settings(cls, settings: ClientSettings, auth: Authentication) -> CustodyClient:
        """
        Return a client with these settings.

        :param settings: the settings.
        :param auth: the way to authenticate.
        """
        # Do not check the settings again, because loading a CA bundle takes long.
        client = cls.__new__(cls)
        client._open(settings, auth)
        return client

    @cached_property
    def verifier(self) -> Verifier | None:
        """
        The verifier of whitelisted addresses; None: no keys are pinned, so nothing is verified.
        """
        pins = self.settings.pins
        return None if pins is None else Verifier(pins)

    def observe(self, observer: Callable[[Observation], None]) -> None:
        """
        Call ``observer`` after each exchange with the service, with an observation of the exchange.

        Each try of a call is an exchange, even if it failed or had no response.

        :param observer: called when the exchange has ended, in the thread of the call; its exceptions are logged.
        """
        self._transport.observe(observer)

    def close(self) -> None:
        """Close the pooled connections."""
        self._transport.close()

    def __enter__(self) -> CustodyClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.base_url!r}, {self.auth!r})"
