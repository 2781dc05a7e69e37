"""Authentication with a bearer token: one that is given, or that a user name and a password bring."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from requests import PreparedRequest

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
)
from airflow_custody.client.http.authentication import DEFAULT_SOURCE, Authentication
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.jwt import jwt_claims, jwt_expiry, jwt_seconds
from airflow_custody.client.shared_sign_in import SharedSignIn, SignInLock
from airflow_custody.client.wire import TypedDict

if TYPE_CHECKING:
    from airflow_custody.client.http.transport import Transport

log = logging.getLogger(__name__)

# A token is replaced this long before it ends, or after nine tenths of a shorter life.
_MARGIN_SECONDS = 60.0
# For what can be left undone as well.
_MOMENT_SECONDS = 0.1
# Statuses of the service itself that do not refuse a sign-in for good, but for now.
_NOT_NOW = (408, 429)
# Seconds between sign-ins after the second failure in a row, doubled with each further one.
_FIRST_PAUSE = 10.0
_MAX_PAUSE = 600.0
_MAX_LATIN_1 = 0xFF
# Far more than a server takes in a header.
_MAX_TOKEN = 64 * 1024
_UNAUTHORIZED = 401
_NOT_AGAIN = "The same credentials are not sent again before this process ends."
_NOT_AGAIN_AS_IT_IS = (
    "The service refused the call, and does not say that the user name or the password is wrong. The same credentials "
    "are not sent again with the same settings before this process ends."
)

# A second token does no harm.
SIGN_IN = Operation(
    "sign in",
    "POST",
    "/authentication/token",
    repeatable=True,
    confidential=True,
    documented=False,
    confirmed_by="result",
)


class WireToken(TypedDict, total=False):
    result: str | None


class BearerToken(Authentication):
    """
    Authentication with a bearer token.

    :param token: the token, without ``Bearer``; never shown by this class.
    :param source: where the user finds the token, for error messages.
    :raises CustodyConfigurationError: if the token is missing or cannot be sent in a header.
    """

    def __init__(self, token: str, *, source: str = "the 'token' given to CustodyClient") -> None:
        super().__init__(source=source)
        self._token = check_token(token)
        self.hide(token)
        #: When the token expires, if it is a JWT that says so.
        self.expires = jwt_expiry(token)
        self.advice = f"The token is wrong, revoked or has expired; it comes from {source}."

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Add the ``Authorization`` header to a request.

        :raises CustodyAuthenticationError: if the token is a JWT whose ``exp`` has passed.
        """
        if self.expires is not None and self.expires <= datetime.now(timezone.utc):
            raise CustodyAuthenticationError(
                f"the API token expired at {self.expires:%Y-%m-%d %H:%M:%S} UTC; nothing was sent",
                advice=f"Put a new token into {self.source}.",
                code="token-expired",
            )
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class PasswordSignIn(Authentication):
    """
    Authentication with a user name and a password, which the service exchanges for a token.

    The token is fetched when the first request is sent, kept for its life, and fetched anew when that ends, or once
    when the service no longer accepts it. A user with two-factor authentication cannot sign in unattended.

    Wrong credentials are sent once, so that no account gets locked: once the service itself has refused them (a 4xx
    other than 408 and 429), each later request gets the same error, and nothing is sent. A 401 says so of the name and
    the password, for all that :meth:`share` what is known of them; another 4xx is remembered here only. One signs in
    at a time: who has waited for its turn as long as the time-out sends nothing. Other failures in a row, a
    gateway's refusal, a 5xx, a redirect, no response, one without a token, or a token that is not accepted, are
    followed by pauses: 10 seconds after the second, and up to 10 minutes; or as long as ``Retry-After`` says, up to 10
    minutes. Only what was not sent is tried again at once.

    :param username: name of the user.
    :param password: the password; never shown by this class, and sent only to sign in.
    :param source: where the user finds both, for error messages.
    :param on_token: called with each token that was fetched, to keep it out of logs.
    :param clock: returns seconds that only go forward, to tell the age of a token; tests turn it. Default: the
        system's monotonic clock.
    :param wall_clock: returns the Unix time in seconds, for tokens that do not say when their life began. Default:
        the system's clock.
    :raises CustodyConfigurationError: if the name or the password is missing.
    """

    def __init__(
        self,
        username: str,
        password: str,
        *,
        source: str = DEFAULT_SOURCE,
        on_token: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(source=source)
        if not username:
            raise CustodyConfigurationError("the user name is missing", setting="username", code="credentials-missing")
        if not password:
            raise CustodyConfigurationError("the password is missing", setting="password", code="credentials-missing")
        self._username = username
        self._password = password
        self._on_token = on_token
        self._clock = clock
        self._wall_clock = wall_clock
        self.hide(password)
        self._transport: Transport | None = None
        self._shared = SharedSignIn()
        self._lock = SignInLock()
        self._token: str | None = None
        self._renew_at = float("inf")
        self._warned = False
        # Whether the service has not yet accepted the present token, nor refused it.
        self._token_is_new = True
        # Sign-ins in a row that failed, or whose token was refused.
        self._failures = 0
        self._paused_until = float("-inf")
        # The error of the last sign-in; None if that brought a token.
        self._last_error: dict[str, Any] | None = None
        self.advice = (
            f"The user name or the password is wrong, or the user may not sign in; they come from {source}. If the "
            "password is an API token, remove the user name. A user with two-factor authentication needs an API key: "
            "one-time codes are not supported."
        )

    @property
    def has_failed(self) -> bool:
        """Whether the last sign-in failed, or brought a token that was not accepted: another may be refused."""
        return bool(self._failures)

    def share(self, shared: SharedSignIn) -> None:
        """
        Share what is known of the same name and password at the same service.

        :param shared: what is shared: after a refusal, they are not sent again.
        """
        self._shared = shared

    def bind(self, transport: Transport) -> None:
        """
        Take the transport that tokens are fetched with: same host, same TLS, same proxy.

        Of several clients that share it, the last one's is used.
        """
        self._transport = transport

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Add the ``Authorization`` header to a request, and sign in first where that is needed.

        :raises CustodyAuthenticationError: if the service does not accept the user.
        :raises CustodyError: of another type if the service cannot be asked; the request itself was not sent then.
        """
        return self.apply(request)

    def apply(self, request: PreparedRequest, within: float | None = None) -> PreparedRequest:
        """
        Do the same within a time.

        :param request: the request.
        :param within: seconds to wait for another sign-in, and then for the response to this one; None (default): the
            client's time-out.
        """
        token = self._usable_token()
        if token is None:
            if self._transport is None:
                raise CustodyConfigurationError(
                    "PasswordSignIn is not in use by a client", setting="auth", code="setting-wrong"
                )
            until = time.monotonic() + min(self._transport.settings.timeout, within or float("inf"))
            with self._lock.held(until) as has_lock:
                if not has_lock:
                    raise _in_flight()
                token = self._usable_token() or self._sign_in(self._transport, until, within)
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    def _usable_token(self) -> str | None:
        """Return the token that is there, if it need not be replaced or cannot be now."""
        now = self._clock()
        # While sign-ins are paused, even an old token is better than none.
        return self._token if now < self._renew_at or now < self._paused_until else None

    def renew(self, request: PreparedRequest) -> bool:
        """
        Forget the token that the request was sent with, so that the next one is sent with a new one.

        :return: whether there is, or may be, a newer one: not while sign-ins are paused.
        """
        with self._lock.held(time.monotonic() + _MOMENT_SECONDS) as has_lock:
            # Without the lock, another thread is about to have a new one.
            if not has_lock or self._token is None or request.headers.get("Authorization") != f"Bearer {self._token}":
                return True
            if self._token_is_new:
                self._token_is_new = False
                self._count_failure()
            if self._clock() < self._paused_until:
                return False
            self._token = None
        return True

    def accepted(self, request: PreparedRequest) -> None:
        """Take notice that the service accepted the token of a request."""
        if not self._token_is_new and not self._failures:
            return
        # Another thread that signs in right now does not wait for this, nor this for it.
        with self._lock.held(time.monotonic() + _MOMENT_SECONDS) as has_lock:
            # That an old token is still accepted says nothing about sign-ins that failed since.
            is_mine = has_lock and request.headers.get("Authorization") == f"Bearer {self._token}"
            if is_mine and self._last_error is None:
                self._token_is_new = False
                self._failures, self._paused_until = 0, float("-inf")

    def _sign_in(self, transport: Transport, until: float, within: float | None) -> str:
        if self._last_error is not None and self._clock() < self._paused_until:
            # A new error each time: one that several threads raise would collect what each of them handles.
            raise CustodyError.from_json(self._last_error)
        with self._shared.lock.held(until) as has_lock:
            if self._shared.error is not None:
                self._count_failure()
                self._paused_until = float("inf")
                self._last_error = {**self._shared.error, "advice": f"{self.advice} {_NOT_AGAIN}"}
                raise CustodyError.from_json(self._last_error)
            if not has_lock:
                raise _in_flight()
            sent: list[bool] = []
            try:
                token = self._fetch(transport, lambda: sent.append(True), within)
            except CustodyError as error:
                # Without a response, the service may have refused it all the same.
                if sent:
                    self._count_failure(error.retry_after)
                    if error.from_service and 400 <= (error.status or 0) < 500 and error.status not in _NOT_NOW:
                        self._paused_until = float("inf")
                        if error.status == _UNAUTHORIZED:
                            self._shared.error = error.to_json()
                            error.advice = f"{error.advice or self.advice} {_NOT_AGAIN}"
                        else:
                            error.advice = " ".join(filter(None, [error.advice, _NOT_AGAIN_AS_IT_IS]))
                    self._last_error = error.to_json()
                raise
        if self._on_token is not None:
            self._on_token(token)
        self._renew_at = self._clock() + self._time_to_keep(token)
        self._token, self._token_is_new, self._last_error = token, True, None
        self.hide_token(token)
        return token

    def _count_failure(self, retry_after: float | None = None) -> None:
        self._failures += 1
        pause = min(_MAX_PAUSE, retry_after or 0.0)
        if self._failures > 1:
            pause = max(pause, min(_MAX_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._failures - 2, 30)))
        if pause:
            self._paused_until = self._clock() + pause

    def _fetch(self, transport: Transport, before_send: Callable[[], None], within: float | None) -> str:
        body = {"username": self._username, "password": self._password}
        reply = transport.call(
            SIGN_IN, WireToken, body=body, before_send=before_send, authenticate=False, only_try=within
        )
        token = reply.body.get("result")
        if _why_not_sendable(token) is not None:
            raise reply.unexpected("it has no usable token")
        return str(token)

    def _time_to_keep(self, token: str) -> float:
        """Return the seconds after which a token that was fetched now is replaced; infinite if nobody knows."""
        claims = jwt_claims(token)
        expires, issued = jwt_seconds(claims.get("exp")), jwt_seconds(claims.get("iat"))
        if expires is None:
            return float("inf")
        # Both by the service's clock, if it says both. This machine's may be wrong.
        life = expires - (self._wall_clock() if issued is None else issued)
        if life < (_MARGIN_SECONDS if issued is None else 1):
            if not self._warned:
                self._warned = True
                log.warning(
                    "A token that was just fetched seems to expire in %.0f s by the clock of this machine, which may "
                    "be wrong. Such tokens are used until the service no longer accepts them.",
                    life,
                )
            return float("inf")
        return max(life * 0.9, life - _MARGIN_SECONDS)


def _in_flight() -> CustodyError:
    return SIGN_IN.failed(
        CustodyConnectionError,
        "another sign-in with this account is in flight, and did not end within the time-out; nothing was sent",
        code="no-response",
        nothing_sent=True,
    )


def check_token(token: object) -> str:
    """Return a token that can be sent in a header, or refuse it without quoting it."""
    why = _why_not_sendable(token)
    if why is not None:
        raise CustodyConfigurationError(f"the API token {why}", setting="token", code="credentials-missing")
    return str(token)


def _why_not_sendable(token: object) -> str | None:
    if not isinstance(token, str) or not token:
        return "is missing"
    if len(token) > _MAX_TOKEN:
        return f"is longer than {_MAX_TOKEN} characters: give the token alone"
    if token.strip().lower().startswith("bearer "):
        return "begins with 'Bearer': give the token alone"
    if token.splitlines() != [token]:
        return "contains a line break, maybe at its end: give it in one line"
    if any(character.isspace() or not character.isprintable() for character in token):
        return "contains white space or a control character (its value is not shown here): copy it again"
    if any(ord(character) > _MAX_LATIN_1 for character in token):
        return (
            "contains a character that cannot be sent in an HTTP header (outside "
            "ISO-8859-1; its value is not shown here)"
        )
    return None
