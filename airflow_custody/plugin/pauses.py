"""What services ask not to be asked for, for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyRateLimitError
from airflow_custody.client.http.retries import RETRIED_STATUSES

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.http.observation import Observation
    from airflow_custody.client.http.operation import Operation

#: For how many seconds a service can ask for that, at most: a person looks at the page.
MAX_PAUSE = 300.0


class Pauses:
    """
    Until when services asked not to be asked for something. Each pause is of one operation: the others are read on.

    :param clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[tuple[Hashable, str], float] = {}

    def keep(self, client: CustodyClient, whose: Hashable) -> None:
        """
        Have a client keep all pauses, and take notice of those that its service asks for.

        :param client: the client.
        :param whose: names the connection as it is: one that has changed may lead to another service.
        """
        client.observe(lambda seen: self.note(whose, seen))
        client.check_calls(lambda operation: self.check(whose, operation))

    def note(self, whose: Hashable, seen: Observation) -> None:
        """Take notice of what a response asks for; a shorter pause ends no longer one."""
        if seen.status not in RETRIED_STATUSES or not seen.retry_after:
            return
        with self._lock:
            now = self._clock()
            self._until = {key: until for key, until in self._until.items() if now < until}
            key, until = (whose, seen.operation), now + min(seen.retry_after, MAX_PAUSE)
            self._until[key] = max(until, self._until.get(key, until))

    def check(self, whose: Hashable, operation: Operation) -> None:
        """
        Refuse a call before its pause is over.

        :raises CustodyRateLimitError: if it is not.
        """
        left = self._until.get((whose, operation.name), 0.0) - self._clock()
        if left <= 0:
            return
        end = datetime.now(timezone.utc) + timedelta(seconds=left)
        raise operation.failed(
            CustodyRateLimitError,
            f"the service asked for a pause, so that it is not asked for this before {end:%H:%M:%S} UTC",
            code=None,
            advice="Refresh this page then.",
            nothing_sent=True,
        )
