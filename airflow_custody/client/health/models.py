"""The health listing, as the service sends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.wire import KEEPING_OTHERS, LENIENT, TypedDict

# The listing is read into TypedDicts, because pydantic's models would take half as long again. HealthCheck adds
# attributes, which are converted on access.


class WireHealthReport(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    name: str | None
    status: str | None
    duration: str | None
    results: dict[str, str | None] | None
    message: str | None
    error: str | None
    vaultdClients: list[dict[str, Any]] | None


class WireHealthCheck(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    tenantId: str | None
    componentName: str | None
    componentId: str | None
    group: str | None
    healthCheck: str | None
    status: str | None
    report: WireHealthReport | None
    lastUpdateDate: str | None
    validUntilDate: str | None


class WireHealthGroup(TypedDict, total=False):
    # Other keys are kept, so that an unreadable group is not taken for an empty one.
    __pydantic_config__ = KEEPING_OTHERS  # type: ignore[misc]
    healthChecks: list[WireHealthCheck] | None


class WireHealthListing(TypedDict, total=False):
    groups: dict[str, WireHealthGroup | None] | None


@dataclass(slots=True, eq=False)
class HealthCheck:
    """
    One entry of the health listing, in the service's own words.

    Missing values are None.

    :param wire: the entry as it was sent, with the service's names.
    :param listed_under: the group in which it is listed.
    :param is_readable: whether its group is readable. If not, this entry stands for the whole group. Default True.
    """

    wire: WireHealthCheck
    listed_under: str
    is_readable: bool = True

    @property
    def tenant_id(self) -> str | None:
        """The tenant: a decimal number in a string."""
        return self.wire.get("tenantId")

    @property
    def component_name(self) -> str | None:
        """The component that was checked."""
        return self.wire.get("componentName")

    @property
    def health_check(self) -> str | None:
        """The name of the check."""
        return self.wire.get("healthCheck")

    @property
    def status(self) -> str | None:
        """The status word, as sent."""
        return self.wire.get("status")

    @property
    def report(self) -> WireHealthReport | None:
        """
        The check's report, as the service sent it.

        It has ``status``, ``results``, ``message``, ``error`` and more.
        """
        return self.wire.get("report")

    @property
    def last_update_date(self) -> datetime | None:
        """Time of the check's last run; None if unreadable or missing."""
        return parse_timestamp(self.wire.get("lastUpdateDate"))


class HealthListing(list[HealthCheck]):
    """
    The entries of a health listing, in the order of the response.

    :param is_blank: whether the response was ``{}``, which any other server may also send.
    :param date: time of the response by the service's clock; None (default): not known.
    """

    def __init__(
        self, checks: Iterable[HealthCheck] = (), *, is_blank: bool = False, date: datetime | None = None
    ) -> None:
        super().__init__(checks)
        #: Time of the response by the service's clock; None: not known.
        self.date = date
        #: Whether the response was ``{}``.
        self.is_blank = is_blank
