"""The custody service as Python: one method for each operation of its interface."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from airflow_custody import __version__
from airflow_custody.client import operations
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError, CustodyResponseError
from airflow_custody.client.models import (
    HealthCheck,
    WhitelistRequest,
    WireCreateAnswer,
    WireHealthListing,
    WireUser,
    WireUserAnswer,
)
from airflow_custody.client.text import has_unprintable, readable

if TYPE_CHECKING:
    from airflow_custody.client.auth import Authentication
    from airflow_custody.client.envelopes import WhitelistEnvelope
    from airflow_custody.client.operations import Operation
    from airflow_custody.client.webhooks import WireCall, WireWebhook

log = logging.getLogger(__name__)
Page = TypeVar("Page")

WebhookStatus = Literal["enabled", "disabled"]
WEBHOOK_STATUSES: tuple[WebhookStatus, ...] = ("enabled", "disabled")
DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_RETRIES = 3
DEFAULT_MAX_RESPONSE_BYTES = 64 * 1024 * 1024

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class CustodyClient:
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

    def find_whitelist_requests(
        self,
        *,
        ids: Iterable[str] | None = None,
        addresses: Iterable[str] | None = None,
        blockchain: str | None = None,
        network: str | None = None,
        query: str | None = None,
        include_waiting: bool = True,
    ) -> Iterator[WhitelistEnvelope]:
        """
        Find whitelisting requests, page by page.

        Published knowledge, not part of the given interface: ``GET /whitelists/addresses``. A service that does not
        offer it answers 404, 403 or 405.

        :param ids: only these requests.
        :param addresses: only requests for these addresses.
        :param blockchain: only requests on this chain.
        :param network: only requests on this network.
        :param query: only requests that hold this text.
        :param include_waiting: whether to list also those that wait for approval. Default True.
        :return: the requests, in the service's order, each once. A page is fetched when it is needed.
        :raises CustodyResponseError: after the last page, if it did not add up because requests came or went while
            it was read (it is retryable then); or if an answer is not understood.
        :raises CustodyError: as the types say.
        """
        operation = operations.FIND_WHITELIST_REQUESTS
        filters: dict[str, str | list[str]] = {}
        if ids is not None:
            filters["ids"] = [str(identifier) for identifier in ids]
        if addresses is not None:
            filters["addresses"] = list(addresses)
        given = {"blockchain": blockchain, "network": network, "query": query}
        filters.update({name: value for name, value in given.items() if value is not None})
        if not all(filters.values()):
            # An empty filter would not be sent, and everything would be found.
            raise operation.failed(CustodyRequestError, "a filter is empty; nothing was sent")
        if include_waiting:
            filters["includeForApproval"] = "true"
        yield from self._pages(operation, filters)

    def find_whitelist_requests_for_approval(
        self, *, ids: Iterable[str] | None = None, include_already_signed: bool = False
    ) -> Iterator[WhitelistEnvelope]:
        """
        Find the whitelisting requests that the client's user may approve now, page by page.

        Published knowledge, not part of the given interface: ``GET /whitelists/addresses/for-approval``.

        :param ids: only these requests.
        :param include_already_signed: whether to list also those that the user has signed and that still wait.
            Default False.
        :return: the requests, each once. A page is fetched when it is needed.
        :raises CustodyError: as :meth:`find_whitelist_requests` does.
        """
        operation = operations.FIND_FOR_APPROVAL
        filters: dict[str, str | list[str]] = {}
        if ids is not None:
            filters["ids"] = [str(identifier) for identifier in ids]
            if not filters["ids"]:
                raise operation.failed(CustodyRequestError, "a filter is empty; nothing was sent")
        if include_already_signed:
            filters["includeAlreadySignedByUser"] = "true"
        yield from self._pages(operation, filters)

    def get_whitelist_request(self, request_id: str) -> WhitelistEnvelope:
        """
        Get one whitelisting request, waiting or not.

        Published knowledge, not part of the given interface: ``GET /whitelists/addresses/{id}``.

        :param request_id: the request's id, a decimal number.
        :return: the request.
        :raises CustodyRequestError: if the id is not a number; nothing was sent.
        :raises CustodyNotFoundError: if there is no such request.
        :raises CustodyError: as the types say.
        """
        from airflow_custody.client import answers
        from airflow_custody.client.envelopes import WhitelistEnvelope, WireEnvelopeAnswer

        operation = operations.GET_WHITELIST_REQUEST.on(_checked_id(operations.GET_WHITELIST_REQUEST, request_id))
        answer = self._transport.exchange(operation)
        answers.check_status(operation, answer, self._auth)
        envelope = answers.read_body(operation, answer, WireEnvelopeAnswer, self._auth).get("result")
        if not envelope or envelope.get("id") != str(request_id):
            raise answers.not_this_service(operation, answer, self._auth, "its 'result' is not this request")
        return WhitelistEnvelope(envelope)

    def approve_whitelist_requests(self, ids: Sequence[str], signature: str, comment: str) -> int:
        """
        Send an approval. :class:`~airflow_custody.client.approval.Approving` makes one safely.

        Published knowledge, not part of the given interface: ``POST /whitelists/addresses/approve``.

        :param ids: the requests' ids in ascending numeric order.
        :param signature: what the user's key says to their current hashes: 64 bytes ``r || s`` in base64.
        :param comment: what the requests' trail will say.
        :return: the number of signatures that the service says it took.
        :raises CustodyOutcomeUnknownError: if it was sent and its answer is missing, cut, unreadable or a 5xx.
        :raises CustodyError: of another type if it was refused: all of it.
        """
        from airflow_custody.client import answers
        from airflow_custody.client.envelopes import WireSignatures

        operation = operations.APPROVE_WHITELIST_REQUESTS
        body = {
            "ids": [_checked_id(operation, identifier) for identifier in ids],
            "signature": signature,
            "comment": comment,
        }
        answer = self._transport.exchange(operation, body=body)
        answers.check_status(operation, answer, self._auth)
        count = answers.read_body(operation, answer, WireSignatures, self._auth).get("signatures") or ""
        if not (count.isascii() and count.isdigit() and int(count)):
            raise answers.not_this_service(operation, answer, self._auth, "it has no number of 'signatures'")
        return int(count)

    def reject_whitelist_requests(self, ids: Sequence[str], comment: str) -> None:
        """
        Reject whitelisting requests.

        Published knowledge, not part of the given interface: ``POST /whitelists/addresses/reject``.

        :param ids: the requests' ids.
        :param comment: why; not empty.
        :raises CustodyError: as the types say.
        """
        operation = operations.REJECT_WHITELIST_REQUESTS
        self._do(operation, {"ids": [_checked_id(operation, each) for each in ids], "comment": comment})

    def delete_whitelist_request(self, request_id: str, comment: str) -> None:
        """
        Delete a whitelisting request.

        Published knowledge, not part of the given interface: ``POST /whitelists/addresses/delete``.

        :param request_id: the request's id.
        :param comment: why; not empty.
        :raises CustodyNotFoundError: if there is no such request.
        :raises CustodyError: as the types say.
        """
        operation = operations.DELETE_WHITELIST_REQUEST
        self._do(operation, {"id": _checked_id(operation, request_id), "comment": comment})

    def create_webhook(
        self,
        webhook_type: str,
        url: str,
        *,
        secret: str | None = None,
        before_send: Callable[[], None] | None = None,
    ) -> tuple[str, str]:
        """
        Create a webhook configuration.

        Published knowledge, not part of the given interface: ``POST /webhooks``. Two calls create two.

        :param webhook_type: what is told of, ``requestStatus.updated`` say.
        :param url: where to, HTTPS.
        :param secret: what deliveries are signed with, at most 150 characters; None (default): the service makes one
            up.
        :param before_send: as for :meth:`create_whitelist_request`.
        :return: the webhook's id, and its secret, which the service never shows again.
        :raises CustodyOutcomeUnknownError: if it was sent and its answer is missing, cut, unreadable or a 5xx.
        :raises CustodyError: of another type if it was not created.
        """
        from airflow_custody.client import answers
        from airflow_custody.client.webhooks import LONGEST_SECRET, WireCreatedWebhook

        operation = operations.CREATE_WEBHOOK
        if secret is not None and not 0 < len(secret) <= LONGEST_SECRET:
            raise operation.failed(
                CustodyRequestError, f"the secret must have 1 to {LONGEST_SECRET} characters; nothing was sent"
            )
        body = {"type": webhook_type, "url": url, **({} if secret is None else {"secret": secret})}
        answer = self._transport.exchange(operation, body=body, before_send=before_send)
        answers.check_status(operation, answer, self._auth)
        created = answers.read_body(operation, answer, WireCreatedWebhook, self._auth)
        webhook_id = (created.get("webhook") or {}).get("id", "")
        shown = created.get("secret") or secret
        if not _UUID.fullmatch(webhook_id) or not shown:
            raise answers.not_this_service(operation, answer, self._auth, "it has no 'webhook.id' and 'secret'")
        return webhook_id, shown

    def list_webhooks(self, *, webhook_type: str | None = None, url: str | None = None) -> Iterator[WireWebhook]:
        """
        List webhook configurations, page by page.

        Published knowledge, not part of the given interface: ``GET /webhooks``.

        :param webhook_type: only those of this type.
        :param url: only those that deliver to this URL.
        :return: the webhooks, each once. A page is fetched when it is needed.
        :raises CustodyError: as the types say.
        """
        from airflow_custody.client.webhooks import WireWebhooks

        filters = {"type": webhook_type, "url": url}
        for page in self._cursor_pages(operations.LIST_WEBHOOKS, WireWebhooks, filters):
            yield from page.get("webhooks") or ()

    def list_webhook_calls(
        self, *, webhook_id: str | None = None, event_id: str | None = None, status: str | None = None
    ) -> Iterator[WireCall]:
        """
        List deliveries of webhooks, page by page.

        Published knowledge, not part of the given interface: ``GET /webhooks/calls``.

        :param webhook_id: only those of this webhook.
        :param event_id: only those of this event.
        :param status: only those with this status.
        :return: the calls. A page is fetched when it is needed.
        :raises CustodyError: as the types say.
        """
        from airflow_custody.client.webhooks import WireCalls

        filters = {"webhookID": webhook_id, "eventID": event_id, "status": status}
        for page in self._cursor_pages(operations.LIST_WEBHOOK_CALLS, WireCalls, filters):
            yield from page.get("calls") or ()

    def _cursor_pages(self, operation: Operation, shape: type[Page], filters: dict[str, str | None]) -> Iterator[Page]:
        from airflow_custody.client import answers

        query = {name: value for name, value in filters.items() if value is not None}
        query.update({"cursor.pageRequest": "FIRST", "cursor.pageSize": str(_PAGE)})
        names = {"query", "cursor", *shape.__annotations__}
        pages: set[str] = set()
        while True:
            answer = self._transport.exchange(operation, query=query)
            answers.check_status(operation, answer, self._auth)
            page = answers.read_body(operation, answer, shape, self._auth)
            if not names & set(cast("dict[str, Any]", page)) and not answers.is_empty_object(answer):
                raise answers.not_this_service(operation, answer, self._auth, "it is no listing")
            yield page
            cursor = cast("dict[str, Any]", page).get("cursor") or {}
            name = cursor.get("currentPage")
            if not cursor.get("hasNext"):
                return
            if not name or name in pages:
                raise answers.not_this_service(operation, answer, self._auth, "its cursor leads nowhere")
            pages.add(name)
            query.update({"cursor.pageRequest": "NEXT", "cursor.currentPage": name})

    def get_current_user(self) -> WireUser:
        """
        Get the user that the client signs in as.

        Published knowledge, not part of the given interface: ``GET /users/me``.

        :return: ``id``, ``tenantId``, ``roles`` and ``status``, as far as the service shows them.
        :raises CustodyError: as the types say; a service that does not offer it answers 404, 403 or 405.
        """
        from airflow_custody.client import answers

        operation = operations.SHOW_CURRENT_USER
        answer = self._transport.exchange(operation)
        answers.check_status(operation, answer, self._auth)
        user = answers.read_body(operation, answer, WireUserAnswer, self._auth).get("result")
        if not user:
            raise answers.not_this_service(operation, answer, self._auth, "it has no 'result'")
        return user

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

    def _pages(self, operation: Operation, filters: dict[str, str | list[str]]) -> Iterator[WhitelistEnvelope]:
        from airflow_custody.client import answers
        from airflow_custody.client.envelopes import WhitelistEnvelope, WireEnvelopes

        seen: set[str] = set()
        offset = 0
        while True:
            answer = self._transport.exchange(operation, query={**filters, "limit": str(_PAGE), "offset": str(offset)})
            answers.check_status(operation, answer, self._auth)
            page = answers.read_body(operation, answer, WireEnvelopes, self._auth)
            if not page.keys() & {"result", "totalItems"} and not answers.is_empty_object(answer):
                raise answers.not_this_service(operation, answer, self._auth, "it has no 'result'")
            rows = page.get("result") or []
            for row in rows:
                if not row.get("id"):
                    raise answers.not_this_service(operation, answer, self._auth, "a row has no 'id'")
                if row["id"] not in seen:
                    seen.add(row["id"])
                    yield WhitelistEnvelope(row)
            offset += len(rows)
            total = page.get("totalItems")
            if total and not (total.isascii() and total.isdigit()):
                raise answers.not_this_service(operation, answer, self._auth, "its 'totalItems' is not a number")
            if not rows or (offset >= int(total) if total else len(rows) < _PAGE):
                break
        if total and len(seen) != int(total):
            raise operation.failed(
                CustodyResponseError,
                f"{len(seen)} requests were listed and {total} announced: some came or went in between",
                retryable=True,
            )

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


# The most that the service lists at once (published knowledge).
_PAGE = 100


def _checked_tenant(operation: Operation, tenant_id: object) -> str:
    tenant = str(tenant_id)
    if isinstance(tenant_id, bool) or not tenant.strip() or tenant != tenant.strip() or has_unprintable(tenant):
        raise operation.failed(
            CustodyRequestError,
            f"the tenant id must be a tenant's number, not {readable(repr(tenant_id), 40)}; nothing was sent",
        )
    return tenant


def _checked_id(operation: Operation, request_id: object) -> str:
    """Return the id of a whitelisting request: only a number may become part of a path or a signed batch."""
    text = str(request_id)
    if isinstance(request_id, bool) or not text.isascii() or not text.isdigit():
        raise operation.failed(
            CustodyRequestError,
            f"the id of a whitelisting request must be a number, not {readable(repr(request_id), 40)}; nothing was "
            "sent",
        )
    return text


def _on_webhook(operation: Operation, webhook_id: object) -> Operation:
    """Return the operation for one webhook; only a UUID may become part of a path."""
    if _UUID.fullmatch(str(webhook_id)) is None:
        raise operation.failed(
            CustodyRequestError,
            "the webhook id must be a UUID like 123e4567-e89b-12d3-a456-426614174000, not "
            f"{readable(repr(webhook_id), 60)}; nothing was sent",
        )
    return operation.on(str(webhook_id))
