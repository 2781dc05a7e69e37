"""How a failed operation ends an Airflow task: at once, or with another try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_custody.client.errors import CustodyError, CustodyOutcomeUnknownError

try:
    from airflow_custody.retry_policy import CustodyRetryPolicy
except ImportError:  # Airflow before 3.3 has no retry policies.
    _DEFAULT_POLICY = None
else:
    _DEFAULT_POLICY = CustodyRetryPolicy()


def use_custody_retry_policy(operator: Any) -> None:
    """
    Give an operator the retry policy for failures of the service, unless it was given one.

    Call it after ``super().__init__()``: a mapped task is handed ``retry_policy=None`` when nobody gave it one.

    :param operator: the operator; on Airflow before 3.3 nothing happens.
    """
    if _DEFAULT_POLICY is not None and operator.retry_policy is None:
        operator.retry_policy = _DEFAULT_POLICY


@contextmanager
def failing_the_task(operator: Any) -> Iterator[None]:
    """
    End the task without retries on errors that trying again can not mend.

    That is what :class:`CustodyRetryPolicy` decides too; said by an exception it holds on every version of Airflow. A
    policy that the user gave decides for itself, so it gets to see the error; but not about sending again what may
    exist already.

    :param operator: the operator that is being executed.
    :raises AirflowFailException: for a :class:`CustodyError` that is not retryable. Its cause is the error.
    """
    try:
        yield
    except CustodyError as error:
        users_policy = getattr(operator, "retry_policy", None) is not _DEFAULT_POLICY
        if error.retryable or (users_policy and not isinstance(error, CustodyOutcomeUnknownError)):
            raise
        raise AirflowFailException(f"{error} (not tried again)") from error
