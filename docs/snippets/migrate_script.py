"""A script that was written with requests, with this package instead. Tests run this."""

# [START howto_migrate_script]
from __future__ import annotations

import os

from airflow_custody.client import CustodyClient, CustodyOutcomeUnknownError, WhitelistRequest


def ask_for(label: str, address: str) -> str:
    """Create a whitelisting request, and return its id."""
    with CustodyClient(os.environ["CUSTODY_URL"], os.environ["CUSTODY_TOKEN"]) as client:
        request = WhitelistRequest(label=label, address=address, blockchain="ETH")
        try:
            return client.create_whitelist_request(request)
        except CustodyOutcomeUnknownError:
            # It may have been created: look before anybody sends it again.
            found = client.find_whitelist_requests(addresses=[address])
            raise SystemExit(
                f"unknown whether it was created; the service lists: {[each.id for each in found]}"
            ) from None


# [END howto_migrate_script]
