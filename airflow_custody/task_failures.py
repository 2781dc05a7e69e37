"""How a failed operation ends an Airflow task: at once, or left to the task's retries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_custody.client.errors import CustodyError


@contextmanager
def failing_the_task() -> Iterator[None]:
    """
    Turn errors that trying again cannot mend into a failure without retries.

    The others pass unchanged, so that Airflow's own retries apply. The cause of the failure remains the error.

    :raises AirflowFailException: for a :class:`CustodyError` that is not retryable.
    """
    try:
        yield
    except CustodyError as error:
        if error.retryable:
            raise
        raise AirflowFailException(f"{error} (not tried again)") from error
