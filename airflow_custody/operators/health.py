"""The operator that checks the service's health."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody._base import NOT_GIVEN
from airflow_custody.client.errors import CustodyUnhealthyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg


class CustodyHealthCheckOperator(CustodyOperator):
    """
    Check that the custody service is healthy, and fail otherwise.

    The service is healthy if at least one health check matches the filters, and every matching check has a healthy
    status, a report that agrees with the status (if there is a report), and a result that is still valid. Missing or
    unknown data is not healthy. Needs the role ``TPUser``, and version 3.14 of the service or later.

    If the service is unhealthy, Airflow's retries apply. A wrong token, a missing role or a wrong setting fails the
    task at once, without retries. The same is true of a name in ``groups``, ``components``, ``checks`` or
    ``require_results`` that is missing from two listings, ten seconds apart, even with ``fail_when_unhealthy=False``;
    the error lists the existing names. A missing name in ``require_results`` has this effect only if all evaluated
    checks are healthy, because an unhealthy check may lack its results.

    :param custody_conn_id: id of the Airflow connection. (templated)
    :param tenant_id: id of the tenant whose checks are evaluated. Default: all tenants. (templated)
    :param groups: exact names of the groups whose checks are evaluated. Default: all groups. (templated)
    :param components: exact names of the components whose checks are evaluated. Default: all components. (templated)
    :param checks: names of the checks that are evaluated. Default: all checks. (templated)
    :param require_results: keys, such as currency codes. At least one check must report each key, and every check that
        reports it must report it as healthy. Default: none. (templated)
    :param healthy_statuses: status words that count as healthy, compared without regard to case. Default ``success``,
        the only healthy word observed so far. (templated)
    :param require_fresh: whether a check past its ``validUntilDate`` counts as not healthy. Default True.
    :param fail_when_unhealthy: whether the task fails if the service is unhealthy. False: it succeeds, and returns the
        verdict. Default True.
    :return: a short verdict as plain JSON: ``healthy``, ``total`` and ``unhealthy`` (numbers of checks), ``groups``
        (``total`` and ``unhealthy`` for each group), ``problems`` (the first 50, each with its reason and the fields of
        the check), ``problems_not_named`` (the number of further problems), ``oldest_result_age_seconds``,
        ``fetched_at``.
    :raises CustodyUnhealthyError: if the service is not healthy; Airflow's retries apply.
    :raises CustodyError: if the service does not respond as it should; Airflow's retries apply.
    :raises AirflowFailException: if a name does not exist, a setting is wrong, or the service refuses the listing.
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
    #: Seconds until the second listing if a name is missing, because a service that has just started may not list all
    #: checks yet.
    recheck_delay: ClassVar[float] = 10.0

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
        fail_when_unhealthy: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_flags(require_fresh=require_fresh, fail_when_unhealthy=fail_when_unhealthy)
        self.tenant_id = tenant_id
        self.groups = groups
        self.components = components
        self.checks = checks
        self.require_results = require_results
        self.healthy_statuses = healthy_statuses
        self.require_fresh = require_fresh
        self.fail_when_unhealthy = fail_when_unhealthy

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.health.verdict import HealthCriteria, HealthWait

        wait = HealthWait(HealthCriteria.from_fields(self))
        state = wait.update(hook.check_health)
        if state.in_doubt:
            self.log.warning("Custody: %s. Reading again in %g s.", state.summary, self.recheck_delay)
            time.sleep(self.recheck_delay)
            state = wait.update(hook.check_health)
        if state.error is not None:
            raise state.error
        for line in wait.verdict.table():
            self.log.info("%s", line)
        if state.is_done:
            self.log.info("Custody: %s", state.summary)
        elif self.fail_when_unhealthy:
            raise CustodyUnhealthyError(state.summary)
        else:
            self.log.warning("Custody: %s", state.summary)
        return dict(state.result)
