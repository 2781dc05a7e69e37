"""Counts of everything pending approval, by kind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from airflow_custody.client.text import count


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
        return [
            f"{'at least ' if name in self.at_least else ''}{count(number, _NOUNS.get(name) or _singular(name))}"
            for name, number in self.counts.items()
            if number
        ]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON data: the attributes, and ``at_least``."""
        return {**asdict(self), "at_least": list(self.at_least)}


# A whitelisting request is what a page of whitelisting requests calls a request.
_NOUNS = {"whitelisted_addresses": "request", "requests": "transfer or other request"}


def _singular(name: str) -> str:
    return name.replace("_", " ").removesuffix("es" if name.endswith("sses") else "s")
