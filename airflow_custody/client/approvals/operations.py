"""The operation that counts pending approvals."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic.alias_generators import to_camel

from airflow_custody.client.approvals.models import PendingApprovals
from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.http.operation import MAX_PAGE_SIZE, Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.text import read_number

GET_PENDING_APPROVALS = Operation(
    "get pending approvals", "GET", "/statistics/for-approval", roles=("TPUser",), documented=False
)

_NAMES = [each.name for each in fields(PendingApprovals) if each.name != "limit"]
# By their names on the wire: ``requestsCount``.
_COUNTS = {f"{to_camel(name)}Count": name for name in _NAMES}


class ApprovalOperations(ServiceOperations):
    """The operations on pending approvals of all kinds."""

    def get_pending_approvals(self) -> PendingApprovals:
        """
        Count the items that are pending approval by the client's user: ``GET /statistics/for-approval`` (undocumented).

        The call uses the largest limit, 100. The meaning of the limit for the counts is not published: a count that
        reaches it may stand for more, and :attr:`PendingApprovals.at_least` names it. The whitelisting requests
        themselves are found by :meth:`find_whitelist_requests_for_approval`.

        :return: the counts; 0 for those that the service leaves out.
        :raises CustodyNotFoundError: if the service does not offer it.
        :raises CustodyResponseError: if a count is no number.
        """
        reply = self._transport.call(GET_PENDING_APPROVALS, dict[str, Any], query={"limit": str(MAX_PAGE_SIZE)})
        # Without any of the counts, either nothing is pending or it is the response of something else.
        reply.require_any_key(*_COUNTS)
        counts: dict[str, int] = {}
        for wire, name in _COUNTS.items():
            number = read_number(str(reply.body.get(wire) or "0"), MAX_ID)
            if number is None:
                raise reply.unexpected(f"its {wire!r} is not a number")
            counts[name] = number
        return PendingApprovals(**counts, limit=MAX_PAGE_SIZE)
