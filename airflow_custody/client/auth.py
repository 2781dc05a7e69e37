"""The ways to authenticate: API token, API key, or password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr
from requests import PreparedRequest

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
)
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.json_text import read_json
from airflow_custody.client.secrets import REDACTED, redact
from airflow_custody.client.text import sanitize
from airflow_custody.client.wire import TypedDict

DEFAULT_SOURCE = "the 'auth' given to CustodyClient"
# Maximum number of replaced tokens that are still redacted, because a service may echo them.
_MAX_TOKENS = 200
# How long before its expiry a token is replaced.
_MARGIN_SECONDS = 60.0
# Statuses of the service itself that refuse a sign-in only temporarily.
_TEMPORARY_STATUSES = (408, 429)
_NOT_AGAIN = "This client does not send the same credentials again."
# Repeating a sign-in does no harm, because it only returns a second token.
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


class Authentication(ABC):
    """
    The base of all ways to authenticate.

    An object of this class adds credentials to requests, and keeps them out of all other texts.

    :param source: place of the credentials, for error messages.
    """

    #: Advice to the user when the service does not accept the credentials.
    advice = ""
    #: Whether credentials are only valid for a short time, because they contain a signature over the current time.
    signs_time = False

    def __init__(self, *, source: str) -> None:
        self.source = source
        # Replace this collection, never modify it, because another thread may be reading it to redact a text.
        self._secrets: frozenset[SecretStr] = frozenset()
        self._tokens: tuple[SecretStr, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the service has refused the credentials; if so, this object does not send them again."""
        return False

    def hide(self, secret: str | SecretStr) -> None:
        """Redact a secret in all text that :meth:`redact` returns."""
        self._secrets |= {_wrapped(secret)}

    def hide_token(self, token: SecretStr) -> None:
        """
        Redact a token that will be replaced, until 200 further tokens were hidden.
        """
        if token not in self._tokens:
            self._tokens = (*self._tokens[1 - _MAX_TOKENS :], token)

    @abstractmethod
    def apply(self, request: PreparedRequest, transport: Any) -> None:
        """
        Put the credentials on a request that is ready to be sent.

        :param request: the request.
        :param transport: the client's transport, to fetch a token with the same host, TLS and proxy.
        """

    def renew(self, request: PreparedRequest) -> bool:
        """
        Tell whether to send a request once more after a 401, with newer credentials.
        """
        return False

    def redact(self, text: object, limit: int = 300) -> str:
        """
        Return text from outside in a form for messages: secrets are replaced, then the text is cut to the limit.
        """
        secrets = (each.get_secret_value() for each in (*self._secrets, *self._tokens))
        return sanitize(redact(str(text), secrets), limit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({REDACTED})"


class BearerToken(Authentication):
    """
    Authentication with a bearer token.

    :param token: the token, without ``Bearer``; never printed by this class. White space around it is removed.
    :param source: where the user can change the token; named in error messages.
    :raises CustodyConfigurationError: if the token is missing or cannot be sent in a header.
    """

    def __init__(self, token: str | SecretStr, *, source: str = "the 'token' given to CustodyClient") -> None:
        super().__init__(source=source)
        token = _wrapped(token)
        # Remove white space, because a file or a secrets backend may add a line break, and no token contains any.
        self._token = SecretStr(token.get_secret_value().strip())
        if fault := _token_fault(self._token):
            raise _missing("token", f"the API token {fault}")
        self.hide(self._token)
        #: Expiry of the token, if it is a JWT with an expiry.
        self.expires: datetime | None = None
        with suppress(ValueError, OverflowError, OSError, TypeError):
            self.expires = datetime.fromtimestamp(_jwt_time(self._token), tz=timezone.utc)  # type: ignore[arg-type]
        self.advice = f"The token (from {source}) is wrong, revoked or expired: replace it there."

    def apply(self, request: PreparedRequest, transport: Any) -> None:
        """
        Add the ``Authorization`` header to a request.

        :raises CustodyAuthenticationError: if the token is a JWT whose ``exp`` has passed.
        """
        if self.expires is not None and self.expires <= datetime.now(timezone.utc):
            raise CustodyAuthenticationError(
                f"the API token expired at {self.expires:%Y-%m-%d %H:%M:%S} UTC; this request was not sent",
                advice=f"Put a new token into {self.source}.",
                code="token-expired",
            )
        request.headers["Authorization"] = _bearer(self._token)


class ApiKey(Authentication):
    """
    Authentication with an API key, which signs each request (``TPV1-HMAC-SHA256``).

    Services support it from version 3.20 on.

    :param key_id: id of the key.
    :param secret: the key's secret in hex; never printed by this class, and never sent.
    :param source: where the user can change both; named in error messages.
    :raises CustodyConfigurationError: if the id or the secret is missing or malformed.
    """

    signs_time = True

    def __init__(self, key_id: str, secret: str | SecretStr, *, source: str = DEFAULT_SOURCE) -> None:
        super().__init__(source=source)
        secret = _wrapped(secret)
        key_id = (key_id or "").strip()
        if not key_id or not key_id.isascii() or not key_id.isprintable() or " " in key_id:
            raise _missing("api_key_id", "the API key's id is missing, or has characters that a header cannot hold")
        self._key = b""
        with suppress(ValueError):
            self._key = bytes.fromhex(secret.get_secret_value())
        # Raise the error outside of "except", so that the caught exception, which may quote the secret, is not chained.
        if not self._key:
            raise _missing("secret", "the API key's secret is missing, or not hexadecimal")
        self._key_id = key_id
        self.hide(secret.get_secret_value().strip())
        self.hide(self._key.hex())
        self.hide(self._key.hex().upper())
        self.hide(base64.b64encode(self._key).decode())
        self.advice = (
            f"The API key's id or secret (from {source}) is wrong, or the key was revoked. Or this machine's clock is "
            "wrong: signatures cover the time. Or a gateway changes the request's host or path, which signatures also "
            "cover: the gateway must pass them on unchanged."
        )

    def apply(self, request: PreparedRequest, transport: Any) -> None:
        """Sign a request. If it has no body, remove its content type."""
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


class PasswordSignIn(Authentication):
    """
    Authentication with a user name and a password, which the service exchanges for a token.

    The token is fetched before the first request. It is replaced one minute before it expires, or when the service no
    longer accepts it. A user with two-factor authentication cannot sign in unattended.

    A refused password is not sent again, so that the account does not get locked: after the service itself has refused
    the password (with a 4xx other than 408 and 429), each later request with this object raises the same error, and
    nothing is sent. After any other failure, the next request signs in again. Only one thread signs in at a time. Other
    threads wait for it, at most for the client's time-out.

    :param username: name of the user.
    :param password: the password, without line breaks at its end; never printed by this class, only sent to sign in.
    :param source: where the user can change both; named in error messages.
    :param on_token: called with each fetched token, for example to keep the token out of logs.
    :raises CustodyConfigurationError: if the name or the password is missing.
    """

    def __init__(
        self,
        username: str,
        password: str | SecretStr,
        *,
        source: str = DEFAULT_SOURCE,
        on_token: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(source=source)
        password = _wrapped(password)
        self._username = (username or "").strip()
        # Remove line breaks from the end, because files and secrets backends may add them.
        self._password = SecretStr(password.get_secret_value().rstrip("\r\n"))
        if not self._username:
            raise _missing("username", "the user name is missing")
        if not self._password:
            raise _missing("password", "the password is missing")
        self._on_token = on_token
        self.hide(self._password)
        self.advice = (
            f"The user name or the password (from {source}) is wrong, or the user may not sign in. If the password is "
            "an API token, remove the user name. A user with two-factor authentication needs an API key, because "
            "one-time codes are not supported."
        )
        # The lock is held while a token is fetched or forgotten.
        self._lock = threading.Lock()
        self._token: SecretStr | None = None
        # The Unix time from which on the token must be replaced.
        self._renew_at = float("inf")
        # The error for the service's refusal, as JSON data; None: the service has not refused the password.
        self._refusal: dict[str, Any] | None = None

    @property
    def is_refused(self) -> bool:
        return self._refusal is not None

    def apply(self, request: PreparedRequest, transport: Any) -> None:
        """
        Add the ``Authorization`` header to a request. If there is no usable token, sign in first.

        :param request: the request.
        :param transport: the transport that fetches the token.
        :raises CustodyAuthenticationError: if the service does not accept the user.
        :raises CustodyError: (of another type) if signing in fails for another reason. The request itself was not sent.
        """
        token = self._usable_token() or self._wait_and_sign_in(transport)
        self.hide_token(token)
        request.headers["Authorization"] = _bearer(token)

    def renew(self, request: PreparedRequest) -> bool:
        """
        Forget the token that a request was sent with, so that the next request is sent with a new one.

        :return: always True, because a newer token exists or can be fetched.
        """
        with self._lock:
            if self._token is not None and request.headers.get("Authorization") == _bearer(self._token):
                self._token = None
        return True

    def _usable_token(self) -> SecretStr | None:
        return self._token if time.time() < self._renew_at else None

    def _wait_and_sign_in(self, transport: Any) -> SecretStr:
        """Return the token that another thread has fetched, or a new one."""
        if not self._lock.acquire(timeout=transport.settings.timeout):
            raise SIGN_IN.failed(
                CustodyConnectionError,
                "another sign-in with this account did not finish within the time-out; this request was not sent",
                code="no-response",
                nothing_sent=True,
            )
        try:
            return self._usable_token() or self._sign_in(transport)
        finally:
            self._lock.release()

    def _sign_in(self, transport: Any) -> SecretStr:
        """
        Return a new token.

        :raises CustodyError: if signing in fails. If the service has refused the password before, that refusal is
            raised again, and nothing is sent.
        """
        if self._refusal is None:
            try:
                return self._fetch_token(transport)
            except CustodyError as error:
                if not _is_refusal(error):
                    raise
                advice = " ".join(filter(None, (error.advice, _NOT_AGAIN)))
                self._refusal = {**error.to_json(), "advice": advice}
        # Create a new error each time, because a shared error would collect the tracebacks of all threads.
        raise CustodyError.from_json(self._refusal)

    def _fetch_token(self, transport: Any) -> SecretStr:
        body = {"username": self._username, "password": self._password}
        reply = transport.call(SIGN_IN, WireToken, body=body, authenticate=False)
        token = _wrapped(reply.body.get("result"))
        if _token_fault(token):
            raise reply.unexpected("it has no usable token")
        if self._on_token is not None:
            self._on_token(token.get_secret_value())
        # Compare the expiry with this machine's clock. If the clock seems wrong, because the new token would have
        # expired already, use the token until the service no longer accepts it.
        renew_at = (_jwt_time(token) or float("inf")) - _MARGIN_SECONDS
        self._renew_at = renew_at if renew_at > time.time() else float("inf")
        self._token = token
        return token


def _is_refusal(error: CustodyError) -> bool:
    """Tell whether the service itself has permanently refused the credentials."""
    status = error.status or 0
    return error.from_service and 400 <= status < 500 and status not in _TEMPORARY_STATUSES


def _missing(setting: str, why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting=setting, code="credentials-missing")


def _wrapped(secret: object) -> SecretStr:
    """Return a secret in a form that error reports do not show; empty if the value is not text."""
    return secret if isinstance(secret, SecretStr) else SecretStr(secret if isinstance(secret, str) else "")


def _bearer(token: SecretStr) -> str:
    return f"Bearer {token.get_secret_value()}"


def _token_fault(token: SecretStr) -> str | None:
    """
    Explain why a header cannot hold a token, without quoting it; None if it can.
    """
    if not token:
        return "is missing"
    if token.get_secret_value().strip().lower().startswith("bearer "):
        return "begins with 'Bearer': set the token without this word"
    if any(each.isspace() or not each.isprintable() or ord(each) > 0xFF for each in token.get_secret_value()):
        return "contains a line break, or another character that cannot be sent in an HTTP header (not shown here)"
    return None


def _jwt_time(token: SecretStr) -> float | None:
    """
    Return the Unix time at which a JWT expires (``exp``); None if the token has no such time.

    The token's signature is not checked.
    """
    with suppress(ValueError, AttributeError, IndexError):
        payload = token.get_secret_value().split(".")[1]
        value = read_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), len(payload)).get("exp")
        if isinstance(value, (int, float)):
            return float(value)
    return None
