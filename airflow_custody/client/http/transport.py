"""Calls of the service's operations over one pooled session."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, overload
from urllib.parse import unquote

import requests

from airflow_custody import __version__
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.connections import (
    MAX_LOST_CONNECTIONS,
    NETWORK_ERRORS,
    Adapter,
    BeforeSendError,
    ConnectionLostError,
    Sending,
    exception_chain,
    is_timeout,
    is_unconnected,
    track,
)
from airflow_custody.client.http.failures import Failures
from airflow_custody.client.http.observation import Exchange, Observer, observing, parse_date
from airflow_custody.client.http.operation import API_ROOT, Operation
from airflow_custody.client.http.peers import is_not_http
from airflow_custody.client.http.responses import Reply, Response, ends_early, read_reply
from airflow_custody.client.http.retries import (
    MAX_RETRY_AFTER,
    RETRIED_STATUSES,
    backoff,
    is_retried,
    parse_retry_after,
)
from airflow_custody.client.settings import ClientSettings
from airflow_custody.client.text import count

log = logging.getLogger(__name__)

T = TypeVar("T")
Query = Mapping[str, "str | Sequence[str]"]

_CHUNK = 256 * 1024
_BAD_REQUEST = 400
# Seconds for which a connection is taken to be open: far below the idle time after which servers close one.
_REUSE_WITHIN = 1.0
# Connections that are kept: one for each thread that a caller may have.
_MAX_CONNECTIONS = 32


@dataclass(frozen=True)
class _Failure:
    """
    An exchange that brought no response.

    :param error: the error to raise.
    :param may_retry: whether sending it again is safe and may help.
    """

    error: CustodyError
    may_retry: bool


class _Session(requests.Session):
    """A session that follows no redirect, nor takes one apart: its target may be unreadable."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


def _new_session(user_agent: str | None) -> _Session:
    session = _Session()
    # No ~/.netrc in place of the token, no CA bundle and no proxy that the settings did not check.
    session.trust_env = False
    name = " ".join(filter(None, [f"airflow-provider-custody/{__version__}", user_agent]))
    session.headers.update({"Accept": "application/json", "User-Agent": name})
    # The adapter makes no retries: which are safe is decided here, and logged in our own words.
    session.mount("http://", Adapter(pool_maxsize=_MAX_CONNECTIONS))
    session.mount("https://", Adapter(pool_maxsize=_MAX_CONNECTIONS))
    return session


class Transport:
    """
    The one way to the service: sends requests over a pooled session, retries, and reads responses.

    :param settings: the client's settings.
    :param auth: the way to authenticate.
    :param sleep: waits between retries; tests turn it. Default: :func:`time.sleep`.
    """

    def __init__(
        self, settings: ClientSettings, auth: Authentication, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.settings = settings
        self.auth = auth
        self._sleep = sleep
        proxy = settings.proxy_in_use
        self._proxies = {"http": proxy.url, "https": proxy.url} if proxy else {}
        if proxy:
            # Taken apart by hand: what no parser can read may be quoted by an error all the same.
            password = proxy.url.rpartition("@")[0].rpartition("://")[2].partition(":")[2]
            for secret in filter(None, (proxy.url, password, unquote(password))):
                auth.hide(secret)
        self._failures = Failures(settings, auth, proxy)
        # Whether the peer has kept the connections open that were used again.
        self._keeps_open = True
        self._observers: list[Observer] = []
        self._checks: list[Callable[[Operation], None]] = []
        self._sessions: dict[int, _Session] = {}
        auth.bind(self)

    @property
    def _session(self) -> _Session:
        """The session of this process: of a connection that two share, each would read the other's responses."""
        process = os.getpid()
        # What was inherited is kept: its end may reach the other process.
        if process not in self._sessions:
            self._sessions.setdefault(process, _new_session(self.settings.user_agent))
        return self._sessions[process]

    def close(self) -> None:
        """Close the pooled connections; a later call opens new ones."""
        self._session.close()

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` with what can be seen of each exchange when it has ended."""
        self._observers.append(observer)

    @contextmanager
    def check_calls(self, check: Callable[[Operation], None]) -> Iterator[None]:
        """Call ``check`` with each operation in the block before anything is sent; what it raises comes out of here."""
        self._checks.append(check)
        try:
            yield
        finally:
            self._checks.remove(check)

    @overload
    def call(
        self,
        operation: Operation,
        shape: type[T],
        *,
        query: Query | None = None,
        body: Any = None,
        before_send: Callable[[], None] | None = None,
        authenticate: bool = True,
        reuse_connection: bool = False,
        only_try: float | None = None,
    ) -> Reply[T]: ...

    @overload
    def call(self, operation: Operation, shape: None, *, body: Any = None) -> Reply[None]: ...

    def call(
        self,
        operation: Operation,
        shape: Any,
        *,
        query: Query | None = None,
        body: Any = None,
        before_send: Callable[[], None] | None = None,
        authenticate: bool = True,
        reuse_connection: bool = False,
        only_try: float | None = None,
    ) -> Reply[Any]:
        """
        Call an operation: send the request, retry it where that is safe, and read the response.

        :param operation: the operation; says whether it may be repeated.
        :param shape: the ``TypedDict`` that the response's body must fit; None: the caller judges the body.
        :param query: query parameters; a list becomes the same parameter several times. Default None.
        :param body: JSON data to send; None (default): no body.
        :param before_send: called on the open connection right before the request's first byte leaves, and again
            before each further sending, or if the connection is closed meanwhile; what it raises comes out of here
            unchanged, and nothing was sent. Default None.
        :param authenticate: whether to send credentials. Default True.
        :param reuse_connection: whether a request that must not be sent twice may go out on a connection that had a
            complete response a moment ago. Default False: it gets a new one.
        :param only_try: seconds for the only try, if that is less than the time-out of the settings; None (default):
            the time-out, and retries as the settings say.
        :return: the reply.
        """
        for check in self._checks:
            check(operation)
        request = requests.Request(
            operation.method,
            self.settings.base_url + API_ROOT + operation.path,
            params=dict(query or {}),
            json=body,
            headers={"Content-Type": "application/json"},
        )
        # With only one try, no newer credentials replace those that were refused.
        retries, renewed = 0, only_try is not None
        while True:
            prepared = self._prepare(operation, request, self.auth if authenticate else None, only_try)
            with observing(operation.name, prepared, self._observers) as exchange:
                outcome = self._exchange(operation, prepared, before_send, reuse_connection, exchange, only_try)
                exchange.is_truncated = isinstance(outcome, Response) and outcome.truncated is not None
            if isinstance(outcome, Response) and outcome.status == 401 and authenticate and not renewed:
                renewed = True
                # Newer credentials are worth another try, if it was refused and not carried out: a gateway's 401 proves
                # nothing.
                if self.auth.renew(prepared) and (operation.is_repeatable or outcome.is_service_error):
                    continue
            elif isinstance(outcome, Response) and 200 <= outcome.status < 300 and authenticate:
                self.auth.accepted(prepared)
            delay = None if only_try is not None else self._next_delay(operation, outcome, retries)
            if delay is None:
                break
            retries += 1
            reason = outcome.error.message if isinstance(outcome, _Failure) else f"status {outcome.status}"
            when = f"in {delay:.1f} s" if delay else "now"
            log.info("%s: %s; retry %d of %d %s", operation.name, reason, retries, self.settings.max_retries, when)
            self._sleep(delay)
        if isinstance(outcome, _Failure):
            raise outcome.error
        try:
            return read_reply(operation, outcome, shape, self.auth, self.settings)
        except CustodyError as error:
            if error.status == _BAD_REQUEST and not error.from_service:
                self._failures.explain_bad_request(error)
            raise

    def _next_delay(self, operation: Operation, outcome: Response | _Failure, retries: int) -> float | None:
        """Return the seconds until the next retry; None if there is none."""
        if retries >= self.settings.max_retries:
            return None
        if isinstance(outcome, _Failure):
            return backoff(retries) if outcome.may_retry else None
        if outcome.status not in RETRIED_STATUSES or not is_retried(operation):
            return None
        if not outcome.retry_after:
            # Ignore Retry-After: 0.
            return backoff(retries)
        return outcome.retry_after if outcome.retry_after <= MAX_RETRY_AFTER else None

    def _prepare(
        self, operation: Operation, request: requests.Request, auth: Authentication | None, within: float | None
    ) -> requests.PreparedRequest:
        prepared = None
        with suppress(requests.RequestException, ValueError):
            prepared = self._session.prepare_request(request)
        if prepared is None:
            # Raised out here, as all errors of this class: what was caught may hold a secret, and must not come along.
            raise CustodyConfigurationError("the base URL cannot be used", setting="base_url", code="setting-wrong")
        if auth is None:
            return prepared
        try:
            # Anew for each sending: no nonce of an API key is accepted twice.
            return auth.apply(prepared, within)
        except CustodyError as error:
            error.operation = error.operation or operation.name
            raise

    def _exchange(
        self,
        operation: Operation,
        prepared: requests.PreparedRequest,
        before_send: Callable[[], None] | None,
        reuse_connection: bool,
        exchange: Exchange,
        only_try: float | None,
    ) -> Response | _Failure:
        """Send one request once, and return its response or why there is none."""
        # Whatever the caller is handling right now becomes part of a new exception's chain: not ours to judge by.
        earlier = sys.exc_info()[1]
        started = time.monotonic()
        timeout = min(self.settings.timeout, only_try or self.settings.timeout)
        for _ in range(MAX_LOST_CONNECTIONS):
            # What must not be sent twice does not rely on a connection that the peer may be about to close, or to send
            # the late response to an earlier request on. Whoever finds out by itself what became of a lost request may
            # have it rely on one that had a complete response within the last second, on which nothing has come since,
            # and that is not closed. It is lost if the peer closes just then; after one such loss, or one connection
            # that ended so soon, all get new ones.
            sending = Sending(
                timeout,
                before_send,
                fresh=not operation.is_repeatable,
                reuse_within=_REUSE_WITHIN if reuse_connection and self._keeps_open else 0.0,
            )
            chain: list[BaseException] = []
            try:
                with track(sending):
                    received = self._session.send(
                        prepared,
                        stream=True,
                        allow_redirects=False,
                        timeout=(timeout, timeout),
                        # Given for each request: a value on the session loses against REQUESTS_CA_BUNDLE.
                        verify=self.settings.verify,
                        cert=self.settings.client_cert,
                        proxies=self._proxies,
                    )
            # Also what no library should raise: a UnicodeEncodeError has the whole header in it.
            except Exception as exception:
                chain = list(exception_chain(exception, earlier))
            if chain and sending.fresh and sending.reused:
                self._keeps_open = False
            if not chain or not isinstance(chain[0], ConnectionLostError) or is_not_http((), sending.first_bytes):
                break
        if chain:
            if isinstance(stopped := chain[0], BeforeSendError):
                exchange.is_unsent = True
                raise stopped.raised
            error = self._failures.explain(operation, chain, sending)
            # Without a connection nothing can have been sent, whatever it was. A proxy that refuses is not asked again.
            safe = is_unconnected(chain) or (is_retried(operation) and not sending.refused_by_proxy)
            return _Failure(error, safe and error.retryable)
        with received:
            try:
                response = self._read(operation, received)
            except CustodyError:
                raise
            except Exception as exception:
                chain = list(exception_chain(exception, earlier))
        if chain:
            raise self._failures.explain(operation, chain, sending)
        if response.status != _BAD_REQUEST:
            self._failures.has_plain_http()
        log.debug(
            "%s %s: status %s, %s, %.3f s",
            operation.method,
            operation.path,
            response.status,
            count(len(response.body), "byte"),
            time.monotonic() - started,
        )
        return response

    def _read(self, operation: Operation, received: requests.Response) -> Response:
        """Read the body within the bounds of time and size."""
        chunks: list[bytes] = []
        size, limit = 0, self.settings.max_response_bytes
        truncated = None
        try:
            for chunk in received.iter_content(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise operation.not_understood(
                        f"the response is larger than {limit} bytes and was not read to its end",
                        "response-unusable",
                        status=received.status_code,
                    )
                chunks.append(chunk)
            if ends_early(received.raw):
                truncated = "its compressed body ends early"
        except NETWORK_ERRORS as exception:
            if received.status_code < 400 and is_timeout(exception_chain(exception)):
                raise
            # An error's status says enough, whatever became of its body.
            truncated = "its body ends early"
        return Response(
            status=received.status_code,
            reason=received.reason or "",
            content_type=received.headers.get("Content-Type", ""),
            location=received.headers.get("Location"),
            retry_after=parse_retry_after(received.headers.get("Retry-After")),
            body=b"".join(chunks),
            truncated=truncated,
            date=parse_date(received.headers.get("Date")),
        )
