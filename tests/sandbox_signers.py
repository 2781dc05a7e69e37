"""Users of a sandbox who sign whitelisting requests."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sandbox_api import Api

from airflow_custody.sandbox import Sandbox

PATH = "/whitelists/addresses"
ROLES = ["TPUser", "WhitelistedAddressApprover"]
TWO_GROUPS = [
    {
        "sequential": [
            {"externalGroupID": "operations", "minimumSignatures": 1},
            {"externalGroupID": "risk", "minimumSignatures": 1},
        ]
    }
]


class Person:
    """A user with a key, who signs as the interface describes."""

    def __init__(self, sandbox: Sandbox, api: Api, name: str, *groups: str) -> None:
        self.api = api
        self.key = ec.generate_private_key(ec.SECP256R1())
        public = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        self.external_id = f"{name}@example.com"
        self.id = sandbox.control.add_user(name, ROLES, groups=groups, public_key=public, external_id=self.external_id)
        self.token = sandbox.control.add_token(roles=ROLES, user_id=self.id)

    def sign(self, hashes: list[str]) -> str:
        message = json.dumps(hashes, separators=(",", ":")).encode()
        r, s = decode_dss_signature(self.key.sign(message, ec.ECDSA(SHA256())))
        return base64.b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).decode()

    def approve(self, *numbers: str, **changes: Any) -> Any:
        hashes = [self.api.get(f"{PATH}/{number}").json()["result"]["metadata"]["hash"] for number in numbers]
        body = {"ids": list(numbers), "signature": self.sign(hashes), "comment": "checked", **changes}
        return self.api.post(f"{PATH}/approve", body, token=self.token)

    def pending(self, **query: Any) -> list[str]:
        response = self.api.get(f"{PATH}/for-approval", token=self.token, params=query).json()
        return [row["id"] for row in response.get("result", [])]


def create(api: Api, letter: str = "a") -> str:
    body = {"label": "Treasury", "address": "0x" + letter * 40, "blockchain": "ETH"}
    return str(api.post(PATH, body).json()["result"]["id"])


def listed(api: Api, **query: Any) -> list[str]:
    return [row["id"] for row in api.get(PATH, params=query).json().get("result", [])]
