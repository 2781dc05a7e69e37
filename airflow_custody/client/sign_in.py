"""
Signing in with a password or an API key.

Published knowledge, not part of the given interface.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from requests import PreparedRequest

from airflow_custody.client import answers
from airflow_custody.client.auth import Authentication, checked_token, jwt_expiry
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.operations import SIGN_IN

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

if TYPE_CHECKING:
    from airflow_custody.client.transport import Transport

# A token is replaced this long before it ends, or after nine tenths of a shorter life.
_MARGIN_SECONDS = 60.0


class _WireToken(TypedDict, total=False):
    result: str | None


class PasswordSignIn(Authentication):
    """
    Sign in with a user name and a password, and send the token that this gives.

    The token is fetched when the first request is sent, kept for its life, and fetched anew when that ends, or once
    when the service does not accept it any more. A user with two-factor authentication can not sign in unattended.

    :param username: name of the user.
    :param password: the password; never shown by this class, and sent only to sign in.
    :param origin: where the user finds both, for error messages.
    :param on_token: called with each token that was fetched, to keep it out of logs.
    :raises CustodyConfigurationError: if the name or the password is missing.
    """

    def __init__(
        self,
        username: str,
        password: str,
        *,
        origin: str = "the 'auth' given to CustodyClient",
        on_token: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(origin=origin)
        if not username:
            raise CustodyConfigurationError("the user name is missing", setting="username")
        if not password:
            raise CustodyConfigurationError("the password is missing", setting="password")
        self._username = username
        self._password = password
        self._on_token = on_token
        self._secrets = [password]
        self._transport: Transport | None = None
        self._lock = threading.Lock()
        self._token: str | None = None
        self._good_until = float("inf")
        self.advice = (
            f"The user name or the password is wrong, or the user may not sign in; they come from {origin}. A user "
            "with two-factor authentication can not sign in unattended: one-time codes are not supported. Use an "
            "API key."
        )

    def use(self, transport: Transport) -> None:
        """Get to know the transport that tokens are fetched with: same host, same TLS, same proxy."""
        self._transport = transport

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Add the ``Authorization`` header to a request, and sign in first where that is needed.

        :raises CustodyAuthenticationError: if the service does not accept the user.
        :raises CustodyError: of another type if it can not be asked; the request itself was not sent then.
        """
        with self._lock:
            if self._token is None or time.time() >= self._good_until:
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
        answer = self._transport.exchange(SIGN_IN, body=body, anonymous=True)
        answers.check_status(SIGN_IN, answer, self)
        token = answers.read_body(SIGN_IN, answer, _WireToken, self).get("result")
        try:
            token = checked_token(token)
        except CustodyConfigurationError:
            raise answers.not_this_service(SIGN_IN, answer, self, "it has no usable token") from None
        if self._on_token is not None:
            self._on_token(token)
        now = time.time()
        expires = jwt_expiry(token)
        life = float("inf") if expires is None else expires.timestamp() - now
        self._good_until = now + max(life * 0.9, life - _MARGIN_SECONDS)
        self._token = token
        self._secrets = [self._password, token]


class ApiKey(Authentication):
    """
    Sign each request with an API key (``TPV1-HMAC-SHA256``); from version 3.20 of the service on.

    :param key_id: id of the key.
    :param secret: the key's secret in hex; never shown by this class, and never sent.
    :param origin: where the user finds both, for error messages.
    :raises CustodyConfigurationError: if the id or the secret is missing or malformed.
    """

    def __init__(self, key_id: str, secret: str, *, origin: str = "the 'auth' given to CustodyClient") -> None:
        super().__init__(origin=origin)
        if not key_id or not key_id.isascii() or not key_id.isprintable() or " " in key_id:
            raise CustodyConfigurationError(
                "the API key's id is missing, or holds what can not be sent in a header", setting="api_key_id"
            )
        try:
            self._key = bytes.fromhex(secret)
        except (TypeError, ValueError):
            # "from None": the original error quotes the secret.
            raise CustodyConfigurationError("the API key's secret is not hex", setting="secret") from None
        if not self._key:
            raise CustodyConfigurationError("the API key's secret is missing", setting="secret")
        self._key_id = key_id
        self._secrets = [secret]
        self.advice = (
            f"The API key's id or secret is wrong, or it was withdrawn; they come from {origin}. Or this machine's "
            "clock is wrong: signatures hold the time."
        )

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request; one without a body loses its content type."""
        if not request.body:
            request.headers.pop("Content-Type", None)
        request.headers["Authorization"] = self.again(request)
        return request

    def again(self, request: PreparedRequest) -> str:
        """Sign a request that is sent once more: no nonce is accepted twice."""
        return self.authorization(request, nonce=str(uuid.uuid4()), timestamp=time.time_ns() // 1_000_000)

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
