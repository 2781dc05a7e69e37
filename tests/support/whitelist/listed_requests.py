"""A listing for the fake services of tests."""

from __future__ import annotations

from typing import Any

from airflow_custody.client.http.listings import Listing
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope


class ListsRequests:
    """A fake service that lists what its ``find_whitelist_requests`` finds."""

    #: Number of requests that it counts but does not return.
    hidden = 0

    def list_whitelist_requests(self, **given: Any) -> Listing[WhitelistEnvelope]:
        return Listing([*self.find_whitelist_requests(**given)], self.hidden)  # type: ignore[attr-defined]
