"""The trigger behind the deferrable mode of the sensor for whitelisting requests."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger

from airflow_custody.client.arguments import check_names, check_seconds, check_text, check_time, plain_names
from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT, MAX_PAGE_SIZE
from airflow_custody.client.whitelist.progress import (
    DEFAULT_UNVERIFIED_AFTER,
    EFFECTIVE_STATUSES,
    REJECTED_STATUSES,
    LagJudge,
)
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import PollResult, PollSchedule, SharedPoll, error_event, event, poll_until

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.whitelist.group_progress import GroupProgress
    from airflow_custody.client.whitelist.progress import ListedRequest, Progress

    #: What a poll brings for one trigger, by id.
    Found = Mapping[str, PollResult[Progress]]

#: How many look-ups one poll makes at most to find the requests that make a look-up of many fail.
MAX_ISOLATING_LOOKUPS = 48
# Statuses with which a service may refuse a whole look-up because of one request in it.
_STATUSES_OF_ONE = (400, 404, 413, 414, 422, 431, 500)
# What makes a trigger poll once more, at once or soon; they do not leave the trigger.
_CONFIRM = event("confirm")
_VERIFY_AGAIN = event("verify again")


@dataclass(frozen=True, eq=False)
class _Wanted:
    """
    What one trigger waits for.

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
    does not verify is looked up once more after 5 seconds, and then ends the wait with an error.

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
        self._lag = LagJudge(self.gone_after, self.unverified_after)
        self.exponential_backoff = exponential_backoff
        self.max_wait = max_wait

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
        # A trigger that backs off has a rhythm of its own, and so a poll of its own.
        interval, is_large, alone = float(self.poke_interval), waiting.is_large, self.exponential_backoff
        schedule = PollSchedule(interval, self.exponential_backoff, self.max_wait, self.deadline)
        fired = _CONFIRM
        while fired is _CONFIRM or fired is _VERIFY_AGAIN:
            if fired is _VERIFY_AGAIN:
                await asyncio.sleep(self.unverified_after)
            key = object() if alone else ("whitelist", self.custody_conn_id, interval, is_large)
            poll: SharedPoll[_Wanted, Found] = SharedPoll(key, self.custody_conn_id, _fetch, schedule)
            with poll.subscribe(waiting.wanted) as results:
                fired = await poll_until(
                    results,
                    waiting.judge,
                    deadline=self.deadline,
                    interval=interval,
                    log=self.log,
                    # Missing in a row: what a failed poll would have shown, nobody knows.
                    on_error=waiting.forget_lagging,
                )
            # A poll that has just begun starts at once.
            alone = True
        if fired.payload["status"] == "timeout" and (doubt := waiting.doubt()) is not None:
            # However slow the service is: what is not verified is no time-out, which could be skipped.
            fired = error_event(doubt)
        yield fired

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

        def judge(listed: ListedRequest) -> Progress:
            return judge_progress(
                listed, effective_statuses=self.effective_statuses, rejected_statuses=self.rejected_statuses or ()
            )

        return _Waiting(
            _Wanted(lambda: (request_id,), judge),
            lambda found: self._judge(found[request_id].value),  # type: ignore[arg-type] # an error alone is no value
            self._lag.reset,
            lambda: None if self._lag.doubt is None else self._lag.doubt.failure(request_id),
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
        return _Waiting(
            _Wanted(lambda: group.to_poll, group.judge),
            lambda found: self._judge_group(group, found),
            group.forget_lagging,
            group.doubt,
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
        if self._lag.doubt is not None:
            if self._is_late and self._lag.doubt_patience <= 0:
                return error_event(self._lag.doubt.failure(self.request_id))
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
            group.confirm_doubts()
        if failure := group.failure():
            return error_event(failure)
        for each, error in errors.items():
            if not error.transient:
                return error_event(_naming(each, error))
        if group.doubted:
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
    How a trigger waits.

    :param wanted: what its poll looks up.
    :param judge: judges what a poll brought.
    :param forget_lagging: called when a poll brought nothing.
    :param doubt: returns the error for what was unverified at the last poll; None: nothing was.
    :param is_large: whether it fills batches of its own.
    """

    wanted: _Wanted
    judge: Callable[[Found], TriggerEvent | str]
    forget_lagging: Callable[[], object]
    doubt: Callable[[], CustodyError | None]
    is_large: bool = False


def _words(words: str | Iterable[str] | None) -> Any:
    return plain_names([words] if isinstance(words, str) else words)


def _fetch(client: CustodyClient, waits: Sequence[_Wanted]) -> Mapping[_Wanted, PollResult[Found]]:
    """Fetch where the requests are listed that triggers wait for, each once."""
    asked = {wanted: wanted.ids() for wanted in waits}
    found = _look_up(client, list(dict.fromkeys(each for ids in asked.values() for each in ids)))
    return {wanted: _result_of(wanted, {each: found[each] for each in ids}) for wanted, ids in asked.items()}


def _result_of(wanted: _Wanted, listed: Mapping[str, PollResult[ListedRequest]]) -> PollResult[Found]:
    """Return what a poll brought for one trigger: an error alone, if there is nothing else."""
    found: Found = {
        each: PollResult(None if result.value is None else wanted.judge(result.value), result.error)
        for each, result in listed.items()
    }
    errors = [result.error for result in found.values() if result.error is not None]
    # What ends the wait counts first, and then what asks for the longest pause.
    error = next((each for each in errors if not each.transient), None)
    error = error or max(errors, key=lambda each: each.retry_after or 0.0, default=None)
    return PollResult(None if errors and len(errors) == len(found) else found, error)


def _naming(request_id: str, error: CustodyError) -> CustodyError:
    """Return the error of a look-up of many, with the request that it is about if it is about one."""
    if not _may_be_of_one(error):
        return error
    named = CustodyError.from_json(error.to_json())
    named.advice = " ".join(filter(None, [f"It is about whitelisting request {request_id}.", error.advice]))
    return named


def _look_up(client: CustodyClient, ids: Sequence[str]) -> dict[str, PollResult[ListedRequest]]:
    """
    Find where requests are listed.

    A look-up that fails for a reason that one request may have is halved until that request is alone, so that the
    others go on.
    """
    from airflow_custody.client.whitelist.progress import find_listed

    found: dict[str, PollResult[ListedRequest]] = {}
    failed: list[tuple[list[str], CustodyError]] = []
    # In another order each time: if there are too many such requests for one poll, all get their turn.
    shuffled = random.sample(ids, len(ids))
    batches = [shuffled[start : start + MAX_PAGE_SIZE] for start in range(0, len(ids), MAX_PAGE_SIZE)]
    lookups = MAX_ISOLATING_LOOKUPS
    while batches:
        batch = batches.pop()
        try:
            found.update({each: PollResult(listed) for each, listed in find_listed(client, batch).items()})
        except CustodyError as error:
            if not _may_be_of_one(error):
                # It is the service's own trouble: the rest would fare no better.
                failed += [(each, error) for each in (batch, *batches)]
                break
            if len(batch) > 1 and lookups > 0:
                lookups -= 2
                batches += [batch[::2], batch[1::2]]
            else:
                failed.append((batch, error))
    works = bool(found)
    for batch, why in failed:
        if works and len(batch) > 1 and _may_be_of_one(why):
            # Which of these it is, a later poll will tell.
            why = CustodyResponseError(
                f"one of {len(batch)} requests makes their look-up fail: {why.reason}", retryable=True
            )
        found.update(dict.fromkeys(batch, PollResult(error=why)))
    return found


def _may_be_of_one(error: CustodyError) -> bool:
    """Tell whether a look-up of many may have failed because of one of them: a bad id, or an unreadable row."""
    unreadable = isinstance(error, CustodyResponseError) and (error.status is None or error.status < 300)
    return unreadable or error.status in _STATUSES_OF_ONE
