"""Sensors that wait for the service's health."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
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
    conf,
)
from airflow.triggers.base import StartTriggerArgs

from airflow_custody.client.errors import TRANSIENT_ERRORS, CustodyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.task_failures import failing_the_task, use_custody_retry_policy

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.triggers.health import CustodyHealthTrigger

_TRIGGER = "airflow_custody.triggers.health.CustodyHealthTrigger"
# Airflow's own time-out of a deferral is a backstop for a triggerer that is down. It must not come before the
# trigger's, which knows what was seen last.
_BACKSTOP = timedelta(minutes=5)
# How Airflow 2 and 3 say that a deferral timed out.
_DEFERRAL_TIMEOUTS = ("Trigger/execution timeout", "Trigger timeout")


class CustodyHealthSensor(BaseSensorOperator):
    """
    Wait until the custody service is healthy.

    Judges as :class:`~airflow_custody.operators.health.CustodyHealthCheckOperator` does, and gives the same result
    and the same value in every mode. While it waits, a connection failure, a 5xx or a 429 is "not yet". A wrong
    token, a missing role, a wrong setting, a 404 or an answer that cannot be understood ends the wait at once.
    ``soft_fail`` turns a time-out into a skip, and nothing else: an error fails the task in every mode.
    ``never_fail`` and ``silent_fail`` would hide errors and are refused.

    Deferrable, it looks once and then waits in the triggerer. Killing the task ends the wait; nothing is left at the
    service.

    :param custody_conn_id: id of the Airflow connection. (templated)
    :param tenant_id: only the checks of this tenant; None (default): of all. (templated)
    :param groups: only checks of these groups, by exact name; None (default): of all. (templated)
    :param components: only checks of these components, by exact name; None (default): of all. (templated)
    :param checks: only checks of these names; None (default): all. (templated)
    :param require_results: keys, say currency codes, that some check must report and that must be healthy wherever
        they are reported. (templated)
    :param healthy_statuses: status words that count as healthy, compared without case. Default ``success``.
        (templated)
    :param require_fresh: whether a check past its ``validUntilDate`` counts as not healthy. Default True.
    :param deferrable: whether to wait in the triggerer instead of a worker. Default: ``[operators]
        default_deferrable``.
    :param start_from_trigger: with ``deferrable``: whether to begin in the triggerer, so that no worker slot is taken
        for the first look. On Airflow 2 the parameters may then hold no templates. Default False.
    :param poke_interval: seconds between two looks. Default 60.
    :param timeout: seconds after which the sensor gives up.
    :param mode: ``poke`` or ``reschedule``, if not deferrable.
    :return: the verdict as plain JSON, as the operator returns it.
    :raises AirflowSensorTimeout: if the service is not healthy in time.
    """

    template_fields: Sequence[str] = (
        "custody_conn_id",
        "tenant_id",
        "groups",
        "components",
        "checks",
        "require_results",
        "healthy_statuses",
    )
    ui_color = "#dcecf5"

    start_trigger_args = StartTriggerArgs(
        trigger_cls=_TRIGGER,
        trigger_kwargs={},
        next_method="execute_complete",
        next_kwargs=None,
        timeout=None,
    )
    start_from_trigger = False

    def __init__(
        self,
        *,
        custody_conn_id: str = CustodyHook.default_conn_name,
        tenant_id: str | None = None,
        groups: Iterable[str] | None = None,
        components: Iterable[str] | None = None,
        checks: Iterable[str] | None = None,
        require_results: Iterable[str] | None = None,
        healthy_statuses: Iterable[str] = ("success",),
        require_fresh: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_from_trigger: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        if self.never_fail or self.silent_fail:
            raise ValueError("never_fail and silent_fail would hide errors of a custody gate; use soft_fail")
        self.custody_conn_id = custody_conn_id
        self.tenant_id = tenant_id
        self.groups = groups
        self.components = components
        self.checks = checks
        self.require_results = require_results
        self.healthy_statuses = healthy_statuses
        self.require_fresh = require_fresh
        self.deferrable = deferrable
        self.start_from_trigger = deferrable and start_from_trigger
        if self.start_from_trigger:
            # Replaced, not changed: the class attribute belongs to all sensors. The deadline is the scheduler's
            # here, which keeps it as wall-clock time; nobody can work one out before the run begins.
            self.start_trigger_args = StartTriggerArgs(
                trigger_cls=_TRIGGER,
                trigger_kwargs=self._trigger_arguments(),
                next_method="execute_complete",
                next_kwargs=None,
                timeout=timedelta(seconds=self.timeout),
            )
        self._last_seen = ""

    @cached_property
    def hook(self) -> CustodyHook:
        """The hook, kept for as long as the sensor pokes."""
        return CustodyHook(self.custody_conn_id)

    def poke(self, context: Context) -> PokeReturnValue | bool:
        """Look once: True with the verdict if the service is healthy, False if it is not yet."""
        from airflow_custody.client.health import HealthCriteria

        try:
            verdict = self.hook.check_health(HealthCriteria.of(self))
        except TRANSIENT_ERRORS as error:
            if not error.retryable:
                raise
            self._last_seen = str(error)
            self.log.warning("Not yet: %s", error)
            return False
        self._last_seen = verdict.summary()
        if not verdict.healthy:
            self.log.info("Not yet: %s", self._last_seen)
            return False
        for line in verdict.table():
            self.log.info("%s", line)
        self.log.info("Custody: %s", self._last_seen)
        return PokeReturnValue(is_done=True, xcom_value=verdict.to_json())

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
                raise AirflowSensorTimeout(f"Not healthy within {self.timeout:g} s.")
            self.defer(
                trigger=self._trigger(deadline=started + self.timeout),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout + self.poke_interval) + _BACKSTOP,
            )

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Take what the trigger found: return the verdict, or raise what ended the wait."""
        status = (event or {}).get("status")
        if event is not None and status == "healthy":
            result: dict[str, Any] = event["result"]
            self.log.info("Custody: the service is healthy: all %s checks are.", result["total"])
            return result
        if event is not None and status == "timeout":
            self._last_seen = event["message"]
            raise AirflowSensorTimeout(f"Not healthy within {self.timeout:g} s.")
        if event is not None and status == "error":
            raise CustodyError.from_json(event["error"])
        raise CustodyError(f"the trigger sent an event that is not understood: {event!r}", retryable=True)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Come back from the triggerer; a deferral that Airflow itself timed out is a time-out like any other."""
        with self._endings():
            if next_method == "__fail__" and (next_kwargs or {}).get("error") in _DEFERRAL_TIMEOUTS:
                raise AirflowSensorTimeout(f"Not healthy within {self.timeout:g} s.")
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

    def _trigger(self, deadline: float) -> CustodyHealthTrigger:
        from airflow_custody.triggers.health import CustodyHealthTrigger

        return CustodyHealthTrigger(**self._trigger_arguments(), deadline=deadline)

    def _trigger_arguments(self) -> dict[str, Any]:
        names = (*self.template_fields, "require_fresh", "poke_interval", "exponential_backoff")
        arguments = {name: getattr(self, name) for name in names}
        for name, value in arguments.items():
            if isinstance(value, (tuple, set, frozenset)):
                arguments[name] = list(value)
        arguments["max_wait"] = None if self.max_wait is None else self.max_wait.total_seconds()
        return arguments
