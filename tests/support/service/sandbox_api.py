"""
Calls the sandbox over plain HTTP, without this package.

Users sign in the form that the interface describes.
"""

from __future__ import annotations

import base64
import json
from functools import partialmethod
from typing import Any

import requests
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from support.service import people

from airflow_custody.sandbox import Sandbox

ROOT = "/api/rest/v1"
PATH = "/whitelists/addresses"
ETH = "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB"
APPROVER = ["TPUser", "WhitelistedAddressApprover"]


class Api:
    """A plain HTTP client, with a new connection for each call."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self.token = token

    def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **options: Any
    ) -> requests.Response:
        """Make a call, by default with the client's token."""
        headers = options.pop("headers", {})
        if token or self.token:
            headers.setdefault("Authorization", f"Bearer {token or self.token}")
        options = {"json": body, "timeout": 60, "allow_redirects": False, **options}
        with requests.Session() as session:
            session.trust_env = False
            return session.request(method, self.url + ROOT + path, headers=headers, **options)

    get = partialmethod(call, "GET")
    post = partialmethod(call, "POST")

    def create(self, address: str = ETH, **changes: Any) -> str:
        """Create a whitelisting request, and return its id."""
        response = self.post(PATH, {"blockchain": "ETH", "label": "Cold store", "address": address, **changes})
        assert response.status_code == 200, response.text
        return str(response.json()["result"]["id"])

    def listed(self, path: str = PATH, key: str = "result", **options: Any) -> list[str]:
        """Return the ids of listed rows. The service omits empty lists."""
        return [row["id"] for row in self.get(path, **options).json().get(key, [])]


def refused(response: requests.Response, status: int) -> str:
    """Check that a response is the service's error; return its message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error", "message", "code", "error_code"}
    assert body["code"] == status
    assert body["error_code"].startswith("E900-")
    assert body["message"]
    return str(body["message"])


class Person(people.Person):
    """A user with a key, who calls the sandbox."""

    def __init__(self, sandbox: Sandbox, api: Api, name: str, *groups: str) -> None:
        super().__init__(sandbox, name, *groups)
        self.api = api

    def sign(self, *hashes: str) -> str:
        """Return a signature over hashes, 64 bytes in base64."""
        message = json.dumps(hashes, separators=(",", ":")).encode()
        r, s = decode_dss_signature(self.key.sign(message, ec.ECDSA(SHA256())))
        return base64.b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).decode()

    def approve(self, *numbers: str, **changes: Any) -> requests.Response:
        """Try to approve requests, optionally with a changed body."""
        hashes = [self.api.get(f"{PATH}/{number}").json()["result"]["metadata"]["hash"] for number in numbers]
        body = {"ids": list(numbers), "signature": self.sign(*hashes), "comment": "checked", **changes}
        return self.api.call("POST", f"{PATH}/approve", body, token=self.token)

    def pending(self, **query: Any) -> list[str]:
        """Return the ids of the requests that this user may sign."""
        return self.api.listed(f"{PATH}/for-approval", token=self.token, params=query)
