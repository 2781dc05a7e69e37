"""Decide which failures are retried, and fail tasks without retries if a retry cannot help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError, CustodyOutcomeUnknownError
from airflow_custody.hooks._advice import name_connection

try:
    from airflow.sdk import RetryDecision, RetryPolicy
except ImportError:  # Airflow before 3.3 has no retry policies.
    RetryPolicy = object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator
    from airflow.sdk import Context


__all__ = ["CustodyRetryPolicy"]


class CustodyFailException(AirflowFailException):
    """
    Raised when a task fails and a retry cannot help.

    The exception's text is the whole message, with the advice in further lines. Airflow logs it at the end of the
    task's log.

    :param error: the failure.
    :param place: the beginning of the text. Default empty.
    """

    def __init__(self, error: CustodyError, place: str = "") -> None:
        super().__init__(error.render(place, " (not retried)"))
        self.error = error
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error, self.place)


class CustodyRetryPolicy(RetryPolicy):
    """
    A retry policy that depends on the type of failure (Airflow 3.3).

    A wrong setting, token, role or request fails the task at once, because a retry cannot help. If the service requests
    a delay (429 or 503 with ``Retry-After``), the next try follows after that delay. For all other failures, the task's
    ``retries`` and ``retry_delay`` apply. A task never has more tries than its ``retries`` allow.

    This is the default policy of all operators and sensors. ``retry_policy=None`` does not disable it, because Airflow
    also passes None to a mapped task for which no policy was set. To replace it, set another policy. Tasks then raise
    the original :class:`CustodyError` instead of ``AirflowFailException``, so that your policy decides, unless the
    outcome of a request is unknown.

    :param min_delay: minimum time to the next try if the service requests a delay. Default 1 second.
    :param max_delay: maximum time to the next try if the service requests a delay. Default 1 hour.
    :raises ValueError: if ``min_delay`` is negative or greater than ``max_delay``.
    """

    def __init__(
        self,
        *,
        min_delay: timedelta = timedelta(seconds=1),
        max_delay: timedelta = timedelta(hours=1),
    ) -> None:
        if not timedelta(0) <= min_delay <= max_delay:
            raise ValueError(f"min_delay ({min_delay}) must be from 0 to max_delay ({max_delay})")
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
        Decide whether and when to retry after a failure.

        :param exception: the failure; only a :class:`CustodyError` is considered.
        :param try_number: the try that failed; not used.
        :param max_tries: the task's maximum number of tries; not used.
        :param context: the task's context; not used.
        :return: the decision to fail, to retry after a delay, or to use Airflow's default.
        """
        if not isinstance(exception, CustodyError):
            return RetryDecision.default()
        if not exception.retryable:
            reason = f"a retry cannot help: {exception.reason}"[:450]
            return RetryDecision.fail(f"{reason} {label(exception.code)}")
        if exception.retry_after is not None and exception.status in (429, 503):
            # Compare numbers, because the requested delay may exceed the maximum of a timedelta.
            bounds = self.min_delay.total_seconds(), self.max_delay.total_seconds()
            seconds = min(max(exception.retry_after, bounds[0]), bounds[1])
            return RetryDecision.retry(
                timedelta(seconds=seconds),
                f"status {exception.status}: the service requests a delay of {min(exception.retry_after, 1e9):g} s",
            )
        return RetryDecision.default()


_DEFAULT_POLICY = None if RetryPolicy is object else CustodyRetryPolicy()


def use_default_retry_policy(operator: BaseOperator) -> None:
    """
    Give an operator the default retry policy, unless it has a policy of its own.

    Call this after ``super().__init__()``, because Airflow passes ``retry_policy=None`` to a mapped task without a
    policy. On Airflow before 3.3, which has no retry policies, this does nothing.

    :param operator: the operator.
    """
    if _DEFAULT_POLICY is not None and operator.retry_policy is None:
        operator.retry_policy = _DEFAULT_POLICY


def map_place(context: Any) -> str:
    """Return the beginning of a mapped task instance's messages; empty if the task is not mapped."""
    index = getattr(context.get("ti"), "map_index", None)
    return "" if index is None or index < 0 else f"map index {index} (counted from 0): "


@contextmanager
def failing_task(operator: Any, context: Any) -> Iterator[None]:
    """
    Fail a task without retries if a retry cannot help.

    :class:`CustodyRetryPolicy` makes the same decision, but only works on Airflow 3.3. :class:`CustodyFailException`
        works on every version. If the user has set another policy, that policy gets the original error and decides.
        However, if the outcome of a request is unknown, the task always fails without retries, because a request that
        may exist must not be sent again. The raised exception is not chained to another exception.

    :param operator: the operator that is being executed.
    :param context: its context.
    :raises CustodyFailException: for a :class:`CustodyError` that is not retryable.
    """
    try:
        yield
        return
    except CustodyError as raised:
        error = raised
    if error.advice and hasattr(operator, "custody_conn_id"):
        error = error.with_facts(advice=name_connection(error.advice, str(operator.custody_conn_id)))
    # Compare the policies' types and not the objects, because Airflow copies operators together with their policies.
    policy = getattr(operator, "retry_policy", None)
    users_policy = policy is not None and type(policy) is not CustodyRetryPolicy
    policy_decides = users_policy and not isinstance(error, CustodyOutcomeUnknownError)
    if error.retryable or policy_decides:
        raise error from None
    raise CustodyFailException(error, map_place(context)) from None
