"""Delays between tries. Each delay is twice the previous one, up to a maximum."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

# Maximum exponent, because a larger power would overflow a float. All maximum delays are reached much earlier.
_MAX_DOUBLINGS = 30


def growing_delay(number: int, *, first: float, maximum: float) -> float:
    """
    Return the delay before a try.

    :param number: the number of earlier delays.
    :param first: the first delay in seconds.
    :param maximum: the maximum delay in seconds.
    """
    return min(maximum, first * 2.0 ** min(number, _MAX_DOUBLINGS))


def growing_delays(*, first: float, maximum: float) -> Iterator[float]:
    """Yield delays before tries, endlessly; same parameters as :func:`growing_delay`."""
    return (growing_delay(number, first=first, maximum=maximum) for number in count())


def tries_within(seconds: float, *, first: float = 1.0, maximum: float = 5.0) -> Iterator[None]:
    """
    Yield once for each try.

    The first try is immediate, further tries follow after growing delays, and the last try is made when the given time
    has passed.

    :param seconds: seconds from the first try to the last.
    :param first: the first delay in seconds. Default 1.
    :param maximum: the maximum delay in seconds. Default 5.
    """
    deadline = time.monotonic() + seconds
    for delay in growing_delays(first=first, maximum=maximum):
        is_last = time.monotonic() >= deadline
        yield
        if is_last:
            return
        time.sleep(min(delay, max(0.0, deadline - time.monotonic())))
