"""One HTTP exchange with the service: how long it may take, what may be repeated, what was sent."""

from __future__ import annotations

import http.client
import io
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, cast
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import InvalidHeader, MaxRetryError, ProtocolError, ResponseError, SSLError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError
from urllib3.response import BaseHTTPResponse
from urllib3.util import Timeout
from urllib3.util.retry import Retry

from airflow_custody.client.auth import Authentication
from airflow_custody.client.errors import CustodyConfigurationError, CustodyConnectionError, CustodyError
from airflow_custody.client.operations import API_ROOT, Operation
from airflow_custody.client.settings import (
    checked_base_url,
    checked_client_cert,
    checked_number,
    checked_proxies,
    checked_verify,
)

log = logging.getLogger(__name__)

_REPEATABLE_METHODS = frozenset({"GET", "PATCH", "DELETE"})
_REPEATED_STATUSES = frozenset({429, 502, 503, 504})
#: Longest ``Retry-After`` in seconds that is waited for; beyond it the error is raised and carries it.
LONGEST_RETRY_AFTER = 60.0
_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF = 20.0
_CHUNK = 256 * 1024


@dataclass(frozen=True)
class Answer:
    """
    What came back: a status, a few headers, and the body as far as it came.

    :param cut: why the body is not complete; None if it is.
    """

    status: int
    reason: str
    content_type: str
    location: str | None
    retry_after: float | None
    body: bytes
    cut: str | None = None


class Transport:
    """
    Exchange requests and answers with one service over one pooled session.

    The parameters are those of :class:`~airflow_custody.client.CustodyClient`.
    """

    def __init__(
        self,
        base_url: str,
        auth: Authentication,
        *,
        timeout: float,
        verify: bool | str,
        client_cert: str | tuple[str, str] | None,
        proxy: str | None,
        max_retries: int,
        allow_http: bool,
        max_response_bytes: int,
        user_agent: str,
    ) -> None:
        self.base_url = checked_base_url(base_url)
        self.auth = auth
        auth.use(self)
        self.timeout = checked_number("timeout", timeout, at_least=0.001, at_most=86_400)
        self._max_bytes = int(checked_number("max_response_bytes", max_response_bytes, at_least=1))
        retries = int(checked_number("max_retries", max_retries, at_least=0, at_most=20, whole=True))
        self._verify = checked_verify(verify)
        self._client_cert = checked_client_cert(client_cert)
        self._proxies = checked_proxies(self.base_url, proxy, allow_http=allow_http)

        self._session = requests.Session()
        # No ~/.netrc in place of the token, no CA bundle and no proxy that was not checked above.
        self._session.trust_env = False
        self._session.headers.update({"Accept": "application/json", "User-Agent": user_agent})
        adapter = _Adapter(max_retries=_Repeats.of(retries))
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def close(self) -> None:
        """Close the pooled connections; a later exchange opens new ones."""
        self._session.close()

    def exchange(
        self,
        operation: Operation,
        *,
        query: Mapping[str, str | Sequence[str]] | None = None,
        body: Any = None,
        before_send: Callable[[], None] | None = None,
        anonymous: bool = False,
    ) -> Answer:
        """
        Send one request and return its answer, whatever its status.

        A 401 gets one more try if there is something newer to sign in with: it was refused, not carried out.

        :param operation: what is asked for; says whether it may be repeated.
        :param query: query parameters; a list becomes the same parameter several times.
        :param body: JSON data to send; None: no body.
        :param before_send: called on the open connection right before the request's first byte leaves; what it
            raises comes out of here unchanged, and nothing was sent.
        :param anonymous: send it without saying who sends it.
        :return: the answer, its body not larger than ``max_response_bytes``.
        :raises CustodyAuthenticationError: if the token has expired, or there is none to be had; nothing was sent.
        :raises CustodyConnectionError: if there was no connection, or no answer to what is repeatable.
        :raises CustodyOutcomeUnknownError: if there was no answer to what is not repeatable.
        """
        request = requests.Request(
            operation.method,
            self.base_url + API_ROOT + operation.path,
            params=dict(query or {}),
            json=body,
            auth=None if anonymous else self.auth,
            headers={"Content-Type": "application/json"},
        )
        prepared = self._prepare(operation, request)
        answer = self._send(operation, prepared, before_send, anonymous)
        if answer.status == 401 and not anonymous and self.auth.renew(prepared):
            answer = self._send(operation, self._prepare(operation, request), before_send, anonymous)
        return answer

    def _prepare(self, operation: Operation, request: requests.Request) -> requests.PreparedRequest:
        try:
            return self._session.prepare_request(request)
        except CustodyError as error:
            error.operation = error.operation or operation.name
            raise
        except (requests.RequestException, ValueError):
            raise CustodyConfigurationError("the base URL can not be used", setting="base_url") from None

    def _send(
        self,
        operation: Operation,
        prepared: requests.PreparedRequest,
        before_send: Callable[[], None] | None,
        anonymous: bool,
    ) -> Answer:
        # Whatever the caller is handling right now becomes part of a new exception's chain: not ours to judge by.
        earlier = sys.exc_info()[1]
        started = monotonic()
        stopped: _Stopped | None = None
        failure: CustodyError | None = None
        sending = _sending.set(_Sending(before_send, None if anonymous else lambda: self.auth.again(prepared)))
        try:
            response = self._session.send(
                prepared,
                stream=True,
                allow_redirects=False,
                timeout=cast("float", Timeout(total=self.timeout)),
                # Given for each request: a value on the session loses against REQUESTS_CA_BUNDLE.
                verify=self._verify,
                cert=self._client_cert,
                proxies=self._proxies,
            )
            with response:
                answer = self._read(operation, response)
        except _Stopped as exception:
            stopped = exception
        except (requests.RequestException, OSError, http.client.HTTPException) as exception:
            failure = self._failure(operation, list(_chain(exception, earlier)))
        else:
            log.debug(
                "%s %s: status %s, %d bytes, %.3f s",
                operation.method,
                operation.path,
                answer.status,
                len(answer.body),
                monotonic() - started,
            )
            return answer
        finally:
            _sending.reset(sending)
        # Raised out here so that it does not carry the requests exception, whose request holds the token.
        raise stopped.why if stopped is not None else cast("CustodyError", failure)

    def _read(self, operation: Operation, response: requests.Response) -> Answer:
        """Read the body within the bounds of time and size."""
        chunks: list[bytes] = []
        size = 0
        cut = None
        try:
            for chunk in response.iter_content(_CHUNK):
                size += len(chunk)
                if size > self._max_bytes:
                    raise operation.not_understood(
                        f"the answer is larger than {self._max_bytes} bytes and was not read to its end",
                        status=response.status_code,
                    )
                chunks.append(chunk)
        except (requests.RequestException, OSError, http.client.HTTPException) as exception:
            if response.status_code < 400 and _is_timeout(_chain(exception)):
                raise
            # An error's status says enough, whatever became of its body.
            cut = "its body breaks off before its end"
        location = response.headers.get("Location")
        return Answer(
            status=response.status_code,
            reason=self.auth.shown(response.reason or "", 60),
            content_type=self.auth.shown(response.headers.get("Content-Type", ""), 80),
            location=self.auth.shown(location) if location else None,
            retry_after=_Repeats.seconds_asked_for(response.headers.get("Retry-After")),
            body=b"".join(chunks),
            cut=cut,
        )

    def _failure(self, operation: Operation, chain: list[BaseException]) -> CustodyError:
        """Turn what requests raised into an error of ours, without a reference to the request."""
        cause = self.auth.shown(_innermost_text(chain), 160)
        host = urlsplit(self.base_url).netloc
        if any(getattr(each, _NOT_SENT, False) for each in chain):
            if any(isinstance(each, ssl.SSLCertVerificationError) for each in chain):
                return operation.failed(
                    CustodyConnectionError,
                    f"TLS: the certificate of {host} was not accepted: {cause}; nothing was sent",
                    retryable=False,
                    advice="If the service uses a private CA, give its bundle in 'verify'.",
                )
            what = "TLS" if any(isinstance(each, ssl.SSLError) for each in chain) else "no connection"
            through = " through the proxy" if self._proxies else ""
            return operation.failed(
                CustodyConnectionError,
                f"{what}: {host} can not be reached{through}: {cause}; nothing was sent",
            )
        if _is_timeout(chain):
            return operation.unanswered(f"no complete answer from {host} within {self.timeout:g} s")
        return operation.unanswered(f"the connection to {host} broke before the answer was there: {cause}")


# --- what is repeated --------------------------------------------------------------------------------------


class _Repeats(Retry):
    """
    Repeat what is safe to repeat.

    Beyond urllib3's own rules: a ``Retry-After`` that nobody can read is ignored, one that is too long ends the
    repeats, and a TLS connection that breaks after the request went out counts as a lost answer. urllib3 repeats
    the last without looking at the method, so a create could be sent twice.
    """

    @classmethod
    def of(cls, count: int) -> _Repeats:
        """Return the rule for this many repeats."""
        return cls(
            total=count,
            other=0,
            allowed_methods=_REPEATABLE_METHODS,
            status_forcelist=_REPEATED_STATUSES,
            backoff_factor=_BACKOFF_SECONDS,
            backoff_jitter=_BACKOFF_SECONDS,
            backoff_max=_LONGEST_BACKOFF,
            raise_on_status=False,
        )

    @classmethod
    def seconds_asked_for(cls, header: str | None) -> float | None:
        """Return a ``Retry-After`` in seconds; None if there is none or nobody can read it."""
        if header is None:
            return None
        try:
            return float(Retry().parse_retry_after(header))
        except (InvalidHeader, ValueError, TypeError, OverflowError, IndexError):
            return None

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        return self.seconds_asked_for(response.headers.get("Retry-After"))

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> _Repeats:
        if response is not None and (self.get_retry_after(response) or 0) > LONGEST_RETRY_AFTER:
            raise MaxRetryError(cast("ConnectionPool", _pool), url, ResponseError("Retry-After is too long"))
        if isinstance(error, SSLError) and not any(
            isinstance(each, ssl.SSLCertVerificationError) for each in _chain(error)
        ):
            broken = ProtocolError("TLS connection broken", error)
            broken.__cause__ = error
            error = broken
        return super().increment(method, url, response, error, _pool, _stacktrace)


# --- how long it may take ----------------------------------------------------------------------------------


class _DeadlineReader(io.RawIOBase):
    """Read from a socket until a deadline: a peer that trickles cannot renew the time-out byte by byte."""

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
        count = cast("int | None", self._raw.readinto(buffer))
        self.ended = count == 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """Read an answer within its deadline, and notice when it ends inside its headers."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._reader = _DeadlineReader(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        super().begin()
        # http.client takes the end of the stream for the end of the headers: a cut answer would pass for an
        # empty one. If they did end, nothing has been read beyond them.
        if self._reader.ended:
            raise http.client.IncompleteRead(b"")


#: Set on an exception that was raised before any part of the request could have been sent.
_NOT_SENT = "_custody_not_sent"


@dataclass(frozen=True)
class _Sending:
    """
    Say what to ask at each sending of a request, repeats included.

    :param last_word: called before its first byte.
    :param authorize: what signs it anew.
    """

    last_word: Callable[[], None] | None = None
    authorize: Callable[[], str | None] | None = None


#: The request that this thread is sending.
_sending: ContextVar[_Sending] = ContextVar("_sending", default=_Sending())  # noqa: B039 - it is frozen


class _Stopped(Exception):
    """Carry what ``before_send`` raised past urllib3, which takes an OSError for the network's and may drop it."""

    def __init__(self, why: BaseException) -> None:
        super().__init__()
        self.why = why


class _Connection(HTTPConnection):
    """Know what was sent: nothing before the connection stands, and nothing against the last word."""

    response_class = _Response

    def connect(self) -> None:
        try:
            super().connect()
        except Exception as exception:
            setattr(exception, _NOT_SENT, True)
            raise

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        **kwargs: Any,
    ) -> None:
        authorize = _sending.get().authorize
        if authorize is not None and (authorization := authorize()) is not None:
            headers = {**(headers or {}), "Authorization": authorization}
        super().request(method, url, body, headers, **kwargs)

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        # Headers are held back until here. A proxy's tunnel does not come this way: connect() makes it.
        if (last_word := _sending.get().last_word) is not None:
            if self.sock is None:
                self.connect()
            try:
                last_word()
            except BaseException as exception:
                raise _Stopped(exception) from None
        super().endheaders(*args, **kwargs)


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class _Adapter(HTTPAdapter):
    """Send through the connections above, directly and through a proxy."""

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


def _chain(exception: BaseException, without: BaseException | None = None) -> Iterator[BaseException]:
    """Yield an exception and all that it wraps: requests and urllib3 nest them in three different ways."""
    seen = {id(without)}
    waiting: list[object] = [exception]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args]


def _is_timeout(chain: Iterable[BaseException]) -> bool:
    return any(isinstance(each, (TimeoutError, requests.Timeout, UrllibTimeoutError)) for each in chain)


def _innermost_text(chain: list[BaseException]) -> str:
    """Return the words of the system's own error, which say more than those wrapped around it."""
    for each in chain:
        if isinstance(each, OSError) and each.strerror and not isinstance(each, requests.RequestException):
            return each.strerror
    return str(chain[-1]) or type(chain[-1]).__name__
