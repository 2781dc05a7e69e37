"""What all sensors share: waiting in a worker or in the triggerer, and ending the same way in both."""

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

from airflow_custody.client.errors import TRANSIENT_ERRORS, CustodyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.task_failures import failing_the_task, use_custody_retry_policy

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.triggers.base import BaseTrigger

# Airflow's own time-out of a deferral is a backstop for a triggerer that is down. It must not come before the
# trigger's, which knows what was seen last.
_BACKSTOP = timedelta(minutes=5)
# How Airflow 2 and 3 say that a deferral timed out.
_DEFERRAL_TIMEOUTS = ("Trigger/execution timeout", "Trigger timeout")


class CustodySensor(BaseSensorOperator):
    """
    Wait for something at the custody service; the base of the sensors.

    :param custody_conn_id: id of the Airflow connection.
    :param deferrable: whether to wait in the triggerer instead of a worker.
    """

    #: What is waited for: the word in messages, and the status of the trigger's good event.
    awaited = ""

    def __init__(self, *, custody_conn_id: str, deferrable: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        if self.never_fail or self.silent_fail:
            raise ValueError("never_fail and silent_fail would hide errors of a custody gate; use soft_fail")
        self.custody_conn_id = custody_conn_id
        self.deferrable = deferrable
        self._last_seen = ""

    @abstractmethod
    def _look(self) -> PokeReturnValue | bool:
        """Look once: True with the verdict if what is awaited is there, False if it is not yet."""

    @abstractmethod
    def told(self, result: dict[str, Any]) -> str:
        """Say what the trigger found."""

    @abstractmethod
    def _trigger(self, deadline: float) -> BaseTrigger:
        """Return the trigger that waits until a moment in Unix time."""

    @cached_property
    def hook(self) -> CustodyHook:
        """The hook, kept for as long as the sensor pokes."""
        return CustodyHook(self.custody_conn_id)

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Look once; a service that is away or busy is "not yet"."""
        try:
            return self._look()
        except TRANSIENT_ERRORS as error:
            if not error.retryable:
                raise
            self._last_seen = str(error)
            self.log.warning("Not yet: %s", error)
            return False

    def execute(self, context: Context) -> Any:
        """Wait in the worker, or look once and wait in the triggerer."""
        with self._endings():
            if not self.deferrable:
                return super().execute(context)
            started = time.time()
            looked = self.poke(context)
            if isinstance(looked, PokeReturnValue):
                return looked.xcom_value
            if time.time() - started > self.timeout:
                raise AirflowSensorTimeout(f"Not {self.awaited} within {self.timeout:g} s.")
            self.defer(
                trigger=self._trigger(deadline=started + self.timeout),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout + self.poke_interval) + _BACKSTOP,
            )

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Take what the trigger found: return the verdict, or raise what ended the wait."""
        status = (event or {}).get("status")
        if event is not None and status == self.awaited:
            result: dict[str, Any] = event["result"]
            self.log.info("%s", self.told(result))
            return result
        if event is not None and status == "timeout":
            self._last_seen = event["message"]
            raise AirflowSensorTimeout(f"Not {self.awaited} within {self.timeout:g} s.")
        if event is not None and status == "error":
            raise CustodyError.from_json(event["error"])
        raise CustodyError(f"the trigger sent an event that is not understood: {event!r}", retryable=True)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Come back from the triggerer; a deferral that Airflow itself timed out is a time-out like any other."""
        with self._endings():
            if next_method == "__fail__" and (next_kwargs or {}).get("error") in _DEFERRAL_TIMEOUTS:
                raise AirflowSensorTimeout(f"Not {self.awaited} within {self.timeout:g} s.")
            return super().resume_execution(next_method, next_kwargs, context)

    @contextmanager
    def _endings(self) -> Iterator[None]:
        """
        End the task the same way in every mode.

        Airflow's own handling of ``soft_fail`` differs between them: it skips on failures in poke mode, and on
        every error after a deferral. So it does not get to see the setting.
        """
        soft_fail, self.soft_fail = self.soft_fail, False
        try:
            with failing_the_task(self):
                yield
        except (AirflowSensorTimeout, AirflowTaskTimeout) as timeout:
            message = f"{timeout} Last seen: {self._last_seen}" if self._last_seen else str(timeout)
            if soft_fail:
                raise AirflowSkipException(message) from timeout
            raise type(timeout)(message) from timeout
        finally:
            self.soft_fail = soft_fail
            self.hook.close()
