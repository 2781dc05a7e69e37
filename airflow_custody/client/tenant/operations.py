"""The operations on the tenant."""

from __future__ import annotations

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.tenant.models import Currency, TenantConfig, WireCurrencies, WireTenantConfigResponse
from airflow_custody.client.text import read_number

# The vendor's publications name no role for these operations.
LIST_CURRENCIES = Operation("list currencies", "GET", "/currencies", documented=False, optional=True)
GET_TENANT_CONFIG = Operation("get tenant config", "GET", "/config/tenant", documented=False, optional=True)


class TenantOperations(ServiceOperations):
    """The operations on the tenant."""

    def list_currencies(self, show_disabled: bool = True) -> list[Currency]:
        """
        List the tenant's currencies, chains and tokens alike: ``GET /currencies`` (undocumented).

        :param show_disabled: whether to list currencies that are not active, too. Default True.
        :return: the currencies, in the service's order; an empty list is a valid response.
        """
        query = {"showDisabled": "true"} if show_disabled else {}
        reply = self._transport.call(LIST_CURRENCIES, WireCurrencies, query=query)
        reply.require_any_key("result")
        return [Currency.read(each) for each in reply.body.get("result") or ()]

    def get_tenant_config(self) -> TenantConfig:
        """
        Get the tenant's configuration: ``GET /config/tenant`` (undocumented).

        The configuration is not signed. Compare it with the pins, but never copy pins from it.

        :raises CustodyResponseError: if the response does not name the tenant, or a number cannot be read.
        """
        reply = self._transport.call(GET_TENANT_CONFIG, WireTenantConfigResponse)
        # It is not published whether the fields are at the top level or in an object, so accept both.
        config = reply.body.get("config") or reply.body
        if not config.get("tenantId"):
            raise reply.unexpected("it has no 'tenantId'")
        text = config.get("superAdminMinimumSignatures")
        minimum = read_number(text, MAX_ID) if text else None
        if text and minimum is None:
            raise reply.unexpected("its 'superAdminMinimumSignatures' is not a number")
        return TenantConfig(
            tenant_id=config.get("tenantId") or "",
            superadmin_minimum=minimum,
            version=config.get("protectEngineVersion") or "",
            restricts_sources=bool(config.get("restrictSourcesForWhitelistedAddresses")),
            is_mfa_mandatory=bool(config.get("isMFAMandatory")),
        )
