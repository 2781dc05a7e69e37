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
    from airflow.providers.common.compat.sdk import XComArg
    from airflow.triggers.base import StartTriggerArgs

    from airflow_custody.client.health.verdict import HealthWait
    from airflow_custody.client.wait_state import WaitState
    from airflow_custody.triggers.health import CustodyHealthTrigger

_TRIGGER = "airflow_custody.triggers.health.CustodyHealthTrigger"


class CustodyHealthSensor(CustodySensor):
    """
    Wait until the custody service is healthy.

    The criteria and the result are the same as for
    :class:`~airflow_custody.operators.health.CustodyHealthCheckOperator`, in every mode. A connection failure, a
    truncated response, a 5xx or a 429 counts as "not yet". The task fails at once if the token is wrong, a role is
    missing, a setting is wrong, the response is a 404 or has an unexpected form, or a host name does not exist at the
    first poll. It also fails if a name in ``groups``, ``components``, ``checks`` or ``require_results`` is missing from
    two listings in a row; the error lists the existing names. A missing key in ``require_results`` has this effect only
    if all evaluated checks are healthy, because an unhealthy check may not report its results.

    With ``soft_fail``, a timeout skips the task. All other errors fail the task in every mode. ``never_fail`` and
    ``silent_fail`` are refused, because they would hide errors.

    A deferrable sensor polls once in a worker, and then waits in the triggerer. Killing the task ends the wait, and has
    no effect on the service. The user needs the role ``TPUser``.

    :param custody_conn_id: id of the Airflow connection. (templated)
    :param tenant_id: id of the tenant whose checks are evaluated. Default: all tenants. (templated)
    :param groups: exact names of the groups whose checks are evaluated. Default: all groups. (templated)
    :param components: exact names of the components whose checks are evaluated. Default: all components. (templated)
    :param checks: names of the checks that are evaluated. Default: all checks. (templated)
    :param require_results: keys, such as currency codes. At least one check must report each key, and every check that
        reports it must report it as healthy. Default: none. (templated)
    :param healthy_statuses: status words that count as healthy, compared without regard to case. Default ``success``.
        (templated)
    :param require_fresh: whether a check past its ``validUntilDate`` counts as not healthy. Default True.
    :param deferrable: whether to wait in the triggerer instead of a worker. Default: ``[operators]
        default_deferrable``.
    :param start_from_trigger: whether a deferrable sensor starts in the triggerer, so that even the first poll needs
        no worker slot. Parameters must then be text or templates (on Airflow 2, text only), and not an upstream
        task's output, and ``omit_if_none`` cannot be used. A mapped sensor still starts in a worker. On Airflow 3.3,
        such a trigger has no queue, so a triggerer with ``--queues`` does not run it. Default False.
    :param poke_interval: seconds between two polls. Default 60. ``exponential_backoff`` and ``max_wait`` only have an
        effect in a worker.
    :param timeout: seconds until the sensor times out. Airflow applies ``execution_timeout`` only while a worker runs
        the task, so it does not end a deferred sensor.
    :param mode: ``poke`` or ``reschedule``, if not deferrable.
    :return: the verdict as plain JSON, the same as the operator's.
    :raises AirflowSensorTimeout: if the service is not healthy in time.
    :raises AirflowSkipException: if the service is not healthy in time, and ``soft_fail`` is True.
    :raises AirflowFailException: if a name does not exist, a setting is wrong, or the service refuses the listing.
    :raises CustodyError: if the host name does not exist at the first poll; Airflow's retries apply.
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
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "groups": "json",
        "components": "json",
        "checks": "json",
        "require_results": "json",
        "healthy_statuses": "json",
    }
    ui_color = "#dcecf5"
    target_state = "healthy"
    #: Seconds until the second listing if a name is missing, because a starting service may not list everything yet.
    recheck_delay: ClassVar[float] = 10.0

    # This must be None in the class: Airflow reads it from the class for a mapped sensor, which starts in a worker.
    start_trigger_args: StartTriggerArgs | None = None
    start_from_trigger = False

    def __init__(
        self,
        *,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        tenant_id: str | XComArg | None = NOT_GIVEN,
        groups: Iterable[str] | XComArg | None = NOT_GIVEN,
        components: Iterable[str] | XComArg | None = NOT_GIVEN,
        checks: Iterable[str] | XComArg | None = NOT_GIVEN,
        require_results: Iterable[str] | XComArg | None = NOT_GIVEN,
        healthy_statuses: Iterable[str] | XComArg = ("success",),
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
        # A mapped sensor starts in a worker.
        begins_in_trigger = deferrable and start_from_trigger and self._mapped_arguments is None
        if begins_in_trigger and self.omit_if_none:
            self._refuse("omit_if_none cannot be used with start_from_trigger, because the trigger refuses None")
        for name in self.template_fields if begins_in_trigger else ():
            if not _is_plain(getattr(self, name)):
                self._refuse(f"{name}: with start_from_trigger, it must be text, a template, or a list of texts")
        self.start_from_trigger = begins_in_trigger and not self._refused
        if self.start_from_trigger:
            from airflow.triggers.base import StartTriggerArgs

            # Let the scheduler enforce `timeout`, because the trigger's deadline cannot be computed before the run.
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

        fields = {name: getattr(self, name) for name in (*self.template_fields, "require_fresh")}
        # With start_from_trigger, the fields are not checked yet, and may still be NOT_GIVEN.
        criteria: dict[str, Any] = {name: None if value is NOT_GIVEN else value for name, value in fields.items()}
        return CustodyHealthTrigger(**criteria, poke_interval=self.poke_interval, deadline=deadline)


def _is_plain(value: Any) -> bool:
    """Tell whether a value is known when the DAG file is parsed."""
    return (
        value is None
        or value is NOT_GIVEN
        or isinstance(value, (str, int))
        or (isinstance(value, (list, tuple, set)) and all(map(_is_plain, value)))
    )
