"""The sensor that waits until a whitelisting request is in effect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_custody.client.arguments import check_names
from airflow_custody.client.errors import CustodyConflictError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.whitelist.progress import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sensors._base import CustodySensor

if TYPE_CHECKING:
    from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

# Seconds between look-ups of a request that is not listed; the last one again and again.
_PAUSES = (1.0, 2.0, 4.0, 5.0)


class CustodyWhitelistRequestSensor(CustodySensor):
    """
    Wait until a whitelisting request is in effect.

    It is when its status is one of ``effective_statuses``, and the service lists it without being asked for pending
    ones, and not among those that the connection's user may approve or has approved. The sensor fails at once when the
    request was rejected, and without retries when it does not exist (any more): when it has been missing from all
    listings for 30 seconds in a row. While it waits, a connection failure, a truncated response, a 5xx or a 429 is "not
    yet"; a wrong token, a missing role or a service that does not offer the look-up ends the wait. ``soft_fail`` turns
    a time-out into a skip, and nothing else. ``never_fail`` and ``silent_fail`` would hide errors and are refused.

    The service's makers publish no list of the words of ``status``. A request that is not pending any more and has a
    word that is in neither of the two lists is not in effect: the sensor waits on, and a WARNING names the word.
    Deferrable, all sensors of one connection and interval share one poll in the triggerer. Killing the task ends the
    wait, and nothing else. The look-up is undocumented.

    :param request_id: the request's id. (templated)
    :param effective_statuses: status words, compared without case, of which a request in effect has one. Default
        ``approved``, as in a published sample. None: being listed as not pending is enough. (templated)
    :param rejected_statuses: status words, compared without case, that mean the request was rejected. Default
        ``rejected``, ``declined``, ``expired``, ``canceled`` and ``cancelled``: some of them are guesses, and a word
        that the service never uses changes nothing. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker. Default: ``[operators]
        default_deferrable``.
    :param poke_interval: seconds between two polls. Default 60.
    :param timeout: seconds after which the sensor gives up.
    :param mode: ``poke`` or ``reschedule``, if not deferrable.
    :return: plain JSON: ``id``, ``state`` (``effective``), ``status`` (the service's word) and ``signatures`` (how many
        users have signed).
    :raises AirflowSensorTimeout: if it is not in effect in time.
    :raises AirflowFailException: if it was rejected or is gone.
    """

    template_fields: Sequence[str] = (
        "request_id",
        "effective_statuses",
        "rejected_statuses",
        "custody_conn_id",
    )
    ui_color = "#e3f0dc"
    target_state = "effective"
    #: Seconds that a request must be missing from all listings, in a row, to be gone: a service may need some time to
    #: show what was created right before, and a listing may lag. A test's subclass may turn it.
    gone_after: ClassVar[float] = DEFAULT_LOOKUP_WAIT

    def __init__(
        self,
        *,
        request_id: str,
        effective_statuses: Iterable[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        custody_conn_id: str = CustodyHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, deferrable=deferrable, **kwargs)
        self.request_id = request_id
        self.effective_statuses = effective_statuses
        self.rejected_statuses = rejected_statuses
        self._unknown_statuses: set[str | None] = set()

    def _poll(self) -> PokeReturnValue | bool:
        from airflow_custody.client.whitelist.models import check_request_id
        from airflow_custody.client.whitelist.progress import GoneJudge, find_listed, judge_progress

        request_id = check_request_id(self.request_id, "request_id")
        words = self._status_words()
        gone = GoneJudge(self.gone_after)
        give_up = self._first_poll + self.timeout
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            listed = find_listed(self.hook.get_conn(), [request_id])[request_id]
            progress = gone.judge(judge_progress(listed, **words))
            self._last_result = progress.summary(request_id)
            left = min(self.gone_after - progress.seconds, give_up - time.monotonic())
            # Deferrable, the trigger looks again. In the worker this poke does: the next may be in a new process.
            if progress.state != "missing" or self.deferrable or left <= 0:
                break
            self.log.info("Not yet: %s", self._last_result)
            time.sleep(min(pause, left))
        if progress.state == "effective":
            self.log.info("Custody: %s.", self._last_result)
            return PokeReturnValue(is_done=True, xcom_value=progress.to_json(request_id))
        if progress.ended:
            raise CustodyConflictError(self._last_result)
        if progress.state == "unknown" and progress.status not in self._unknown_statuses:
            self._unknown_statuses.add(progress.status)
            self.log.warning("%s.", self._last_result)
        self.log.info("Not yet: %s", self._last_result)
        return False

    @cached_property
    def _first_poll(self) -> float:
        """When this process polled first, by its monotonic clock."""
        return time.monotonic()

    def _status_words(self) -> dict[str, Any]:
        """Return the status words, checked."""
        return {
            "effective_statuses": check_names("effective_statuses", self.effective_statuses),
            "rejected_statuses": check_names("rejected_statuses", self.rejected_statuses, may_be_empty=True) or (),
        }

    def _success_message(self, result: dict[str, Any]) -> str:
        return f"Custody: whitelisting request {result['id']} is in effect."

    def _trigger(self, deadline: float | None) -> CustodyWhitelistRequestTrigger:
        from airflow_custody.client.whitelist.models import check_request_id
        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        words = self._status_words()
        return CustodyWhitelistRequestTrigger(
            request_id=check_request_id(self.request_id, "request_id"),
            effective_statuses=words["effective_statuses"],
            rejected_statuses=words["rejected_statuses"],
            custody_conn_id=self.custody_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
            **self._backoff(),
        )
