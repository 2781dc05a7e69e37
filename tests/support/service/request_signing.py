"""A signed-in approver and special signers, for tests of signing."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from dataclasses import replace
from typing import Any

from support.service.people import Person, pem_of

from airflow_custody.client import (
    CustodyClient,
    WhitelistRequest,
)
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.signing.review import message_to_sign
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.sandbox import Sandbox

APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
LISTING = {"method": "GET", "path": "/whitelists/addresses"}
FOR_APPROVAL = {"method": "GET", "path": "/whitelists/addresses/for-approval"}
LOG = logging.getLogger(__name__)


def request(letter: str = "a", **changes: Any) -> WhitelistRequest:
    return WhitelistRequest(**{"label": "Treasury", "address": "0x" + letter * 40, "blockchain": "ETH", **changes})


class SignedInApprover:
    """An approver with a key, signed in to the sandbox."""

    def __init__(self, sandbox: Sandbox, person: Person, client: CustodyClient) -> None:
        self.sandbox = sandbox
        self.person = person
        self.client = client
        self.expected: dict[str, WhitelistRequest] = {}
        self.lookup_wait = 0.3
        self.signer: Any = PemSigner(lambda: person.pem, name="test key")

    def create(self, letter: str = "a", **changes: Any) -> str:
        asked = request(letter, **changes)
        number = self.client.create_whitelist_request(asked)
        self.expected[number] = asked
        return number

    def set_client(self, **settings: Any) -> None:
        """Use a client with changed settings."""
        self.client = CustodyClient.from_settings(replace(self.client.settings, **settings), self.client.auth)

    def approve(self, *ids: str, **changes: Any) -> int:
        approval = RequestSigner(self.client, self.signer, log=LOG, lookup_wait=self.lookup_wait)
        arguments = {"expected": self.expected, "comment": "checked", **changes}
        return approval.sign(ids or list(self.expected), **arguments)

    def payload(self, number: str) -> dict[str, Any]:
        return self.client.get_whitelist_request(number).payload()

    def set_payload(self, number: str, payload: dict[str, Any] | str) -> None:
        """Replace a request's payload, and its hash."""
        text = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
        hash_ = hashlib.sha256(text.encode()).hexdigest()
        self.sandbox.control.set_whitelist_metadata(number, payloadAsString=text, hash=hash_)

    def change_payload(self, number: str, **keys: Any) -> None:
        self.set_payload(number, {**self.payload(number), **keys})

    @property
    def signed(self) -> list[str]:
        found = self.client.find_whitelist_requests(include_pending=True)
        return [each.id for each in found if self.person.external_id in each.signed_by]

    @property
    def sent(self) -> int:
        return len(self.sandbox.control.request_log(**APPROVE))


class ChangingSigner:
    """A signer that makes a change just before it signs."""

    name = "changing"

    def __init__(self, approver: SignedInApprover, change: Any) -> None:
        self._signer = approver.signer
        self._change = change

    def sign(self, message: bytes) -> bytes:
        self._change()
        signature: bytes = self._signer.sign(message)
        return signature


class KeylessSigner:
    """
    A signer without a public key.

    Its signatures are found by the user's name.
    """

    name = "keyless"

    def __init__(self, approver: SignedInApprover) -> None:
        self._signer = approver.signer

    def sign(self, message: bytes) -> bytes:
        signature: bytes = self._signer.sign(message)
        return signature


class NoSigner:
    """A signer that must not be used."""

    name = "unused"

    def sign(self, message: bytes) -> bytes:
        raise AssertionError("the key was used")


def signing(approver: SignedInApprover, hashes: list[str], *, user: str | None = None, key: Any = None) -> Any:
    """Return a signature in the form that the service returns."""
    signer = PemSigner(lambda: pem_of(key or approver.person.key), name="k")
    return {
        "signature": {
            "userId": user or approver.person.external_id,
            "signature": base64.b64encode(signer.sign(message_to_sign(hashes))).decode(),
        },
        "hashes": hashes,
    }


def show_signed(approver: SignedInApprover, number: str, *signings: Any) -> None:
    """Make the service return signatures, and a request in effect."""
    approver.sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": list(signings)})
    approver.sandbox.control.set_whitelist_status(number, "APPROVED")


def current_hash(approver: SignedInApprover, number: str) -> str:
    """Return the hash that approvers of a request sign."""
    return str(approver.client.get_whitelist_request(number).hash)
