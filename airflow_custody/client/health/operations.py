"""The operations of the health listing."""

from __future__ import annotations

from airflow_custody.client.arguments import describe, identifier_fault
from airflow_custody.client.health.models import HealthCheck, HealthListing, WireHealthListing
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.text import has_unprintable

LIST_HEALTH_CHECKS = Operation(
    "list health checks",
    "GET",
    "/health",
    roles=("TPUser",),
    hints={
        404: "The health listing requires version 3.14 of the service or later. This service is older, or the base "
        "URL is wrong."
    },
)


class HealthOperations(ServiceOperations):
    """The operations of the health listing."""

    def list_health_checks(self, tenant_id: str | None = None) -> HealthListing:
        """
        List the service's health checks: ``GET /health``.

        The listing requires version 3.14 of the service or later.

        :param tenant_id: id of the tenant whose checks are listed; None (default): the checks of all tenants.
        :return: the entries in the order of the response; an empty list is a valid response. An unreadable group
            has one entry, whose :attr:`HealthCheck.is_readable` is false. The list's ``is_blank`` is true if the
            response was ``{}``.
        :raises CustodyNotFoundError: from a service before version 3.14.
        """
        query = {} if tenant_id is None else {"tenantId": _check_tenant_id(tenant_id)}
        reply = self._transport.call(LIST_HEALTH_CHECKS, WireHealthListing, query=query)
        reply.require_any_key("groups")
        checks = HealthListing(is_blank=reply.response.says_nothing, date=reply.response.date)
        for name, group in (reply.body.get("groups") or {}).items():
            if group is None or (group and "healthChecks" not in group):
                checks.append(HealthCheck({}, name, is_readable=False))
            else:
                checks += [HealthCheck(entry, name) for entry in group.get("healthChecks") or ()]
        return checks


def _check_tenant_id(tenant_id: object) -> str:
    if identifier_fault(tenant_id) is None:
        text = str(tenant_id)
        is_stripped = text != "" and text == text.strip()
        if is_stripped and not has_unprintable(text):
            return text
    raise LIST_HEALTH_CHECKS.refused(f"the tenant id must be a tenant's number, not {describe(tenant_id)}")
