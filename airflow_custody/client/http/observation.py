"""What can be seen of a response from outside: of the connection that it came on, and of the peer's clock."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import requests


@dataclass(frozen=True)
class Observation:
    """
    What can be seen of a response from outside.

    :param status: its HTTP status.
    :param received_at: when it came, by this machine's clock.
    :param date: when it was sent, by its ``Date`` header; None if it has none that can be read.
    :param tls_version: the version of TLS that it came over; empty: none, or it cannot be seen.
    :param certificate_ends: when the certificate of the peer ends; None if that cannot be seen, as without
        verification.
    """

    status: int
    received_at: datetime
    date: datetime | None = None
    tls_version: str = ""
    certificate_ends: datetime | None = None

    @classmethod
    def of(cls, response: requests.Response) -> Observation:
        """
        Return what can be seen of a response whose body has not been read.

        :param response: the response.
        """
        found = getattr(getattr(response.raw, "connection", None), "sock", None)
        sock = found if isinstance(found, ssl.SSLSocket) else None
        return cls(
            status=response.status_code,
            received_at=datetime.now(timezone.utc),
            date=_parse_date(response.headers.get("Date")),
            tls_version=(sock.version() or "") if sock else "",
            certificate_ends=_end(sock.getpeercert()) if sock else None,
        )


def _parse_date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):
        return None
    return date if date is not None and date.tzinfo is not None else None


def _end(certificate: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), tz=timezone.utc)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
