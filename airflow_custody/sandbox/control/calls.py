"""Calls to the control routes of a sandbox."""

from __future__ import annotations

from typing import Any

import requests

from airflow_custody.sandbox.errors import SandboxError

_TIMEOUT = 30.0


class ControlCalls:
    """
    The control routes of one sandbox, and how they are called.

    :param url: URL of the sandbox, such as ``http://127.0.0.1:43121``.
    :param verify: as in requests, for a sandbox that speaks HTTPS.
    :param cert: as in requests, for a sandbox that requires a client certificate.
    """

    def __init__(self, url: str, verify: bool | str = True, cert: str | tuple[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        # No proxy and no ~/.netrc: the sandbox is on this machine or near it.
        self._session.trust_env = False
        self._session.verify = verify
        self._session.cert = cert

    def close(self) -> None:
        """Close the connection to the sandbox."""
        self._session.close()

    def _call(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        url = f"{self.url}/sandbox{path}"
        try:
            response = self._session.request(method, url, json=body, params=params, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise SandboxError(f"no response from the sandbox at {url}: {error}") from error
        try:
            content = response.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise SandboxError(f"not a response of a sandbox at {url}: status {response.status_code}")
        if not response.ok:
            raise SandboxError(f"{method} {path}: {content.get('message', response.status_code)}")
        return content.get("result")
