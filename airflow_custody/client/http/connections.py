"""urllib3 connections with a deadline for the whole exchange, which know whether anything was sent."""

from __future__ import annotations

import http.client
import io
import os
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, cast

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

NETWORK_ERRORS = (requests.RequestException, OSError, http.client.HTTPException)
# Reasons of OpenSSL for a first record that is not TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
# How many of a peer's first bytes tell what it speaks.
_BEGINNING = 2
_TLS_RECORD_TYPES = range(20, 24)
_TLS_MAJOR_VERSION = 3
_OPENSSL_NOISE = re.compile(r"^\[[A-Z0-9:_ ]+\] | \(_ssl\.c:\d+\)$")
_LINGER = "hh" if os.name == "nt" else "ii"
_MAX_INTERIM_RESPONSES = 20
_SWITCHING_PROTOCOLS = 101
#: Maximum number of connections that the peer may close right before anything is sent on them.
MAX_LOST_CONNECTIONS = 3


class BeforeSendError(Exception):
    """Carries what ``before_send`` raised past urllib3, which takes an OSError for the network's."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised


class ConnectionLostError(Exception):
    """Raised when a connection is of no use any more before anything of the request was sent."""


@dataclass
class Sending:
    """
    The sending of one request by this thread.

    :param timeout: seconds for the whole exchange. The time that ``before_send`` takes does not count.
    :param before_send: called once the connection is established, right before the first byte leaves.
    :param fresh: whether it needs a connection that nothing was sent on before, and that the peer has neither closed
        nor sent anything on.
    :param reuse_within: with ``fresh``, the seconds since its last complete response for which a connection is used
        again all the same. Default 0: none is.
    :param reused: whether it was sent on a connection that had been used before.
    :param sent: whether any part of the request may have left.
    :param tunnelled: whether a proxy has connected us to the service.
    :param refused_by_proxy: whether a proxy was reached and did not connect us to the service.
    :param first_bytes: the first bytes that the peer sent in response, or unasked: what TLS carries, if it is spoken.
    """

    timeout: float
    before_send: Callable[[], None] | None = None
    fresh: bool = False
    reuse_within: float = 0.0
    reused: bool = False
    sent: bool = False
    tunnelled: bool = False
    refused_by_proxy: bool = False
    first_bytes: bytes = b""
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = monotonic() + self.timeout

    def left(self) -> float:
        """
        Return the seconds until the deadline.

        :raises TimeoutError: if there are none.
        """
        left = self.deadline - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def prepare(self) -> None:
        """Call ``before_send``, and move the deadline by the time that it takes."""
        if self.before_send is None:
            return
        started = monotonic()
        raised: BaseException | None = None
        try:
            self.before_send()
        except BaseException as exception:
            raised = exception
        if raised is not None:
            raise BeforeSendError(raised)
        self.deadline += monotonic() - started


_current: ContextVar[Sending | None] = ContextVar("_current", default=None)


@contextmanager
def track(sending: Sending) -> Iterator[None]:
    """Let this thread's connections record their state in ``sending``."""
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
        # Kept, because the body is read after the sending.
        self._sending = _current.get()
        self.ended = False
        self.stopped = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.stopped:
            return None
        if self._sending is not None:
            self._sock.settimeout(self._sending.left())
        size = cast("int | None", self._raw.readinto(buffer))
        self.ended = size == 0
        if self._sending is not None and not self._sending.first_bytes:
            self._sending.first_bytes = bytes(buffer[: min(size or 0, _BEGINNING)])
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """
    A response that is read within its deadline, and that notices when it ends inside its headers.

    Its connection is used again only if nothing else came before it or after it.
    """

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._reader = _DeadlineReader(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._reader)
        self._interim_responses = 0

    def _read_status(self) -> tuple[str, int, str]:
        # http.client knows 100 only, and takes any other interim response for the final one.
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not 100 <= status < 200:
                return version, status, reason
            if status == _SWITCHING_PROTOCOLS:
                raise http.client.HTTPException("the service switches to another protocol (101)")
            self._interim_responses += 1
            if self._interim_responses > _MAX_INTERIM_RESPONSES:
                raise http.client.HTTPException(f"more than {_MAX_INTERIM_RESPONSES} interim responses (1xx)")
            http.client.parse_headers(self.fp)

    def begin(self) -> None:
        super().begin()
        # http.client takes the end of the stream for the end of the headers: a truncated response would pass for an
        # empty one. If they did end, nothing has been read beyond them.
        if self._reader.ended:
            raise http.client.IncompleteRead(b"")
        _discard_on_close(self._socket, False)
        # urllib3 would log what it cannot parse, and that may be a secret.
        self.headers.defects = []
        self.headers.set_payload("")
        # Two lengths, or more than one response: who sends that may send more.
        if self._interim_responses or (self.chunked and "Content-Length" in self.headers):
            self.will_close = True

    def _close_conn(self) -> None:
        self._reader.stopped = True
        # Bytes after a response would pass for the response to the next request.
        if self.fp.peek(1) or _unread(self._socket) is not None:
            with suppress(OSError):
                getattr(self._socket, "socket", self._socket).shutdown(socket.SHUT_RDWR)
        super()._close_conn()  # type: ignore[misc]


class _Connection(HTTPConnection):
    """A connection that sends nothing before it stands, and nothing against ``before_send``."""

    response_class = _Response
    #: Time of its last complete response; None: there was none.
    idle_since: float | None = None

    def is_recent(self, seconds: float) -> bool:
        """Tell whether nothing was sent on it yet, or its last response was complete less than so long ago."""
        return self.idle_since is None or monotonic() - self.idle_since < seconds

    def _new_conn(self) -> socket.socket:
        self.idle_since = None
        sock = super()._new_conn()
        if (sending := _current.get()) is not None:
            # The rest of connecting, such as a handshake, has the time that is left.
            with suppress(TimeoutError):
                sock.settimeout(sending.left())
        return sock

    def _tunnel(self) -> None:
        sending = _current.get()
        try:
            super()._tunnel()
        except OSError:
            if sending is not None:
                sending.refused_by_proxy = True
            raise
        if sending is not None:
            sending.tunnelled, sending.first_bytes = True, b""

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        # Headers are held back until here. A proxy's tunnel does not come this way: connect() makes it.
        if self.sock is None:
            self.connect()
        if (sending := _current.get()) is not None:
            sending.prepare()
            left = sending.left()
            if sending.fresh and not self.is_recent(sending.reuse_within):
                raise ConnectionLostError
            sending.reused = self.idle_since is not None
            if sending.fresh and (unread := _unread(self.sock)) is not None:
                # After a response it may be the rest of that.
                sending.first_bytes = b"" if sending.reused else unread
                raise ConnectionLostError
            self.sock.settimeout(left)
            # A process that gives up, or dies, leaves nothing behind that the system could deliver later.
            _discard_on_close(self.sock, True)
            _give_up_after(self.sock, left)
            sending.sent = True
        super().endheaders(*args, **kwargs)


def _unread(sock: Any) -> bytes | None:
    """Return how what the peer has sent unasked begins: empty if it has closed the connection; None: it is quiet."""
    timeout = sock.gettimeout()
    try:
        sock.settimeout(0)
        # Not a look at the file descriptor: TLS has messages of its own, and its end comes as one.
        return bytes(sock.recv(_BEGINNING))
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    except OSError:
        return b""
    finally:
        with suppress(OSError):
            sock.settimeout(timeout)


def _discard_on_close(sock: Any, discard: bool) -> None:
    """Set whether closing the socket, also by the end of the process, discards what is not delivered yet."""
    # Within TLS to a proxy, the service's TLS runs over an object that is no socket.
    with suppress(OSError):
        getattr(sock, "socket", sock).setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(_LINGER, int(discard), 0)
        )


def _give_up_after(sock: Any, seconds: float) -> None:
    """Limit how long the system goes on delivering, where it can: a forked process may keep the socket open."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        with suppress(OSError):
            getattr(sock, "socket", sock).setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection

    def _get_conn(self, timeout: float | None = None) -> Any:
        connection = cast("_Connection", super()._get_conn(timeout))
        sending = _current.get()
        if sending is not None and sending.fresh and not connection.is_recent(sending.reuse_within):
            # A closed one connects again when it is used.
            connection.close()
        return connection

    def _put_conn(self, conn: Any) -> None:
        # An open connection had a complete response that did not announce its end.
        if conn is not None:
            conn.idle_since = monotonic()
        super()._put_conn(conn)


class _TLSPool(_Pool, HTTPSConnectionPool):
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


def is_network_error(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions are about the network, or a peer."""
    return any(isinstance(each, NETWORK_ERRORS) for each in chain)


def is_timeout(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions are about a time-out."""
    return any(isinstance(each, (TimeoutError, requests.Timeout, UrllibTimeoutError)) for each in chain)


def is_tls(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions are about TLS."""
    return any(isinstance(each, ssl.SSLError) for each in chain)


def is_not_tls(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions say that the peer's response to a TLS handshake was not TLS."""
    return any(isinstance(each, ssl.SSLError) and each.reason in _NOT_TLS for each in chain)


def is_tls_record(first_bytes: bytes) -> bool:
    """Tell whether these are the first bytes of a TLS record."""
    return len(first_bytes) > 1 and first_bytes[0] in _TLS_RECORD_TYPES and first_bytes[1] == _TLS_MAJOR_VERSION


def is_unconnected(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions say that no connection was made, to the service or to a proxy."""
    return any(isinstance(each, (ConnectTimeoutError, NewConnectionError)) for each in chain)


def is_closed(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions say that the peer closed the connection instead of responding."""
    return any(isinstance(each, http.client.RemoteDisconnected) for each in chain)


def system_text(chain: Iterable[BaseException]) -> str | None:
    """Return the operating system's own words, which say more than those wrapped around them; None if it has none."""
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return str(each.verify_message).rstrip(".")
        if isinstance(each, OSError) and each.strerror and not isinstance(each, requests.RequestException):
            # OpenSSL puts its name for the error before the words, and Python the place in its own source after them.
            return _OPENSSL_NOISE.sub("", each.strerror)
    return None
