"""
The fence: the maximum age of a record or signature.

It counts when the request is sent.
"""

from __future__ import annotations

#: Maximum seconds between recording or signing a request and sending it.
FENCE = 5.0

#: A moment by two clocks: monotonic, which may stop while a machine sleeps, and Unix time, which may be set.
Moment = tuple[float, float]


def is_too_old(then: Moment, now: Moment) -> bool:
    """
    Tell whether the fence has passed by either clock.

    A clock that was set back by as much counts too.
    """
    return any(abs(after - before) >= FENCE for before, after in zip(then, now, strict=True))
