"""The custody service as Python: one method for each operation of its interface."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody import __version__
from airflow_custody.client import operations
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.models import (
    HealthCheck,
    WhitelistRequest,
    WireCreateAnswer,
    WireHealthListing,
)
from airflow_custody.client.published import PublishedOperations
from airflow_custody.client.text import has_unprintable, is_uuid, readable

if TYPE_CHECKING:
    from airflow_custody.client.auth import Authentication
    from airflow_custody.client.operations import Operation

log = logging.getLogger(__name__)

WebhookStatus = Literal["enabled", "disabled"]
WEBHOOK_STATUSES: tuple[WebhookStatus, ...] = ("enabled", "disabled")
DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_RETRIES = 3
DEFAULT_MAX_RESPONSE_BYTES = 64 * 1024 * 1024


class CustodyClient(PublishedOperations):
    """
    Talk to one custody service. Knows nothing of Airflow.

    Use it in a ``with`` block or call :meth:`close`. Nothing is sent when it is made. One client may be used by
    several threads.

    Reads, status changes and deletes are repeated on connection errors and on 429, 502, 503 and 504, with
    back-off and as ``Retry-After`` asks (up to a minute). A create is repeated only if the connection was never
    made.

    :param base_url: where the service is, ``https://custody.example.com``; a path prefix is allowed. Plain HTTP
        is refused except to this machine.
    :param token: the API token, without ``Bearer``; part of the given interface.
    :param auth: another way to sign in, instead of a token: :class:`PasswordSignIn` or :class:`ApiKey` (published
        knowledge).
    :param timeout: seconds for one whole exchange: connecting, sending, waiting, and reading an answer that
        trickles in. A repeat has the same time again. Default 30.
    :param verify: whether to check the service's TLS certificate; or the path of a CA bundle to check it with.
        Environment variables do not change it. Default True.
    :param client_cert: path of one PEM file with certificate and key, or the pair of paths.
    :param proxy: URL of a proxy; None (default): for HTTPS, as ``HTTPS_PROXY`` and ``NO_PROXY`` say.
    :param max_retries: how often at most a call is repeated. Default 3.
    :param allow_http: whether the token may travel over plain HTTP to another machine. Default False.
    :param max_response_bytes: greatest size of an answer in bytes. Default 64 MiB.
    :param token_origin: where a user finds the token, for error messages.
    :param user_agent: what to add to the ``User-Agent``, which names this package and its version.
    :raises CustodyConfigurationError: if a setting is missing or wrong; ``setting`` names it.
    """

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        *,
        auth: Authentication | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        verify: bool | str = True,
        client_cert: str | tuple[str, str] | None = None,
        proxy: str | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        allow_http: bool = False,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        token_origin: str = "the 'token' given to CustodyClient",
        user_agent: str | None = None,
    ) -> None:
        # Imported here: requests costs a tenth of a second that a DAG file must not pay when it is parsed.
        from airflow_custody.client.auth import BearerToken
        from airflow_custody.client.transport import Transport

        if auth is not None and token is not None:
            raise CustodyConfigurationError("either 'token' or 'auth' must be given, not both", setting="auth")
        self._auth = auth if auth is not None else BearerToken(token or "", origin=token_origin)
        self._transport = Transport(
            base_url,
            self._auth,
            timeout=timeout,
            verify=verify,
            client_cert=client_cert,
            proxy=proxy,
            max_retries=max_retries,
            allow_http=allow_http,
            max_response_bytes=max_response_bytes,
            user_agent=" ".join(filter(None, [f"airflow-provider-custody/{__version__}", user_agent])),
        )

    def list_health_checks(self, tenant_id: str | None = None) -> list[HealthCheck]:
        """
        List the service's health checks.

        Part of the given interface: ``GET /health``, from version 3.14 of the service on.

        :param tenant_id: only the checks of this tenant; None (default): of all.
        :return: the entries in the order of the answer; none is a lawful answer.
        :raises CustodyError: as the types say; :class:`CustodyNotFoundError` from an older service.
        """
        from airflow_custody.client import answers

        operation = operations.LIST_HEALTH_CHECKS
        query = {} if tenant_id is None else {"tenantId": _checked_tenant(operation, tenant_id)}
        answer = self._transport.exchange(operation, query=query)
        answers.check_status(operation, answer, self._auth)
        listing = answers.read_body(operation, answer, WireHealthListing, self._auth)
        if "groups" not in listing and not answers.is_empty_object(answer):
            # The service leaves out what is empty, so {} is an empty listing; {"status": "UP"} is someone else's.
            raise answers.not_this_service(operation, answer, self._auth, "it has no 'groups'")
        return [
            HealthCheck(entry, name)
            for name, group in (listing.get("groups") or {}).items()
            for entry in (group or {}).get("healthChecks") or ()
        ]

    def create_whitelist_request(
        self, request: WhitelistRequest, *, before_send: Callable[[], None] | None = None
    ) -> str:
        """
        Create a request to whitelist a destination address.

        Part of the given interface: ``POST /whitelists/addresses``. The service has no idempotency key: two calls
        create two requests. Until the request is signed it has no effect.

        :param request: what is asked for.
        :param before_send: called once the connection stands, right before the first byte of the request leaves,
            and again before each further sending. What it raises comes out unchanged, and nothing is sent.
        :return: the request's id, which the signing step needs.
        :raises CustodyOutcomeUnknownError: if the request was sent and its answer is missing, cut, unreadable or a
            5xx: it may have been created.
        :raises CustodyError: of another type if it was not created.
        """
        from airflow_custody.client import answers

        operation = operations.CREATE_WHITELIST_REQUEST
        if request.linked_internal_address_ids and request.linked_wallet_ids:
            log.warning(
                "The whitelisting request names linked internal addresses and linked wallets: what the service "
                "makes of both together is not described. They are passed on as they are."
            )
        answer = self._transport.exchange(operation, body=request.to_wire(), before_send=before_send)
        answers.check_status(operation, answer, self._auth)
        created = answers.read_body(operation, answer, WireCreateAnswer, self._auth).get("result") or {}
        identifier = str(created.get("id", ""))
        if not identifier or identifier != identifier.strip() or has_unprintable(identifier):
            raise answers.not_this_service(operation, answer, self._auth, "it has no readable 'result.id'")
        return identifier

    def set_webhook_status(self, webhook_id: str, status: WebhookStatus) -> None:
        """
        Enable or disable a webhook configuration.

        Part of the given interface: ``PATCH /webhooks/{uuid}``. Setting the status it already has is lawful.

        :param webhook_id: the configuration's UUID.
        :param status: ``"enabled"`` or ``"disabled"``.
        :raises CustodyRequestError: if the id is no UUID or the status is another word; nothing was sent.
        :raises CustodyNotFoundError: if there is no such webhook configuration.
        :raises CustodyError: as the types say.
        """
        operation = _on_webhook(operations.SET_WEBHOOK_STATUS, webhook_id)
        if status not in WEBHOOK_STATUSES:
            raise operation.failed(
                CustodyRequestError,
                f"the status must be 'enabled' or 'disabled', not {readable(repr(status), 40)}; nothing was sent",
            )
        self._do(operation, {"status": status})

    def delete_webhook(self, webhook_id: str) -> None:
        """
        Delete a webhook configuration: afterwards it no longer exists.

        Part of the given interface: ``DELETE /webhooks/{uuid}``.

        :param webhook_id: the configuration's UUID.
        :raises CustodyRequestError: if the id is no UUID; nothing was sent.
        :raises CustodyNotFoundError: if there is no such webhook configuration.
        :raises CustodyError: as the types say.
        """
        self._do(_on_webhook(operations.DELETE_WEBHOOK, webhook_id))

    def _do(self, operation: Operation, body: dict[str, Any] | None = None) -> None:
        from airflow_custody.client import answers

        answer = self._transport.exchange(operation, body=body)
        answers.check_status(operation, answer, self._auth)
        answers.check_acknowledged(operation, answer, self._auth)

    @property
    def base_url(self) -> str:
        """The base URL, without a trailing slash."""
        return self._transport.base_url

    @property
    def timeout(self) -> float:
        """Seconds that one exchange may take."""
        return self._transport.timeout

    def close(self) -> None:
        """Close the pooled connections."""
        self._transport.close()

    def __enter__(self) -> CustodyClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.base_url!r}, {self._auth!r})"


def _checked_tenant(operation: Operation, tenant_id: object) -> str:
    tenant = str(tenant_id)
    if isinstance(tenant_id, bool) or not tenant.strip() or tenant != tenant.strip() or has_unprintable(tenant):
        raise operation.failed(
            CustodyRequestError,
            f"the tenant id must be a tenant's number, not {readable(repr(tenant_id), 40)}; nothing was sent",
        )
    return tenant


def _on_webhook(operation: Operation, webhook_id: object) -> Operation:
    """Return the operation for one webhook; only a UUID may become part of a path."""
    if not is_uuid(str(webhook_id)):
        raise operation.failed(
            CustodyRequestError,
            "the webhook id must be a UUID like 123e4567-e89b-12d3-a456-426614174000, not "
            f"{readable(repr(webhook_id), 60)}; nothing was sent",
        )
    return operation.on(str(webhook_id))
