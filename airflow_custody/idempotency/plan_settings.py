"""The settings that planning and applying must have in common: what there is at the service, and what is planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.listing import Listing, fetch_listing
from airflow_custody.client.whitelist.planner import make_plan

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, WhitelistEnvelope
    from airflow_custody.client.whitelist.file import WhitelistFile
    from airflow_custody.client.whitelist.plan import WhitelistPlan


@dataclass(frozen=True)
class PlanSettings:
    """
    The settings of a plan, besides file and service; the same for planning and applying.

    :param prune: whether requests that the file does not have are deleted, and duplicates.
    :param replace: whether rows that differ get a new request, and old ones are deleted.
    :param only: what the plan is about, by field; None (default): everything.
    :param effective_statuses: status words of requests in effect; None: not being pending is enough.
    :param rejected_statuses: status words of rejected requests.
    :param accept_fields: keys of a payload that nobody needs to have asked for, and ``envelope.action``.
    :param ignore: ids of requests that stop no row, although they may be one's. Default: none.
    """

    prune: bool
    replace: bool
    only: Mapping[str, Sequence[str]] | None = None
    effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES
    rejected_statuses: Collection[str] = REJECTED_STATUSES
    accept_fields: Collection[str] = ()
    ignore: Collection[str] = ()

    def fetch(self, client: CustodyClient) -> Listing:
        """Read all that the service lists."""
        return fetch_listing(
            client,
            effective_statuses=self.effective_statuses,
            rejected_statuses=self.rejected_statuses,
        )

    def pending(self, listing: Listing) -> Sequence[WhitelistEnvelope]:
        """Return the requests of a listing that are pending approval."""
        return listing.pending(self.effective_statuses, self.rejected_statuses)

    def plan(self, file: WhitelistFile, listing: Listing, service: str) -> WhitelistPlan:
        """Compare a file with what the service lists."""
        return make_plan(file.rows, listing, service=service, name=file.name, **vars(self))
