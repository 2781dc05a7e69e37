"""The plain HTTP client of the sandbox's tests, which uses nothing of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    import httpx

ROOT = "/api/rest/v1"


class Api:
    """A plain HTTP client of the service."""

    def __init__(self, url: str, token: str | None) -> None:
        self.root = url + ROOT
        self.token = token
        self.session = requests.Session()
        self.session.trust_env = False

    def call(self, method: str, path: str, *, token: str | None = None, **options: Any) -> requests.Response:
        headers = options.pop("headers", {})
        if token or self.token:
            headers.setdefault("Authorization", f"Bearer {token or self.token}")
        options.setdefault("timeout", 10)
        options.setdefault("allow_redirects", False)
        return self.session.request(method, self.root + path, headers=headers, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.call("POST", path, json=body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.call("PATCH", path, json=body, **options)

    def delete(self, path: str, **options: Any) -> requests.Response:
        return self.call("DELETE", path, **options)


# The fixtures of tests/sandbox/conftest.py that are functions.
Call = Callable[..., requests.Response]
OpenClient = Callable[[str, str], Api]
Raw = Callable[..., bytes]
Refused = Callable[["requests.Response | httpx.Response", int], str]
