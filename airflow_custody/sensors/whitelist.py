"""The sensor that waits until whitelisting requests are in effect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_custody._base import request_ids_or_skip
from airflow_custody.client.arguments import check_names, check_settings
from airflow_custody.client.errors import CustodyConflictError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.whitelist.progress import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sensors._base import CustodySensor

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.group_progress import GroupProgress
    from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

# Seconds between look-ups of a request that is not listed; the last one again and again.
_PAUSES = (1.0, 2.0, 4.0, 5.0)


class CustodyWhitelistRequestSensor(CustodySensor):
    """
    Wait until a whitelisting request is in effect, or all of several are.

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

    A list of ids, of any length, is waited for in one task: until all are in effect. Each poll logs how many are, and
    takes at most three calls for each hundred. If one or more were rejected or are gone, the sensor fails at once and
    names them. Requests that were found in effect are not looked up again while others are not; if not all were found
    so in one poll, all are looked up once more at the end, as one may have been deleted in between. Deferrable, the
    ids are stored with the trigger, in 64 KB at most if Airflow's database is MySQL: some 4,000 ids.

    :param request_id: the request's id, or a list of ids; one that is repeated is taken once. (templated)
    :param effective_statuses: status words, compared without case, of which a request in effect has one. Default
        ``approved``, as in a published sample. None: being listed as not pending is enough. (templated)
    :param rejected_statuses: status words, compared without case, that mean the request was rejected. Default
        ``rejected``, ``declined``, ``expired``, ``canceled`` and ``cancelled``: some of them are guesses, and a word
        that the service never uses changes nothing. (templated)
    :param skip_if_empty: whether the task is skipped if ``request_id`` is an empty list: nothing was created, say.
        Default False: it fails.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker. Default: ``[operators]
        default_deferrable``.
    :param poke_interval: seconds between two polls. Default 60.
    :param timeout: seconds after which the sensor gives up.
    :param mode: ``poke`` or ``reschedule``, if not deferrable.
    :return: plain JSON: ``id``, ``state`` (``effective``), ``status`` (the service's word) and ``signatures`` (how many
        users have signed). For a list, also of one: ``state``, ``count`` and ``statuses`` (the service's words, and how
        many requests have each), which does not grow with the number of ids.
    :raises AirflowSensorTimeout: if it is not in effect in time.
    :raises AirflowFailException: if it was rejected or is gone.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty``.
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
        request_id: str | Iterable[str],
        effective_statuses: Iterable[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        skip_if_empty: bool = False,
        custody_conn_id: str = CustodyHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, deferrable=deferrable, **kwargs)
        self.request_id = request_id
        self.effective_statuses = effective_statuses
        self.rejected_statuses = rejected_statuses
        self.skip_if_empty = skip_if_empty
        check_settings(flags={"skip_if_empty": skip_if_empty})
        self._unknown_statuses: set[str | None] = set()

    def _poll(self) -> PokeReturnValue | bool:
        ids = self._request_ids
        return self._poll_one(ids) if isinstance(ids, str) else self._poll_group()

    def _poll_one(self, request_id: str) -> PokeReturnValue | bool:
        from airflow_custody.client.whitelist.progress import GoneJudge, find_listed, judge_progress

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

    def _poll_group(self) -> PokeReturnValue | bool:
        group = self._group
        group.begin_poll()
        # Nobody knows what was listed since the last poke.
        group.forget_missing()
        give_up = self._first_poll + self.timeout
        self._look_up(group, group.to_poll)
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            left = min(self.gone_after - group.missing_for, give_up - time.monotonic())
            # As for one request.
            if not group.missing or group.failure() or self.deferrable or left <= 0:
                break
            self.log.info("Not yet: %s", group.summary())
            time.sleep(min(pause, left))
            self._look_up(group, group.missing)
        if group.confirm():
            self.log.info("All have been in effect: looking them up once more.")
            self._look_up(group, group.to_poll)
        self._last_result = group.summary()
        if failure := group.failure():
            raise CustodyConflictError(failure)
        if group.is_done:
            self.log.info("Custody: %s.", self._last_result)
            return PokeReturnValue(is_done=True, xcom_value=group.to_json())
        for warning in group.unknown_statuses():
            self.log.warning("%s.", warning)
        self.log.info("Not yet: %s", self._last_result)
        return False

    def _look_up(self, group: GroupProgress, ids: list[str]) -> None:
        """Look up requests, batch after batch: if one fails, what the others showed is not lost."""
        from airflow_custody.client.whitelist.models import cut_into_batches
        from airflow_custody.client.whitelist.progress import find_listed

        for batch in cut_into_batches(ids):
            listed = find_listed(self.hook.get_conn(), batch)
            group.update({each: group.judge(row) for each, row in listed.items()})

    @cached_property
    def _request_ids(self) -> str | list[str]:
        """The id, or the ids if a list was given, checked: a lazy list is fetched once."""
        from airflow_custody.client.whitelist.models import check_request_id, is_list_of_ids

        if not is_list_of_ids(self.request_id):
            return check_request_id(self.request_id, "request_id")
        return request_ids_or_skip("request_id", self.request_id, skip_if_empty=self.skip_if_empty, merge=True)

    @cached_property
    def _group(self) -> GroupProgress:
        """How far the requests have come in this process."""
        from airflow_custody.client.whitelist.group_progress import GroupProgress

        return GroupProgress(list(self._request_ids), **self._status_words(), gone_after=self.gone_after)

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
        if "count" in result:
            return f"Custody: {result['count']} of {result['count']} whitelisting requests are in effect."
        return f"Custody: whitelisting request {result['id']} is in effect."

    def _trigger(self, deadline: float | None) -> CustodyWhitelistRequestTrigger:
        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        words = self._status_words()
        return CustodyWhitelistRequestTrigger(
            request_id=self._request_ids,
            effective_statuses=words["effective_statuses"],
            rejected_statuses=words["rejected_statuses"],
            custody_conn_id=self.custody_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
            **self._backoff(),
        )
