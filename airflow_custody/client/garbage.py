"""The garbage collector, while thousands of objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Put off the collection of cycles: it would take half of the time, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # The one of several threads that came first turns it on again.
        if was_enabled:
            gc.enable()
