"""The log of the requests that reached the service."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import deque
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from airflow_custody.sandbox.paths import is_below

MAX_REQUESTS = 20_000
MAX_BODY_BYTES = 64 * 1024


class RequestLog:
    """The log of the last requests, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: deque[dict[str, Any]] = deque(maxlen=MAX_REQUESTS)

    def add(self, scope: Scope, body: bytes) -> dict[str, Any]:
        """Record a request and return its record, to which the caller adds `status` and `fault`."""
        query = scope["query_string"].decode("latin-1")
        record = {
            "method": scope["method"],
            "path": scope["path"],
            "query": parse_qs(query, keep_blank_values=True),
            "raw_query": query,
            "headers": _redacted_headers(scope),
            "body": decode_body(body),
            "time": time.time(),
            "status": None,
            "fault": None,
        }
        with self._lock:
            self._requests.append(record)
        return record

    def list(self, method: str | None, path: str | None) -> list[dict[str, Any]]:
        """Return the requests, filtered by method and by path."""
        with self._lock:
            return [
                dict(record)
                for record in self._requests
                if (method is None or record["method"] == method.upper()) and is_below(record["path"], path)
            ]

    def clear(self) -> None:
        """Delete all requests."""
        with self._lock:
            self._requests.clear()


def fingerprint(secret: str) -> str:
    """Return the first eight hex digits of a secret's SHA-256, which identify it without revealing it."""
    return hashlib.sha256(secret.encode()).hexdigest()[:8]


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
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
