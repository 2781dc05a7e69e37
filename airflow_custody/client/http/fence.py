"""
The fence: the maximum age of a record or signature.

The age is checked when the request is about to be sent.
"""

from __future__ import annotations

#: Maximum seconds between recording or signing a request and sending it.
FENCE = 5.0

#: A moment by two clocks: the monotonic clock, which may stop while a machine sleeps; and Unix time, which may be
#: changed.
Moment = tuple[float, float]


def is_too_old(then: Moment, now: Moment) -> bool:
    """
    Tell whether more time has passed than the fence allows.

    It is enough if one of the clocks shows this. If a clock was set back by the length of the fence or more, the record
    or signature also counts as too old.
    """
    return any(abs(after - before) >= FENCE for before, after in zip(then, now, strict=True))
