"""Which failures are worth another try, and when. Needs Airflow 3.3: earlier versions have no retry policies."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import RetryDecision, RetryPolicy

from airflow_custody.client.errors import CustodyError

if TYPE_CHECKING:
    from airflow.sdk import Context


class CustodyRetryPolicy(RetryPolicy):
    """
    Decide by what went wrong at the custody service.

    A wrong setting, token, role or request fails at once: trying again would not mend it. When the service says how
    long to wait (429 and 503 with ``Retry-After``), the next try comes then. Everything else is left to the task's
    own ``retries`` and ``retry_delay``. A policy can not give a task more tries than its ``retries``.

    All operators and the sensor use it unless they are given another policy; ``retry_policy=None`` does not switch
    it off, because that is what Airflow hands to a mapped task that was given none.

    :param shortest_delay: least time to the next try where the service asks for one. Default 1 second.
    :param longest_delay: most time to the next try where the service asks for one. Default 1 hour.
    """

    def __init__(
        self,
        *,
        shortest_delay: timedelta = timedelta(seconds=1),
        longest_delay: timedelta = timedelta(hours=1),
    ) -> None:
        self.shortest_delay = shortest_delay
        self.longest_delay = longest_delay

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Context | None = None,
    ) -> RetryDecision:
        """
        Decide what happens after a failure.

        :param exception: what the task failed with; only a :class:`CustodyError` is judged.
        :param try_number: number of the try that failed; not looked at.
        :param max_tries: most tries of the task; not looked at.
        :param context: context of the task; not looked at.
        :return: to fail, to try again after a certain time, or Airflow's default.
        """
        if not isinstance(exception, CustodyError):
            return RetryDecision.default()
        if not exception.retryable:
            return RetryDecision.fail(f"trying again would not mend it: {exception}"[:500])
        if exception.retry_after is not None and exception.status in (429, 503):
            # Compared as numbers: what the service asks for may be more than a timedelta holds.
            bounds = self.shortest_delay.total_seconds(), self.longest_delay.total_seconds()
            seconds = min(max(exception.retry_after, bounds[0]), bounds[1])
            return RetryDecision.retry(
                timedelta(seconds=seconds),
                f"status {exception.status}, the service asks to wait {exception.retry_after:g} s",
            )
        return RetryDecision.default()
