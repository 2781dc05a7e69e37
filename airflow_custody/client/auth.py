"""Ways to authenticate: a bearer token, a user name and password, an API key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from requests import PreparedRequest

from airflow_custody.client.errors import CustodyAuthenticationError, CustodyConfigurationError
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.wire import TypedDict

if TYPE_CHECKING:
    from airflow_custody.client.http.transport import Transport

DEFAULT_SOURCE = "the 'auth' given to CustodyClient"
# A token is replaced this long before it ends, or after nine tenths of a shorter life.
_MARGIN_SECONDS = 60.0

# A second token does no harm.
SIGN_IN = Operation("sign in", "POST", "/authentication/token", repeatable=True, confidential=True, documented=False)


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
        self._expires = jwt_expiry(token)
        self.advice = f"The token is wrong, revoked or has expired; it comes from {source}."

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Add the ``Authorization`` header to a request.

        :raises CustodyAuthenticationError: if the token is a JWT whose ``exp`` has passed.
        """
        if self._expires is not None and self._expires <= datetime.now(timezone.utc):
            raise CustodyAuthenticationError(
                f"the API token expired at {self._expires:%Y-%m-%d %H:%M:%S} UTC; nothing was sent",
                advice=f"Put a new token into {self.source}.",
            )
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class PasswordSignIn(Authentication):
    """
    Authentication with a user name and a password, which the service exchanges for a token.

    The token is fetched when the first request is sent, kept for its life, and fetched anew when that ends, or once
    when the service no longer accepts it. A user with two-factor authentication cannot sign in unattended.

    :param username: name of the user.
    :param password: the password; never shown by this class, and sent only to sign in.
    :param source: where the user finds both, for error messages.
    :param on_token: called with each token that was fetched, to keep it out of logs.
    :param clock: returns the Unix time in seconds; tests turn it. Default: the system's clock.
    :raises CustodyConfigurationError: if the name or the password is missing.
    """

    def __init__(
        self,
        username: str,
        password: str,
        *,
        source: str = DEFAULT_SOURCE,
        on_token: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(source=source)
        if not username:
            raise CustodyConfigurationError("the user name is missing", setting="username")
        if not password:
            raise CustodyConfigurationError("the password is missing", setting="password")
        self._username = username
        self._password = password
        self._on_token = on_token
        self._clock = clock
        self.hide(password)
        self._transport: Transport | None = None
        self._lock = threading.Lock()
        self._token: str | None = None
        self._renew_at = float("inf")
        self.advice = (
            f"The user name or the password is wrong, or the user may not sign in; they come from {source}. A user "
            "with two-factor authentication cannot sign in unattended: one-time codes are not supported. Use an "
            "API key."
        )

    def bind(self, transport: Transport) -> None:
        """Take the transport that tokens are fetched with: same host, same TLS, same proxy."""
        self._transport = transport

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Add the ``Authorization`` header to a request, and sign in first where that is needed.

        :raises CustodyAuthenticationError: if the service does not accept the user.
        :raises CustodyError: of another type if the service cannot be asked; the request itself was not sent then.
        """
        with self._lock:
            if self._token is None or self._clock() >= self._renew_at:
                self._fetch()
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def renew(self, request: PreparedRequest) -> bool:
        """Forget the token that the request was sent with, so that the next one is sent with a new one."""
        with self._lock:
            if request.headers.get("Authorization") == f"Bearer {self._token}":
                self._token = None
        return True

    def _fetch(self) -> None:
        if self._transport is None:
            raise CustodyConfigurationError("PasswordSignIn is not in use by a client", setting="auth")
        body = {"username": self._username, "password": self._password}
        reply = self._transport.call(SIGN_IN, WireToken, body=body, authenticate=False)
        try:
            token = check_token(reply.body.get("result"))
        except CustodyConfigurationError:
            raise reply.unexpected("it has no usable token") from None
        if self._on_token is not None:
            self._on_token(token)
        now = self._clock()
        expires = jwt_expiry(token)
        life = float("inf") if expires is None else expires.timestamp() - now
        self._renew_at = now + max(life * 0.9, life - _MARGIN_SECONDS)
        self._token = token
        self.hide_token(token)


class ApiKey(Authentication):
    """
    Authentication with an API key, which signs each request (``TPV1-HMAC-SHA256``).

    Services support it from version 3.20 on.

    :param key_id: id of the key.
    :param secret: the key's secret in hex; never shown by this class, and never sent.
    :param source: where the user finds both, for error messages.
    :raises CustodyConfigurationError: if the id or the secret is missing or malformed.
    """

    def __init__(self, key_id: str, secret: str, *, source: str = DEFAULT_SOURCE) -> None:
        super().__init__(source=source)
        if not key_id or not key_id.isascii() or not key_id.isprintable() or " " in key_id:
            raise CustodyConfigurationError(
                "the API key's id is missing, or contains what cannot be sent in a header", setting="api_key_id"
            )
        try:
            self._key = bytes.fromhex(secret)
        except (TypeError, ValueError):
            # "from None": the original error quotes the secret.
            raise CustodyConfigurationError("the API key's secret is not hex", setting="secret") from None
        if not self._key:
            raise CustodyConfigurationError("the API key's secret is missing", setting="secret")
        self._key_id = key_id
        self.hide(secret)
        self.advice = (
            f"The API key's id or secret is wrong, or it was revoked; they come from {source}. Or this machine's "
            "clock is wrong: signatures contain the time."
        )

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request; one without a body loses its content type."""
        if not request.body:
            request.headers.pop("Content-Type", None)
        request.headers["Authorization"] = self.authorization(
            request, nonce=str(uuid.uuid4()), timestamp=time.time_ns() // 1_000_000
        )
        return request

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


def check_token(token: object) -> str:
    """Return a token that can be sent in a header, or refuse it without quoting it."""
    if not isinstance(token, str) or not token:
        raise CustodyConfigurationError("the API token is missing", setting="token")
    if any(character.isspace() or not character.isprintable() for character in token):
        raise CustodyConfigurationError(
            "the API token contains a line break, white space or a control character; it must be the bare "
            "token, without 'Bearer' (its value is not shown here)",
            setting="token",
        )
    try:
        token.encode("iso-8859-1")
    except UnicodeEncodeError:
        # "from None": the original error quotes the token.
        raise CustodyConfigurationError(
            "the API token contains a character that cannot be sent in an HTTP header (outside "
            "ISO-8859-1; its value is not shown here)",
            setting="token",
        ) from None
    return token


def jwt_expiry(token: str) -> datetime | None:
    """
    Return when a JWT expires, without checking its signature.

    :param token: any token.
    :return: its ``exp`` as an aware time; None if it is no JWT or its ``exp`` cannot be read.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = payload["exp"]
        if isinstance(expires, bool) or not isinstance(expires, (int, float)):
            return None
        return datetime.fromtimestamp(expires, tz=timezone.utc)
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError, binascii.Error):
        return None
