"""The ways to authenticate: an API token, an API key, or a user name and a password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
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

# A token is replaced this long before it ends.
_MARGIN_SECONDS = 60.0
# Statuses of the service itself that refuse a sign-in only for now.
_NOT_NOW = (408, 429)
# Seconds between sign-ins after the second failure in a row, doubled with each further one.
_FIRST_PAUSE = 10.0
_MAX_PAUSE = 600.0
_NOT_AGAIN = "The same credentials are not sent again before this process ends."
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
        self.expires: datetime | None = None
        with suppress(ValueError, OverflowError, OSError, TypeError):
            self.expires = datetime.fromtimestamp(_jwt_time(token), tz=timezone.utc)  # type: ignore[arg-type]
        self.advice = f"The token is wrong, revoked or has expired; it comes from {source}."

    def apply(self, request: PreparedRequest, transport: Transport) -> None:
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
        key = b""
        with suppress(TypeError, ValueError):
            key = bytes.fromhex(secret)
        # Raised outside of "except", so that the caught exception is not chained.
        if not key:
            raise _missing("secret", "the API key's secret is missing, or is not made of hexadecimal digits")
        self._key = key
        self._key_id = key_id
        for form in {secret, key.hex(), key.hex().upper(), base64.b64encode(key).decode()}:
            self.hide(form)
        self.advice = (
            f"The API key's id or secret is wrong, or it was revoked; they come from {source}. Or this machine's "
            "clock is wrong: signatures contain the time."
        )

    def apply(self, request: PreparedRequest, transport: Transport) -> None:
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
    """The state of a user name and password at a service. Those who share it sign in together, one at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token: str | None = None
        #: Unix time from which on the token is replaced.
        self.renew_at = float("inf")
        #: Whether the service has not yet accepted the present token, nor refused it.
        self.token_is_new = True
        #: Number of sign-ins in a row that failed, or whose token was refused.
        self.failures = 0
        #: Unix time before which nobody signs in; infinite: the service has refused the credentials.
        self.paused_until = float("-inf")
        #: The error of the last sign-in, its advice without that of the credentials; None: it brought a token.
        self.last_error: Mapping[str, Any] | None = None

    def count_failure(self, retry_after: float | None = None) -> None:
        """Count a failed sign-in, and pause before the next."""
        self.failures += 1
        pause = min(_MAX_PAUSE, retry_after or 0.0)
        if self.failures > 1:
            pause = max(pause, min(_MAX_PAUSE, _FIRST_PAUSE * 2.0 ** min(self.failures - 2, 30)))
        if pause:
            self.paused_until = time.time() + pause


class PasswordSignIn(Authentication):
    """
    Authentication with a user name and a password, which the service exchanges for a token.

    The token is fetched when the first request is sent, kept until a minute before it ends, and fetched anew then, or
    once when the service no longer accepts it. A user with two-factor authentication cannot sign in unattended.

    Wrong credentials are sent once, so that no account gets locked: once the service itself has refused them (a 4xx
    other than 408 and 429), each later request gets the same error, and nothing is sent. One thread signs in at a time:
    one that has waited as long as the time-out sends nothing, and one that waited for a sign-in that failed gets its
    error. Other failures in a row (a gateway's rejection, a 5xx, a redirect, no response, one without a token, or a
    token that is not accepted) are followed by pauses of 10 seconds after the second and up to 10 minutes, or as long
    as ``Retry-After`` says, up to 10 minutes. Only a sign-in that was not sent is tried again at once.

    :param username: name of the user.
    :param password: the password; never shown by this class, and sent only to sign in.
    :param source: place where the user finds both, for error messages.
    :param on_token: called with each token that was fetched, to keep it out of logs.
    :raises CustodyConfigurationError: if the name or the password is missing.
    """

    def __init__(
        self,
        username: str,
        password: str,
        *,
        source: str = DEFAULT_SOURCE,
        on_token: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(source=source)
        if not username:
            raise _missing("username", "the user name is missing")
        if not password:
            raise _missing("password", "the password is missing")
        self._username = username
        self._password = password
        self._on_token = on_token
        self.hide(password)
        #: The state of this name and password. Those that sign in together are given the same.
        self.account = Account()
        self.advice = (
            f"The user name or the password is wrong, or the user may not sign in; they come from {source}. If the "
            "password is an API token, remove the user name. A user with two-factor authentication needs an API key: "
            "one-time codes are not supported."
        )

    def apply(self, request: PreparedRequest, transport: Transport) -> None:
        """
        Add the ``Authorization`` header to a request, and sign in first if needed.

        :param request: the request.
        :param transport: the transport that fetches the token.
        :raises CustodyAuthenticationError: if the service does not accept the user.
        :raises CustodyError: of another type if the service cannot be asked; the request itself was not sent then.
        """
        token = self._usable_token() or self._wait_and_sign_in(transport)
        self.hide_token(token)
        request.headers["Authorization"] = f"Bearer {token}"

    def _usable_token(self) -> str | None:
        """Return the present token, if it need not be replaced or cannot be now."""
        account, now = self.account, time.time()
        # While sign-ins are paused, even an old token is better than none.
        return account.token if now < account.renew_at or now < account.paused_until else None

    def renew(self, request: PreparedRequest) -> bool:
        """
        Forget the token that the request was sent with, so that the next one is sent with a new one.

        :return: whether there is, or may be, a newer one: not while sign-ins are paused.
        """
        account = self.account
        if not self._is_present(request):
            return True
        if account.token_is_new:
            account.token_is_new = False
            account.count_failure()
        if time.time() < account.paused_until:
            return False
        account.token = None
        return True

    def accepted(self, request: PreparedRequest) -> None:
        """Note that the service accepted the token of a request."""
        account = self.account
        # An old token that is still accepted says nothing about sign-ins that failed since.
        if self._is_present(request) and account.last_error is None:
            account.token_is_new = False
            account.failures, account.paused_until = 0, float("-inf")

    def _is_present(self, request: PreparedRequest) -> bool:
        token = self.account.token
        return token is not None and request.headers.get("Authorization") == f"Bearer {token}"

    def _wait_and_sign_in(self, transport: Transport) -> str:
        """Return a token that another thread has fetched meanwhile, or a new one."""
        account = self.account
        failures = account.failures
        if not account.lock.acquire(timeout=transport.settings.timeout):
            raise SIGN_IN.failed(
                CustodyConnectionError,
                "another sign-in with this account is in flight, and did not end within the time-out; nothing was sent",
                code="no-response",
                nothing_sent=True,
            )
        try:
            if token := self._usable_token():
                return token
            if account.last_error and (account.failures != failures or time.time() < account.paused_until):
                # A new error each time: one that several threads raise would collect the traceback of each.
                error = CustodyError.from_json(account.last_error)
                error.advice = _joined(self.advice if error.status == 401 else None, error.advice)
                raise error
            return self._sign_in(transport)
        finally:
            account.lock.release()

    def _sign_in(self, transport: Transport) -> str:
        account = self.account
        sent: list[bool] = []
        body = {"username": self._username, "password": self._password}
        try:
            reply = transport.call(
                SIGN_IN,
                WireToken,
                body=body,
                before_send=lambda: sent.append(True),
                authenticate=False,
            )
            token = reply.body.get("result")
            if token is None or _token_fault(token):
                raise reply.unexpected("it has no usable token")
        except CustodyError as error:
            # Even without a response, the service may have rejected it.
            if sent:
                account.count_failure(error.retry_after)
                if error.from_service and 400 <= (error.status or 0) < 500 and error.status not in _NOT_NOW:
                    account.paused_until = float("inf")
                    error.advice = _joined(error.advice, _NOT_AGAIN)
            # Another who shares the account has the credentials from elsewhere.
            account.last_error = {**error.to_json(), "advice": (error.advice or "").removeprefix(self.advice).strip()}
            raise
        if self._on_token is not None:
            self._on_token(token)
        # By this machine's clock. If that seems wrong, the token is used until the service no longer accepts it.
        renew_at = (_jwt_time(token) or float("inf")) - _MARGIN_SECONDS
        account.renew_at = renew_at if renew_at > time.time() else float("inf")
        account.token, account.token_is_new, account.last_error = token, True, None
        return token


def _joined(*advice: str | None) -> str | None:
    return " ".join(filter(None, advice)) or None


def _missing(setting: str, why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting=setting, code="credentials-missing")


def _token_fault(token: object) -> str | None:
    """Explain why a token cannot be sent in a header, without quoting it; None if it can."""
    if not isinstance(token, str) or not token:
        return "is missing"
    if token.strip().lower().startswith("bearer "):
        return "begins with 'Bearer': give the token alone"
    if any(each.isspace() or not each.isprintable() or ord(each) > 0xFF for each in token):
        return "contains a line break, or another character that cannot be sent in an HTTP header (not shown here)"
    return None


def _jwt_time(token: str) -> float | None:
    """Return the Unix time when a JWT ends (``exp``); None if it does not say. Its signature is not checked."""
    with suppress(ValueError, AttributeError, IndexError):
        payload = token.split(".")[1]
        value = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).get("exp")
        if isinstance(value, (int, float)):
            return float(value)
    return None
