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
    from airflow.providers.common.compat.sdk import Context


class CustodyHealthCheckOperator(CustodyOperator):
    """
    Check that the custody service is healthy, and fail if it is not.

    The service is healthy if at least one health check is left after filtering, and each of them has a status that
    counts as healthy, a report that says the same (where it has one), and a result that is still valid. Whatever
    is missing or unknown is not healthy. The health listing exists from version 3.14 of the service on, and needs the
    role ``TPUser``.

    An unhealthy service is left to the task's retries. A wrong token, a missing role or a wrong setting fails at once.
    So does a name in ``groups``, ``components``, ``checks`` or ``require_results`` that is missing from two listings,
    ten seconds apart, whatever ``fail_when_unhealthy`` says: the error names those that exist.

    :param custody_conn_id: id of the Airflow connection. (templated)
    :param tenant_id: only the checks of this tenant; default: of all. (templated)
    :param groups: only checks of these groups, by exact name; default: of all. (templated)
    :param components: only checks of these components, by exact name; default: of all. (templated)
    :param checks: only checks of these names; default: all. (templated)
    :param require_results: keys, for example currency codes, that some check must report and that must be healthy
        wherever they are reported. (templated)
    :param healthy_statuses: status words that count as healthy, compared without case; the only one ever observed
        is ``success``, the default. (templated)
    :param require_fresh: whether a check past its ``validUntilDate`` counts as not healthy. Default True.
    :param fail_when_unhealthy: whether to fail if it is unhealthy; False: return the verdict either way. Default True.
    :return: plain JSON, small whatever is listed: ``healthy``, ``total`` and ``unhealthy`` (numbers of checks),
        ``groups`` (both numbers for each), ``problems`` (the first 20, with their reasons),
        ``oldest_result_age_seconds``, ``fetched_at``.
    :raises CustodyUnhealthyError: if the service is not healthy.
    :raises CustodyRequestError: if a name does not exist.
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
    #: Seconds between two listings, if the first lacks a name: a service that is just starting may not list everything.
    recheck_delay: ClassVar[float] = 10.0

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
