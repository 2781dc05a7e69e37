"""How the parts of Airflow share SQLite in the fault suite, which keeps it busier than a single user does."""

from __future__ import annotations

import sys

# The API server writes its audit log on its event loop, and a thread that holds the lock may be waiting for that very
# loop: who waits there waits in vain, so it gives up soon and is asked again. By default all would wait five seconds,
# after which a scheduler dies of it.
CONNECT_ARGS = {"timeout": 1 if "api-server" in sys.argv else 60}
