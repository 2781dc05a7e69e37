"""What the tests of the command line have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
Create = Callable[..., str]


def read(ran: Ran) -> dict[str, Any]:
    """Return the JSON object that a command printed."""
    found = json.loads(ran.out)
    assert isinstance(found, dict)
    return found
