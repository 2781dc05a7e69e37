"""The trigger behind the deferrable mode of the sensor for whitelisting requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_custody.client.arguments import check_names, check_seconds, check_text, check_time, plain_names
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT, MAX_PAGE_SIZE
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.progress import (
    DEFAULT_UNVERIFIED_AFTER,
    GracePeriod,
    unverified_from_json,
)
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import PollResult, PollSchedule, SharedPoll, error_event, event, poll_until
from airflow_custody.triggers._look_up import look_up, may_be_of_one

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.whitelist.group_progress import GroupProgress
    from airflow_custody.client.whitelist.progress import ListedRequest, Progress

    #: The result of a poll for one trigger, by id.
    Found = Mapping[str, PollResult[Progress]]

# Events that make a trigger poll once more, at once or soon; they do not leave the trigger.
_CONFIRM = event("confirm")
_VERIFY_AGAIN = event("verify again")
# The event that ends such a poll, and changes nothing.
_GO_ON = event("go on")
# Seconds that such a poll may take, at most, when the deadline is over.
_MAX_PATIENCE = 60.0


@dataclass(frozen=True, eq=False)
class _Wanted:
    """
    The subject of one trigger's wait.

    :param ids: returns the ids that are to be looked up in a poll.
    :param judge: judges where one is listed, in the thread that polls.
    """

    ids: Callable[[], Sequence[str]]
    judge: Callable[[ListedRequest], Progress]


class CustodyWhitelistRequestTrigger(BaseTrigger):
    """
    A trigger that polls until a whitelisting request is in effect, or all of several are.

    Fires once: ``{"status": "effective", "result": ...}``, ``{"status": "timeout", "message": ...}`` or
    ``{"status": "error", "error": ...}``, the last also when it was rejected or is gone: missing from
    all listings for 30 seconds in a row, or in two polls if they are further apart. A connection failure, a truncated
    response, a 5xx or a 429 is logged, and polls become rarer until the service responds again.

    If the connection has pinned keys, what the service shows as in effect is verified, in the thread that polls. What
    does not verify is looked up once more after 5 seconds, in a poll that all of the connection share, and then ends
    the wait with an error. What is shown otherwise by then stays unverified until it is verified: then there is no
    time-out, but that error.

    All triggers of one connection and interval in a triggerer share one poll, unless they back off exponentially: two
    calls for each hundred requests, and one more when some are in effect. Those with more than a hundred requests share
    another one, so that they hold up nobody else. A request that makes the service refuse the look-up of a hundred is
    found, and looked up alone.

    :param request_id: the request's id, or a list of ids.
    :param effective_statuses: see the sensor.
    :param rejected_statuses: see the sensor.
    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param poke_interval: seconds between two polls. Default 60.
    :param deadline: Unix time in seconds after which the wait times out. None (default): no limit.
    :param exponential_backoff: whether polls become rarer while the request is pending; such a trigger does not share
        its polls. Default False.
    :param max_wait: maximum number of seconds between two polls then; None (default): no limit but the deadline.
    :param unverified: the requests that the sensor saw in effect and unverified before it deferred, as
        :func:`~airflow_custody.client.whitelist.progress.unverified_to_json` returns it. Default None: nothing.
    """

    #: As the sensor's.
    gone_after: ClassVar[float] = DEFAULT_LOOKUP_WAIT
    unverified_after: ClassVar[float] = DEFAULT_UNVERIFIED_AFTER

    def __init__(
        self,
        *,
        request_id: str | Sequence[str],
        effective_statuses: Iterable[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        custody_conn_id: str = CustodyHook.default_conn_name,
        poke_interval: float = 60.0,
        deadline: float | None = None,
        exponential_backoff: bool = False,
        max_wait: float | None = None,
        unverified: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.request_id = plain_names(request_id)
        # Read where the wait begins: what is wrong with them ends it with an event.
        self.effective_statuses = _words(effective_statuses)
        self.rejected_statuses = _words(rejected_statuses)
        self.custody_conn_id = custody_conn_id
        self.poke_interval = poke_interval
        self.deadline = deadline
        self._unknown_statuses: set[str | None] = set()
        self._lag = GracePeriod(self.gone_after, self.unverified_after)
        self.exponential_backoff = exponential_backoff
        self.max_wait = max_wait
        self.unverified = dict(unverified or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        return (
            f"{CustodyWhitelistRequestTrigger.__module__}.{CustodyWhitelistRequestTrigger.__qualname__}",
            {
                "request_id": self.request_id,
                "effective_statuses": self.effective_statuses,
                "rejected_statuses": self.rejected_statuses,
                "custody_conn_id": self.custody_conn_id,
                "poke_interval": self.poke_interval,
                "deadline": self.deadline,
                "exponential_backoff": self.exponential_backoff,
                "max_wait": self.max_wait,
                "unverified": self.unverified,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for what the shared poll brings for these requests."""
        from airflow_custody.client.whitelist.models import check_request_id, check_request_ids, is_list_of_ids

        try:
            # Before they join the others: what is no id must not travel with theirs.
            if is_list_of_ids(self.request_id):
                ids = check_request_ids(self.request_id, "request_id", limit=None, merge=True)
                waiting = self._wait_for_all(ids)
            else:
                waiting = self._wait_for_one(check_request_id(self.request_id, "request_id"))
            self._check_arguments()
        except CustodyError as error:
            yield error_event(error)
            return
        interval = float(self.poke_interval)
        schedule = PollSchedule(interval, self.exponential_backoff, self.max_wait, self.deadline)
        # A trigger that backs off has a rhythm of its own, and so a poll of its own.
        shared = ("whitelist", self.custody_conn_id, interval, waiting.is_large)
        usual = object() if self.exponential_backoff else shared
        was_late = False
        fired = await self._poll(waiting, usual, schedule)
        while fired in (_CONFIRM, _VERIFY_AGAIN, _GO_ON):
            if fired is _GO_ON:
                fired = await self._poll(waiting, usual, schedule)
            elif fired is _CONFIRM:
                # A poll that has just begun starts at once.
                fired = await self._poll(waiting, object(), schedule)
            elif was_late:
                fired = event("timeout")
            else:
                was_late = self._is_late
                await asyncio.sleep(self.unverified_after)
                fired = await self._poll_again(waiting)
        if fired.payload["status"] == "timeout" and (failure := waiting.unverified_error()) is not None:
            # However slow the service is: what is not verified is no time-out, which could be skipped.
            fired = error_event(failure)
        yield fired

    async def _poll(
        self, waiting: _Waiting, key: Hashable, schedule: PollSchedule, patience: float | None = None
    ) -> TriggerEvent:
        """
        Poll, with all triggers that do so with the same key, until the wait ends.

        :param patience: seconds after the deadline to wait for a result. Default None: the interval.
        """
        poll: SharedPoll[_Wanted, Found] = SharedPoll(key, self.custody_conn_id, _fetch, schedule)
        with poll.subscribe(waiting.wanted) as results:
            return await poll_until(
                results,
                waiting.judge,
                deadline=self.deadline,
                interval=schedule.interval if patience is None else patience,
                log=self.log,
                # Missing in a row: what a failed poll would have shown, nobody knows.
                on_error=waiting.forget_lagging,
            )

    async def _poll_again(self, waiting: _Waiting) -> TriggerEvent:
        """Poll once, with all triggers of the connection that do so now."""

        def judge(found: Found) -> TriggerEvent | str:
            judged = waiting.judge(found)
            return judged if isinstance(judged, TriggerEvent) or self._is_late else _GO_ON

        # A trigger that joins while it polls waits for the next one.
        patience = self.unverified_after + min(float(self.poke_interval), _MAX_PATIENCE)
        key = ("whitelist again", self.custody_conn_id, waiting.is_large)
        return await self._poll(replace(waiting, judge=judge), key, PollSchedule(self.unverified_after), patience)

    def _check_arguments(self) -> None:
        check_names("effective_statuses", self.effective_statuses)
        check_names("rejected_statuses", self.rejected_statuses, may_be_empty=True)
        check_text("custody_conn_id", self.custody_conn_id)
        check_seconds("poke_interval", self.poke_interval)
        if self.deadline is not None:
            check_time("deadline", self.deadline)
        if self.max_wait is not None:
            check_seconds("max_wait", self.max_wait)

    def _wait_for_one(self, request_id: str) -> _Waiting:
        from airflow_custody.client.whitelist.progress import judge_progress

        if seen := unverified_from_json(self.unverified).get(request_id):
            self._lag.take_over(seen)

        def judge(listed: ListedRequest) -> Progress:
            return judge_progress(
                listed, effective_statuses=self.effective_statuses, rejected_statuses=self.rejected_statuses or ()
            )

        return _Waiting(
            _Wanted(lambda: (request_id,), judge),
            lambda found: self._judge(found[request_id].value),  # type: ignore[arg-type] # an error alone is no value
            self._lag.reset,
            lambda: None if self._lag.unverified is None else self._lag.unverified.failure(request_id),
        )

    def _wait_for_all(self, ids: list[str]) -> _Waiting:
        from airflow_custody.client.whitelist.group_progress import GroupProgress

        group = GroupProgress(
            ids,
            effective_statuses=self.effective_statuses,
            rejected_statuses=self.rejected_statuses or (),
            gone_after=self.gone_after,
            unverified_after=self.unverified_after,
        )
        group.take_over(unverified_from_json(self.unverified))
        return _Waiting(
            _Wanted(lambda: group.to_poll, group.judge),
            lambda found: self._judge_group(group, found),
            group.forget_lagging,
            group.unverified_error,
            is_large=len(ids) > MAX_PAGE_SIZE,
        )

    @property
    def _is_late(self) -> bool:
        """Whether the deadline is over: what was unverified, however it is listed by now, ends the wait."""
        return self.deadline is not None and time.time() >= self.deadline

    def _judge(self, judged: Progress) -> TriggerEvent | str:
        """Return the event that ends the wait, or in words why the request is not in effect yet."""
        progress = self._lag.judge(judged)
        summary = progress.summary(self.request_id)
        if progress.state == "effective":
            return event("effective", result=progress.to_json(self.request_id))
        if progress.ended:
            return error_event(progress.failure(self.request_id))
        if self._lag.unverified is not None and self._is_late and self._lag.unverified_patience <= 0:
            return error_event(self._lag.unverified.failure(self.request_id))
        if self._lag.unverified is not None and progress.state in ("unverified", "missing"):
            self.log.warning("Polling once more: %s.", summary)
            return _VERIFY_AGAIN
        if progress.state == "unknown" and progress.status not in self._unknown_statuses:
            self._unknown_statuses.add(progress.status)
            self.log.warning("%s.", summary)
        return summary

    def _judge_group(self, group: GroupProgress, found: Found) -> TriggerEvent | str:
        """Return the event that ends the wait, or in words why not all requests are in effect yet."""
        errors = {each: result.error for each, result in found.items() if result.error is not None}
        group.begin_poll()
        group.update({each: result.value for each, result in found.items() if result.value is not None})
        group.forget_lagging(errors)
        if self._is_late:
            group.confirm_unverified()
        if failure := group.failure():
            return error_event(failure)
        for each, error in errors.items():
            if not error.transient:
                return error_event(_naming(each, error))
        if {*group.unverified_ids}.intersection(group.lagging).difference(errors):
            self.log.warning("Polling once more: %s.", group.summary())
            return _VERIFY_AGAIN
        if group.is_done:
            for warning in group.same_texts():
                self.log.warning("%s.", warning)
            return event("effective", result=group.to_json())
        if group.confirm():
            self.log.info("All have been in effect: looking them up once more.")
            return _CONFIRM
        for warning in group.unknown_statuses():
            self.log.warning("%s.", warning)
        failed = f". {len(errors)} could not be looked up: {next(iter(errors.values())).reason}" if errors else ""
        return group.summary() + failed


@dataclass(frozen=True)
class _Waiting:
    """
    The parts of a trigger's wait.

    :param wanted: the subject of its poll.
    :param judge: judges what a poll brought.
    :param forget_lagging: called when a poll brought nothing.
    :param unverified_error: returns the error for what was unverified at the last poll; None: nothing was.
    :param is_large: whether it fills batches of its own.
    """

    wanted: _Wanted
    judge: Callable[[Found], TriggerEvent | str]
    forget_lagging: Callable[[], object]
    unverified_error: Callable[[], CustodyError | None]
    is_large: bool = False


def _words(words: str | Iterable[str] | None) -> Any:
    return plain_names([words] if isinstance(words, str) else words)


def _fetch(client: CustodyClient, waits: Sequence[_Wanted]) -> Mapping[_Wanted, PollResult[Found]]:
    """Fetch where the requests are listed that triggers wait for, each once."""
    asked = {wanted: wanted.ids() for wanted in waits}
    found = look_up(client, list(dict.fromkeys(each for ids in asked.values() for each in ids)))
    return {wanted: _result_of(wanted, {each: found[each] for each in ids}) for wanted, ids in asked.items()}


def _result_of(wanted: _Wanted, listed: Mapping[str, PollResult[ListedRequest]]) -> PollResult[Found]:
    """Return what a poll brought for one trigger: an error alone, if there is nothing else."""
    found: Found = {
        each: PollResult(None if result.value is None else wanted.judge(result.value), result.error)
        for each, result in listed.items()
    }
    errors = [result.error for result in found.values() if result.error is not None]
    # The end of the wait counts first, and then the longest pause asked for.
    error = next((each for each in errors if not each.transient), None)
    error = error or max(errors, key=lambda each: each.retry_after or 0.0, default=None)
    return PollResult(None if errors and len(errors) == len(found) else found, error)


def _naming(request_id: str, error: CustodyError) -> CustodyError:
    """Return the error of a look-up of many, with the request that it is about if it is about one."""
    if not may_be_of_one(error):
        return error
    named = CustodyError.from_json(error.to_json())
    named.advice = " ".join(filter(None, [f"It is about whitelisting request {request_id}.", error.advice]))
    return named
