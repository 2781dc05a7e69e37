"""urllib3 connections with a deadline for the whole exchange, which know whether anything was sent."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError


class BeforeSendError(Exception):
    """Carries what ``before_send`` raised past urllib3, which takes an OSError for the network's."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised


@dataclass
class Sending:
    """
    The sending of one request by this thread.

    :param before_send: called once the connection is established, right before the first byte leaves.
    :param sent: whether any part of the request may have left.
    :param refused_by_proxy: whether a proxy was reached and did not connect us to the service.
    """

    before_send: Callable[[], None] | None = None
    sent: bool = False
    refused_by_proxy: bool = False


_current: ContextVar[Sending | None] = ContextVar("_current", default=None)


@contextmanager
def track(sending: Sending) -> Iterator[None]:
    """Have this thread's connections note in ``sending`` what happens."""
    token = _current.set(sending)
    try:
        yield
    finally:
        _current.reset(token)


class _DeadlineReader(io.RawIOBase):
    """A reader with a deadline: a peer that trickles cannot renew the time-out byte by byte."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        # urllib3 has just set the socket's time-out to what is left of the whole call's.
        left = sock.gettimeout()
        self._deadline = None if left is None else monotonic() + left
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._deadline is not None:
            left = self._deadline - monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left)
        size = cast("int | None", self._raw.readinto(buffer))
        self.ended = size == 0
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response that is read within its deadline, and that notices when it ends inside its headers."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._reader = _DeadlineReader(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        super().begin()
        # http.client takes the end of the stream for the end of the headers: a truncated response would pass for an
        # empty one. If they did end, nothing has been read beyond them.
        if self._reader.ended:
            raise http.client.IncompleteRead(b"")


class _Connection(HTTPConnection):
    """A connection that sends nothing before it stands, and nothing against ``before_send``."""

    response_class = _Response

    def _tunnel(self) -> None:
        try:
            super()._tunnel()
        except OSError:
            if (sending := _current.get()) is not None:
                sending.refused_by_proxy = True
            raise

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        # Headers are held back until here. A proxy's tunnel does not come this way: connect() makes it.
        if self.sock is None:
            self.connect()
        if (sending := _current.get()) is not None:
            if sending.before_send is not None:
                try:
                    sending.before_send()
                except BaseException as exception:
                    raise BeforeSendError(exception) from None
            sending.sent = True
        super().endheaders(*args, **kwargs)


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class Adapter(HTTPAdapter):
    """The adapter that sends through the connections above, directly and through a proxy."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        _use_our_pools(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        _use_our_pools(manager)
        return manager


def _use_our_pools(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}


# --- reading exceptions ------------------------------------------------------------------------------------


def exception_chain(exception: BaseException, without: BaseException | None = None) -> Iterator[BaseException]:
    """Yield an exception and all that it wraps: requests and urllib3 nest them in three different ways."""
    seen = {id(without)}
    pending: list[object] = [exception]
    while pending:
        each = pending.pop(0)
        if isinstance(each, BaseException) and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args]


def is_timeout(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions are about a time-out."""
    return any(isinstance(each, (TimeoutError, requests.Timeout, UrllibTimeoutError)) for each in chain)


def is_tls(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions are about TLS."""
    return any(isinstance(each, ssl.SSLError) for each in chain)


def is_unconnected(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions say that no connection was made, to the service or to a proxy."""
    return any(isinstance(each, (ConnectTimeoutError, NewConnectionError)) for each in chain)


def innermost_text(chain: list[BaseException]) -> str:
    """Return the operating system's own words, which say more than those wrapped around them."""
    for each in chain:
        if isinstance(each, OSError) and each.strerror and not isinstance(each, requests.RequestException):
            return each.strerror
    return str(chain[-1]) or type(chain[-1]).__name__
