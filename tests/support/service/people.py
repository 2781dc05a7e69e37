"""Users of the sandbox with signing keys, for tests of approvals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from airflow_custody.sandbox import Sandbox

ROLES = ["TPUser", "WhitelistedAddressCreator", "WhitelistedAddressApprover"]


def pem_of(key: Any, password: str | None = None) -> str:
    """Return a private key as PEM text."""
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return pem.decode()


def public_pem_of(key: Any) -> str:
    """Return the public key of a private key as PEM text."""
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


class Person:
    """A user of the sandbox with groups and a P-256 key."""

    def __init__(self, sandbox: Sandbox, name: str, *groups: str) -> None:
        self._sandbox = sandbox
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.pem = pem_of(self.key)
        self.id = sandbox.control.add_user(name, ROLES, groups=groups, public_key=public_pem_of(self.key))
        self.external_id = f"user-{self.id}@example.test"
        self.token = sandbox.control.add_token(roles=ROLES, user_id=self.id)


def connect_approvers(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Define the connections of the examples' approvers, and return their groups."""
    groups = []
    for name in ("first", "second"):
        person = Person(sandbox, name, name)
        service = json.loads(sandbox.connection()) | {"password": person.token}
        key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
        monkeypatch.setenv(f"AIRFLOW_CONN_CUSTODY_{name.upper()}_SIGNER", json.dumps(service))
        monkeypatch.setenv(f"AIRFLOW_CONN_CUSTODY_{name.upper()}_KEY", json.dumps(key))
        groups.append({"externalGroupID": name, "minimumSignatures": 1})
    return groups
