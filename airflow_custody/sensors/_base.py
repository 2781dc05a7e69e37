"""The base of all sensors: waiting in a worker or in the triggerer, and ending the same way in both."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

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

    from airflow_custody.client.errors import CustodyError

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
    def _poll(self) -> PokeReturnValue | bool:
        """Poll once: a value if the target state is reached, False if it is not yet."""

    @abstractmethod
    def _success_message(self, result: dict[str, Any]) -> str:
        """Return what the log says when the trigger reports success."""

    def _poll_again(self, result: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of polling once more in the worker, or None if what the trigger found is enough."""
        return None

    def _unverified_error(self) -> CustodyError | None:
        """Return the error that replaces a time-out, if something is unverified; None: nothing is."""
        return None

    @property
    def _has_unverified(self) -> bool:
        """Whether a time-out would be an error."""
        return False

    @abstractmethod
    def _trigger(self, deadline: float | None) -> BaseTrigger:
        """Return the trigger that waits until a Unix time; None: no limit."""

    def _backoff(self) -> dict[str, Any]:
        """Return the trigger's arguments for becoming rarer, from the sensor's usual parameters."""
        return {
            "exponential_backoff": bool(self.exponential_backoff),
            "max_wait": None if self.max_wait is None else self.max_wait.total_seconds(),
        }

    @cached_property
    def hook(self) -> CustodyHook:
        """The hook, kept open for as long as the sensor pokes."""
        return CustodyHook(self.custody_conn_id)

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Poll once; a transient error is "not yet"."""
        from airflow_custody.client.errors import CustodyError

        found: PokeReturnValue | bool = False
        try:
            found = self._poll()
        except CustodyError as error:
            if not error.transient:
                raise
            self._last_result = error.text
            self.log.warning("Not yet: %s", error)
        if self.mode == "reschedule" and self._has_unverified:
            # The process of the next poke would know nothing of it.
            self.log.info("Polling on in this process until it is decided.")
            self.mode = "poke"
        return found

    def execute(self, context: Context) -> Any:
        """Wait in the worker, or poll once and wait in the triggerer."""
        with self._ending_task():
            self._check_given()
            if not self.deferrable:
                return super().execute(context)
            started = time.time()
            result = self.poke(context)
            if isinstance(result, PokeReturnValue):
                return result.xcom_value
            if time.time() - started > self.timeout:
                raise AirflowSensorTimeout(f"Not {self.target_state} within {self.timeout:g} s.")
            self.defer(
                trigger=self._trigger(deadline=started + self.timeout),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout + self.poke_interval) + _BACKSTOP,
            )

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the trigger reports, or raise what ended the wait."""
        from airflow_custody.client.errors import CustodyError
        from airflow_custody.client.text import sanitize

        facts = event if isinstance(event, dict) else {}
        status = facts.get("status")
        result: dict[str, Any] | None = None
        error: CustodyError | None = None
        try:
            if status == self.target_state:
                result = facts["result"]
                message = self._success_message(result)
            elif status == "error":
                error = CustodyError.from_json(facts["error"])
        except (AttributeError, LookupError, TypeError, ValueError):
            # It lacks what such an event has.
            result = None
        if result is not None:
            found = self._poll_again(result)
            if found is None:
                self.log.info("%s", message)
            return found or result
        if error is not None:
            raise error
        if status == "timeout":
            self._last_result = str(facts.get("message") or "")
            raise AirflowSensorTimeout(f"Not {self.target_state} within {self.timeout:g} s.")
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
        every error after a deferral. So the setting is hidden from it. A time-out while something is unverified is an
        error.
        """
        soft_fail, self.soft_fail = self.soft_fail, False
        try:
            with failing_task(self):
                try:
                    yield
                except (AirflowSensorTimeout, AirflowTaskTimeout):
                    if (error := self._unverified_error()) is not None:
                        raise error from None
                    raise
        except (AirflowSensorTimeout, AirflowTaskTimeout) as timeout:
            message = f"{timeout} Last result: {self._last_result}" if self._last_result else str(timeout)
            from airflow_custody.client.error_codes import label

            message = f"{message} {label('wait-timed-out')}"
            if soft_fail:
                raise AirflowSkipException(message) from None
            self.log.error("%s", message)
            raise type(timeout)(message) from None
        finally:
            self.soft_fail = soft_fail
            self.hook.close()
