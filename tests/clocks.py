"""A clock that a test turns."""

from __future__ import annotations


class Clock:
    """
    A clock that stands still until a test turns it.

    :ivar now: what it shows, in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
