"""The tenant's currencies and configuration."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_custody.client.wire import LENIENT, TypedDict


class WireCurrency(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    id: str | None
    name: str | None
    symbol: str | None
    displayName: str | None
    type: str | None
    blockchain: str | None
    network: str | None
    decimals: str | None
    isToken: bool | None
    isFiat: bool | None
    enabled: bool | None


class WireCurrencies(TypedDict, total=False):
    result: list[WireCurrency] | None


class WireTenantConfig(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    tenantId: str | None
    superAdminMinimumSignatures: str | None
    protectEngineVersion: str | None
    restrictSourcesForWhitelistedAddresses: bool | None
    isMFAMandatory: bool | None


class WireTenantConfigResponse(WireTenantConfig, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    config: WireTenantConfig | None


@dataclass(frozen=True)
class Currency:
    """
    A currency of the tenant. Texts that the service leaves out are empty.

    :param id: its id.
    :param symbol: its symbol, such as ``ETH``.
    :param name: its name.
    :param display_name: its name for people.
    :param type: kind of the currency, as the service names it.
    :param blockchain: the chain that it belongs to.
    :param network: the network of the chain.
    :param decimals: number of decimal places, as text.
    :param is_token: whether it is a token on a chain.
    :param is_fiat: whether it is a fiat currency.
    :param enabled: whether it is active. The service leaves out false values.
    """

    id: str = ""
    symbol: str = ""
    name: str = ""
    display_name: str = ""
    type: str = ""
    blockchain: str = ""
    network: str = ""
    decimals: str = ""
    is_token: bool = False
    is_fiat: bool = False
    enabled: bool = False

    @classmethod
    def read(cls, wire: WireCurrency) -> Currency:
        """Return a currency as the service lists it."""
        return cls(
            id=wire.get("id") or "",
            symbol=wire.get("symbol") or "",
            name=wire.get("name") or "",
            display_name=wire.get("displayName") or "",
            type=wire.get("type") or "",
            blockchain=wire.get("blockchain") or "",
            network=wire.get("network") or "",
            decimals=wire.get("decimals") or "",
            is_token=bool(wire.get("isToken")),
            is_fiat=bool(wire.get("isFiat")),
            enabled=bool(wire.get("enabled")),
        )

    @property
    def is_chain(self) -> bool:
        """Whether it is a chain's own currency, and not a token or a fiat currency."""
        return not self.is_token and not self.is_fiat


@dataclass(frozen=True)
class TenantConfig:
    """
    The configuration of the tenant. Texts that the service leaves out are empty.

    :param tenant_id: the tenant's id.
    :param superadmin_minimum: number of super-administrators who must sign the rules; None: not reported. Compare it
        with the pins. Never copy it into the pins, because the pins are there to check the service.
    :param version: the version of the service.
    :param restricts_sources: whether whitelisted addresses may have restricted sources.
    :param is_mfa_mandatory: whether users must sign in with a second factor.
    """

    tenant_id: str = ""
    superadmin_minimum: int | None = None
    version: str = ""
    restricts_sources: bool = False
    is_mfa_mandatory: bool = False
