"""Calls of the service's operations over one pooled session."""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import ssl
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, TypeVar

import requests
from pydantic import SecretStr
from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH, select_proxy
from urllib3.connection import HTTPConnection
from urllib3.util.ssl_ import create_urllib3_context

from airflow_custody import __version__
from airflow_custody.client.auth import Authentication
from airflow_custody.client.delays import growing_delay
from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.failures import (
    NETWORK_ERRORS,
    exception_chain,
    explain_failure,
    is_proxy_refusal,
    is_timeout,
)
from airflow_custody.client.http.fence import FENCE, Moment, is_too_old
from airflow_custody.client.http.operation import API_ROOT, Operation
from airflow_custody.client.http.responses import Observation, Observer, Reply, Response, parse_retry_after
from airflow_custody.client.json_text import UnusableJsonError, read_json
from airflow_custody.client.settings import ClientSettings

log = logging.getLogger(__name__)

#: Maximum ``Retry-After`` in seconds for a retry. If the service requests a longer wait, the error is raised at once.
MAX_RETRY_AFTER = 60.0

T = TypeVar("T")
Query = Mapping[str, "str | Sequence[str]"]

# Maximum number of pooled connections: one for each thread of a caller.
_MAX_CONNECTIONS = 32
# Operations that are safe to repeat are repeated after these statuses.
_RETRIED_STATUSES = (429, 502, 503, 504)
# Maximum number of tries of a call in which a step before sending took too long.
_MAX_LATE = 3
# Maximum delay before a retry, in seconds, unless the service requests a longer one.
_MAX_BACKOFF = 20.0
# Number of bytes to read at once. It is small, because a decompressed piece may be a thousand times as long.
_PIECE = 16 * 1024


@dataclass(frozen=True)
class _Failure:
    """
    An exchange without a response.

    :param error: the error to raise.
    :param may_retry: whether sending the request again is safe and may help.
    :param is_late: whether the request was not sent because a step before sending took too long. Default False.
    """

    error: CustodyError
    may_retry: bool
    is_late: bool = False


class _NotSentError(Exception):
    """
    Ends a request before its body is sent.

    It is not an OSError, because urllib3 ignores some OSErrors and wraps all others.

    :param raised: the exception that ``before_send`` raised; None: a step before sending took too long.
    :param why: the step that took too long. Default empty: no step did.
    """

    def __init__(self, raised: BaseException | None, why: str = "") -> None:
        super().__init__(why)
        self.raised = raised


class _Body:
    """
    A request body that reports when it is first read.

    The service cannot carry out an operation without its body, so nothing has happened before the first read. At the
    first read, the connection is open, the headers are sent, and the body is about to be sent.

    :param data: the body.
    :param before_send: called by the first read.
    :param signed_at: when the headers were signed, as returned by :func:`_clocks`; None: they are not signed.
    """

    def __init__(self, data: bytes, before_send: Callable[[], None] | None, signed_at: Moment | None) -> None:
        self._data = BytesIO(data)
        self._before_send = before_send
        self._signed_at = signed_at
        self.was_read = False

    def read(self, size: int = -1) -> bytes:
        if not self.was_read:
            # Connecting also takes time, but it only counts towards the signature's age.
            started = _clocks()
            raised: BaseException | None = None
            try:
                if self._before_send is not None:
                    self._before_send()
            except BaseException as exception:
                raised = exception
            if raised is not None:
                raise _NotSentError(raised)
            if is_too_old(started, _clocks()):
                raise _NotSentError(None, f"recording the request took longer than {FENCE:g} s")
            if self._signed_at is not None and is_too_old(self._signed_at, _clocks()):
                raise _NotSentError(None, f"the request could not leave within {FENCE:g} s after it was signed")
            self.was_read = True
        return self._data.read(size)


def _unwrap(secret: SecretStr) -> str:
    return secret.get_secret_value()


def _clocks() -> Moment:
    return time.monotonic(), time.time()


class _Adapter(HTTPAdapter):
    """
    The adapter of requests, with one TLS context for all connections.

    The context has the client's TLS settings. Without a shared context, each new connection would load the CA bundle,
    which takes longer than the rest of connecting.
    """

    def __init__(self, settings: ClientSettings) -> None:
        options = [*HTTPConnection.default_socket_options]
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # The kernel must not deliver a request's data later, after this process has given up on it or has died.
            options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(settings.timeout * 1000))))
        proxy = settings.proxy_in_use
        # Send the client certificate only to the service, not to the proxy.
        over_tls = proxy is not None and proxy.is_https
        self._proxy_context = _tls_context(settings, with_certificate=False) if over_tls else None
        is_https = settings.base_url.startswith("https:")
        context = _tls_context(settings) if is_https else self._proxy_context
        self._options: dict[str, Any] = {"socket_options": options, "ssl_context": context}
        # The adapter itself makes no retries. This module decides which retries are safe, and logs them.
        super().__init__(pool_maxsize=_MAX_CONNECTIONS)
        self.init_poolmanager(1, _MAX_CONNECTIONS, **self._options)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        return super().proxy_manager_for(proxy, **kwargs, **self._options, proxy_ssl_context=self._proxy_context)

    def get_connection_with_tls_context(self, request: Any, verify: Any, proxies: Any = None, cert: Any = None) -> Any:
        proxy = select_proxy(request.url, proxies)
        manager = self.proxy_manager_for(proxy) if proxy else self.poolmanager
        return manager.connection_from_url(request.url)

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Do nothing, because the connection's context already has the settings."""


def _tls_context(settings: ClientSettings, *, with_certificate: bool = True) -> ssl.SSLContext:
    context = create_urllib3_context()
    if settings.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cafile=DEFAULT_CA_BUNDLE_PATH if settings.verify is True else settings.verify)
    if settings.client_cert and with_certificate:
        paths = [settings.client_cert] if isinstance(settings.client_cert, str) else settings.client_cert
        context.load_cert_chain(*paths)
    return context


class _Session(requests.Session):
    """
    A session that ignores redirects.

    It does not even parse the target of a redirect, because requests raises an error for an unreadable one.
    """

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


# The current call of this thread: its operation, and the credentials of its client.
_calling: ContextVar[tuple[Operation, Authentication] | None] = ContextVar("_calling", default=None)


def _redact_entry(record: logging.LogRecord) -> bool:
    """
    Redact urllib3's log entries about a call.

    urllib3 quotes headers that it cannot read and, at level DEBUG, the query.
    """
    if (call := _calling.get()) is not None:
        operation, auth = call
        text = "not shown: it may contain a secret" if operation.confidential else auth.redact(record.getMessage())
        record.msg, record.args, record.exc_info = f"{operation.name}: {text}", (), None
    return True


for _name in ("urllib3.connection", "urllib3.connectionpool"):
    logging.getLogger(_name).addFilter(_redact_entry)


class Transport:
    """
    The only object that sends requests to the service.

    It sends requests over a pooled session, retries, and reads responses.

    :param settings: the client's settings.
    :param auth: the way to authenticate.
    """

    def __init__(self, settings: ClientSettings, auth: Authentication) -> None:
        self.settings = settings
        self.auth = auth
        proxy = settings.proxy_in_use
        self._proxies = dict.fromkeys(("http", "https"), proxy.url.get_secret_value()) if proxy else {}
        for secret in proxy.secrets if proxy else ():
            auth.hide(secret)
        self._observers: list[Observer] = []
        self._own_session: tuple[int, _Session] | None = None

    def _session(self) -> _Session:
        """
        Return the session of this process.

        A forked process gets its own session, because two processes that share a connection would read each other's
        responses.
        """
        if self._own_session is not None and self._own_session[0] == os.getpid():
            return self._own_session[1]
        session = _Session()
        # Ignore ~/.netrc, and any CA bundle or proxy that the settings did not check.
        session.trust_env = False
        name = " ".join(filter(None, [f"airflow-provider-custody/{__version__}", self.settings.user_agent]))
        session.headers.update({"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": name})
        adapter = _Adapter(self.settings)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        self._own_session = os.getpid(), session
        return session

    def close(self) -> None:
        """Close the pooled connections; a later call opens new ones."""
        if self._own_session is not None and self._own_session[0] == os.getpid():
            self._own_session[1].close()

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` after each exchange, with its observation."""
        self._observers.append(observer)

    def call(
        self,
        operation: Operation,
        shape: type[T] | None,
        *,
        query: Query | None = None,
        body: Any = None,
        before_send: Callable[[], None] | None = None,
        authenticate: bool = True,
    ) -> Reply[T]:
        """
        Call an operation, with retries where that is safe.

        :param operation: the operation; determines whether it may be repeated.
        :param shape: the ``TypedDict`` or model that the response's body must fit; None: the caller checks the body.
        :param query: query parameters; a list becomes the same parameter several times. Default None.
        :param body: JSON data to send, with secrets as pydantic's ``SecretStr``; None (default): no body.
        :param before_send: called when the connection is open, each time before the body is sent. If it raises an
            exception, the body is not sent, so nothing was done, and the exception is raised unchanged. If it takes
            longer than five seconds, the request is prepared again and ``before_send`` is called again, at most three
            times. Default None.
        :param authenticate: whether to send credentials. Default True.
        :return: the reply.
        :raises CustodyError: if signing in fails, or the token has expired; the request is not sent then. Or if the
            request fails: if sending its body had not begun, the error has ``nothing_sent``. Otherwise, for an
            operation that may not be repeated, the error is a :class:`CustodyOutcomeUnknownError`, except for a
            redirect and for the service's own refusal (``from_service``).
        """
        request = requests.Request(
            operation.method,
            self.settings.base_url + API_ROOT + operation.path,
            params=query,
            data=None if body is None else json.dumps(body, allow_nan=False, default=_unwrap).encode(),
            headers={"Content-Type": "application/json"},
        )
        late, retries, renewed = 0, 0, False
        while True:
            prepared = self._prepare(operation, request, before_send, authenticate=authenticate)
            outcome = self._exchange(operation, prepared)
            if isinstance(outcome, Response) and outcome.status < 400:
                break
            if isinstance(outcome, _Failure) and outcome.is_late:
                late += 1
                if late == _MAX_LATE:
                    break
                continue
            if authenticate and not renewed and self._renew_credentials(operation, outcome, prepared):
                renewed = True
                continue
            delay = _next_delay(operation, outcome, retries, self.settings.max_retries)
            if delay is None:
                break
            retries += 1
            time.sleep(delay)
        if isinstance(outcome, _Failure):
            raise outcome.error
        return Reply[T](operation, outcome, self.auth, self.settings).read(shape)

    def _renew_credentials(
        self, operation: Operation, outcome: Response | _Failure, prepared: requests.PreparedRequest
    ) -> bool:
        """
        Renew refused credentials, and tell whether to send the request again.

        An operation that may not be repeated is sent again only after the service's own 401. A gateway's 401 does not
        prove that the request was not carried out.
        """
        if isinstance(outcome, _Failure) or outcome.status != 401 or not self.auth.renew(prepared):
            return False
        return operation.is_repeatable or outcome.is_service_error

    def _prepare(
        self,
        operation: Operation,
        request: requests.Request,
        before_send: Callable[[], None] | None,
        *,
        authenticate: bool,
    ) -> requests.PreparedRequest:
        """
        Return the request, prepared to be sent once.

        Each try is signed anew, because the service never accepts a nonce of an API key twice.
        """
        prepared = self._session().prepare_request(request)
        error: CustodyError | None = None
        if authenticate:
            try:
                self.auth.apply(prepared, self)
            except CustodyError as raised:
                error = raised
        if error is not None:
            raise error if error.operation else error.with_facts(operation=operation.name)
        if prepared.body is not None:
            signed_at = _clocks() if authenticate and self.auth.signs_time else None
            prepared.body = _Body(prepared.body, before_send, signed_at)  # type: ignore[assignment, arg-type]
        return prepared

    def _exchange(self, operation: Operation, prepared: requests.PreparedRequest) -> Response | _Failure:
        """Send one request once. Return its response or the failure."""
        started = time.monotonic()
        # An exception that the caller is handling joins the chain of a new exception, but is not about this call.
        earlier = sys.exc_info()[1]
        response: Response | None = None
        seen: Observation | None = None
        chain: list[BaseException] = []
        not_sent: _NotSentError | None = None
        ended: BaseException | None = None
        token = _calling.set((operation, self.auth))
        try:
            with self._session().send(
                prepared, stream=True, allow_redirects=False, timeout=self.settings.timeout, proxies=self._proxies
            ) as received:
                # Observe the connection before the body is read, because reading returns the connection to the pool or
                # closes it.
                seen = Observation.of(received) if self._observers else None
                response = _read_response(operation, received, self.settings)
        except CustodyError:
            raise
        except _NotSentError as exception:
            not_sent = exception
        # Catch unexpected exceptions too, because a UnicodeEncodeError contains the whole header, with its secret.
        except Exception as exception:
            chain = list(exception_chain(exception, earlier))
        except BaseException as exception:
            # For example, Airflow's time-out of a task.
            ended = exception
        finally:
            _calling.reset(token)
            if self._observers and not_sent is None:
                self._tell(operation, seen, is_complete=response is not None and response.truncated is None)
        if ended is not None:
            # Leave out the frames of the libraries, because error reports would show their variables: the headers.
            raise ended.with_traceback(None)
        if not_sent is not None:
            if not_sent.raised is not None:
                raise not_sent.raised
            why = f"{not_sent}, {_MAX_LATE} times in a row; this request was not sent"
            error = operation.failed(CustodyError, why, code="task-stopped", retryable=True, nothing_sent=True)
            return _Failure(error, may_retry=True, is_late=True)
        # The service cannot carry out a request without its body. If the body was not sent, anything received is not
        # the response to this request.
        sent = prepared.body.was_read if isinstance(prepared.body, _Body) else None
        if response is None or sent is False:
            return self._failure(operation, chain, sent=sent)
        log.debug(
            "%s %s: status %s, %d bytes, %.3f s",
            operation.method,
            operation.path,
            response.status,
            len(response.body),
            time.monotonic() - started,
        )
        return response

    def _failure(self, operation: Operation, chain: Sequence[BaseException], *, sent: bool | None) -> _Failure:
        error = explain_failure(operation, self.settings, self.auth, chain, sent=sent)
        is_safe = error.nothing_sent or operation.is_retried
        # Do not repeat a request that a proxy refused, because the proxy may lock the account.
        return _Failure(error, is_safe and error.retryable and not is_proxy_refusal(chain))

    def _tell(self, operation: Operation, seen: Observation | None, *, is_complete: bool) -> None:
        """
        Notify the observers of an exchange.

        An observer's error is only logged, so that the outcome of the exchange is not lost.
        """
        seen = seen or Observation(None)
        is_error = seen.status is not None and seen.status >= 400
        observation = replace(seen, operation=operation.name, is_complete=is_complete or is_error)
        for observer in self._observers:
            try:
                observer(observation)
            except Exception as exception:
                log.warning("%s: an observer failed: %s", operation.name, type(exception).__name__)


def _next_delay(operation: Operation, outcome: Response | _Failure, retries: int, maximum: int) -> float | None:
    """
    Return the seconds until the next retry, and log it; None: no retry.

    There is no delay before the first retry. After that, it doubles each time. ``Retry-After: 0`` is ignored.

    :param operation: the operation.
    :param outcome: the failure, or the response with an error status.
    :param retries: the number of retries so far.
    :param maximum: the maximum number of retries.
    """
    if isinstance(outcome, _Failure):
        may_retry, retry_after, reason = outcome.may_retry, None, outcome.error.message
    else:
        may_retry = outcome.status in _RETRIED_STATUSES and operation.is_retried
        retry_after, reason = outcome.retry_after, f"status {outcome.status}"
    if not may_retry or retries >= maximum or (retry_after or 0.0) > MAX_RETRY_AFTER:
        return None
    spread = random.uniform(0, 0.5)  # noqa: S311 - spreads load
    delay = growing_delay(retries - 1, first=1.0, maximum=_MAX_BACKOFF) + spread if retries else 0.0
    delay = retry_after or min(_MAX_BACKOFF, delay)
    when = f"in {delay:.1f} s" if delay else "now"
    log.info("%s: %s; retry %d of %d %s", operation.name, reason, retries + 1, maximum, when)
    return delay


def _read_response(operation: Operation, received: requests.Response, settings: ClientSettings) -> Response:
    """
    Read a response within the limits of time and size.

    :param operation: the operation, for errors.
    :param received: the response, whose body is unread.
    :param settings: the client's settings: ``timeout`` and ``max_response_bytes``.
    :raises CustodyError: if the body is too large.
    :raises OSError: (or another network error) if the body of a success is not complete within the time limit.
    """
    status, headers, limit = received.status_code, received.headers, settings.max_response_bytes
    deadline = time.monotonic() + settings.timeout
    body, truncated = bytearray(), None
    try:
        # Do not read after an interim response: it has no body, and the stream does not end after it.
        for piece in _decoded_pieces(received) if status >= 200 else ():
            body += piece
            # Count the bytes as received too, because compressed data may decode to nothing.
            if max(len(body), received.raw.tell()) > limit:
                raise operation.after_sending(
                    CustodyResponseError,
                    f"the response is larger than {limit} bytes and was not read to its end",
                    code="response-unusable",
                    status=status,
                )
            if time.monotonic() > deadline:
                raise TimeoutError
    except zlib.error:
        truncated = "its compressed body ends early or is damaged"
    except NETWORK_ERRORS as exception:
        if status < 400 and is_timeout(exception_chain(exception)):
            raise
        # The status of an error is enough, even if its body is not complete.
        truncated = "its body ends early"
    # If the stream ends within the headers, http.client takes that for the end of the headers.
    is_framed = status == 204 or "Content-Length" in headers or "Transfer-Encoding" in headers
    if not (truncated or body or is_framed):
        truncated = "its body or its headers end early"
    retry_after = headers.get("Retry-After")
    data, no_json = _read_data(bytes(body), limit)
    return Response(
        status=status,
        reason=received.reason or "",
        content_type=headers.get("Content-Type", ""),
        location=headers.get("Location"),
        retry_after=parse_retry_after(retry_after) if retry_after else None,
        body=bytes(body),
        data=data,
        no_json=no_json,
        truncated=truncated,
        date_header=headers.get("Date"),
    )


def _read_data(body: bytes, limit: int) -> tuple[Any, str]:
    """Return a body as JSON data, and the reason why the body is unusable (empty: it is usable)."""
    try:
        return read_json(body, limit), ""
    except UnusableJsonError as error:
        return None, str(error)
    except ValueError:
        return None, "its body is not JSON" if body else "its body is empty"


def _decoded_pieces(received: requests.Response) -> Iterator[bytes]:
    """
    Yield the body, decompressed, in a piece for each read.

    A piece is empty if its data decodes to nothing. urllib3's own decoding is not used, because it would read on for as
    long as the server sends such data, and the caller could not check its deadline.

    :raises zlib.error: if the compressed data is damaged, or not complete.
    """
    is_compressed = received.headers.get("Content-Encoding", "").strip().lower() in ("gzip", "x-gzip", "deflate")
    # Adding 32 makes zlib detect the format.
    decompressor = zlib.decompressobj(32 + zlib.MAX_WBITS)
    while piece := received.raw.read1(_PIECE, decode_content=False):
        yield decompressor.decompress(piece) if is_compressed else piece
    is_whole = decompressor.eof and not decompressor.unused_data
    if is_compressed and received.raw.tell() and not is_whole:
        raise zlib.error
