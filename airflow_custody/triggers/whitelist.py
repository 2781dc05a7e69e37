"""The trigger behind the deferrable mode of the sensor for whitelisting requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

from airflow_custody.client.errors import CustodyConflictError, CustodyError
from airflow_custody.client.text import as_list
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import (
    PollResult,
    PollSchedule,
    SharedPoll,
    error_event,
    event,
    poll_until,
    wrap_unexpected,
)

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.client.whitelist.progress import ListedRequest


class CustodyWhitelistRequestTrigger(BaseTrigger):
    """
    A trigger that polls until a whitelisting request is in effect.

    Fires once: ``{"status": "effective", "result": ...}``, ``{"status": "timeout", "message": ...}`` or
    ``{"status": "error", "error": ...}``, the last also when it was rejected or is gone. A connection failure, a 5xx or
    a 429 is logged, and polls become rarer until the service responds again.

    All triggers of one connection and interval in a triggerer share one poll: two calls for each hundred requests,
    and one more when some are in effect.

    :param request_id: the request's id.
    :param effective_statuses: see the sensor.
    :param rejected_statuses: see the sensor.
    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param poke_interval: seconds between two polls. Default 60.
    :param deadline: Unix time in seconds after which the wait times out. None (default): no limit.
    """

    def __init__(
        self,
        *,
        request_id: str,
        effective_statuses: Iterable[str] | None = None,
        rejected_statuses: Iterable[str] = ("rejected",),
        custody_conn_id: str = CustodyHook.default_conn_name,
        poke_interval: float = 60.0,
        deadline: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.request_id = str(request_id)
        self.effective_statuses = None if effective_statuses is None else as_list(effective_statuses)
        self.rejected_statuses = as_list(rejected_statuses)
        self.custody_conn_id = custody_conn_id
        self.poke_interval = poke_interval
        self.deadline = deadline

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
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for what the shared poll brings for this request."""
        interval = float(self.poke_interval)
        poll = SharedPoll(
            ("whitelist", self.custody_conn_id, interval), self.custody_conn_id, _fetch, PollSchedule(interval)
        )
        with poll.subscribe(self.request_id) as results:
            yield await poll_until(results, self._judge, deadline=self.deadline, interval=interval, log=self.log)

    def _judge(self, listed: ListedRequest) -> TriggerEvent | str:
        """Return the event that ends the wait, or in words why the request is not in effect yet."""
        from airflow_custody.client.whitelist.progress import judge_progress

        progress = judge_progress(
            listed, effective_statuses=self.effective_statuses, rejected_statuses=self.rejected_statuses
        )
        summary = progress.summary(self.request_id)
        if progress.state == "pending":
            return summary
        if progress.state == "effective":
            return event("effective", result=progress.to_json(self.request_id))
        return error_event(CustodyConflictError(summary))


def _fetch(hook: CustodyHook, ids: Sequence[str]) -> Mapping[str, PollResult[ListedRequest]]:
    """Fetch where requests are listed."""
    from airflow_custody.client.whitelist.progress import find_listed

    try:
        return {each: PollResult(listed) for each, listed in find_listed(hook.get_conn(), ids).items()}
    except CustodyError as error:
        return dict.fromkeys(ids, PollResult(error=error))
    except Exception as exception:
        return dict.fromkeys(ids, PollResult(error=wrap_unexpected(exception, "find whitelisting requests")))
