"""The operations on whitelisting requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE, Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.text import as_list, has_unprintable, is_decimal
from airflow_custody.client.whitelist.models import (
    WhitelistEnvelope,
    WhitelistRequest,
    WireCreateResponse,
    WireEnvelopeResponse,
    WireEnvelopes,
    WireSignatures,
    check_request_id,
)

log = logging.getLogger(__name__)

CREATE_WHITELIST_REQUEST = Operation(
    "create whitelisting request",
    "POST",
    "/whitelists/addresses",
    roles=("WhitelistedAddressCreator", "TPUser"),
    hints={
        400: "The currency must be active in the hardware security module and the address must follow the "
        "rules of its chain."
    },
)
FIND_WHITELIST_REQUESTS = Operation(
    "find whitelisting requests", "GET", "/whitelists/addresses", roles=("TPUser",), documented=False
)
FIND_FOR_APPROVAL = Operation(
    "find whitelisting requests for approval",
    "GET",
    "/whitelists/addresses/for-approval",
    roles=("TPUser",),
    documented=False,
)
GET_WHITELIST_REQUEST = Operation(
    "get whitelisting request", "GET", "/whitelists/addresses", roles=("TPUser",), documented=False
)
APPROVE_WHITELIST_REQUESTS = Operation(
    "approve whitelisting requests",
    "POST",
    "/whitelists/addresses/approve",
    roles=("WhitelistedAddressApprover",),
    documented=False,
)
# Rejecting and deleting twice does no harm.
REJECT_WHITELIST_REQUESTS = Operation(
    "reject whitelisting requests",
    "POST",
    "/whitelists/addresses/reject",
    roles=("WhitelistedAddressApprover",),
    repeatable=True,
    documented=False,
)
DELETE_WHITELIST_REQUEST = Operation(
    "delete whitelisting request",
    "POST",
    "/whitelists/addresses/delete",
    roles=("WhitelistedAddressCreator",),
    repeatable=True,
    documented=False,
)


class WhitelistOperations(ServiceOperations):
    """The operations on whitelisting requests."""

    def create_whitelist_request(
        self, request: WhitelistRequest, *, before_send: Callable[[], None] | None = None
    ) -> str:
        """
        Create a request to whitelist a destination address: ``POST /whitelists/addresses``.

        The service has no idempotency key: two calls create two requests. Until the request is signed it has no
        effect.

        :param request: what is asked for.
        :param before_send: called once the connection is established, right before the first byte of the request
            leaves, and again before each further sending. What it raises comes out unchanged, and nothing is sent.
        :return: the request's id, which the signing step needs.
        :raises CustodyOutcomeUnknownError: if the request was sent and its response is missing, truncated,
            unreadable or a 5xx: it may have been created.
        :raises CustodyError: of another type if it was not created.
        """
        if request.linked_internal_address_ids and request.linked_wallet_ids:
            log.warning(
                "The whitelisting request names linked internal addresses and linked wallets: what the service "
                "makes of both together is not documented. They are passed on as they are."
            )
        reply = self._transport.call(
            CREATE_WHITELIST_REQUEST, WireCreateResponse, body=request.to_wire(), before_send=before_send
        )
        identifier = str((reply.body.get("result") or {}).get("id", ""))
        if not identifier or identifier != identifier.strip() or has_unprintable(identifier):
            raise reply.unexpected("it has no readable 'result.id'")
        return identifier

    def find_whitelist_requests(
        self,
        *,
        ids: Iterable[str] | None = None,
        addresses: Iterable[str] | None = None,
        blockchain: str | None = None,
        network: str | None = None,
        query: str | None = None,
        include_pending: bool = True,
    ) -> Iterator[WhitelistEnvelope]:
        """
        Find whitelisting requests, page by page: ``GET /whitelists/addresses`` (undocumented).

        :param ids: only these requests. Default: no filter, and so for those below.
        :param addresses: only requests for these addresses.
        :param blockchain: only requests on this chain.
        :param network: only requests on this network.
        :param query: only requests that contain this text.
        :param include_pending: whether to list also those that are pending approval. Default True.
        :return: the requests, in the service's order, each once. A page is fetched when it is needed.
        :raises CustodyResponseError: after the last page, if the pages do not add up because requests came or went
            while they were read (it is retryable then); or if a response cannot be understood.
        """
        filters = _given_filters(
            FIND_WHITELIST_REQUESTS,
            {"ids": ids, "addresses": addresses, "blockchain": blockchain, "network": network, "query": query},
        )
        if include_pending:
            filters["includeForApproval"] = "true"
        yield from self._pages(FIND_WHITELIST_REQUESTS, filters)

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
        Find the requests that the client's user may approve: ``GET /whitelists/addresses/for-approval`` (undocumented).

        :param ids: only these requests. Default: no filter, and so for those below.
        :param blockchain: only requests on this chain.
        :param network: only requests on this network.
        :param query: only requests that contain this text.
        :param include_already_signed: whether to list also those that the user has signed and that are still
            pending. Default False.
        :return: the requests, each once. A page is fetched when it is needed.
        :raises CustodyError: as :meth:`find_whitelist_requests` does.
        """
        filters = _given_filters(
            FIND_FOR_APPROVAL, {"ids": ids, "blockchain": blockchain, "network": network, "query": query}
        )
        if include_already_signed:
            filters["includeAlreadySignedByUser"] = "true"
        yield from self._pages(FIND_FOR_APPROVAL, filters)

    def get_whitelist_request(self, request_id: str) -> WhitelistEnvelope:
        """
        Get one whitelisting request, pending or not: ``GET /whitelists/addresses/{id}`` (undocumented).

        :param request_id: the request's id, a decimal number.
        :return: the request.
        :raises CustodyRequestError: if the id is not a number; nothing was sent.
        :raises CustodyNotFoundError: if there is no such request.
        """
        request_id = check_request_id(request_id)
        reply = self._transport.call(GET_WHITELIST_REQUEST.on(request_id), WireEnvelopeResponse)
        envelope = reply.body.get("result")
        if not envelope or envelope.get("id") != request_id:
            raise reply.unexpected("its 'result' is not this request")
        return WhitelistEnvelope(envelope)

    def approve_whitelist_requests(self, ids: Sequence[str], signature: str, comment: str) -> int:
        """
        Send an approval: ``POST /whitelists/addresses/approve`` (undocumented).

        :class:`~airflow_custody.client.whitelist.approval.Approver` makes one safely.

        :param ids: the requests' ids in ascending numeric order.
        :param signature: the user's signature over their current hashes: 64 bytes ``r || s`` in base64.
        :param comment: what the requests' history will say.
        :return: the number of signatures that the service says it took.
        :raises CustodyOutcomeUnknownError: if it was sent and its response is missing, truncated, unreadable or a
            5xx.
        :raises CustodyError: of another type if it was refused: all of it.
        """
        body = {"ids": [check_request_id(each) for each in ids], "signature": signature, "comment": comment}
        reply = self._transport.call(APPROVE_WHITELIST_REQUESTS, WireSignatures, body=body)
        number = reply.body.get("signatures") or ""
        if not is_decimal(number) or not int(number):
            raise reply.unexpected("it has no number of 'signatures'")
        return int(number)

    def reject_whitelist_requests(self, ids: Sequence[str], comment: str) -> None:
        """
        Reject whitelisting requests: ``POST /whitelists/addresses/reject`` (undocumented).

        :param ids: the requests' ids.
        :param comment: why; not empty.
        """
        body = {"ids": [check_request_id(each) for each in ids], "comment": comment}
        self._transport.call(REJECT_WHITELIST_REQUESTS, None, body=body)

    def delete_whitelist_request(self, request_id: str, comment: str) -> None:
        """
        Delete a whitelisting request: ``POST /whitelists/addresses/delete`` (undocumented).

        :param request_id: the request's id.
        :param comment: why; not empty.
        :raises CustodyNotFoundError: if there is no such request.
        """
        body = {"id": check_request_id(request_id), "comment": comment}
        self._transport.call(DELETE_WHITELIST_REQUEST, None, body=body)

    def _pages(self, operation: Operation, filters: Mapping[str, str | list[str]]) -> Iterator[WhitelistEnvelope]:
        seen: set[str] = set()
        offset = 0
        while True:
            query = {**filters, "limit": str(MAX_PAGE_SIZE), "offset": str(offset)}
            reply = self._transport.call(operation, WireEnvelopes, query=query)
            reply.require_any_key("result", "totalItems")
            rows = reply.body.get("result") or []
            for row in rows:
                if not row.get("id"):
                    raise reply.unexpected("a row has no 'id'")
                if row["id"] not in seen:
                    seen.add(row["id"])
                    yield WhitelistEnvelope(row)
            offset += len(rows)
            total = reply.body.get("totalItems")
            if total and not is_decimal(total):
                raise reply.unexpected("its 'totalItems' is not a number")
            if not rows or (offset >= int(total) if total else len(rows) < MAX_PAGE_SIZE):
                break
        if total and len(seen) != int(total):
            raise operation.failed(
                CustodyResponseError,
                f"{len(seen)} requests were listed and {total} announced: some came or went in between",
                retryable=True,
            )


def _given_filters(
    operation: Operation, filters: Mapping[str, str | Iterable[str] | None]
) -> dict[str, str | list[str]]:
    """Return the filters that are given, as they travel."""
    given = {name: [str(each) for each in as_list(value)] for name, value in filters.items() if value is not None}
    if not all(any(values) for values in given.values()):
        # An empty filter would not be sent, and everything would be found.
        raise operation.refused("a filter is empty")
    return {**given}
