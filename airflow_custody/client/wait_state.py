"""The state of a wait after a poll, and its history."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import lines


@dataclass(frozen=True)
class WaitState:
    """
    The state of a wait after a poll.

    :param is_done: whether the wait has succeeded.
    :param summary: the state as text.
    :param result: the state as plain JSON data. If the wait has succeeded, this is the task's result.
    :param error: the error that ends the wait. Default None: the wait continues, or has succeeded.
    :param in_doubt: whether an object or a name is missing, so that the next poll decides whether the wait has failed.
        In a worker, this poll follows early; in the triggerer, after the usual interval. Default False.
    :param warnings: warnings that were not logged yet. Default: no warnings.
    :param advice: advice for the case that the wait times out in this state. Default: no advice.
    """

    is_done: bool
    summary: str
    result: Mapping[str, Any]
    error: CustodyError | None = None
    in_doubt: bool = False
    warnings: Sequence[str] = ()
    advice: str = ""


class PollHistory:
    """
    The results of a wait's polls. Sensors and triggers use it to log polls and to report time-outs in the same way.

    :param is_first: whether the next poll is the first poll of the wait. Default True.
    """

    def __init__(self, *, is_first: bool = True) -> None:
        self.is_first = is_first
        #: The last result, and the advice for the case that the wait times out.
        self.last, self.advice = "the service has not been polled yet", ""
        self._failing_since: float | None = None

    @property
    def timed_out(self) -> str:
        """The last result and its advice, after a time-out."""
        return lines(self.last, self.advice)

    def settle(self, found: WaitState | CustodyError, log: Any) -> WaitState | None:
        """
        Log the result of a poll, and return the final state; None: the wait continues.

        An error that is not transient ends the wait. A host name that does not exist ends the wait only at the first
        poll. At a later poll, the name existed before, so the failure is an ordinary outage.

        :param found: the state, or an error.
        :param log: the task's or the trigger's log.
        :raises CustodyError: if an error ends the wait.
        """
        if isinstance(found, CustodyError):
            if not found.transient or (self.is_first and found.code == "unknown-host"):
                raise found
            log.warning("%s", self.note(found))
            return None
        text = self.note(found)
        for warning in found.warnings:
            log.warning("%s.", warning)
        if found.error is not None:
            raise found.error
        if found.is_done:
            return found
        log.info("%s", text)
        return None

    def note(self, found: WaitState | CustodyError) -> str:
        """
        Record a poll that did not end the wait, and return an entry for the log.

        :param found: the state, or an error; the entry includes the time since errors began.
        """
        self.is_first = False
        if not isinstance(found, CustodyError):
            self._failing_since = None
            self.last, self.advice = found.summary, found.advice
            return f"Not yet: {found.summary}"
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        seconds = now - self._failing_since
        self.last, self.advice = found.text, ""
        return f"Not yet{f', failing for {seconds:.0f} s' if seconds >= 1 else ''}: {found}"
