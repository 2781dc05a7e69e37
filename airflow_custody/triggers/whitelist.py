"""The trigger behind the deferrable mode of the sensor for whitelisting requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_custody.client.arguments import MAX_PAGE_SIZE, plain_names
from airflow_custody.client.errors import CustodyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import SharedPoll, check_timing, error_event, serialized, wait_until_done

if TYPE_CHECKING:
    from airflow_custody.client.wait_state import WaitState


class CustodyWhitelistRequestTrigger(BaseTrigger):
    """
    A trigger that waits until whitelisting requests are in effect.

    The trigger fires once: ``{"status": "effective", "result": ..., "message": ...}``, ``{"status": "timeout",
    "message": ...}`` or ``{"status": "error", "error": ...}``. If a request was rejected or is gone, the wait ends with
    an error. A request is gone if it is missing from all listings for 30 seconds, and in at least two polls. A
    connection failure, a truncated response, a 5xx or a 429 does not end the wait: it is logged, and polls become less
    frequent until the service responds again.

    If the connection pins super-administrators' keys, each request in effect is verified, in the polling thread. If the
    verification fails, the request is looked up again after 5 seconds; if it fails again, the wait ends with an error.

    In a triggerer, all triggers with the same connection and interval share one poll, which takes three calls per
    hundred requests. Triggers with more than a hundred requests share a separate poll, so that they do not delay
    smaller triggers. If the service rejects a lookup because of a single request, that request is looked up on its own.

    :param request_id: the request's id, or a list of ids.
    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param poke_interval: seconds between two polls. Default 60.
    :param deadline: Unix time in seconds after which the wait times out. None (default): no limit.
    """

    def __init__(
        self,
        *,
        request_id: str | Sequence[str],
        custody_conn_id: str = CustodyHook.default_conn_name,
        poke_interval: float = 60.0,
        deadline: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.request_id = plain_names(request_id)
        self.custody_conn_id = custody_conn_id
        self.poke_interval = poke_interval
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        return serialized(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Subscribe to the shared poll, and fire when the wait ends."""
        from airflow_custody.client.whitelist.wait import RequestWait, poll_requests

        try:
            # Check the ids before joining the poll, because an invalid id must not be part of a shared lookup.
            wait = RequestWait(self.request_id)
            check_timing(self.custody_conn_id, self.poke_interval, self.deadline)
        except CustodyError as error:
            yield error_event(error)
            return
        interval = float(self.poke_interval)
        key = ("whitelist", self.custody_conn_id, interval, len(wait.ids) > MAX_PAGE_SIZE)
        poll: SharedPoll[WaitState] = SharedPoll(key, self.custody_conn_id, poll_requests, interval)
        yield await wait_until_done(poll, wait, "effective", deadline=self.deadline, interval=interval, log=self.log)
