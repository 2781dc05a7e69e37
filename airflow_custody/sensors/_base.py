"""The base of all sensors, with the same behaviour in every mode."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
)

from airflow_custody._base import CustodyTask
from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import lines, sanitize
from airflow_custody.client.wait_state import PollHistory
from airflow_custody.hooks._advice import name_connection
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.plugin.links import PAGE_LINKS
from airflow_custody.retry_policy import failing_task, map_place

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_custody.client.wait_state import WaitState

# How long after the trigger's own timeout Airflow ends a deferral, in case the triggerer is down. It must be later than
# the trigger's timeout, because only the trigger knows the last result.
_BACKSTOP = timedelta(minutes=5)
# Texts by which Airflow 2 and 3 report that a deferral has timed out.
_DEFERRAL_TIMEOUTS = ("Trigger/execution timeout", "Trigger timeout")


class CustodySensor(CustodyTask, BaseSensorOperator):
    """
    The base of the sensors.

    :param deferrable: whether to wait in the triggerer instead of a worker.
    """

    operator_extra_links = PAGE_LINKS
    #: The state that the sensor waits for. It is used in messages, and is the status of the trigger's event on success.
    target_state = ""
    #: Seconds until a poke polls again if an object or a name is missing, because the service may list it late. A
    #: subclass may set a different number.
    recheck_delay: ClassVar[float] = 5.0

    def __init__(self, *, deferrable: bool, **kwargs: Any) -> None:
        self._check_flags(deferrable=deferrable)
        for name in ("poke_interval", "timeout", "max_wait"):
            if (value := kwargs.get(name)) is not None:
                self._check_numbers({name: value.total_seconds() if isinstance(value, timedelta) else value})
                if self._refused:
                    # Drop the wrong value, because Airflow's own check would raise an error.
                    del kwargs[name]
        super().__init__(**kwargs)
        if self.never_fail or self.silent_fail:
            self._refuse("never_fail and silent_fail would hide errors; use soft_fail")
        self.deferrable = deferrable

    @abstractmethod
    def _poll(self) -> WaitState:
        """Poll once, and return the state of the wait."""

    def _result(self, result: dict[str, Any]) -> Any:
        """Return the task's result, given the trigger's result."""
        return result

    @abstractmethod
    def _trigger(self, deadline: float | None) -> BaseTrigger:
        """Return the trigger that waits until a deadline in Unix time; None: without a deadline."""

    @cached_property
    def _polls(self) -> PollHistory:
        """The polls of this process."""
        return PollHistory()

    @cached_property
    def hook(self) -> CustodyHook:
        """The hook; it is closed when the task ends or is deferred."""
        return CustodyHook(self.custody_conn_id)

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """
        Poll once, or repeatedly while an object or a name is missing.

        A transient error counts as "not yet".
        """
        self._check_given()
        polls = self._polls
        if context.get("task_reschedule_count"):
            # In reschedule mode, each poke runs in its own process, and only the number of reschedules shows that an
            # earlier poke has polled. Airflow 2 does not have this number, so each poke is treated as the first one
            # there.
            polls.is_first = False
        give_up = time.monotonic() + self.timeout
        found: WaitState | CustodyError
        try:
            found = self._poll()
            # Poll again within this poke, because in reschedule mode the next poke would not know that an object was
            # missing. For a deferrable sensor, the trigger polls again.
            while found.in_doubt and found.error is None and not self.deferrable:
                if (left := give_up - time.monotonic()) <= 0:
                    break
                self.log.info("%s", polls.note(found))
                time.sleep(min(self.recheck_delay, left))
                found = self._poll()
        except CustodyError as error:
            found = error
        state = polls.settle(found, self.log)
        if state is None:
            return False
        self.log.info("Custody: %s", state.summary)
        return PokeReturnValue(is_done=True, xcom_value=dict(state.result))

    def execute(self, context: Context) -> Any:
        """Wait in the worker, or poll once and wait in the triggerer."""
        with self._ending_task(context):
            self._check_given()
            if not self.deferrable:
                return super().execute(context)
            started = time.time()
            found = self.poke(context)
            if isinstance(found, PokeReturnValue):
                return found.xcom_value
            if time.time() - started > self.timeout:
                raise AirflowSensorTimeout
            self.defer(
                trigger=self._trigger(deadline=started + self.timeout),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout + self.poke_interval) + _BACKSTOP,
            )

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Return the result in the trigger's event, or raise its error."""
        facts = event or {}
        status, error = facts.get("status"), facts.get("error")
        result: Any = facts.get("result")
        has_result = isinstance(result, dict) and bool(result)
        if has_result and status == self.target_state:
            self.log.info("Custody: %s", facts.get("message"))
            return self._result(result)
        if status == "timeout":
            self._polls.last = str(facts.get("message") or "")
            raise AirflowSensorTimeout
        if status == "error" and isinstance(error, dict):
            raise CustodyError.from_json(error)
        raise CustodyError(
            f"the trigger sent an unknown event: {sanitize(repr(event))}", code="unexpected", retryable=True
        )

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """
        Resume after a deferral.

        Airflow's own timeout of a deferral counts as the sensor's timeout.
        """
        with self._ending_task(context):
            # The first poll was made before the deferral, in another process.
            self._polls.is_first = False
            # With start_from_trigger, no worker has checked the values yet.
            self._check_given()
            is_timeout = (next_kwargs or {}).get("error") in _DEFERRAL_TIMEOUTS
            if is_timeout and next_method == "__fail__":
                # The trigger's last result is lost with the timeout, so poll again. As in poke mode, the first poll
                # after the deadline still counts.
                found = self.poke(context)
                if isinstance(found, PokeReturnValue):
                    return found.xcom_value
                raise AirflowSensorTimeout
            return super().resume_execution(next_method, next_kwargs, context)

    @contextmanager
    def _ending_task(self, context: Context) -> Iterator[None]:
        """
        End the task in the same way in every mode.

        Airflow's own handling of ``soft_fail`` depends on the mode: in poke mode, it also skips the task after a
        failure without retries, and after a deferral, it skips the task after any error. Therefore the setting is
        hidden from Airflow, and is applied here.
        """
        soft_fail, self.soft_fail = self.soft_fail, False
        try:
            with failing_task(self, context):
                yield
        except (AirflowSensorTimeout, AirflowTaskTimeout) as timeout:
            if isinstance(timeout, AirflowSensorTimeout):
                ended = f"Not {self.target_state} within {self.timeout:g} s"
                last, advice = self._polls.timed_out, None
            else:
                # Leave out the poll's advice, because it is about the sensor's own timeout.
                ended = f"'execution_timeout' has ended the task ({timeout})"
                last = self._polls.last
                advice = "Raise or remove 'execution_timeout', because 'timeout' already limits the wait."
            ended = f"{map_place(context)}{ended}"
            last = name_connection(last, str(self.custody_conn_id))
            message = lines(ended, f"Last result: {last}", advice, label("wait-timed-out"))
            if soft_fail:
                # Airflow 3 logs the exception on a single line, so the exception has only the message's first line.
                self.log.warning("%s", message)
                raise AirflowSkipException(ended) from None
            raise type(timeout)(message) from None
        finally:
            self.soft_fail = soft_fail
            if "hook" in self.__dict__:
                self.hook.close()
