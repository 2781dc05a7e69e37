"""
Sensors that wait for whitelisting requests.

Published knowledge, not part of the given interface: a service may not offer the look-ups they need.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_custody.client.errors import CustodyConflictError, CustodyRequestError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.waiting import CustodySensor

if TYPE_CHECKING:
    from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger


_MOMENT = 3.0


class CustodyWhitelistRequestSensor(CustodySensor):
    """
    Wait until a whitelisting request has taken effect.

    It has when the service lists it without being asked for those that wait, and not among those that the
    connection's user may approve or has approved. It fails at once when the request was
    rejected, or is not there (any more). While it waits, a connection failure, a 5xx or a 429 is "not yet"; a wrong
    token, a missing role or a service that does not offer the look-up ends the wait. ``soft_fail`` turns a time-out
    into a skip, and nothing else. ``never_fail`` and ``silent_fail`` would hide errors and are refused.

    Published knowledge, not part of the given interface. The words of ``status`` are not published either, so by
    default none is needed; give those of your service to be told more strictly. Deferrable, all sensors of one
    connection and interval share one poll in the triggerer. Killing the task ends the wait, and nothing else.

    :param request_id: the request's id. (templated)
    :param effective_statuses: status words, compared without case, of which one is needed too; None (default): none
        is. (templated)
    :param rejected_statuses: status words that mean the request was rejected. Default ``rejected``, a guess: a word
        that never comes changes nothing. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker. Default: ``[operators]
        default_deferrable``.
    :param poke_interval: seconds between two looks. Default 60.
    :param timeout: seconds after which the sensor gives up.
    :param mode: ``poke`` or ``reschedule``, if not deferrable.
    :return: plain JSON: ``id``, ``state`` (``effective``), ``status`` (the service's word) and ``signatures`` (how many
        users have signed).
    :raises AirflowSensorTimeout: if it has not taken effect in time.
    :raises AirflowFailException: if it was rejected or is gone.
    """

    template_fields: Sequence[str] = (
        "request_id",
        "effective_statuses",
        "rejected_statuses",
        "custody_conn_id",
    )
    ui_color = "#e3f0dc"
    awaited = "effective"

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

    def _look(self) -> PokeReturnValue | bool:
        from airflow_custody.client.progress import find_listed, judge_progress

        number = self._number()
        listed = find_listed(self.hook.get_conn(), [number])[number]
        if listed.envelope is None:
            # A service may need a moment to show what was created right before.
            time.sleep(_MOMENT)
            listed = find_listed(self.hook.get_conn(), [number])[number]
        progress = judge_progress(
            listed,
            effective_statuses=_words(self.effective_statuses),
            rejected_statuses=_words(self.rejected_statuses) or (),
        )
        self._last_seen = progress.summary(number)
        if progress.state == "effective":
            self.log.info("Custody: %s.", self._last_seen)
            return PokeReturnValue(is_done=True, xcom_value=progress.to_json(number))
        if progress.state != "waiting":
            raise CustodyConflictError(self._last_seen)
        self.log.info("Not yet: %s", self._last_seen)
        return False

    def told(self, result: dict[str, Any]) -> str:
        """Say what the trigger found."""
        return f"Custody: whitelisting request {result['id']} has taken effect."

    def _trigger(self, deadline: float) -> CustodyWhitelistRequestTrigger:
        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        return CustodyWhitelistRequestTrigger(
            request_id=self._number(),
            effective_statuses=_words(self.effective_statuses),
            rejected_statuses=_words(self.rejected_statuses) or (),
            custody_conn_id=self.custody_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )

    def _number(self) -> str:
        number = str(self.request_id)
        if not number.isascii() or not number.isdigit():
            raise CustodyRequestError(f"{number!r} is not the id of a whitelisting request; nothing was sent")
        return number


def _words(words: str | Iterable[str] | None) -> list[str] | None:
    return [words] if isinstance(words, str) else None if words is None else list(words)
