"""A limited time for many calls, and what is said of those that fail."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from airflow_custody.client.errors import CustodyConnectionError, CustodyError, CustodyPermissionError
from airflow_custody.overview.models import Section

if TYPE_CHECKING:
    from airflow_custody.client import ClientSettings

log = logging.getLogger(__name__)

T = TypeVar("T")
#: Returns in words what failed, and what to do about it.
Describe = Callable[[CustodyError], str]

#: The longest time-out of one call, in seconds: a person does not wait as a task can.
MAX_TIMEOUT = 10.0
#: The largest response, in bytes: to parse one stops everything else in its process.
MAX_RESPONSE_BYTES = 8 * 1024 * 1024
_MAX_PROBLEM = 600


def for_people(settings: ClientSettings) -> ClientSettings:
    """
    Return settings of a client with which a person waits: a short time-out for each call, no retries, no response of
    many megabytes.

    :param settings: the connection's.
    """
    return replace(
        settings,
        timeout=min(settings.timeout, MAX_TIMEOUT),
        max_retries=0,
        max_response_bytes=min(settings.max_response_bytes, MAX_RESPONSE_BYTES),
    )


class Budget:
    """
    The time that there is for several calls, one after another.

    :param seconds: how long; a call that has begun by then is not cut off.
    :param clock: a monotonic clock in seconds; tests turn it. Default: :func:`time.monotonic`.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds, if there is the time for it."""
        self.check(seconds)
        time.sleep(seconds)

    def check(self, seconds: float = 0) -> None:
        """
        Refuse what would begin too late.

        :param seconds: in how many seconds it would begin. Default 0.
        :raises CustodyConnectionError: if the time is over by then.
        """
        if self._clock() + seconds >= self._end:
            raise CustodyConnectionError(
                f"the {self._seconds:g} s that there are for all of this were over",
                advice="The service is slow to respond, or lists much. Try again later.",
                code="no-response",
            )


def describe_problem(error: CustodyError) -> str:
    """Return an error in one line: what failed, and what to do about it."""
    return error.shorten(_MAX_PROBLEM)


def read_section(read: Callable[[], T], describe: Describe = describe_problem) -> Section[T]:
    """
    Return what ``read`` returns as a section; whatever it raises becomes the section's problem.

    :param read: reads it.
    :param describe: returns an error in words. Default: as the error says it.
    """
    try:
        return Section(read())
    except CustodyError as error:
        # What a gateway in between refuses, the service may offer.
        return Section(
            problem=describe(error),
            not_offered=error.not_offered and error.from_service,
            not_permitted=isinstance(error, CustodyPermissionError) and error.from_service,
        )
    except Exception as error:
        # One section's fault must not hide the others. What it says may be a secret.
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {place.name}, line {place.lineno}"
        log.error("An overview could not be read as a whole: %s", where)
        return Section(problem=f"unexpected error: {where}. This is a fault of airflow_custody.")
