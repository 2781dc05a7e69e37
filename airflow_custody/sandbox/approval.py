"""Approve, reject and delete whitelisting requests (published knowledge)."""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from pydantic import BaseModel, ConfigDict, Field

from airflow_custody.sandbox.errors import ServiceError, invalid
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.users import MAIN_USER, Users
from airflow_custody.sandbox.whitelist import (
    EFFECTIVE,
    REJECTED,
    REMOVED,
    WAITING,
    NotBlank,
    Search,
    WhitelistBook,
)
from airflow_custody.sandbox.wire import dumps, present, stamp

# How many may be signed at once is a guess.
_MOST_AT_ONCE = 100


class Approval(BaseModel):
    """Describe the body of an approval."""

    model_config = ConfigDict(strict=True)

    ids: Annotated[list[str], Field(min_length=1, max_length=_MOST_AT_ONCE)]
    signature: str
    comment: NotBlank


class Rejection(BaseModel):
    """Describe the body of a rejection."""

    model_config = ConfigDict(strict=True)

    ids: Annotated[list[str], Field(min_length=1, max_length=_MOST_AT_ONCE)]
    comment: NotBlank


class Deletion(BaseModel):
    """Describe the body of a deletion."""

    model_config = ConfigDict(strict=True)

    id: str
    comment: NotBlank


class Approvals:
    """Let people decide on whitelisting requests."""

    def __init__(self, state: State, users: Users, book: WhitelistBook) -> None:
        self._state = state
        self._users = users
        self._book = book

    def approve(self, caller: Caller, asked: Approval) -> int:
        """Sign requests, all or none, and say how many."""
        numbers = [int(one) for one in asked.ids if one.isdigit()]
        if len(numbers) != len(asked.ids) or numbers != sorted(set(numbers)):
            raise invalid("ids: must be numbers in ascending order, each once")
        groups = {}
        hashes = []
        for number in asked.ids:
            row = self._waiting(caller, number)
            groups[number] = self._group_whose_turn_it_is(caller, row)
            hashes.append(self._book.envelope(row)["metadata"]["hash"])
        self._verify(caller, asked.signature, dumps(hashes).encode())
        for number in asked.ids:
            self._state.write(
                "INSERT INTO signatures VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(int(number), caller.user_id, groups[number], asked.signature, asked.comment, json.dumps(hashes)),
                stamp(),
            )
            row = self._book.row(caller, number)
            if not any(_turns(row, self._book.signatures(row))):
                self._book.set_status(number, EFFECTIVE)
        return len(asked.ids)

    def reject(self, caller: Caller, asked: Rejection) -> None:
        """Reject requests, all or none."""
        for number in asked.ids:
            self._group_whose_turn_it_is(caller, self._waiting(caller, number))
        for number in asked.ids:
            self._book.set_status(number, REJECTED)

    def delete(self, caller: Caller, asked: Deletion) -> None:
        """Delete a request: no look-up shows it any more."""
        self._book.row(caller, asked.id)
        self._book.set_status(asked.id, REMOVED)

    def find(self, caller: Caller, search: Search, *, signed_too: bool) -> dict[str, Any]:
        """List what waits for the caller's signature, page by page."""
        found = []
        for row in self._book.rows(caller, search):
            signed = any(each["user_id"] == caller.user_id for each in self._book.signatures(row))
            if signed_too if signed else self._may_sign(caller, row):
                found.append(row)
        start, size = search.offset, search.page_size
        rows = [self._book.envelope(row) for row in found[start : start + size]]
        return present(result=rows, totalItems=str(len(found)) if found else "")

    def _waiting(self, caller: Caller, number: str) -> sqlite3.Row:
        row = self._book.row(caller, number)
        if row["status"] != WAITING:
            raise ServiceError(409, f"whitelisted address {number} does not wait for approval any more")
        return row

    def _group_whose_turn_it_is(self, caller: Caller, row: sqlite3.Row) -> str:
        if any(each["user_id"] == caller.user_id for each in self._book.signatures(row)):
            raise ServiceError(409, f"whitelisted address {row['id']} was signed by this user already")
        group = self._may_sign(caller, row)
        if group is None:
            raise ServiceError(403, f"permission denied: not an approver of whitelisted address {row['id']} now")
        return group

    def _may_sign(self, caller: Caller, row: sqlite3.Row) -> str | None:
        user = self._users.get(caller.user_id)
        for group in _turns(row, self._book.signatures(row)):
            # Unless something else was said, the user of the main token is in every group.
            if (user is None and caller.user_id == MAIN_USER) or (user is not None and group in user.groups):
                return group
        return None

    def _verify(self, caller: Caller, signature: str, message: bytes) -> None:
        user = self._users.get(caller.user_id)
        if user is None or not user.public_key:
            raise invalid("signature: this user has no key")
        try:
            raw = base64.b64decode(signature, validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != 64:
            raise invalid("signature: must be 64 bytes r||s in base64")
        key = load_pem_public_key(user.public_key.encode())
        assert isinstance(key, ec.EllipticCurvePublicKey)
        der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        try:
            key.verify(der, message, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise invalid("signature: does not verify over the requests as they are now") from None


def _turns(row: sqlite3.Row, signatures: Iterable[sqlite3.Row]) -> list[str]:
    """List the groups whose signatures are wanted now: of each branch the first that has not enough."""
    counts: dict[str, int] = {}
    for each in signatures:
        counts[each["group_id"]] = counts.get(each["group_id"], 0) + 1
    turns = []
    branches: Sequence[dict[str, Any]] = json.loads(row["approvers"])
    for branch in branches:
        for group in branch["sequential"]:
            if counts.get(group["externalGroupID"], 0) < group["minimumSignatures"]:
                turns.append(str(group["externalGroupID"]))
                break
    return turns
