"""The sensor that waits until whitelisting requests are in effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_custody._base import NOT_GIVEN, request_ids_or_skip
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.whitelist.ids import is_list_of_ids
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.plugin.links import REQUEST_LINKS
from airflow_custody.sensors._base import CustodySensor

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg

    from airflow_custody.client.wait_state import WaitState
    from airflow_custody.client.whitelist.wait import RequestWait
    from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger


class CustodyWhitelistRequestSensor(CustodySensor):
    """
    Wait until one or more whitelisting requests are in effect.

    A request is in effect if its status is one of the connection's ``effective_statuses``, and the service lists it
    neither as pending nor among the requests that the connection's user may still sign. The service publishes no list
    of its status words. If a request is no longer pending and its status is in neither ``effective_statuses`` nor
    ``rejected_statuses`` of the connection, the sensor continues to wait, and a WARNING names the status.

    The sensor fails at once, without retries, if a request was rejected, or is missing from all listings for 30 seconds
    in a row. A connection failure, a truncated response, a 5xx or a 429 counts as "not yet". A wrong token, a missing
    role, a service that does not offer the lookup, or a host name that does not exist at the first poll ends the wait.
    With ``soft_fail``, a timeout skips the task. ``never_fail`` and ``silent_fail`` are refused, because they would
    hide errors.

    One task can wait for a list of ids of any length. It succeeds when a single poll finds all of them in effect. Each
    poll logs the number of requests in effect, and takes three calls per hundred requests. It takes more calls if a
    lookup fails, a listing changes, or the rules in force are needed. In the triggerer, all sensors with the same
    connection and interval share one poll. The ids are stored with the trigger; if Airflow's database is MySQL, they
    must fit into 64 KB, which is about 4,000 ids.

    If the connection pins super-administrators' keys, each request in effect is also verified: enough users must have
    signed it, under rules that the pinned keys have signed. If the signatures do not prove the request, it is looked up
    again after 5 seconds, because a listing may lag. If they still do not prove it, the sensor fails without retries,
    and reports the reason. Without pinned keys, nothing is verified. Signatures do not cover a request's id, so a
    dishonest service could return another signed request under this id. Use ``expected`` to detect this.

    Killing the task only ends the wait. The vendor does not document the lookup. The user needs the role ``TPUser``.

    :param request_id: the request's id, or a list of ids. Repeated ids are merged. (templated)
    :param expected: the expected contents: the XCom ``request`` of the create task (``create.output["request"]``), a
        list of these, or the same fields written by hand. With several requests, each entry needs the key ``id``. Once
        a request is in effect, its content is compared: the signed text if the connection pins keys, or else the
        payload, which must match the hash that the service reports. A mismatch fails the task at once, and the error
        names the field. A deferrable sensor polls once more for this comparison. Default: the content is not compared.
        (templated)
    :param skip_if_empty: whether the task is skipped if ``request_id`` is an empty list, for example because nothing
        was created. Default False: the task fails.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker. Default: ``[operators]
        default_deferrable``.
    :param poke_interval: seconds between two polls. Default 60. ``exponential_backoff`` and ``max_wait`` only have an
        effect in a worker.
    :param timeout: seconds until the sensor times out. Airflow applies ``execution_timeout`` only while a worker runs
        the task, so it does not end a deferred sensor.
    :param mode: ``poke`` or ``reschedule``, if not deferrable.
    :return: for a single id, plain JSON with ``id``, ``state`` (``effective``), ``status`` (as sent by the service),
        ``signatures`` (the number of users who have signed, according to the service) and ``verified``. A verified
        request also has ``fields`` (the signed content, by parameter name), ``signed_by`` (the users whose signatures
        counted) and ``rules_date``. For a list, even with one id: ``state``, ``count``, ``statuses`` (the number of
        requests with each status) and ``verified`` (the number of verified requests).
    :raises AirflowSensorTimeout: if a request is not in effect in time.
    :raises AirflowFailException: if a request was rejected, is gone, cannot be verified, or does not match
        ``expected``; a setting is wrong; or the service refuses the lookup.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty`` is True; or a request is not in effect in
        time, and ``soft_fail`` is True.
    :raises CustodyError: if the host name does not exist at the first poll; Airflow's retries apply.
    """

    template_fields: Sequence[str] = (
        "request_id",
        "expected",
        "custody_conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"expected": "json"}
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"
    target_state = "effective"

    def __init__(
        self,
        *,
        request_id: str | int | Iterable[str | int | XComArg] | XComArg,
        expected: Mapping[str, object] | Iterable[Mapping[str, object] | XComArg] | XComArg | None = NOT_GIVEN,
        skip_if_empty: bool = False,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, deferrable=deferrable, **kwargs)
        self.request_id = request_id
        self.expected = expected
        self.skip_if_empty = skip_if_empty
        self._check_flags(skip_if_empty=skip_if_empty)

    @cached_property
    def _wait(self) -> RequestWait:
        """The wait in this process, with checked parameters."""
        from airflow_custody.client.whitelist.wait import RequestWait

        ids: object = self.request_id
        if is_list_of_ids(ids):
            ids = request_ids_or_skip("request_id", ids, skip_if_empty=self.skip_if_empty, merge=True)
        return RequestWait(ids, expected=self.expected)

    def _poll(self) -> WaitState:
        return self._wait.poll(self.hook.get_conn())

    def _result(self, result: dict[str, Any]) -> Any:
        """
        Return the trigger's result. If ``expected`` is set, poll once more to compare the content.
        """
        if self.expected is None:
            return result
        found = self.poke({})
        if isinstance(found, PokeReturnValue):
            return found.xcom_value
        raise CustodyError(
            f"the triggerer found the request in effect, but this worker did not: {self._polls.last}",
            code="listing-changed",
            retryable=True,
        )

    def linked_request_ids(self) -> Sequence[str]:
        """Return the ids of the awaited requests."""
        return self._wait.ids

    def _trigger(self, deadline: float | None) -> CustodyWhitelistRequestTrigger:
        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        return CustodyWhitelistRequestTrigger(
            request_id=self._wait.request_id,
            custody_conn_id=self.custody_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )
