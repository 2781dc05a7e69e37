"""Retries within one call: conditions and delays."""

from __future__ import annotations

import math
import random

from urllib3.exceptions import InvalidHeader
from urllib3.util.retry import Retry

from airflow_custody.client.http.operation import Operation

#: Statuses after which what is safe to repeat is repeated.
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
#: Maximum ``Retry-After`` in seconds that is waited for; beyond it the error is raised and carries it.
MAX_RETRY_AFTER = 60.0
_RETRIED_METHODS = frozenset({"GET", "PATCH", "DELETE"})
_BACKOFF = 0.5
_MAX_BACKOFF = 20.0


def is_retried(operation: Operation) -> bool:
    """Tell whether a call repeats the operation by itself after it was sent."""
    return operation.is_repeatable and operation.method in _RETRIED_METHODS


def backoff(retries: int) -> float:
    """
    Return the seconds to wait before the next retry: none before the first, then twice as long each time.

    :param retries: the number of retries so far.
    """
    if retries == 0:
        return 0.0
    return min(_MAX_BACKOFF, _BACKOFF * 2.0**retries + random.uniform(0, _BACKOFF))  # noqa: S311 - only spreads load


def parse_retry_after(header: str | None) -> float | None:
    """Return a ``Retry-After`` in seconds; None if there is none or it cannot be read."""
    if header is None:
        return None
    try:
        seconds = float(Retry().parse_retry_after(header))
    except (InvalidHeader, ValueError, TypeError, OverflowError, IndexError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
