"""Calls of the service's operations over one pooled session."""

from __future__ import annotations

import http.client
import logging
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload
from urllib.parse import unquote, urlsplit

import requests
from urllib3.util import Timeout

from airflow_custody import __version__
from airflow_custody.client.errors import CustodyConfigurationError, CustodyConnectionError, CustodyError
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.connections import (
    Adapter,
    BeforeSendError,
    Sending,
    exception_chain,
    innermost_text,
    is_timeout,
    is_tls,
    is_unconnected,
    track,
)
from airflow_custody.client.http.operation import API_ROOT, Operation
from airflow_custody.client.http.responses import Reply, Response, read_reply
from airflow_custody.client.http.retries import (
    MAX_RETRY_AFTER,
    RETRIED_STATUSES,
    backoff,
    is_retried,
    parse_retry_after,
)
from airflow_custody.client.settings import ClientSettings

log = logging.getLogger(__name__)

T = TypeVar("T")
Query = Mapping[str, "str | Sequence[str]"]

_CHUNK = 256 * 1024
_NETWORK_ERRORS = (requests.RequestException, OSError, http.client.HTTPException)


@dataclass(frozen=True)
class _Failure:
    """
    An exchange that brought no response.

    :param error: what to raise.
    :param may_retry: whether sending it again is safe and may help.
    """

    error: CustodyError
    may_retry: bool


class Transport:
    """
    The one way to the service: sends requests over a pooled session, retries, and reads responses.

    :param settings: the client's settings.
    :param auth: what authenticates the requests.
    :param sleep: waits between retries; tests turn it. Default: :func:`time.sleep`.
    """

    def __init__(
        self, settings: ClientSettings, auth: Authentication, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.settings = settings
        self.auth = auth
        self._sleep = sleep
        self._proxies = settings.proxies
        for proxy in self._proxies.values():
            # Taken apart by hand: what no parser can read may be quoted by an error all the same.
            password = proxy.rpartition("@")[0].rpartition("://")[2].partition(":")[2]
            for secret in filter(None, (proxy, password, unquote(password))):
                auth.hide(secret)
        self._session = requests.Session()
        # No ~/.netrc in place of the token, no CA bundle and no proxy that the settings did not check.
        self._session.trust_env = False
        user_agent = " ".join(filter(None, [f"airflow-provider-custody/{__version__}", settings.user_agent]))
        self._session.headers.update({"Accept": "application/json", "User-Agent": user_agent})
        # The adapter makes no retries: which are safe is decided here, and logged in our own words.
        self._session.mount("http://", Adapter())
        self._session.mount("https://", Adapter())
        auth.bind(self)

    def close(self) -> None:
        """Close the pooled connections; a later call opens new ones."""
        self._session.close()

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
    ) -> Reply[Any]:
        """
        Call an operation: send the request, retry it where that is safe, and read the response.

        :param operation: what is called; says whether it may be repeated.
        :param shape: the ``TypedDict`` that the response's body must fit; None: no body is needed.
        :param query: query parameters; a list becomes the same parameter several times. Default None.
        :param body: JSON data to send; None (default): no body.
        :param before_send: called on the open connection right before the request's first byte leaves; what it
            raises comes out of here unchanged, and nothing was sent. Default None.
        :param authenticate: whether to send credentials. Default True.
        :return: the reply.
        """
        request = requests.Request(
            operation.method,
            self.settings.base_url + API_ROOT + operation.path,
            params=dict(query or {}),
            json=body,
            auth=self.auth if authenticate else None,
            headers={"Content-Type": "application/json"},
        )
        retries, renewed = 0, False
        while True:
            prepared = self._prepare(operation, request)
            outcome = self._exchange(operation, prepared, before_send)
            if isinstance(outcome, Response) and outcome.status == 401 and authenticate and not renewed:
                # It was refused, not carried out: newer credentials are worth another try.
                renewed = True
                if self.auth.renew(prepared):
                    continue
            delay = self._next_delay(operation, outcome, retries)
            if delay is None:
                break
            retries += 1
            reason = outcome.error.message if isinstance(outcome, _Failure) else f"status {outcome.status}"
            when = f"in {delay:.1f} s" if delay else "now"
            log.info("%s: %s; retry %d of %d %s", operation.name, reason, retries, self.settings.max_retries, when)
            self._sleep(delay)
        if isinstance(outcome, _Failure):
            raise outcome.error
        return read_reply(operation, outcome, shape, self.auth)

    def _next_delay(self, operation: Operation, outcome: Response | _Failure, retries: int) -> float | None:
        """Return the seconds until the next retry; None if there is none."""
        if retries >= self.settings.max_retries:
            return None
        if isinstance(outcome, _Failure):
            return backoff(retries) if outcome.may_retry else None
        if outcome.status not in RETRIED_STATUSES or not is_retried(operation):
            return None
        if not outcome.retry_after:
            # Zero is no answer to how long an overloaded service wants to be left alone.
            return backoff(retries)
        return outcome.retry_after if outcome.retry_after <= MAX_RETRY_AFTER else None

    def _prepare(self, operation: Operation, request: requests.Request) -> requests.PreparedRequest:
        # Anew for each sending: no nonce of an API key is accepted twice.
        try:
            return self._session.prepare_request(request)
        except CustodyError as error:
            error.operation = error.operation or operation.name
            raise
        except (requests.RequestException, ValueError):
            raise CustodyConfigurationError("the base URL cannot be used", setting="base_url") from None

    def _exchange(
        self, operation: Operation, prepared: requests.PreparedRequest, before_send: Callable[[], None] | None
    ) -> Response | _Failure:
        """Send one request once, and return its response or why there is none."""
        # Whatever the caller is handling right now becomes part of a new exception's chain: not ours to judge by.
        earlier = sys.exc_info()[1]
        started = time.monotonic()
        sending = Sending(before_send)
        stopped: BaseException | None = None
        try:
            with track(sending):
                received = self._session.send(
                    prepared,
                    stream=True,
                    allow_redirects=False,
                    timeout=cast("float", Timeout(total=self.settings.timeout)),
                    # Given for each request: a value on the session loses against REQUESTS_CA_BUNDLE.
                    verify=self.settings.verify,
                    cert=self.settings.client_cert,
                    proxies=self._proxies,
                )
        except BeforeSendError as exception:
            stopped = exception.raised
        except _NETWORK_ERRORS as exception:
            chain = list(exception_chain(exception, earlier))
            error = self._failure(operation, chain, sending)
            # Without a connection nothing can have been sent, whatever it was. A proxy that refuses is not asked again.
            safe = is_unconnected(chain) or (is_retried(operation) and not sending.refused_by_proxy)
            return _Failure(error, safe and error.retryable)
        if stopped is not None:
            # Raised out here so that it does not carry the exception it came in.
            raise stopped
        failure: CustodyError | None = None
        with received:
            try:
                response = self._read(operation, received)
            except _NETWORK_ERRORS as exception:
                failure = self._failure(operation, list(exception_chain(exception, earlier)), sending)
        if failure is not None:
            # Likewise: the request in a requests exception holds the token.
            raise failure
        log.debug(
            "%s %s: status %s, %d bytes, %.3f s",
            operation.method,
            operation.path,
            response.status,
            len(response.body),
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
                        status=received.status_code,
                    )
                chunks.append(chunk)
        except _NETWORK_ERRORS as exception:
            if received.status_code < 400 and is_timeout(exception_chain(exception)):
                raise
            # An error's status says enough, whatever became of its body.
            truncated = "its body ends early"
        location = received.headers.get("Location")
        return Response(
            status=received.status_code,
            reason=self.auth.redact(received.reason or "", 60),
            content_type=self.auth.redact(received.headers.get("Content-Type", ""), 80),
            location=self.auth.redact(location) if location else None,
            retry_after=parse_retry_after(received.headers.get("Retry-After")),
            body=b"".join(chunks),
            truncated=truncated,
        )

    def _failure(self, operation: Operation, chain: list[BaseException], sending: Sending) -> CustodyError:
        """Turn what requests raised into an error of ours, without a reference to the request."""
        cause = self.auth.redact(innermost_text(chain), 160)
        host = urlsplit(self.settings.base_url).netloc
        if sending.sent:
            if is_timeout(chain):
                return operation.unanswered(f"no complete response from {host} within {self.settings.timeout:g} s")
            return operation.unanswered(f"the connection to {host} broke before the response was there: {cause}")
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in chain):
            return operation.failed(
                CustodyConnectionError,
                f"TLS: the certificate of {host} was not accepted: {cause}; nothing was sent",
                retryable=False,
                advice="If the service uses a private CA, give its bundle in 'verify'.",
            )
        what = "TLS" if is_tls(chain) else "no connection"
        through = " through the proxy" if self._proxies else ""
        return operation.failed(
            CustodyConnectionError,
            f"{what}: {host} cannot be reached{through}: {cause}; nothing was sent",
            advice="Check the base URL, and that this machine can reach the service.",
        )
