"""Remember which requests reached the service."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import deque
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from airflow_custody.sandbox.paths import below

_MAX_REQUESTS = 20_000
_MAX_BODY = 64 * 1024


def fingerprint(secret: str) -> str:
    """Shorten a secret to what may be shown: the first eight hex digits of its SHA-256."""
    return hashlib.sha256(secret.encode()).hexdigest()[:8]


class ReceivedLog:
    """Keep the last requests, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: deque[dict[str, Any]] = deque(maxlen=_MAX_REQUESTS)

    def add(self, scope: Scope, body: bytes) -> dict[str, Any]:
        """Note a request; the returned record is filled in further when it is answered."""
        query = scope["query_string"].decode("latin-1")
        record = {
            "method": scope["method"],
            "path": scope["path"],
            "query": parse_qs(query, keep_blank_values=True),
            "raw_query": query,
            "headers": _headers(scope),
            "body": readable(body),
            "time": time.time(),
            "status": None,
            "fault": None,
        }
        with self._lock:
            self._requests.append(record)
        return record

    def list(self, method: str | None, path: str | None) -> list[dict[str, Any]]:
        """List the requests, narrowed by method and by path."""
        with self._lock:
            return [
                dict(record)
                for record in self._requests
                if (method is None or record["method"] == method.upper()) and below(record["path"], path)
            ]

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self._requests.clear()


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "authorization":
            scheme, space, secret = value.partition(" ")
            value = f"{scheme} {fingerprint(secret)}" if space else fingerprint(value)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def readable(body: bytes) -> Any:
    """Read a body as JSON if it is that, else as text, and only the beginning of a very long one."""
    if not body:
        return None
    text = body[:_MAX_BODY].decode("utf-8", errors="replace")
    if len(body) > _MAX_BODY:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
