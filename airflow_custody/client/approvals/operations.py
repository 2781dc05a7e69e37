"""The operation that counts pending approvals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from pydantic.alias_generators import to_camel

from airflow_custody.client.arguments import MAX_PAGE_SIZE
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.text import count

GET_PENDING_APPROVALS = Operation(
    "get pending approvals", "GET", "/statistics/for-approval", roles=("TPUser",), documented=False
)


@dataclass(frozen=True)
class PendingApprovals:
    """
    Counts of the items that are pending approval by the client's user.

    :param whitelisted_addresses: whitelisting requests for addresses.
    :param whitelisted_contracts: whitelisting requests for contracts.
    :param requests: other requests, such as transfers.
    :param account_changes: changes of accounts.
    :param contract_calls: calls of contracts.
    :param settlements: settlements.
    :param pledges: pledges.
    :param limit: the limit that was requested. If a count reaches it, the actual number may be larger.
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
        """Names of the counts that reach the limit, and may be larger."""
        return tuple(name for name, number in self.counts.items() if number >= self.limit)

    @property
    def total(self) -> int:
        """Total number of pending items; a lower bound if a count reaches the limit."""
        return sum(self.counts.values())

    @property
    def texts(self) -> list[str]:
        """The counts as text, such as ``1 request`` or ``at least 100 settlements``."""
        nouns = {name: _NOUNS.get(name) or name.replace("_", " ").removesuffix("s") for name in self.counts}
        return [
            f"{'at least ' if name in self.at_least else ''}{count(number, nouns[name])}"
            for name, number in self.counts.items()
            if number
        ]

    def to_json(self) -> dict[str, object]:
        """Return the attributes and ``at_least`` as plain JSON data."""
        return {**asdict(self), "at_least": list(self.at_least)}


# On a page about whitelisting, "request" alone means a whitelisting request.
_NOUNS = {"whitelisted_addresses": "request", "requests": "transfer or other request"}
# Maps a name on the wire, such as ``requestsCount``, to an attribute.
_COUNTS = {f"{to_camel(name)}Count": name for name in PendingApprovals().counts}


class ApprovalOperations(ServiceOperations):
    """The operations on pending approvals of all kinds."""

    def get_pending_approvals(self) -> PendingApprovals:
        """
        Count the items that are pending approval by the client's user.

        This calls ``GET /statistics/for-approval`` (undocumented) with the largest limit, 100. How the limit affects
        the counts is not published. Therefore, if a count reaches the limit, the actual number may be larger, and
        :attr:`PendingApprovals.at_least` names the count. :meth:`find_whitelist_requests_for_approval` returns the
        whitelisting requests themselves.

        :return: the counts; 0 for each count that the service leaves out.
        :raises CustodyNotFoundError: if the service does not offer this operation.
        :raises CustodyResponseError: if a count is not a number.
        """
        reply = self._transport.call(GET_PENDING_APPROVALS, dict[str, Any], query={"limit": str(MAX_PAGE_SIZE)})
        # ``{}`` means that nothing is pending. Any other response without counts may come from a gateway.
        reply.require_any_key(*_COUNTS)
        counts = {name: reply.count(wire) or 0 for wire, name in _COUNTS.items()}
        return PendingApprovals(**counts, limit=MAX_PAGE_SIZE)
