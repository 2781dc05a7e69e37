"""The base of all sensors: waiting in a worker or in the triggerer, and ending the same way in both."""

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

from airflow_custody._base import CustodyTask, ParameterError, check_flags, check_numbers
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.retry_policy import failing_task

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_custody.client.wait_state import WaitState

# Airflow's own time-out of a deferral is a backstop for a triggerer that is down. It must not come before the
# trigger's, which knows the last result.
_BACKSTOP = timedelta(minutes=5)
# Reports of Airflow 2 and 3 when a deferral timed out.
_DEFERRAL_TIMEOUTS = ("Trigger/execution timeout", "Trigger timeout")


class CustodySensor(CustodyTask, BaseSensorOperator):
    """
    The base of the sensors.

    :param deferrable: whether to wait in the triggerer instead of a worker.
    """

    #: The state that is waited for: the word in messages, and the status of the trigger's successful event.
    target_state = ""
    #: Seconds after which a poke polls again while something is missing that the service may list late. A subclass may
    #: change it.
    recheck_delay: ClassVar[float] = 5.0

    def __init__(self, *, deferrable: bool, **kwargs: Any) -> None:
        check_flags(deferrable=deferrable)
        for name in ("poke_interval", "timeout", "max_wait"):
            if (value := kwargs.get(name)) is not None:
                check_numbers({name: value.total_seconds() if isinstance(value, timedelta) else value})
        super().__init__(**kwargs)
        if self.never_fail or self.silent_fail:
            raise ParameterError("never_fail and silent_fail would hide errors of a custody gate; use soft_fail")
        self.deferrable = deferrable
        self._last_result = ""

    @abstractmethod
    def _poll(self) -> WaitState:
        """Poll once, and return the state of the wait."""

    def _result(self, result: dict[str, Any]) -> Any:
        """Return the task's result, from what the trigger found."""
        return result

    @abstractmethod
    def _trigger(self, deadline: float | None) -> BaseTrigger:
        """Return the trigger that waits until a Unix time; None: no limit."""

    @cached_property
    def hook(self) -> CustodyHook:
        """The hook, kept open for as long as the sensor pokes."""
        return CustodyHook(self.custody_conn_id)

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Poll once, or until nothing is in doubt; a transient error is "not yet"."""
        from airflow_custody.client.errors import CustodyError

        give_up = time.monotonic() + self.timeout
        try:
            state = self._poll()
            # Within this poke: in reschedule mode the next one knows nothing of it. Deferrable, the trigger does it.
            while state.in_doubt and state.error is None and not self.deferrable:
                if (left := give_up - time.monotonic()) <= 0:
                    break
                self.log.info("Not yet: %s", state.summary)
                time.sleep(min(self.recheck_delay, left))
                state = self._poll()
        except CustodyError as error:
            if not error.transient:
                raise
            self._last_result = error.text
            self.log.warning("Not yet: %s", error)
            return False
        self._last_result = state.summary
        for warning in state.warnings:
            self.log.warning("%s.", warning)
        if state.error is not None:
            raise state.error
        if not state.is_done:
            self.log.info("Not yet: %s", state.summary)
            return False
        self.log.info("Custody: %s", state.summary)
        return PokeReturnValue(is_done=True, xcom_value=dict(state.result))

    def execute(self, context: Context) -> Any:
        """Wait in the worker, or poll once and wait in the triggerer."""
        with self._ending_task():
            self._check_given()
            if not self.deferrable:
                return super().execute(context)
            started = time.time()
            found = self.poke(context)
            if isinstance(found, PokeReturnValue):
                return found.xcom_value
            if time.time() - started > self.timeout:
                raise AirflowSensorTimeout(f"Not {self.target_state} within {self.timeout:g} s.")
            self.defer(
                trigger=self._trigger(deadline=started + self.timeout),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout + self.poke_interval) + _BACKSTOP,
            )

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Return what the trigger reports, or raise what ended the wait."""
        from airflow_custody.client.errors import CustodyError
        from airflow_custody.client.text import sanitize

        facts = event or {}
        status, result, error = facts.get("status"), facts.get("result"), facts.get("error")
        if status == self.target_state and isinstance(result, dict) and result:
            self.log.info("Custody: %s", facts.get("message"))
            return self._result(result)
        if status == "timeout":
            self._last_result = str(facts.get("message") or "")
            raise AirflowSensorTimeout(f"Not {self.target_state} within {self.timeout:g} s.")
        if status == "error" and isinstance(error, dict):
            raise CustodyError.from_json(error)
        raise CustodyError(
            f"the trigger sent an unknown event: {sanitize(repr(event))}", code="unexpected", retryable=True
        )

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral; one that Airflow itself timed out is a time-out like any other."""
        with self._ending_task():
            # The trigger may have been the first to see the values.
            self._check_given()
            if next_method == "__fail__" and (next_kwargs or {}).get("error") in _DEFERRAL_TIMEOUTS:
                raise AirflowSensorTimeout(f"Not {self.target_state} within {self.timeout:g} s.")
            return super().resume_execution(next_method, next_kwargs, context)

    @contextmanager
    def _ending_task(self) -> Iterator[None]:
        """
        End the task the same way in every mode.

        Airflow's own handling of ``soft_fail`` differs between them: it skips on failures in poke mode, and on
        every error after a deferral. So the setting is hidden from it.
        """
        soft_fail, self.soft_fail = self.soft_fail, False
        try:
            with failing_task(self):
                yield
        except (AirflowSensorTimeout, AirflowTaskTimeout) as timeout:
            from airflow_custody.client.error_codes import label

            message = f"{timeout} Last result: {self._last_result}" if self._last_result else str(timeout)
            message = f"{message} {label('wait-timed-out')}"
            if soft_fail:
                raise AirflowSkipException(message) from None
            self.log.error("%s", message)
            raise type(timeout)(message) from None
        finally:
            self.soft_fail = soft_fail
            if "hook" in self.__dict__:
                self.hook.close()
