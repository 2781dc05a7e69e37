"""
The operations that are published knowledge, not part of the given interface.

A service may not offer them: it answers 404, 403 or 405 then. Nothing of the given interface needs them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import ConfigDict

from airflow_custody.client import operations
from airflow_custody.client.errors import CustodyRequestError, CustodyResponseError
from airflow_custody.client.text import is_uuid, readable

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

if TYPE_CHECKING:
    from airflow_custody.client.auth import Authentication
    from airflow_custody.client.envelopes import WhitelistEnvelope
    from airflow_custody.client.operations import Operation
    from airflow_custody.client.transport import Transport
    from airflow_custody.client.webhooks import WireWebhook

Page = TypeVar("Page")
# The most that the service lists at once (published knowledge).
_PAGE = 100


class WireUser(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(coerce_numbers_to_str=True)  # type: ignore[misc]
    id: str | None
    tenantId: str | None
    roles: list[str] | None
    status: str | None


class WireUserAnswer(TypedDict, total=False):
    result: WireUser | None


class PublishedOperations:
    """Add the published operations to :class:`~airflow_custody.client.CustodyClient`."""

    _transport: Transport
    _auth: Authentication

    if TYPE_CHECKING:

        def _do(self, operation: Operation, body: dict[str, Any] | None = None) -> None: ...

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
        given = {"ids": ids, "addresses": addresses, "blockchain": blockchain, "network": network, "query": query}
        filters = _given(operations.FIND_WHITELIST_REQUESTS, given)
        if include_waiting:
            filters["includeForApproval"] = "true"
        yield from self._pages(operations.FIND_WHITELIST_REQUESTS, filters)

    def find_whitelist_requests_for_approval(
        self,
        *,
        ids: Iterable[str] | None = None,
        blockchain: str | None = None,
        network: str | None = None,
        query: str | None = None,
        include_already_signed: bool = False,
    ) -> Iterator[WhitelistEnvelope]:
        """
        Find the whitelisting requests that the client's user may approve now, page by page.

        Published knowledge, not part of the given interface: ``GET /whitelists/addresses/for-approval``.

        :param ids: only these requests.
        :param blockchain: only requests on this chain.
        :param network: only requests on this network.
        :param query: only requests that hold this text.
        :param include_already_signed: whether to list also those that the user has signed and that still wait.
            Default False.
        :return: the requests, each once. A page is fetched when it is needed.
        :raises CustodyError: as :meth:`find_whitelist_requests` does.
        """
        given = {"ids": ids, "blockchain": blockchain, "network": network, "query": query}
        filters = _given(operations.FIND_FOR_APPROVAL, given)
        if include_already_signed:
            filters["includeAlreadySignedByUser"] = "true"
        yield from self._pages(operations.FIND_FOR_APPROVAL, filters)

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
        if not is_uuid(webhook_id) or not shown:
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
    ) -> Iterator[dict[str, Any]]:
        """
        List deliveries of webhooks, page by page.

        Published knowledge, not part of the given interface: ``GET /webhooks/calls``.

        :param webhook_id: only those of this webhook.
        :param event_id: only those of this event.
        :param status: only those with this status.
        :return: the calls, as the service shows them. A page is fetched when it is needed.
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


def _given(operation: Operation, filters: Mapping[str, Iterable[str] | None]) -> dict[str, str | list[str]]:
    """Return the filters that are given, as they travel."""
    given = {
        name: value if isinstance(value, str) else [str(each) for each in value]
        for name, value in filters.items()
        if value is not None
    }
    if not all(given.values()):
        # An empty filter would not be sent, and everything would be found.
        raise operation.failed(CustodyRequestError, "a filter is empty; nothing was sent")
    return given


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
