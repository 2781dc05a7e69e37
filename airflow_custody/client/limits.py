"""Limits of the service: page size, length and delay of its listings."""

from __future__ import annotations

#: Maximum number of rows on one page of the service, and of objects in one batch.
MAX_PAGE_SIZE = 100
#: Maximum number of rows that are read from one listing, so that no response makes reading endless.
MAX_LISTED_ROWS = 1_000_000
#: Seconds that may pass until the service's listings include a change.
LOOKUP_WAIT = 30.0
