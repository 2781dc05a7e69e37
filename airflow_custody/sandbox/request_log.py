"""The log of the requests that reached the service."""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from airflow_custody.sandbox.wire import is_below

MAX_REQUESTS = 20_000
MAX_BODY_BYTES = 64 * 1024
REDACTED = "***"
_SECRET_KEYS = ("password", "totp", "secret", "token")
# A shorter one turns up by chance.
_MIN_SECRET_LENGTH = 4
_SECRET_HEADERS = ("proxy-authorization", "cookie")


class RequestLog:
    """
    The log of the last requests, in the order in which they came; it shows no secret.

    :param secrets: returns the secrets that the service knows.
    """

    def __init__(self, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        self._secrets = secrets
        self._requests: deque[dict[str, Any]] = deque(maxlen=MAX_REQUESTS)

    def add(self, scope: Scope, body: bytes) -> dict[str, Any]:
        """Record a request and return its record, to which the caller adds `status` and `fault`."""
        redact = _Redactor(self._secrets())
        query = redact.text(scope["query_string"].decode("latin-1"))
        parameters = parse_qs(query, keep_blank_values=True)
        record = {
            "method": scope["method"],
            "path": redact.text(scope["path"]),
            "query": redact.value(parameters),
            "raw_query": REDACTED if any(name.lower() in _SECRET_KEYS for name in parameters) else query,
            "headers": redact.value(_redacted_headers(scope)),
            "body": redact.body(body),
            "time": time.time(),
            "status": None,
            "fault": None,
        }
        self._requests.append(record)
        return record

    def request_log(self, method: str | None = None, path: str | None = None) -> list[dict[str, Any]]:
        """
        Return the requests that reached the service, in order.

        Each has `method`, `path`, `query` (lists of values by name), `raw_query`, `headers` (names in lower case, the
        credentials in ``authorization`` replaced by their :func:`fingerprint`), `body` (JSON or text), `time` (seconds
        since 1970), `status` (None while there is no response, or if the connection was dropped) and `fault` (which
        one was injected, or None).

        :param method: only requests with this method.
        :param path: only requests at or below this path, with or without ``/api/rest/v1``.
        """
        return [
            dict(record)
            for record in self._requests
            if (method is None or record["method"] == method.upper()) and is_below(record["path"], path)
        ]

    def clear_request_log(self) -> None:
        """Delete the log of requests."""
        self._requests.clear()


def fingerprint(secret: str) -> str:
    """
    Return the first eight hex digits of a secret's SHA-256, which identify it without revealing it.

    :param secret: the secret.
    """
    return hashlib.sha256(secret.encode()).hexdigest()[:8]


class _Redactor:
    """What takes secrets out of a request: those that the service knows, and whatever stands under a telling name."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted((each for each in secrets if len(each) >= _MIN_SECRET_LENGTH), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text without the secrets that the service knows."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def value(self, value: Any) -> Any:
        """Return JSON data without secrets."""
        if isinstance(value, dict):
            return {
                self.text(name): REDACTED if name.lower() in _SECRET_KEYS else self.value(each)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self.value(each) for each in value]
        return self.text(value) if isinstance(value, str) else value

    def body(self, body: bytes) -> Any:
        """Return a body without secrets; of one that is not JSON and names a secret, only that."""
        decoded = decode_body(body)
        if not isinstance(decoded, str):
            try:
                return self.value(decoded)
            except RecursionError:
                return REDACTED
        named = any(key in decoded.lower() for key in _SECRET_KEYS)
        return REDACTED if named else self.text(decoded)


def decode_body(body: bytes) -> Any:
    """Return a body as JSON if it is JSON, otherwise as text; of a very long one, only the beginning."""
    if not body:
        return None
    text = body[:MAX_BODY_BYTES].decode("utf-8", errors="replace")
    if len(body) > MAX_BODY_BYTES:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _redacted_headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "authorization":
            scheme, space, secret = value.partition(" ")
            value = f"{scheme} {fingerprint(secret)}" if space else fingerprint(value)
        if name in _SECRET_HEADERS:
            value = REDACTED
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
