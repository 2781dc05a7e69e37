"""Observation of exchanges from outside: the response, its connection, the peer's clock."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import requests

from airflow_custody.client.http.retries import parse_retry_after

log = logging.getLogger(__name__)

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
    :param duration: seconds from before the connection was made to the end of the response. Default 0.
    :param retry_after: after how many seconds it asks to be called again; None (default): it does not ask.
    """

    status: int | None
    received_at: datetime
    date: datetime | None = None
    tls_version: str = ""
    certificate_ends: datetime | None = None
    is_complete: bool = True
    operation: str = ""
    duration: float = 0.0
    retry_after: float | None = None

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
            retry_after=parse_retry_after(response.headers.get("Retry-After")),
        )


Observer = Callable[[Observation], None]


@dataclass
class Exchange:
    """
    Facts of an exchange that only the block of :func:`observing` knows.

    :param is_truncated: whether the response's body ended early. Default False.
    :param is_unsent: whether the caller refused to send it. Default False.
    """

    is_truncated: bool = False
    is_unsent: bool = False


@contextmanager
def observing(operation: str, prepared: requests.PreparedRequest, observers: Sequence[Observer]) -> Iterator[Exchange]:
    """
    Tell observers of the exchange in the block, which says by what is yielded whether its response was truncated.

    One that is ended in the middle, as by Airflow's ``execution_timeout``, is told of, too; only one that the caller
    refused to send is not. An observer's error is logged: the outcome of the request must not be lost.

    :param operation: name of the operation, for people.
    :param prepared: the request that the block sends.
    :param observers: whom to tell.
    """
    exchange = Exchange()
    if not observers:
        yield exchange
        return
    responses: list[Observation] = []
    hook = partial(_note, responses)
    prepared.register_hook("response", hook)  # type: ignore[no-untyped-call]
    started = time.monotonic()
    try:
        yield exchange
    except BaseException:
        # It began, and was given up: too slow, too large, or the task has ended.
        exchange.is_truncated = True
        raise
    finally:
        if not exchange.is_unsent:
            seen = responses[-1] if responses else Observation(None, datetime.now(timezone.utc))
            _tell(observers, _truncated(seen) if exchange.is_truncated else seen, operation, started)


def _truncated(seen: Observation) -> Observation:
    return replace(seen, is_complete=seen.status is not None and seen.status >= _FIRST_ERROR)


def _note(responses: list[Observation], received: requests.Response, **_: Any) -> None:
    responses.append(Observation.of(received))


def _tell(observers: Sequence[Observer], seen: Observation, operation: str, started: float) -> None:
    seen = replace(seen, operation=operation, duration=time.monotonic() - started)
    for observer in observers:
        try:
            observer(seen)
        except Exception as exception:
            log.warning("%s: an observer failed: %s", operation, type(exception).__name__)


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
