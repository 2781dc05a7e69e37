"""The operations on whitelisting requests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from airflow_custody.client.arguments import MAX_ID, MAX_PAGE_SIZE
from airflow_custody.client.errors import CustodyError, CustodyNotFoundError, CustodyResponseError
from airflow_custody.client.http.listings import (
    Listing,
    OffsetPage,
    check_page_size,
    read_all,
    read_offset_listing,
)
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations, shown_object
from airflow_custody.client.text import read_number, sanitize
from airflow_custody.client.verification.signed_rules import add_rules
from airflow_custody.client.whitelist.envelopes import (
    WhitelistEnvelope,
    WireCreateResponse,
    WireEnvelopeResponse,
    WireEnvelopes,
    WireSignatures,
)
from airflow_custody.client.whitelist.hidden import describe_hidden
from airflow_custody.client.whitelist.ids import check_request_id, check_request_ids
from airflow_custody.client.whitelist.models import WhitelistRequest

_NO_STATUS = "not given"
_Filters = dict[str, str | list[str]]

CREATE_WHITELIST_REQUEST = Operation(
    "create whitelisting request",
    "POST",
    "/whitelists/addresses",
    roles=("WhitelistedAddressCreator", "TPUser"),
    confirmed_by="result",
    creates=True,
    hints={
        400: "If the error is about the currency: 'blockchain' must be the service's symbol of the chain, such as ETH, "
        "and the chain must be active in the service's hardware security module. The address must follow the rules of "
        "its chain. Each linked address must be on the same chain, and must not belong to an omnibus wallet."
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
    "sign whitelisting requests",
    "POST",
    "/whitelists/addresses/approve",
    names_objects=True,
    roles=("WhitelistedAddressApprover", "TPUser"),
    documented=False,
    confirmed_by="result",
)
# Rejecting and deleting twice does no harm.
REJECT_WHITELIST_REQUESTS = Operation(
    "reject whitelisting requests",
    "POST",
    "/whitelists/addresses/reject",
    names_objects=True,
    roles=("WhitelistedAddressApprover", "TPUser"),
    repeatable=True,
    documented=False,
    confirmed_by="read back",
)
DELETE_WHITELIST_REQUEST = Operation(
    "delete whitelisting request",
    "POST",
    "/whitelists/addresses/delete",
    names_objects=True,
    roles=("WhitelistedAddressCreator",),
    repeatable=True,
    documented=False,
    confirmed_by="read back",
)


class WhitelistOperations(ServiceOperations):
    """The operations on whitelisting requests."""

    def create_whitelist_request(
        self, request: WhitelistRequest, *, before_send: Callable[[], None] | None = None
    ) -> str:
        """
        Create a request to whitelist a destination address: ``POST /whitelists/addresses``.

        The service has no idempotency key: two calls create two requests. A request has no effect until it is signed.

        :param request: the request.
        :param before_send: called before each attempt, when the connection is open and the request's body is about to
            be sent. Nothing has been created at this point. If ``before_send`` raises an exception, the exception is
            passed on unchanged, and nothing is created. If it takes longer than five seconds, the request is prepared
            again and ``before_send`` is called again, at most three times in all. Default None.
        :return: the request's id, which the signing step needs.
        :raises CustodyOutcomeUnknownError: if the call was sent and its response is missing, truncated, unreadable,
            interim (1xx), a 5xx or a refusal that is not the service's own. The request may have been created.
        :raises CustodyResponseError: if the call was redirected. The request may have been created.
        :raises CustodyError: (of another type) if the request was not created.
        """
        body = request.to_wire()
        reply = self._transport.call(CREATE_WHITELIST_REQUEST, WireCreateResponse, body=body, before_send=before_send)
        identifier = str((reply.body.get("result") or {}).get("id", ""))
        # An id that is not a number would be refused by every later step, so it is not accepted here.
        if read_number(identifier, MAX_ID) is None:
            raise reply.unexpected("it has no readable 'result.id'")
        return identifier

    def find_whitelist_requests(
        self,
        *,
        ids: Iterable[str] | None = None,
        addresses: Iterable[str] | None = None,
        include_pending: bool = True,
        page_size: int = MAX_PAGE_SIZE,
    ) -> Iterator[WhitelistEnvelope]:
        """
        Find whitelisting requests, page by page: ``GET /whitelists/addresses`` (undocumented).

        The listing is complete even if requests are added or removed while it is read, as long as the service keeps
        their order: pages overlap, and each page must begin with a request of an earlier page. The service may count
        requests that it does not return, for example because it finds their signatures invalid.
        :meth:`list_whitelist_requests` returns the number of these hidden requests. The service applies the filters. It
        may ignore a filter, or return more than exact matches, so check the result; only ``ids`` is checked here. With
        pinned keys, each page contains its rules (who must sign) only once, and its rows share them.

        :param ids: ids of the requests to find; a listing with any other request is refused. Default None: all.
        :param addresses: addresses of the requests to find. Default None: all addresses.
        :param include_pending: whether to include requests that are pending approval. Default True.
        :param page_size: number of requests per page, from 1 to 100. With 1, pages cannot overlap, so a change of the
            listing may go unnoticed. Default 100.
        :return: the requests, in the service's order, each once. Pages are fetched when they are needed.
        :raises CustodyRequestError: if ``page_size`` or a filter is wrong; nothing is sent.
        :raises CustodyResponseError: if the listing changed while it was read, or its pages are inconsistent (then the
            error is retryable, and may be raised after the last request); if the end of the listing is unknown, because
            a full page has no total; if the service counts more than a million requests; or if a response cannot be
            understood.
        """
        check_page_size(FIND_WHITELIST_REQUESTS, page_size)
        yield from self._find(include_pending=include_pending, page_size=page_size, ids=ids, addresses=addresses)

    def list_whitelist_requests(
        self,
        *,
        ids: Iterable[str] | None = None,
        addresses: Iterable[str] | None = None,
        include_pending: bool = True,
    ) -> Listing[WhitelistEnvelope]:
        """
        Read all whitelisting requests: ``GET /whitelists/addresses`` (undocumented).

        :param ids: ids of the requests to find, as for :meth:`find_whitelist_requests`. Default None: all.
        :param addresses: addresses of the requests to find. Default None: all addresses.
        :param include_pending: whether to include requests that are pending approval. Default True.
        :return: the requests (``rows``), and the number of requests that the service counts but does not return
            (``hidden``).
        :raises CustodyError: like :meth:`find_whitelist_requests`.
        """
        return read_all(self._find(include_pending=include_pending, ids=ids, addresses=addresses))

    def count_whitelist_requests(self, *, include_pending: bool = True) -> int | None:
        """
        Count the whitelisting requests, in one call: ``GET /whitelists/addresses`` (undocumented).

        :param include_pending: whether to count requests that are pending approval, too. Default True.
        :return: the total in the response, which may include hidden requests; None if the response has a request but
            no total.
        :raises CustodyResponseError: if the response cannot be understood.
        """
        filters: _Filters = {"includeForApproval": "true"} if include_pending else {}
        page = self._page(FIND_WHITELIST_REQUESTS, filters, limit=1, offset=0, rules={})
        # The service leaves out a total of zero.
        return page.total if page.rows or page.total is not None else 0

    def find_whitelist_requests_for_approval(
        self, *, ids: Iterable[str] | None = None, include_already_signed: bool = False
    ) -> Iterator[WhitelistEnvelope]:
        """
        Find the requests that the client's user may sign: ``GET /whitelists/addresses/for-approval`` (undocumented).

        :param ids: ids of the requests to find; a listing with any other request is refused. Default None: all.
        :param include_already_signed: whether to include pending requests that the user has already signed. Default
            False.
        :return: the requests, each once. Pages are fetched when they are needed.
        :raises CustodyError: like :meth:`find_whitelist_requests`.
        """
        filters = _given_filters(FIND_FOR_APPROVAL, {"ids": ids})
        if include_already_signed:
            filters["includeAlreadySignedByUser"] = "true"
        yield from self._pages(FIND_FOR_APPROVAL, filters)

    def get_whitelist_request(self, request_id: str) -> WhitelistEnvelope:
        """
        Get one whitelisting request, pending or not: ``GET /whitelists/addresses/{id}`` (undocumented).

        :param request_id: the request's id, a decimal number.
        :return: the request.
        :raises CustodyRequestError: if the id is not a number; nothing is sent.
        :raises CustodyNotFoundError: if there is no such request.
        """
        request_id = check_request_id(request_id)
        reply = self._transport.call(GET_WHITELIST_REQUEST.on(request_id), WireEnvelopeResponse)
        envelope = reply.body.get("result")
        if not envelope or envelope.get("id") != request_id:
            raise reply.unexpected("its 'result' is not this request")
        return WhitelistEnvelope(envelope)

    def approve_whitelist_requests(
        self, ids: Sequence[str], signature: str, comment: str, *, before_send: Callable[[], None] | None = None
    ) -> int:
        """
        Send a signature: ``POST /whitelists/addresses/approve`` (undocumented).

        :class:`~airflow_custody.client.whitelist.signing.sending.RequestSigner` creates signatures safely.

        :param ids: the requests' ids in ascending numeric order.
        :param signature: the user's signature over the requests' current hashes: 64 bytes ``r || s`` in base64.
        :param comment: comment for the requests' history.
        :param before_send: same as for :meth:`create_whitelist_request`. Default None.
        :return: the number of signatures that the service reports as accepted.
        :raises CustodyOutcomeUnknownError: if the signature was sent and the response is missing, truncated,
            unreadable, interim (1xx) or a 5xx.
        :raises CustodyError: (of another type) if the signature was refused or redirected. If the error is
            ``from_service``, the service did not accept the signature. A gateway may return an error although the
            service has accepted it.
        """
        body = {"ids": check_request_ids(ids), "signature": signature, "comment": comment}
        reply = self._transport.call(APPROVE_WHITELIST_REQUESTS, WireSignatures, body=body, before_send=before_send)
        number = reply.count("signatures")
        if not number:
            raise reply.unexpected("it has no number of 'signatures'")
        return number

    def reject_whitelist_requests(self, ids: Sequence[str], comment: str) -> None:
        """
        Reject whitelisting requests: ``POST /whitelists/addresses/reject`` (undocumented).

        An empty response confirms the rejection. After any other success, a redirect or a refusal (4xx), each request
        is read by its id, and its status must be one of the client's ``rejected_statuses``. Therefore rejecting
        requests that are already rejected succeeds, with a warning in the log. A refused token, and an error that a
        later call may overcome (such as a 429), are raised without reading the requests.

        :param ids: the requests' ids.
        :param comment: the reason; not empty.
        :raises CustodyResponseError: if the rejection is not confirmed.
        :raises CustodyError: (of another type) if the service refuses, and at least one request is not rejected.
        """
        numbers = check_request_ids(ids)
        words = self._transport.settings.status_words

        def read_back() -> str | None:
            for number in numbers:
                status = status_if_shown(self, number)
                if status is None:
                    return f"whitelisting request {number} does not exist"
                if words.meaning(status) != "rejected":
                    return f"whitelisting request {number} has status {sanitize(repr(status), 40)}"
            return None

        body = {"ids": numbers, "comment": comment}
        # The format of a non-empty response is not published.
        self._write(REJECT_WHITELIST_REQUESTS, body=body, shows=lambda data: False, read_back=read_back)

    def delete_whitelist_request(self, request_id: str, comment: str) -> None:
        """
        Delete a whitelisting request: ``POST /whitelists/addresses/delete`` (undocumented).

        A response that is empty or names only this request confirms the deletion. After any other success, a redirect,
        a gateway's refusal (4xx), or the service's own 400, 404 or 409, the service itself must confirm that the
        request does not exist: it returns 404 for the request's id, does not list the request, and can still return a
        request that it lists. If the service responded with 400 or 409 because the request was already deleted, the
        deletion therefore succeeds, with a warning in the log. Other errors, and errors that a later call may overcome
        (such as a 429), are raised without this check.

        :param request_id: the request's id.
        :param comment: the reason; not empty.
        :raises CustodyNotFoundError: if the service itself reports that the request does not exist.
        :raises CustodyResponseError: if the deletion is not confirmed.
        """
        number = check_request_id(request_id)

        def shows(data: Mapping[str, Any]) -> bool:
            request = shown_object(data, "result")
            # If the response has a status for the request, it proves nothing, because the request may still exist.
            return str(request.get("id")) == number and not request.get("status")

        def read_back() -> str | None:
            status = status_if_exists(self, number)
            if status is None:
                return None
            return f"whitelisting request {number} still exists, with status {sanitize(repr(status), 40)}"

        body = {"id": number, "comment": comment}
        self._write(DELETE_WHITELIST_REQUEST, body=body, shows=shows, read_back=read_back, is_deletion=True)

    def _find(
        self, *, include_pending: bool, page_size: int = MAX_PAGE_SIZE, **given: str | Iterable[str] | None
    ) -> Generator[WhitelistEnvelope, None, int]:
        filters = _given_filters(FIND_WHITELIST_REQUESTS, given)
        if include_pending:
            filters["includeForApproval"] = "true"
        if self._transport.settings.superadmin_keys is not None:
            # Request the rules once per page, and not in each row.
            filters["rulesContainerNormalized"] = "true"
        return self._pages(FIND_WHITELIST_REQUESTS, filters, page_size)

    def _pages(
        self, operation: Operation, filters: _Filters, page_size: int = MAX_PAGE_SIZE
    ) -> Generator[WhitelistEnvelope, None, int]:
        rules: dict[str, str] = {}
        return read_offset_listing(
            operation,
            lambda offset: self._page(operation, filters, limit=page_size, offset=offset, rules=rules),
            page_size,
        )

    def _page(
        self, operation: Operation, filters: _Filters, *, limit: int, offset: int, rules: dict[str, str]
    ) -> OffsetPage[WhitelistEnvelope]:
        query = {**filters, "limit": str(limit), "offset": str(offset)}
        reply = self._transport.call(operation, WireEnvelopes, query=query)
        rows, total = reply.rows("result", "totalItems"), reply.count("totalItems")
        wanted = filters.get("ids")
        if wanted is not None and (others := {identifier for identifier, _ in rows}.difference(wanted)):
            # The service has not applied the filter as expected, so requests may also be missing. Refuse the listing.
            raise reply.unexpected(f"it contains request {sanitize(min(others), 40)}, which was not requested")
        add_rules([row for _, row in rows], reply.body.get("rulesContainers"), rules)
        return OffsetPage([(identifier, WhitelistEnvelope(row)) for identifier, row in rows], total)


def _given_filters(operation: Operation, filters: Mapping[str, str | Iterable[str] | None]) -> _Filters:
    """Return the filters that are set, by their names on the wire."""
    given = {
        name: [value] if isinstance(value, str) else [str(each) for each in value]
        for name, value in filters.items()
        if value is not None
    }
    if not all(any(values) for values in given.values()):
        # Refuse an empty filter: it would not be sent, and the listing would contain everything.
        raise operation.refused("a filter is empty")
    return {**given}


def status_if_exists(client: WhitelistOperations, request_id: str) -> str | None:
    """
    Return a request's status; None if the request certainly does not exist.

    A 404 alone does not prove this, because the service may not offer to read single requests. Therefore the listing of
    this id is read, too, and must neither contain nor hide a request. In addition, the service must return another
    listed request when that request is read by its id. If no requests are listed, it must not hide any.

    :param client: the client.
    :param request_id: the request's id.
    :raises CustodyError: if the status cannot be determined.
    """
    not_offered: CustodyError | None = None
    try:
        status = status_if_shown(client, request_id)
    except CustodyError as error:
        if not error.not_offered_by_service:
            raise
        status, not_offered = None, error
    if status is not None:
        return status
    listing = client.list_whitelist_requests(ids=[request_id])
    if listing.rows:
        return listing.rows[0].status or _NO_STATUS
    if not_offered is not None:
        raise not_offered
    others = [] if listing.hidden else _some_listed(client)
    hidden = listing.hidden if listing.hidden or others else client.list_whitelist_requests().hidden
    if hidden:
        raise CustodyResponseError(
            f"the service responds with 404 to reading request {request_id}, but {describe_hidden(hidden)}, and this "
            "request may be among them, so whether it exists is unknown",
            code="outcome-unknown",
        )
    if not others or any(status_if_shown(client, each) is not None for each in others):
        return None
    raise CustodyResponseError(
        f"the service responds with 404 to reading request {request_id}, and also to reading requests that it lists "
        f"({', '.join(sanitize(each, 40) for each in others)}): whether request {request_id} exists is unknown",
        code="outcome-unknown",
    )


def _some_listed(client: WhitelistOperations) -> list[str]:
    """Return the ids of up to three listed requests. One might not be enough, because it may be deleted just now."""
    page = [each.id for each in islice(client.find_whitelist_requests(), MAX_PAGE_SIZE)]
    return list(dict.fromkeys([page[-1], page[len(page) // 2], page[0]])) if page else []


def status_if_shown(client: WhitelistOperations, request_id: str) -> str | None:
    """
    Return a request's status; None if the service itself responds with 404, for whatever reason.

    :param client: the client.
    :param request_id: the request's id.
    :raises CustodyError: if the service responds in another way.
    """
    try:
        return client.get_whitelist_request(request_id).status or _NO_STATUS
    except CustodyNotFoundError as error:
        if not error.from_service:
            raise
        return None
