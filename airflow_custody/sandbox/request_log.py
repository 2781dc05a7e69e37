"""The log of the requests that the service received."""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from airflow_custody.sandbox.wire import is_below

MAX_REQUESTS = 20_000
MAX_BODY_BYTES = 64 * 1024
REDACTED = "***"
_SECRET_KEYS = ("password", "secret")


class RequestLog:
    """
    The log of the last requests, in the order of arrival.

    The log contains no credentials. In the header ``Authorization``, a fingerprint replaces the credentials. In JSON
    bodies, the fields ``password`` and ``secret`` are redacted.
    """

    def __init__(self) -> None:
        self._requests: deque[dict[str, Any]] = deque(maxlen=MAX_REQUESTS)

    def add(self, scope: Scope, body: bytes) -> dict[str, Any]:
        """Add a record. The caller sets its `status` and `fault` later."""
        query = scope["query_string"].decode("latin-1")
        decoded = decode_body(body)
        if isinstance(decoded, dict):
            decoded = {name: REDACTED if name in _SECRET_KEYS else value for name, value in decoded.items()}
        record: dict[str, Any] = {
            "method": scope["method"],
            "path": scope["path"],
            "query": parse_qs(query, keep_blank_values=True),
            "raw_query": query,
            "headers": _redacted_headers(scope),
            "body": decoded,
            "time": time.time(),
            "status": None,
            "fault": None,
        }
        self._requests.append(record)
        return record

    def request_log(self, method: str | None = None, path: str | None = None) -> list[dict[str, Any]]:
        """
        Return the requests that the service received, in order.

        Each request has `method`, `path`, `query` (lists of values by name), `raw_query`, `headers` (with names in
        lower case, and with the :func:`fingerprint` of the credentials in ``authorization``), `body` (JSON or text),
        `time` (seconds since 1970), `status` (None before the response, or if the connection was dropped) and `fault`
        (the kind of the injected fault, or None).

        :param method: method of the requests to return. Default: all methods.
        :param path: path at or below which the requests are, with or without ``/api/rest/v1``. Default: all paths.
        """
        return [
            dict(record)
            for record in self._requests
            if (method is None or record["method"] == method.upper()) and is_below(record["path"], path)
        ]

    def clear_request_log(self) -> None:
        """Empty the log of requests."""
        self._requests.clear()


def fingerprint(secret: str) -> str:
    """
    Return the first eight hex digits of a secret's SHA-256.

    They identify the secret without revealing it.

    :param secret: the secret.
    """
    return hashlib.sha256(secret.encode()).hexdigest()[:8]


def decode_body(body: bytes) -> Any:
    """Return a body as JSON data, or else as (truncated) text."""
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
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
