"""The trigger behind the deferrable mode of the sensor for whitelisting requests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger

from airflow_custody.client.arguments import check_names, check_seconds, check_text, check_time, plain_names
from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyResponseError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.whitelist.progress import EFFECTIVE_STATUSES, REJECTED_STATUSES, GoneJudge
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import PollResult, PollSchedule, SharedPoll, error_event, event, poll_until

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.whitelist.progress import ListedRequest

#: How many look-ups one poll makes at most to find the requests that make a look-up of many fail.
MAX_ISOLATING_LOOKUPS = 48
# Statuses with which a service may refuse a whole look-up because of one request in it.
_STATUSES_OF_ONE = (400, 404, 413, 414, 422, 431, 500)


class CustodyWhitelistRequestTrigger(BaseTrigger):
    """
    A trigger that polls until a whitelisting request is in effect.

    Fires once: ``{"status": "effective", "result": ...}``, ``{"status": "timeout", "message": ...}`` or
    ``{"status": "error", "error": ...}``, the last also when it was rejected or is gone: missing from
    all listings for 30 seconds in a row, or in two polls if they are further apart. A connection failure, a truncated
    response, a 5xx or a 429 is logged, and polls become rarer until the service responds again.

    All triggers of one connection and interval in a triggerer share one poll, unless they back off exponentially: two
    calls for each hundred requests, and one more when some are in effect. A request that makes the service refuse the
    look-up of a hundred is found, and looked up alone.

    :param request_id: the request's id.
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

    def __init__(
        self,
        *,
        request_id: str,
        effective_statuses: Iterable[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        custody_conn_id: str = CustodyHook.default_conn_name,
        poke_interval: float = 60.0,
        deadline: float | None = None,
        exponential_backoff: bool = False,
        max_wait: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.request_id = request_id
        # Read where the wait begins: what is wrong with them ends it with an event.
        self.effective_statuses = _words(effective_statuses)
        self.rejected_statuses = _words(rejected_statuses)
        self.custody_conn_id = custody_conn_id
        self.poke_interval = poke_interval
        self.deadline = deadline
        self._unknown_statuses: set[str | None] = set()
        self._gone = GoneJudge(self.gone_after)
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
        """Wait for what the shared poll brings for this request."""
        from airflow_custody.client.whitelist.models import check_request_id

        try:
            # Before it joins the others: what is no id must not travel with theirs.
            request_id = check_request_id(self.request_id, "request_id")
            self._check_arguments()
        except CustodyError as error:
            yield error_event(error)
            return
        interval = float(self.poke_interval)
        # A trigger that backs off has a rhythm of its own, and so a poll of its own.
        key = object() if self.exponential_backoff else ("whitelist", self.custody_conn_id, interval)
        schedule = PollSchedule(interval, self.exponential_backoff, self.max_wait, self.deadline)
        poll = SharedPoll(key, self.custody_conn_id, _fetch, schedule)
        with poll.subscribe(request_id) as results:
            yield await poll_until(
                results,
                self._judge,
                deadline=self.deadline,
                interval=interval,
                log=self.log,
                # Missing in a row: what a failed poll would have shown, nobody knows.
                on_error=self._gone.reset,
            )

    def _check_arguments(self) -> None:
        check_names("effective_statuses", self.effective_statuses)
        check_names("rejected_statuses", self.rejected_statuses, may_be_empty=True)
        check_text("custody_conn_id", self.custody_conn_id)
        check_seconds("poke_interval", self.poke_interval)
        if self.deadline is not None:
            check_time("deadline", self.deadline)
        if self.max_wait is not None:
            check_seconds("max_wait", self.max_wait)

    def _judge(self, listed: ListedRequest) -> TriggerEvent | str:
        """Return the event that ends the wait, or in words why the request is not in effect yet."""
        from airflow_custody.client.whitelist.progress import judge_progress

        progress = self._gone.judge(
            judge_progress(
                listed, effective_statuses=self.effective_statuses, rejected_statuses=self.rejected_statuses or ()
            )
        )
        summary = progress.summary(self.request_id)
        if progress.state == "effective":
            return event("effective", result=progress.to_json(self.request_id))
        if progress.ended:
            return error_event(CustodyConflictError(summary))
        if progress.state == "unknown" and progress.status not in self._unknown_statuses:
            self._unknown_statuses.add(progress.status)
            self.log.warning("%s.", summary)
        return summary


def _words(words: str | Iterable[str] | None) -> Any:
    return plain_names([words] if isinstance(words, str) else words)


def _fetch(client: CustodyClient, ids: Sequence[str]) -> Mapping[str, PollResult[ListedRequest]]:
    """
    Fetch where requests are listed.

    A look-up that fails for a reason that one request may have is halved until that request is alone, so that the
    others go on.
    """
    from airflow_custody.client.http.operation import MAX_PAGE_SIZE
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
