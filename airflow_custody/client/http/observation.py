"""Observation of exchanges from outside: the response, its connection, the peer's clock."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import requests

_FIRST_ERROR = 400


@dataclass(frozen=True)
class Observation:
    """
    An observation of an exchange.

    :param status: the HTTP status of its response; None: there was none.
    :param received_at: time of the response, or of the end without one, by this machine's clock.
    :param date: time of sending by its ``Date`` header; None if missing or unreadable.
    :param tls_version: the version of TLS that it came over; empty: none, or it cannot be seen.
    :param certificate_ends: expiry of the peer's certificate; None if that cannot be seen, as without
        verification.
    :param is_complete: whether the response was read to its end; of an error (400 or above) its status is enough.
        Default True.
    :param operation: name of the operation, for people. Default empty: not known.
    """

    status: int | None
    received_at: datetime
    date: datetime | None = None
    tls_version: str = ""
    certificate_ends: datetime | None = None
    is_complete: bool = True
    operation: str = ""

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
            date=parse_date(response.headers.get("Date")),
            tls_version=(sock.version() or "") if sock else "",
            certificate_ends=_end(sock.getpeercert()) if sock else None,
        )

    @classmethod
    def ended(cls, seen: Observation | None, operation: str, is_complete: bool) -> Observation:
        """
        Return the observation of an exchange that has ended.

        :param seen: what could be seen of its response; None: there was none.
        :param operation: name of the operation, for people.
        :param is_complete: whether the response was read to its end.
        """
        seen = seen or cls(None, datetime.now(timezone.utc))
        is_error = seen.status is not None and seen.status >= _FIRST_ERROR
        return replace(seen, operation=operation, is_complete=is_complete or is_error)


Observer = Callable[[Observation], None]


def parse_date(text: str | None) -> datetime | None:
    """Return the time that a ``Date`` header says; None if it says none."""
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
