"""A limited time for many calls, and what is said of those that fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_custody.client.errors import CustodyConnectionError, CustodyError, CustodyPermissionError
from airflow_custody.overview.models import Section

if TYPE_CHECKING:
    from airflow_custody.client import ClientSettings, CustodyClient

log = logging.getLogger(__name__)

T = TypeVar("T")

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


#: Returns in words what failed, and what to do about it.
Describe = Callable[[CustodyError], str]


def describe_problem(error: CustodyError) -> str:
    """Return an error in one line: what failed, and what to do about it."""
    return error.shorten(_MAX_PROBLEM)


class Budget:
    """
    The time that there is for several calls, one after another.

    :param seconds: how long; a call that has begun by then is not cut off.
    :param describe: returns in words why a section could not be read.
    :param clock: a monotonic clock in seconds; tests turn it. Default: :func:`time.monotonic`.
    """

    def __init__(
        self,
        seconds: float,
        *,
        describe: Describe = describe_problem,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._describe = describe
        self._clock = clock
        self._end = clock() + seconds

    def client(self, client: CustodyClient) -> CustodyClient:
        """Return the client, whose calls are refused, and whose listings end in an error, once the time is over."""
        return cast("CustodyClient", _WithinBudget(client, self))

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds, if there is the time for it."""
        self.check()
        if self._clock() + seconds >= self._end:
            raise self._over()
        time.sleep(seconds)

    def check(self) -> None:
        """
        Refuse a call that would begin too late.

        :raises CustodyConnectionError: if the time is over.
        """
        if self._clock() >= self._end:
            raise self._over()

    def section(self, read: Callable[[], T]) -> Section[T]:
        """
        Return what ``read`` returns as a section; whatever it raises becomes the section's problem.

        :param read: reads it.
        """
        try:
            self.check()
            return Section(read())
        except CustodyError as error:
            # What a gateway in between refuses, the service may offer.
            return Section(
                problem=self._describe(error),
                not_offered=error.not_offered and error.from_service,
                not_permitted=isinstance(error, CustodyPermissionError) and error.from_service,
            )
        except Exception as error:
            # One section's fault must not hide the others.
            log.error("An overview could not be read as a whole: %s", where_from(error))
            return Section(problem=f"unexpected error: {where_from(error)}. This is a fault of airflow_custody.")

    def _over(self) -> CustodyError:
        return CustodyConnectionError(
            f"the {self._seconds:g} s that there are for all of this were over",
            advice="The service is slow to respond, or lists much. Try again later.",
            code="no-response",
        )


class _WithinBudget:
    """A client within a budget."""

    def __init__(self, client: CustodyClient, budget: Budget) -> None:
        self._client = client
        self._budget = budget

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._within(found) if callable(found) else found

    def _within(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def within(*args: Any, **keywords: Any) -> Any:
            self._budget.check()
            found = call(*args, **keywords)
            return self._each(found) if isinstance(found, Generator) else found

        return within

    def _each(self, rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            yield row
            self._budget.check()


def where_from(error: Exception) -> str:
    """Return an error's type, and where it comes from. What it says may be a secret, and is left out."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" in {place.tb_frame.f_code.co_name}, line {place.tb_lineno}"
    return f"{type(error).__name__}{where}"
