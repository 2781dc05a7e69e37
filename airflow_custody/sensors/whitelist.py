"""The sensor that waits until whitelisting requests are in effect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_custody._base import (
    EFFECTIVE_STATUSES,
    LOOKUP_WAIT,
    NOT_GIVEN,
    REJECTED_STATUSES,
    check_flags,
    request_ids_or_skip,
)
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.plugin.links import REQUEST_LINKS
from airflow_custody.sensors._base import CustodySensor

if TYPE_CHECKING:
    from airflow_custody.client import CustodyError, WhitelistRequest
    from airflow_custody.client.whitelist.group_progress import GroupProgress
    from airflow_custody.client.whitelist.progress import GracePeriod, ListedRequest, Progress
    from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

# Seconds between look-ups of a request that is not listed or not verified; the last one again and again.
_PAUSES = (1.0, 2.0, 4.0, 5.0)


class CustodyWhitelistRequestSensor(CustodySensor):
    """
    Wait until a whitelisting request is in effect, or all of several are.

    It is when its status is one of ``effective_statuses``, and the service lists it without being asked for pending
    ones, and not among those that the connection's user may still approve. The sensor fails at once when the request
    was rejected, and without retries when it does not exist (any more): when it has been missing from all
    listings for 30 seconds in a row. While it waits, a connection failure, a truncated response, a 5xx or a 429 is "not
    yet"; a wrong token, a missing role or a service that does not offer the look-up ends the wait. ``soft_fail`` turns
    a time-out into a skip, and nothing else. ``never_fail`` and ``silent_fail`` would hide errors and are refused.

    The service's makers publish no list of the words of ``status``. A request that is not pending any more and has a
    word that is in neither of the two lists is not in effect: the sensor waits on, and a WARNING names the word.
    Deferrable, all sensors of one connection and interval share one poll in the triggerer. Killing the task ends the
    wait, and nothing else. The look-up is undocumented, and needs the role ``TPUser``.

    A list of ids, of any length, is waited for in one task: until all are in effect. Each poll logs how many are, and
    takes at most three calls for each hundred. If one or more were rejected or are gone, the sensor fails at once and
    names them. Requests that were found in effect are not looked up again while others are not; if not all were found
    so in one poll, all are looked up once more at the end, as one may have been deleted in between. Deferrable, the
    ids are stored with the trigger, in 64 KB at most if Airflow's database is MySQL: some 4,000 ids.

    If the connection has pinned keys, "in effect" means verified: enough people, under rules that super-administrators
    signed, have signed the request. One that the service shows as in effect and whose signatures do not prove it is
    looked up once more after 5 seconds, as a listing may lag; then the sensor fails without retries, and says why. One
    that is shown otherwise by then stays unverified until it is verified: a time-out before that is an error, whatever
    ``soft_fail`` says, and in ``reschedule`` mode the sensor keeps its worker until then. Without pinned keys, what is
    in effect is the service's word. No signature covers a request's id: a service that lies may show under it another
    request that was signed. ``expected`` finds that out.

    :param request_id: the request's id, or a list of ids; one that is repeated is taken once. (templated)
    :param expected: the expected requests, as the create task pushed them to XCom under the key ``request``
        (``create.output["request"]``), a list of these, or the same fields by hand; in a list of several each entry
        needs the key ``id``. Compared once a request is in effect: the text that was signed, if the connection has
        pinned keys, or else the payload that has the hash that the service gives. Whatever does not match fails at
        once, and names the field. Deferrable, the sensor polls once more at the end. Default: none. (templated)
    :param accept_fields: keys of a payload that may have a value although ``expected`` says nothing about them, as for
        approving. Default: none. (templated)
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
    :return: plain JSON: ``id``, ``state`` (``effective``), ``status`` (the service's word), ``signatures`` (how many
        users have signed, in the service's word) and ``verified``. If it is verified also ``fields`` (what the signed
        text says, by the names of the parameters), ``signed_by`` (the users whose signatures counted) and
        ``rules_date``. For a list, also of one: ``state``, ``count``, ``statuses`` (the service's words, and how many
        requests have each) and ``verified`` (how many are), which does not grow with the number of ids.
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
    none_is_a_value = ("effective_statuses",)
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"
    target_state = "effective"
    #: Seconds that a request must be missing from all listings, in a row, to be gone: a service may need some time to
    #: show what was created right before, and a listing may lag. A test's subclass may turn it.
    gone_after: ClassVar[float] = LOOKUP_WAIT
    #: Seconds that a request that is shown as in effect must be unverified, in a row, to be so for good.
    unverified_after: ClassVar[float] = 5.0

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
        self.effective_statuses = effective_statuses
        self.rejected_statuses = rejected_statuses
        self.expected = expected
        self.accept_fields = accept_fields
        self.skip_if_empty = skip_if_empty
        check_flags(skip_if_empty=skip_if_empty)
        self._note_given()
        self._unknown_statuses: set[str | None] = set()
        self._unsigned: set[str] = set()
        self._polling_again = False
        self._lag: GracePeriod | None = None

    def _poll(self) -> PokeReturnValue | bool:
        ids = self._request_ids
        # Read before anything is sent.
        self._expected, self._accepted  # noqa: B018
        return self._poll_one(ids) if isinstance(ids, str) else self._poll_group()

    def _poll_one(self, request_id: str) -> PokeReturnValue | bool:
        from airflow_custody.client.whitelist.progress import GracePeriod, find_listed, judge_progress

        words = self._status_words()
        self._lag = lag = self._lag or GracePeriod(self.gone_after, self.unverified_after)
        # Nobody knows what was listed since the last poke.
        lag.reset()
        give_up = self._first_poll + self.timeout
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            listed = find_listed(self.hook.get_conn(), [request_id])[request_id]
            progress = lag.judge(judge_progress(listed, **words))
            self._last_result = progress.summary(request_id)
            # An unverified request fails the task, and must not become a time-out before.
            left = max(give_up - time.monotonic(), lag.unverified_patience)
            if progress.patience <= 0 or self._trigger_follows:
                break
            if left <= 0:
                if lag.unverified is not None:
                    raise lag.unverified.failure(request_id)
                break
            self.log.info("Not yet: %s", self._last_result)
            time.sleep(min(pause, progress.patience, left))
        if progress.state == "effective":
            self._compare({request_id: listed})
            self.log.info("Custody: %s.%s", self._last_result, _whose_word(progress.verified is not None))
            return PokeReturnValue(is_done=True, xcom_value=progress.to_json(request_id))
        if progress.ended:
            raise progress.failure(request_id)
        if progress.state == "unknown" and progress.status not in self._unknown_statuses:
            self._unknown_statuses.add(progress.status)
            self.log.warning("%s.", self._last_result)
        self.log.info("Not yet: %s", self._last_result)
        return False

    def _poll_group(self) -> PokeReturnValue | bool:

        group = self._group
        # Nobody knows what was listed since the last poke.
        group.forget_lagging()
        self._look_up(group, group.to_poll)
        self._look_up_lagging(group)
        if group.confirm():
            self.log.info("All have been in effect: looking them up once more.")
            self._look_up(group, group.to_poll)
            self._look_up_lagging(group)
        self._last_result = group.summary()
        if failure := group.failure():
            raise failure
        if group.is_done:
            for warning in group.same_texts():
                self.log.warning("%s.", warning)
            result = group.to_json()
            words = _whose_word(result["verified"] == result["count"])
            self.log.info("Custody: %s.%s", self._last_result, words)
            return PokeReturnValue(is_done=True, xcom_value=result)
        for warning in group.unknown_statuses():
            self.log.warning("%s.", warning)
        self.log.info("Not yet: %s", self._last_result)
        return False

    def _look_up_lagging(self, group: GroupProgress) -> None:
        """Look up again what is not listed or not verified, as long as a lag may explain it, as for one request."""
        give_up = self._first_poll + self.timeout
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            patience = group.patience
            left = max(give_up - time.monotonic(), group.unverified_patience)
            if patience <= 0 or group.failure() or self._trigger_follows:
                return
            if left <= 0:
                group.confirm_unverified()
                return
            self.log.info("Not yet: %s", group.summary())
            time.sleep(min(pause, patience, left))
            self._look_up(group, group.lagging)

    def _look_up(self, group: GroupProgress, ids: list[str]) -> None:
        """Look up requests, batch after batch: if one fails, what the others showed is not lost."""
        from airflow_custody.client.whitelist.models import cut_into_batches
        from airflow_custody.client.whitelist.progress import find_listed

        group.begin_poll()
        for batch in cut_into_batches(ids):
            found = find_listed(self.hook.get_conn(), batch)
            judged = {each: group.judge(listed) for each, listed in found.items()}
            group.update(judged)
            self._compare({each: found[each] for each, progress in judged.items() if progress.state == "effective"})

    def _compare(self, found: Mapping[str, ListedRequest]) -> None:
        """Compare requests that are in effect with what is expected of them."""
        from airflow_custody.client.errors import CustodyRequestError
        from airflow_custody.client.whitelist.batches import MAX_NAMED_IDS

        if self._expected is None:
            return
        from airflow_custody.client.whitelist.expected import compare_listed

        errors = []
        for each, listed in found.items():
            try:
                unsigned = compare_listed(self._expected[each], listed, self._accepted)
            except CustodyRequestError as error:
                errors.append(error)
                continue
            if new := set(unsigned) - self._unsigned:
                self._unsigned |= new
                self.log.info("Compared, but not covered by any signature: %s.", ", ".join(sorted(new)))
        if len(errors) > 1:
            words = "; ".join(error.message for error in errors[:MAX_NAMED_IDS])
            more = f"; and {len(errors) - MAX_NAMED_IDS} more" if len(errors) > MAX_NAMED_IDS else ""
            raise CustodyRequestError(words + more, advice=errors[0].advice, code=errors[0].code)
        if errors:
            raise errors[0]

    def _unverified_error(self) -> CustodyError | None:
        if self._lag is not None:
            return None if self._lag.unverified is None else self._lag.unverified.failure(str(self._request_ids))
        return self._group.unverified_error() if "_group" in self.__dict__ else None

    @property
    def _unverified(self) -> dict[str, Progress]:
        """The requests that this process saw in effect and unverified, and not verified since, by id."""
        if self._lag is not None:
            return {} if self._lag.unverified is None else {str(self._request_ids): self._lag.unverified}
        return self._group.unverified() if "_group" in self.__dict__ else {}

    @property
    def _has_unverified(self) -> bool:
        return bool(self._unverified)

    @property
    def _trigger_follows(self) -> bool:
        """
        Whether the trigger polls again, if it is too early to tell.

        Otherwise this poke does: the next may be in a new process.
        """
        return self.deferrable and not self._polling_again

    def _poll_again(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """
        Look up once more what the trigger found in effect, if that is to be compared or was not verified.

        The trigger does not know what is expected. It may also have been started before the keys were pinned, and
        by an earlier version.
        """
        from airflow_custody.client.errors import CustodyError

        verified = result.get("verified")
        is_verified = verified is True or ("count" in result and verified == result["count"])
        if self.expected is None and (is_verified or self.hook.get_conn().verifier is None):
            return None
        self._polling_again = True
        give_up = self._first_poll + self.timeout + self.unverified_after
        for pause in (*_PAUSES, 0.0):
            found = self.poke({})
            if isinstance(found, PokeReturnValue):
                return found.xcom_value
            if time.monotonic() >= give_up:
                break
            time.sleep(pause)
        if (error := self._unverified_error()) is not None:
            raise error
        raise CustodyError(
            f"the triggerer saw it in effect, and this worker does not: {self._last_result}",
            code="listing-changed",
            retryable=True,
        )

    def linked_request_ids(self) -> Sequence[str]:
        """Return the ids that are waited for."""
        ids = self._request_ids
        return [ids] if isinstance(ids, str) else ids

    @cached_property
    def _request_ids(self) -> str | list[str]:
        """The id, or the ids if a list was given, checked: a lazy list is fetched once."""
        from airflow_custody.client.whitelist.models import check_request_id, is_list_of_ids

        if not is_list_of_ids(self.request_id):
            return check_request_id(self.request_id, "request_id")
        return request_ids_or_skip("request_id", self.request_id, skip_if_empty=self.skip_if_empty, merge=True)

    @cached_property
    def _group(self) -> GroupProgress:
        """The progress of the requests in this process."""
        from airflow_custody.client.whitelist.group_progress import GroupProgress

        return GroupProgress(
            list(self._request_ids),
            **self._status_words(),
            gone_after=self.gone_after,
            unverified_after=self.unverified_after,
        )

    @cached_property
    def _expected(self) -> dict[str, WhitelistRequest] | None:
        """The expected content of each request; None: anything."""
        if self.expected is None:
            return None
        from airflow_custody.client.errors import CustodyRequestError
        from airflow_custody.client.whitelist.batches import name_some
        from airflow_custody.client.whitelist.expected import expected_by_id

        ids = self._request_ids if isinstance(self._request_ids, list) else [self._request_ids]
        found = expected_by_id(ids, self.expected, consequence="nothing was sent")
        if lacking := [each for each in ids if each not in found]:
            raise CustodyRequestError(
                f"'expected' does not say what {name_some(lacking)} must ask for", code="parameter-wrong"
            )
        return found

    @cached_property
    def _accepted(self) -> frozenset[str]:
        from airflow_custody.client.arguments import check_names

        return frozenset(check_names("accept_fields", self.accept_fields, may_be_empty=True) or ())

    @cached_property
    def _first_poll(self) -> float:
        """Time of this process's first poll, by its monotonic clock."""
        return time.monotonic()

    def _status_words(self) -> dict[str, Any]:
        """Return the status words, checked."""
        from airflow_custody.client.arguments import check_names

        return {
            "effective_statuses": check_names("effective_statuses", self.effective_statuses),
            "rejected_statuses": check_names("rejected_statuses", self.rejected_statuses, may_be_empty=True) or (),
        }

    def _success_message(self, result: dict[str, Any]) -> str:
        from airflow_custody.client.text import count_of
        from airflow_custody.client.whitelist.progress import describe_verified

        verified = result.get("verified")
        if "count" in result:
            number = result["count"]
            words = f", {verified} verified" if verified else ""
            requests = count_of(number, number, "whitelisting request")
            return f"Custody: {requests} in effect{words}.{_whose_word(verified == number)}"
        words = describe_verified(result) if verified else ""
        return f"Custody: whitelisting request {result['id']} is in effect{words}.{_whose_word(bool(verified))}"

    def _trigger(self, deadline: float | None) -> CustodyWhitelistRequestTrigger:
        from airflow_custody.client.whitelist.progress import unverified_to_json
        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        words = self._status_words()
        return CustodyWhitelistRequestTrigger(
            request_id=self._request_ids,
            effective_statuses=words["effective_statuses"],
            rejected_statuses=words["rejected_statuses"],
            custody_conn_id=self.custody_conn_id,
            poke_interval=self.poke_interval,
            deadline=deadline,
            unverified=unverified_to_json(self._unverified),
            **self._backoff(),
        )


def _whose_word(verified: bool) -> str:
    """Return what the log says after a success, if it is not verified: no keys are pinned."""
    from airflow_custody.client.verification.trust import NOT_PINNED

    return "" if verified else f" {NOT_PINNED}"
