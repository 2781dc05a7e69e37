"""The operation that counts pending approvals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from pydantic.alias_generators import to_camel

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.limits import MAX_PAGE_SIZE
from airflow_custody.client.text import count, read_number

GET_PENDING_APPROVALS = Operation(
    "get pending approvals", "GET", "/statistics/for-approval", roles=("TPUser",), documented=False
)


@dataclass(frozen=True)
class PendingApprovals:
    """
    The numbers of items that are pending approval by the client's user.

    :param whitelisted_addresses: whitelisting requests for addresses.
    :param whitelisted_contracts: whitelisting requests for contracts.
    :param requests: requests, such as transfers.
    :param account_changes: changes of accounts.
    :param contract_calls: calls of contracts.
    :param settlements: settlements.
    :param pledges: pledges.
    :param limit: the limit that was asked for. A count that reaches it may stand for more.
    """

    whitelisted_addresses: int = 0
    whitelisted_contracts: int = 0
    requests: int = 0
    account_changes: int = 0
    contract_calls: int = 0
    settlements: int = 0
    pledges: int = 0
    limit: int = 100

    @property
    def counts(self) -> dict[str, int]:
        """The counts, by the names of the attributes."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "limit"}

    @property
    def at_least(self) -> tuple[str, ...]:
        """The names of the counts that may stand for more: those that reach the limit."""
        return tuple(name for name, number in self.counts.items() if number >= self.limit)

    @property
    def total(self) -> int:
        """The number of pending items in all, or the least that it can be."""
        return sum(self.counts.values())

    @property
    def texts(self) -> list[str]:
        """The counts in words: ``1 request``, ``at least 100 settlements``."""
        nouns = {name: _NOUNS.get(name) or name.replace("_", " ").removesuffix("s") for name in self.counts}
        return [
            f"{'at least ' if name in self.at_least else ''}{count(number, nouns[name])}"
            for name, number in self.counts.items()
            if number
        ]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON data: the attributes, and ``at_least``."""
        return {**asdict(self), "at_least": list(self.at_least)}


# A whitelisting request is what a page of whitelisting requests calls a request.
_NOUNS = {"whitelisted_addresses": "request", "requests": "transfer or other request"}
# By their names on the wire: ``requestsCount``.
_COUNTS = {f"{to_camel(name)}Count": name for name in PendingApprovals().counts}


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
