"""The sensor that waits until the service is healthy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import conf

from airflow_custody._base import NOT_GIVEN
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sensors._base import CustodySensor

if TYPE_CHECKING:
    from airflow.triggers.base import StartTriggerArgs

    from airflow_custody.client.health.verdict import HealthWait
    from airflow_custody.client.wait_state import WaitState
    from airflow_custody.triggers.health import CustodyHealthTrigger

_TRIGGER = "airflow_custody.triggers.health.CustodyHealthTrigger"


class CustodyHealthSensor(CustodySensor):
    """
    Wait until the custody service is healthy.

    Judges as :class:`~airflow_custody.operators.health.CustodyHealthCheckOperator` does, and gives the same result
    and the same value in every mode. While it waits, a connection failure, a truncated response, a 5xx or a 429 is "not
    yet". A wrong token, a missing role, a wrong setting, a 404 or a response that cannot be understood ends the wait at
    once, and so does, at the first poll, a host that does not exist. So does a name in ``groups``,
    ``components``, ``checks`` or ``require_results`` that is missing from two listings in a row: the error names those
    that exist.
    ``soft_fail`` turns a time-out into a skip, and nothing else: an error fails the task in every mode.
    ``never_fail`` and ``silent_fail`` would hide errors and are refused.

    Deferrable, it polls once and then waits in the triggerer. Killing the task ends the wait; nothing is left at the
    service. Needs the role ``TPUser``.

    :param custody_conn_id: id of the Airflow connection. (templated)
    :param tenant_id: only the checks of this tenant; default: of all. (templated)
    :param groups: only checks of these groups, by exact name; default: of all. (templated)
    :param components: only checks of these components, by exact name; default: of all. (templated)
    :param checks: only checks of these names; default: all. (templated)
    :param require_results: keys, for example currency codes, that some check must report and that must be healthy
        wherever they are reported. (templated)
    :param healthy_statuses: status words that count as healthy, compared without case. Default ``success``.
        (templated)
    :param require_fresh: whether a check past its ``validUntilDate`` counts as not healthy. Default True.
    :param deferrable: whether to wait in the triggerer instead of a worker. Default: ``[operators]
        default_deferrable``.
    :param start_from_trigger: with ``deferrable``: whether to begin in the triggerer, so that no worker slot is taken
        for the first poll. Parameters may then be text and templates, on Airflow 2 no templates, and not an upstream
        task's output. A mapped sensor begins in a worker. Airflow 3.3 gives such a trigger no queue, so no triggerer
        with ``--queues`` takes it. Default False.
    :param poke_interval: seconds between two polls. Default 60. ``exponential_backoff`` and ``max_wait`` have an effect
        only in a worker.
    :param timeout: seconds after which the sensor gives up. ``execution_timeout`` does not end it while it is deferred:
        Airflow applies that only while a worker runs the task.
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
    target_state = "healthy"
    #: A service that is just starting may not list everything yet.
    recheck_delay: ClassVar[float] = 10.0

    # None for the class: a mapped sensor has only that, which knows nothing of its parameters. It begins in a worker.
    start_trigger_args: StartTriggerArgs | None = None
    start_from_trigger = False

    def __init__(
        self,
        *,
        custody_conn_id: str = CustodyHook.default_conn_name,
        tenant_id: str | None = NOT_GIVEN,
        groups: Iterable[str] | None = NOT_GIVEN,
        components: Iterable[str] | None = NOT_GIVEN,
        checks: Iterable[str] | None = NOT_GIVEN,
        require_results: Iterable[str] | None = NOT_GIVEN,
        healthy_statuses: Iterable[str] = ("success",),
        require_fresh: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_from_trigger: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, deferrable=deferrable, **kwargs)
        self.tenant_id = tenant_id
        self.groups = groups
        self.components = components
        self.checks = checks
        self.require_results = require_results
        self.healthy_statuses = healthy_statuses
        self.require_fresh = require_fresh
        self._check_flags(require_fresh=require_fresh, start_from_trigger=start_from_trigger)
        begins_in_trigger = deferrable and start_from_trigger
        if begins_in_trigger:
            # The trigger is made of them now.
            self._leave_out()
        for name in self.template_fields if begins_in_trigger else ():
            if not _is_plain(getattr(self, name)):
                self._refuse(f"{name}: with start_from_trigger it must be text, a template, or a list of these")
        self.start_from_trigger = begins_in_trigger and not self._refused
        if self.start_from_trigger:
            from airflow.triggers.base import StartTriggerArgs

            # The deadline is the scheduler's here, which keeps it as wall-clock time; nobody can work one out before
            # the run begins.
            self.start_trigger_args = StartTriggerArgs(
                trigger_cls=_TRIGGER,
                trigger_kwargs=self._trigger(deadline=None).serialize()[1],
                next_method="execute_complete",
                next_kwargs=None,
                timeout=timedelta(seconds=self.timeout),
            )

    @cached_property
    def _wait(self) -> HealthWait:
        from airflow_custody.client.health.verdict import HealthCriteria, HealthWait

        return HealthWait(HealthCriteria.from_fields(self))

    def _poll(self) -> WaitState:
        return self._wait.update(self.hook.check_health)

    def _trigger(self, deadline: float | None) -> CustodyHealthTrigger:
        from airflow_custody.triggers.health import CustodyHealthTrigger

        criteria = {name: getattr(self, name) for name in (*self.template_fields, "require_fresh")}
        return CustodyHealthTrigger(**criteria, poke_interval=self.poke_interval, deadline=deadline)


def _is_plain(value: Any) -> bool:
    """Tell whether a value is there when the DAG file is read: nobody resolves an upstream task for the triggerer."""
    return (
        value is None
        or isinstance(value, (str, int))
        or (isinstance(value, (list, tuple, set)) and all(map(_is_plain, value)))
    )
