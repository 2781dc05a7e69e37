"""What the service takes at once, and how long it may take."""

from __future__ import annotations

#: Maximum number of rows on one page of the service, and of objects in one batch.
MAX_PAGE_SIZE = 100
#: Seconds that the service may take to show in its listings what it has done.
LOOKUP_WAIT = 30.0
