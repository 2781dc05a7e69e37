"""SQLite settings for Airflow processes that share a database file: for the demo's UI and the fault tests."""

from __future__ import annotations

import sys

# Seconds to wait for the database lock. The default is five, after which the scheduler crashes, so all processes except
# the API server wait for a minute. The API server writes its audit log on its event loop. If it waited for the lock
# there, and the thread that holds the lock waited for the event loop, both would be blocked. Therefore its wait ends
# after a second, and the call is repeated.
CONNECT_ARGS = {"timeout": 1 if "api-server" in sys.argv else 60}
