"""The sensor that waits until a whitelisting request is in effect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_custody.client.errors import CustodyConflictError
from airflow_custody.client.text import as_list
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sensors._base import CustodySensor

if TYPE_CHECKING:
    from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger


class CustodyWhitelistRequestSensor(CustodySensor):
    """
    Wait until a whitelisting request is in effect.

    It is when the service lists it without being asked for pending ones, and not among those that the connection's
    user may approve or has approved. The sensor fails at once when the request was rejected, or does not exist (any
    more). While it waits, a connection failure, a 5xx or a 429 is "not yet"; a wrong token, a missing role or a
    service that does not offer the look-up ends the wait. ``soft_fail`` turns a time-out into a skip, and nothing
    else. ``never_fail`` and ``silent_fail`` would hide errors and are refused.

    The service's makers publish no list of the words of ``status``, so by default none is needed; give those of your
    service to be stricter. Deferrable, all sensors of one connection and interval share one poll in the triggerer.
    Killing the task ends the wait, and nothing else. The look-up is undocumented.

    :param request_id: the request's id. (templated)
    :param effective_statuses: status words, compared without case, of which one is required too; None (default): none
        is. (templated)
    :param rejected_statuses: status words that mean the request was rejected. Default ``rejected``, a guess: a word
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
    #: Seconds after which a request that does not exist is looked for again: a service may need a moment to show what
    #: was created right before. A test's subclass may turn it.
    recheck_delay: ClassVar[float] = 3.0

    def __init__(
        self,
        *,
        request_id: str,
        effective_statuses: Iterable[str] | None = None,
        rejected_statuses: Iterable[str] = ("rejected",),
        custody_conn_id: str = CustodyHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, deferrable=deferrable, **kwargs)
        self.request_id = request_id
        self.effective_statuses = effective_statuses
        self.rejected_statuses = rejected_statuses

    def _poll(self) -> PokeReturnValue | bool:
        from airflow_custody.client.whitelist.models import check_request_id
        from airflow_custody.client.whitelist.progress import find_listed, judge_progress

        request_id = check_request_id(self.request_id)
        listed = find_listed(self.hook.get_conn(), [request_id])[request_id]
        if listed.envelope is None:
            time.sleep(self.recheck_delay)
            listed = find_listed(self.hook.get_conn(), [request_id])[request_id]
        progress = judge_progress(
            listed,
            effective_statuses=None if self.effective_statuses is None else as_list(self.effective_statuses),
            rejected_statuses=as_list(self.rejected_statuses or ()),
        )
        self._last_result = progress.summary(request_id)
        if progress.state == "effective":
            self.log.info("Custody: %s.", self._last_result)
            return PokeReturnValue(is_done=True, xcom_value=progress.to_json(request_id))
        if progress.state != "pending":
            raise CustodyConflictError(self._last_result)
        self.log.info("Not yet: %s", self._last_result)
        return False

    def _success_message(self, result: dict[str, Any]) -> str:
        return f"Custody: whitelisting request {result['id']} is in effect."

    def _trigger(self, deadline: float | None) -> CustodyWhitelistRequestTrigger:
        from airflow_custody.client.whitelist.models import check_request_id
        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        return CustodyWhitelistRequestTrigger(
            request_id=check_request_id(self.request_id),
            effective_statuses=None if self.effective_statuses is None else as_list(self.effective_statuses),
            rejected_statuses=as_list(self.rejected_statuses or ()),
            custody_conn_id=self.custody_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )
