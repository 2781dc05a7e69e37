"""Whether a whitelisting request exists."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError, CustodyNotFoundError, CustodyResponseError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.operations import WhitelistOperations


def status_if_exists(client: WhitelistOperations, request_id: str, *, said_done: bool = False) -> str | None:
    """
    Return a request's status; None if there certainly is no such request.

    The service's 404 may mean that it does not offer to read one request. So it counts only if the listing does not
    have the request either, and one that it has can be read in the same way; or if it has none at all.

    :param client: the client.
    :param request_id: the request's id.
    :param said_done: whether the service has just responded as if it had deleted the request: then its 404, and that
        it does not list the request, is enough. Default False.
    :raises CustodyError: if that cannot be known.
    """
    not_offered: CustodyError | None = None
    try:
        status = status_if_shown(client, request_id)
    except CustodyError as error:
        if not (error.not_offered and error.from_service):
            raise
        status, not_offered = None, error
    if status is not None:
        return status
    for found in client.find_whitelist_requests(ids=[request_id]):
        return found.status or _NO_STATUS
    if not_offered is not None:
        raise not_offered
    if said_done:
        return None
    page = [each.id for each in islice(client.find_whitelist_requests(), MAX_PAGE_SIZE)]
    # Any of them may be deleted just now: the last was created last.
    others = dict.fromkeys([page[-1], page[len(page) // 2], page[0]] if page else [])
    if not others or any(status_if_shown(client, each) is not None for each in others):
        return None
    raise CustodyResponseError(
        f"the service responds with 404 to reading request {request_id}, and also to reading requests that it lists "
        f"({', '.join(sanitize(each, 40) for each in others)}): whether it exists is not known",
        code="outcome-unknown",
    )


def status_if_shown(client: WhitelistOperations, request_id: str) -> str | None:
    """
    Return a request's status; None if the service itself responds with 404, whatever it means by that.

    :param client: the client.
    :param request_id: the request's id.
    :raises CustodyError: if it responds in another way.
    """
    try:
        return client.get_whitelist_request(request_id).status or _NO_STATUS
    except CustodyNotFoundError as error:
        if not error.from_service:
            raise
        return None


_NO_STATUS = "not given"
