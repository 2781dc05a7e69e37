"""What the responses to one reading of a page may cost: it is read in the process that serves all of Airflow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.http.operation import Operation

#: From how many bytes on a response is large: of those, one is read at a time.
LARGE = 256 * 1024
#: How many values a response may hold: while they become Python objects, every other thread of the process waits.
MAX_VALUES = 250_000
#: How many bytes and values the large responses to one reading may hold together: 5,000 requests with long rules do.
MAX_TOTAL_BYTES = 256 * 1024 * 1024
MAX_TOTAL_VALUES = 8_000_000
#: How many seconds the process has for others after a large response, at most.
_MAX_PAUSE = 1.0
# Each value ends at one of these, or is the last one of an array or an object, which one of these begins.
_SIGNS = (b",", b"[", b"{")
# So written in a text that is itself JSON, as a payload is: it becomes values later.
_ESCAPED = (rb"\u002c", rb"\u002C", rb"\u005b", rb"\u005B", rb"\u007b", rb"\u007B")
_ADVICE = "'custody status' reads more in a terminal."

_one_at_a_time = threading.Lock()


class ResponseLimits:
    """
    Limits of the responses to one reading. After a large one, the process has as long for others as it took.

    :param sleep: waits; tests turn it. Default: :func:`time.sleep`.
    """

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._bytes = 0
        self._values = 0

    @contextmanager
    def __call__(self, operation: Operation, body: bytes) -> Iterator[None]:
        """
        Let the block read a response when it is its turn.

        :param operation: what it is the response to.
        :param body: its body.
        :raises CustodyResponseError: if it holds too much, or all large ones together do. One that is refused does
            not count.
        """
        values = sum(map(body.count, _SIGNS + _ESCAPED if rb"\u00" in body else _SIGNS))
        if values > MAX_VALUES:
            raise self._refused(operation, f"the response holds more than {MAX_VALUES} values and was not read")
        if len(body) < LARGE:
            yield
            return
        if self._bytes + len(body) > MAX_TOTAL_BYTES or self._values + values > MAX_TOTAL_VALUES:
            raise self._refused(operation, "the service sends more than a page reads at once")
        self._bytes += len(body)
        self._values += values
        with _one_at_a_time:
            began = time.monotonic()
            try:
                yield
            finally:
                self._sleep(min(time.monotonic() - began, _MAX_PAUSE))

    def _refused(self, operation: Operation, why: str) -> Exception:
        return operation.failed(CustodyResponseError, why, code="response-unusable", advice=_ADVICE)
