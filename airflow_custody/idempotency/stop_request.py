"""How a user stops a task that sends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StopRequest:
    """
    A user's request to send nothing more.

    A signal handler may make it at any time, also before the first row is looked up.

    :param is_made: whether it was made. Default False.
    """

    is_made: bool = False
