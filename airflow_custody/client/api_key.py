"""Authentication with an API key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import uuid
from contextlib import suppress
from urllib.parse import urlsplit

from requests import PreparedRequest

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.http.authentication import DEFAULT_SOURCE, Authentication


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
                "the API key's id is missing, or contains what cannot be sent in a header",
                setting="api_key_id",
                code="credentials-missing",
            )
        key: bytes | None = None
        with suppress(TypeError, ValueError):
            key = bytes.fromhex(secret)
        if key is None:
            # Raised out here: what was caught must not come along.
            raise CustodyConfigurationError(
                "the API key's secret is not made of hexadecimal digits: copy it again",
                setting="secret",
                code="credentials-missing",
            )
        if not key:
            raise CustodyConfigurationError(
                "the API key's secret is missing", setting="secret", code="credentials-missing"
            )
        self._key = key
        self._key_id = key_id
        for form in {secret, key.hex(), key.hex().upper(), base64.b64encode(key).decode()}:
            self.hide(form)
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
