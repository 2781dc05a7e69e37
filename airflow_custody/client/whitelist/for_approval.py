"""Requests that are pending approval by the client's user."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.whitelist.review import is_deletion

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope


def find_for_approval(
    client: CustodyClient, ids: list[str] | None = None, *, include_already_signed: bool = True
) -> dict[str, WhitelistEnvelope]:
    """
    Find the requests that are pending approval by the user, whatever other listings, or their status words, say.

    :param client: the client.
    :param ids: only these requests. Default None: all.
    :param include_already_signed: whether to find also those that the user has signed. Default True.
    :return: the requests by their ids; none for a user who is no approver.
    """
    if ids == []:
        return {}
    try:
        rows = client.find_whitelist_requests_for_approval(ids=ids, include_already_signed=include_already_signed)
        return {row.id: row for row in rows}
    except CustodyError as error:
        # Nothing is pending for somebody who is no approver. Only the service itself can tell.
        if error.not_offered and error.from_service:
            return {}
        raise


def still_pending(
    client: CustodyClient, for_approval: Mapping[str, WhitelistEnvelope], decided: Collection[str]
) -> dict[str, WhitelistEnvelope]:
    """
    Return the requests whose creation is pending, of those that are listed as pending approval by the user.

    A request that is otherwise shown as decided is pending only if the user may still sign it, not its deletion: an
    address is in effect until its deletion is. That takes one more call for each hundred of them.

    :param client: the client.
    :param for_approval: the result of :func:`find_for_approval`.
    :param decided: the ids of those that are listed without asking for pending ones, with a status that says that they
        are in effect, or rejected.
    """
    doubtful = [each for each, row in for_approval.items() if each in decided and not is_deletion(row.action or "")]
    signable: set[str] = set()
    for start in range(0, len(doubtful), MAX_PAGE_SIZE):
        signable.update(
            find_for_approval(client, doubtful[start : start + MAX_PAGE_SIZE], include_already_signed=False)
        )
    return {each: row for each, row in for_approval.items() if each not in decided or each in signable}


def pending_deletions(
    for_approval: Mapping[str, WhitelistEnvelope], creations: Collection[str]
) -> dict[str, WhitelistEnvelope]:
    """
    Return the requests in effect whose deletion is pending, of those that are listed as pending approval by the user.

    :param for_approval: the result of :func:`find_for_approval`.
    :param creations: the ids of those whose creation is pending, as :func:`still_pending` found them.
    """
    return {each: row for each, row in for_approval.items() if each not in creations and is_deletion(row.action or "")}
