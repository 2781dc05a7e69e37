"""The sensor that waits until whitelisting requests are in effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_custody._base import NOT_GIVEN, request_ids_or_skip
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.whitelist.ids import is_list_of_ids
from airflow_custody.client.whitelist.status_words import EFFECTIVE_STATUSES, REJECTED_STATUSES, StatusWords
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.plugin.links import REQUEST_LINKS
from airflow_custody.sensors._base import CustodySensor

if TYPE_CHECKING:
    from airflow_custody.client.wait_state import WaitState
    from airflow_custody.client.whitelist.wait import RequestWait
    from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger


class CustodyWhitelistRequestSensor(CustodySensor):
    """
    Wait until a whitelisting request is in effect, or all of several are.

    It is when its status is one of ``effective_statuses``, and the service lists it without being asked for pending
    ones, and not among those that the connection's user may still sign. The sensor fails at once when the request
    was rejected, and without retries when it does not exist (or no longer exists): when it has been missing from all
    listings for 30 seconds in a row. While it waits, a connection failure, a truncated response, a 5xx or a 429 is "not
    yet"; a wrong token, a missing role or a service that does not offer the look-up ends the wait, and so does, at the
    first poll, a host that does not exist. ``soft_fail`` turns a time-out into a skip, and nothing else. ``never_fail``
    and ``silent_fail`` would hide errors and are refused.

    The service's makers publish no list of the words of ``status``. A request that is no longer pending and has a
    word that is in neither of the two lists is not in effect: the sensor waits on, and a WARNING names the word.
    Deferrable, all sensors of one connection and interval share one poll in the triggerer. Killing the task ends the
    wait, and nothing else. The look-up is undocumented, and needs the role ``TPUser``.

    A list of ids, of any length, is waited for in one task: until one poll finds all of them in effect. Each poll logs
    how many are, and takes at most three calls for each hundred. If one or more were rejected or are gone, the sensor
    fails at once and names them. Deferrable, the ids are stored with the trigger, in 64 KB at most if Airflow's
    database is MySQL: some 4,000 ids.

    If the connection has pinned keys, "in effect" means verified: enough people, under rules that super-administrators
    signed, have signed the request. One that the service shows as in effect and whose signatures do not prove it is
    looked up once more after 5 seconds, as a listing may lag; then the sensor fails without retries, and says why.
    Without pinned keys, nothing verifies what is in effect. No signature covers a request's id: a service that
    lies may show under it another request that was signed. ``expected`` finds that out.

    :param request_id: the request's id, or a list of ids; one that is repeated is taken once. (templated)
    :param expected: the expected requests, as the create task pushed them to XCom under the key ``request``
        (``create.output["request"]``), a list of these, or the same fields by hand; in a list of several each entry
        needs the key ``id``. Compared once a request is in effect: the text that was signed, if the connection has
        pinned keys, or else the payload that has the hash that the service gives. Whatever does not match fails at
        once, and names the field. Deferrable, the sensor polls once more at the end. Default: none. (templated)
    :param accept_fields: keys of a payload that may have a value although ``expected`` says nothing about them, as for
        signing. Default: none. (templated)
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
    :param poke_interval: seconds between two polls. Default 60. ``exponential_backoff`` and ``max_wait`` have an effect
        only in a worker.
    :param timeout: seconds after which the sensor gives up. ``execution_timeout`` does not end it while it is deferred:
        Airflow applies that only while a worker runs the task.
    :param mode: ``poke`` or ``reschedule``, if not deferrable.
    :return: plain JSON: ``id``, ``state`` (``effective``), ``status`` (as the service sent it), ``signatures`` (how
        many users have signed, by what the service lists) and ``verified``. If it is verified also ``fields`` (what
        the signed text says, by the names of the parameters), ``signed_by`` (the users whose signatures counted)
        and ``rules_date``. For a list, also of one: ``state``, ``count``, ``statuses`` (as the service sent them,
        and how many requests have each) and ``verified`` (how many are), which does not grow with the number of
        ids.
    :raises AirflowSensorTimeout: if it is not in effect in time.
    :raises AirflowFailException: if it was rejected or is gone, does not verify, or is not what was expected.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty``.
    """

    template_fields: Sequence[str] = (
        "request_id",
        "effective_statuses",
        "rejected_statuses",
        "expected",
        "accept_fields",
        "custody_conn_id",
    )
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"
    target_state = "effective"

    def __init__(
        self,
        *,
        request_id: str | Iterable[str],
        effective_statuses: Iterable[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        expected: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = NOT_GIVEN,
        accept_fields: Iterable[str] = (),
        skip_if_empty: bool = False,
        custody_conn_id: str = CustodyHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, deferrable=deferrable, **kwargs)
        self.request_id = request_id
        self.effective_statuses = self._if_written("effective_statuses", effective_statuses)
        self.rejected_statuses = rejected_statuses
        self.expected = expected
        self.accept_fields = accept_fields
        self.skip_if_empty = skip_if_empty
        self._check_flags(skip_if_empty=skip_if_empty)

    @cached_property
    def _wait(self) -> RequestWait:
        """The wait of this process, its parameters checked."""
        from airflow_custody.client.whitelist.wait import RequestWait

        ids: object = self.request_id
        if is_list_of_ids(ids):
            ids = request_ids_or_skip("request_id", ids, skip_if_empty=self.skip_if_empty, merge=True)
        return RequestWait(
            ids,
            words=StatusWords.read(self.effective_statuses, self.rejected_statuses),
            expected=self.expected,
            accept_fields=self.accept_fields,
        )

    def _poll(self) -> WaitState:
        return self._wait.poll(self.hook.get_conn())

    def _result(self, result: dict[str, Any]) -> Any:
        """Return what the trigger found; or, as it does not know what is expected, poll once more and compare."""
        if self.expected is None:
            return result
        found = self.poke({})
        if isinstance(found, PokeReturnValue):
            return found.xcom_value
        raise CustodyError(
            f"the triggerer saw it in effect, and this worker does not: {self._polls.last}",
            code="listing-changed",
            retryable=True,
        )

    def linked_request_ids(self) -> Sequence[str]:
        """Return the ids that are waited for."""
        return self._wait.ids

    def _trigger(self, deadline: float | None) -> CustodyWhitelistRequestTrigger:
        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        words = self._wait.words
        return CustodyWhitelistRequestTrigger(
            request_id=self._wait.request_id,
            effective_statuses=words.effective if words.effective is None else [*words.effective],
            rejected_statuses=[*words.rejected],
            custody_conn_id=self.custody_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
        )
