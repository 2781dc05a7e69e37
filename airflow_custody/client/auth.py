"""The ways to authenticate: an API token, an API key, or a user name and a password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from requests import PreparedRequest

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
)
from airflow_custody.client.http.authentication import DEFAULT_SOURCE, Authentication
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.wire import TypedDict

if TYPE_CHECKING:
    from airflow_custody.client.http.transport import Transport

log = logging.getLogger(__name__)

# A token is replaced this long before it ends, or after nine tenths of a shorter life.
_MARGIN_SECONDS = 60.0
# Statuses of the service itself that refuse a sign-in only for now.
_NOT_NOW = (408, 429)
# Seconds between sign-ins after the second failure in a row, doubled with each further one.
_FIRST_PAUSE = 10.0
_MAX_PAUSE = 600.0
# Far more than servers accept in a header.
_MAX_TOKEN = 64 * 1024
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
    :param source: place where the user finds the token, for error messages.
    :raises CustodyConfigurationError: if the token is missing or cannot be sent in a header.
    """

    def __init__(self, token: str, *, source: str = "the 'token' given to CustodyClient") -> None:
        super().__init__(source=source)
        if fault := _token_fault(token):
            raise _missing("token", f"the API token {fault}")
        self._token = token
        self.hide(token)
        #: When the token expires, if it is a JWT that says so.
        self.expires = _expiry(token)
        self.advice = f"The token is wrong, revoked or has expired; it comes from {source}."

    def apply(self, request: PreparedRequest, transport: Transport, within: float | None = None) -> None:
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


class ApiKey(Authentication):
    """
    Authentication with an API key, which signs each request (``TPV1-HMAC-SHA256``).

    Services support it from version 3.20 on.

    :param key_id: id of the key.
    :param secret: the key's secret in hex; never shown by this class, and never sent.
    :param source: place where the user finds both, for error messages.
    :raises CustodyConfigurationError: if the id or the secret is missing or malformed.
    """

    signs_time = True

    def __init__(self, key_id: str, secret: str, *, source: str = DEFAULT_SOURCE) -> None:
        super().__init__(source=source)
        if not key_id or not key_id.isascii() or not key_id.isprintable() or " " in key_id:
            raise _missing("api_key_id", "the API key's id is missing, or contains what cannot be sent in a header")
        key: bytes | None = None
        with suppress(TypeError, ValueError):
            key = bytes.fromhex(secret)
        # Raised outside of "except", so that the caught exception is not chained.
        if key is None:
            raise _missing("secret", "the API key's secret is not made of hexadecimal digits: copy it again")
        if not key:
            raise _missing("secret", "the API key's secret is missing")
        self._key = key
        self._key_id = key_id
        for form in {secret, key.hex(), key.hex().upper(), base64.b64encode(key).decode()}:
            self.hide(form)
        self.advice = (
            f"The API key's id or secret is wrong, or it was revoked; they come from {source}. Or this machine's "
            "clock is wrong: signatures contain the time."
        )

    def apply(self, request: PreparedRequest, transport: Transport, within: float | None = None) -> None:
        """Sign a request; one without a body loses its content type."""
        if not request.body:
            request.headers.pop("Content-Type", None)
        request.headers["Authorization"] = self.authorization(
            request, nonce=str(uuid.uuid4()), timestamp=time.time_ns() // 1_000_000
        )

    def authorization(self, request: PreparedRequest, *, nonce: str, timestamp: int) -> str:
        """
        Return the ``Authorization`` header for a request.

        :param request: the request as it will be sent.
        :param nonce: a text that was never used with this key.
        :param timestamp: milliseconds since 1970.
        :return: the header's value.
        """
        url = urlsplit(str(request.url))
        host = str(url.hostname) if ":" not in str(url.hostname) else f"[{url.hostname}]"
        if url.port not in (None, 80, 443):
            host = f"{host}:{url.port}"
        body = request.body or b""
        parts = [
            "TPV1",
            self._key_id,
            nonce,
            str(timestamp),
            str(request.method),
            host,
            url.path,
            url.query,
            request.headers.get("Content-Type", ""),
            body.decode() if isinstance(body, bytes) else str(body),
        ]
        text = " ".join(part for part in parts if part)
        signature = base64.b64encode(hmac.digest(self._key, text.encode(), hashlib.sha256)).decode()
        return f"TPV1-HMAC-SHA256 ApiKey={self._key_id} Nonce={nonce} Timestamp={timestamp} Signature={signature}"


class Account:
    """A user name and password at a service, shared by all clients that use them, so that one signs in at a time."""

    def __init__(self) -> None:
        #: The error with which the service rejected the name and the password; None: it has not.
        self.rejection: Mapping[str, Any] | None = None
        self._locks: dict[int, threading.Lock] = {}

    @property
    def lock(self) -> threading.Lock:
        """The lock of this process: a forked process could inherit it held, with no thread to release it."""
        return self._locks.setdefault(os.getpid(), threading.Lock())


class PasswordSignIn(Authentication):
    """
    Authentication with a user name and a password, which the service exchanges for a token.

    The token is fetched when the first request is sent, kept for its life, and fetched anew when that ends, or once
    when the service no longer accepts it. A user with two-factor authentication cannot sign in unattended.

    Wrong credentials are sent once, so that no account gets locked: once the service itself has refused them (a 4xx
    other than 408 and 429), each later request gets the same error, and nothing is sent. A 401 is remembered for all
    clients that share the account, another 4xx for this object only. One thread signs in at a time: one that has waited
    as long as the time-out sends nothing, and one that waited for a sign-in that failed gets its error. Other failures
    in a row (a gateway's rejection, a 5xx, a redirect, no response, one without a token, or a token that is not
    accepted) are followed by pauses of 10 seconds after the second and up to 10 minutes, or as long as ``Retry-After``
    says, up to 10 minutes. Only a sign-in that was not sent is tried again at once.

    :param username: name of the user.
    :param password: the password; never shown by this class, and sent only to sign in.
    :param source: place where the user finds both, for error messages.
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
            raise _missing("username", "the user name is missing")
        if not password:
            raise _missing("password", "the password is missing")
        self._username = username
        self._password = password
        self._on_token = on_token
        self._clock = clock
        self._wall_clock = wall_clock
        self.hide(password)
        #: The state of this name and password, shared by all clients of the same service that use them.
        self.account = Account()
        self._token: str | None = None
        self._renew_at = float("inf")
        self._has_warned = False
        # Whether the service has not yet accepted the present token, nor refused it.
        self._token_is_new = True
        # Sign-ins in a row that failed, or whose token was refused.
        self._failures = 0
        self._paused_until = float("-inf")
        # The error of the last sign-in; None if that brought a token.
        self._last_error: Mapping[str, Any] | None = None
        self.advice = (
            f"The user name or the password is wrong, or the user may not sign in; they come from {source}. If the "
            "password is an API token, remove the user name. A user with two-factor authentication needs an API key: "
            "one-time codes are not supported."
        )

    def apply(self, request: PreparedRequest, transport: Transport, within: float | None = None) -> None:
        """
        Add the ``Authorization`` header to a request, and sign in first if needed.

        :param request: the request.
        :param transport: the transport that fetches the token.
        :param within: seconds to wait for another sign-in, and then for the response to this one; None (default): the
            client's time-out.
        :raises CustodyAuthenticationError: if the service does not accept the user.
        :raises CustodyError: of another type if the service cannot be asked; the request itself was not sent then.
        """
        token = self._usable_token() or self._wait_and_sign_in(transport, within)
        request.headers["Authorization"] = f"Bearer {token}"

    def _usable_token(self) -> str | None:
        """Return the present token, if it need not be replaced or cannot be now."""
        now = self._clock()
        # While sign-ins are paused, even an old token is better than none.
        return self._token if now < self._renew_at or now < self._paused_until else None

    def renew(self, request: PreparedRequest) -> bool:
        """
        Forget the token that the request was sent with, so that the next one is sent with a new one.

        :return: whether there is, or may be, a newer one: not while sign-ins are paused.
        """
        if not self._is_present(request):
            return True
        if self._token_is_new:
            self._token_is_new = False
            self._count_failure()
        if self._clock() < self._paused_until:
            return False
        self._token = None
        return True

    def accepted(self, request: PreparedRequest) -> None:
        """Note that the service accepted the token of a request."""
        # An old token that is still accepted says nothing about sign-ins that failed since.
        if self._is_present(request) and self._last_error is None:
            self._token_is_new = False
            self._failures, self._paused_until = 0, float("-inf")

    def _is_present(self, request: PreparedRequest) -> bool:
        return self._token is not None and request.headers.get("Authorization") == f"Bearer {self._token}"

    def _wait_and_sign_in(self, transport: Transport, within: float | None) -> str:
        """Return a token that another thread has fetched meanwhile, or a new one."""
        lock, failures = self.account.lock, self._failures
        if not lock.acquire(timeout=min(transport.settings.timeout, within or float("inf"))):
            raise SIGN_IN.failed(
                CustodyConnectionError,
                "another sign-in with this account is in flight, and did not end within the time-out; nothing was sent",
                code="no-response",
                nothing_sent=True,
            )
        try:
            if token := self._usable_token():
                return token
            if self._last_error and (self._failures != failures or self._clock() < self._paused_until):
                # A new error each time: one that several threads raise would collect the traceback of each.
                raise CustodyError.from_json(self._last_error)
            if self.account.rejection is not None:
                self._paused_until = float("inf")
                self._last_error = {**self.account.rejection, "advice": f"{self.advice} {_NOT_AGAIN}"}
                raise CustodyError.from_json(self._last_error)
            return self._sign_in(transport, within)
        finally:
            lock.release()

    def _sign_in(self, transport: Transport, within: float | None) -> str:
        sent: list[bool] = []
        try:
            token = self._fetch(transport, lambda: sent.append(True), within)
        except CustodyError as error:
            # Even without a response, the service may have rejected it.
            if sent:
                self._count_failure(error.retry_after)
                if error.from_service and 400 <= (error.status or 0) < 500 and error.status not in _NOT_NOW:
                    self._paused_until = float("inf")
                    if isinstance(error, CustodyAuthenticationError):
                        self.account.rejection = error.to_json()
                        error.advice = f"{error.advice} {_NOT_AGAIN}"
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
        if _token_fault(token):
            raise reply.unexpected("it has no usable token")
        return str(token)

    def _time_to_keep(self, token: str) -> float:
        """Return the seconds after which a token that was fetched now is replaced; infinite if its end is not known."""
        expires, issued = _jwt_time(token, "exp"), _jwt_time(token, "iat")
        if expires is None:
            return float("inf")
        # Both by the service's clock, if it says both. This machine's may be wrong.
        life = expires - (self._wall_clock() if issued is None else issued)
        if life >= (_MARGIN_SECONDS if issued is None else 1):
            return max(life * 0.9, life - _MARGIN_SECONDS)
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "A token that was just fetched seems to expire in %.0f s by the clock of this machine, which may be "
                "wrong. Such tokens are used until the service no longer accepts them.",
                life,
            )
        return float("inf")


def _missing(setting: str, why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting=setting, code="credentials-missing")


def _token_fault(token: object) -> str | None:
    """Explain why a token cannot be sent in a header, without quoting it; None if it can."""
    if not isinstance(token, str) or not token:
        return "is missing"
    if len(token) > _MAX_TOKEN:
        return f"is longer than {_MAX_TOKEN} characters: give the token alone"
    if token.strip().lower().startswith("bearer "):
        return "begins with 'Bearer': give the token alone"
    if token.splitlines() != [token]:
        return "contains a line break, maybe at its end: give it in one line"
    if any(each.isspace() or not each.isprintable() or ord(each) > 0xFF for each in token):
        return "contains a character that cannot be sent in an HTTP header (not shown here): copy it again"
    return None


def _expiry(token: str) -> datetime | None:
    """Return when a token expires, if it is a JWT that says so. Its signature is not checked."""
    with suppress(ValueError, OverflowError, OSError, TypeError):
        return datetime.fromtimestamp(_jwt_time(token, "exp"), tz=timezone.utc)  # type: ignore[arg-type]
    return None


def _jwt_time(token: str, claim: str) -> float | None:
    """Return a time claim of a JWT, in Unix seconds; None if the token is not a JWT or does not have it."""
    parts = token.split(".")
    with suppress(ValueError, RecursionError, OverflowError, AttributeError, IndexError):
        value = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).get(claim)
        if len(parts) == 3 and isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
            return float(value)
    return None
