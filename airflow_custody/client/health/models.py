"""The health listing, as the service sends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_custody.client.text import as_name
from airflow_custody.client.timestamps import parse_duration, parse_timestamp
from airflow_custody.client.wire import KEEPING_OTHERS, LENIENT, TypedDict

# The listing is read into TypedDicts, because pydantic's models would take 50 percent longer. HealthCheck adds
# attributes, which are converted when they are accessed.


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
    # Keep unknown keys, so that a group of an unknown form is not taken for an empty group.
    __pydantic_config__ = KEEPING_OTHERS  # type: ignore[misc]
    healthChecks: list[WireHealthCheck] | None


class WireHealthListing(TypedDict, total=False):
    groups: dict[str, WireHealthGroup | None] | None


@dataclass(frozen=True)
class VaultdClient:
    """
    A connection that a check reports, in ``vaultdClients``.

    :param host_port: host and port of the other side; None: not given.
    :param connected: whether the connection is up. If the service does not send this value, it is False, because the
        service leaves out false.
    :param error: the error; None: there is no error.
    :param last_ping: time of the last ping; None if unreadable or missing.
    """

    host_port: str | None = None
    connected: bool = False
    error: str | None = None
    last_ping: datetime | None = None

    @classmethod
    def from_wire(cls, row: Mapping[str, object]) -> VaultdClient:
        """
        Return the connection in a row of a report.

        Unreadable values count as missing.

        :param row: the row.
        """
        return cls(
            host_port=as_name(row.get("hostPort")),
            connected=row.get("connected") is True,
            error=as_name(row.get("error")),
            last_ping=parse_timestamp(as_name(row.get("lastPing"))),
        )


@dataclass(frozen=True)
class HealthReport:
    """
    The report of a health check, in the service's own words.

    Missing values are None.

    :param name: the report's name, usually the same as the check's name.
    :param status: the report's status word, as sent.
    :param duration: how long the check took, to the microsecond; None if unreadable or missing.
    :param results: the result for each key, such as a currency code: a status word or a message.
    :param message: its message.
    :param error: its error.
    :param vaultd_clients: the connections that were checked.
    """

    name: str | None = None
    status: str | None = None
    duration: timedelta | None = None
    results: Mapping[str, str | None] = field(default_factory=dict)
    message: str | None = None
    error: str | None = None
    vaultd_clients: tuple[VaultdClient, ...] = ()

    @classmethod
    def from_wire(cls, report: WireHealthReport) -> HealthReport:
        """
        Return a report.

        :param report: the report, as the service sent it.
        """
        return cls(
            name=report.get("name"),
            status=report.get("status"),
            duration=parse_duration(report.get("duration")),
            results=report.get("results") or {},
            message=report.get("message"),
            error=report.get("error"),
            vaultd_clients=tuple(map(VaultdClient.from_wire, report.get("vaultdClients") or ())),
        )


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
        """The tenant's id: a decimal number in a string."""
        return self.wire.get("tenantId")

    @property
    def component_name(self) -> str | None:
        """The component that was checked."""
        return self.wire.get("componentName")

    @property
    def component_id(self) -> str | None:
        """The component's id: a UUID."""
        return self.wire.get("componentId")

    @property
    def group(self) -> str | None:
        """The group that the entry itself names. It must be the group in which the entry is listed."""
        return self.wire.get("group")

    @property
    def health_check(self) -> str | None:
        """The name of the check."""
        return self.wire.get("healthCheck")

    @property
    def status(self) -> str | None:
        """The status word, as sent."""
        return self.wire.get("status")

    @property
    def report(self) -> HealthReport | None:
        """The check's report."""
        report = self.wire.get("report")
        return None if report is None else HealthReport.from_wire(report)

    @property
    def last_update_date(self) -> datetime | None:
        """Time of the check's last run; None if unreadable or missing."""
        return parse_timestamp(self.wire.get("lastUpdateDate"))

    @property
    def valid_until_date(self) -> datetime | None:
        """Time until which the result is valid; None if unreadable or missing."""
        return parse_timestamp(self.wire.get("validUntilDate"))


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
