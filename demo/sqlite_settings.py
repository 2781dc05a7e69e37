"""SQLite settings for Airflow processes that share a database file: for the demo's UI and the fault tests."""

from __future__ import annotations

import sys

# The API server writes its audit log on its event loop, while a thread that holds the database lock may be waiting for
# that loop. Waiting for the lock there is pointless, so it times out soon and the call is repeated. By default, every
# process waits five seconds, and then the scheduler crashes.
CONNECT_ARGS = {"timeout": 1 if "api-server" in sys.argv else 60}
