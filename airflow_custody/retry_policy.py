"""The rule for retrying failures, and for failing a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError, CustodyOutcomeUnknownError
from airflow_custody.client.text import lines

try:
    from airflow.sdk import RetryDecision, RetryPolicy
except ImportError:  # Airflow before 3.3 has no retry policies.
    RetryPolicy = object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator
    from airflow.sdk import Context

    from airflow_custody.client.errors import CustodyError

__all__ = ["CustodyRetryPolicy"]


class CustodyFailException(AirflowFailException):
    """
    Raised when a task fails in a way that a retry would not help.

    Its text is the whole message, line by line, as Airflow logs it at the end of the task's log.

    :param error: the failure.
    :param place: beginning of its text. Default: none.
    """

    def __init__(self, error: CustodyError, place: str = "") -> None:
        super().__init__(lines(f"{place}{error.reason} (not retried)", error.advice, label(error.code)))
        self.error = error
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error, self.place)


class CustodyRetryPolicy(RetryPolicy):
    """
    A retry policy that decides by what went wrong at the custody service (Airflow 3.3).

    A wrong setting, token, role or request fails at once: a retry would not help. When the service says how
    long to wait (429 and 503 with ``Retry-After``), the next try comes then. Everything else is left to the task's
    own ``retries`` and ``retry_delay``. A policy cannot give a task more tries than its ``retries``.

    All operators and sensors use it unless they are given another policy; ``retry_policy=None`` does not switch
    it off, because that is what Airflow gives to a mapped task without one.

    :param min_delay: minimum time to the next try where the service asks for one. Default 1 second.
    :param max_delay: maximum time to the next try where the service asks for one. Default 1 hour.
    :raises ValueError: if the minimum is negative or more than the maximum.
    """

    def __init__(
        self,
        *,
        min_delay: timedelta = timedelta(seconds=1),
        max_delay: timedelta = timedelta(hours=1),
    ) -> None:
        if not timedelta(0) <= min_delay <= max_delay:
            raise ValueError(f"min_delay ({min_delay}) must not be negative, nor more than max_delay ({max_delay})")
        self.min_delay = min_delay
        self.max_delay = max_delay

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Context | None = None,
    ) -> RetryDecision:
        """
        Decide what happens after a failure.

        :param exception: the failure; only a :class:`CustodyError` is considered.
        :param try_number: the try that failed; not used.
        :param max_tries: the task's maximum number of tries; not used.
        :param context: the task's context; not used.
        :return: to fail, to try again after a certain time, or Airflow's default.
        """
        if not isinstance(exception, CustodyError):
            return RetryDecision.default()
        if not exception.retryable:
            reason = f"a retry would not help: {exception.reason}"[:450]
            return RetryDecision.fail(f"{reason} {label(exception.code)}")
        if exception.retry_after is not None and exception.status in (429, 503):
            # Compared as numbers: the requested delay may exceed the maximum of a timedelta.
            bounds = self.min_delay.total_seconds(), self.max_delay.total_seconds()
            seconds = min(max(exception.retry_after, bounds[0]), bounds[1])
            return RetryDecision.retry(
                timedelta(seconds=seconds),
                f"status {exception.status}, the service asks to wait {min(exception.retry_after, 1e9):g} s",
            )
        return RetryDecision.default()


_DEFAULT_POLICY = None if RetryPolicy is object else CustodyRetryPolicy()


def use_default_retry_policy(operator: BaseOperator) -> None:
    """
    Give an operator the retry policy for failures of the service, unless it was given one.

    Call it after ``super().__init__()``: a mapped task is given ``retry_policy=None`` when its author gave none.

    :param operator: the operator; on Airflow before 3.3 nothing happens.
    """
    if _DEFAULT_POLICY is not None and operator.retry_policy is None:
        operator.retry_policy = _DEFAULT_POLICY


def map_place(context: Any) -> str:
    """Return the beginning of a message about a mapped task instance; empty for any other."""
    index = getattr(context.get("ti"), "map_index", None)
    return "" if index is None or index < 0 else f"map index {index} (counted from 0): "


@contextmanager
def failing_task(operator: Any, context: Any) -> Iterator[None]:
    """
    Fail a task without retries where a retry would not help. Airflow logs the exception, which has no chain.

    That is what :class:`CustodyRetryPolicy` decides too; as an exception it holds on every version of Airflow. A
    policy that the user gave decides for itself, so it gets to see the error; but not about sending again what may
    exist already.

    :param operator: the operator that is being executed.
    :param context: its context.
    :raises CustodyFailException: for a :class:`CustodyError` that is not retryable.
    """
    try:
        yield
        return
    except CustodyError as raised:
        error = raised
    # Compare types, because Airflow copies operators and what they hold.
    policy = getattr(operator, "retry_policy", None)
    users_policy = policy is not None and type(policy) is not CustodyRetryPolicy
    policy_decides = users_policy and not isinstance(error, CustodyOutcomeUnknownError)
    if error.retryable or policy_decides:
        raise error from None
    raise CustodyFailException(error, map_place(context)) from None
