"""Approving, rejecting and deleting whitelisting requests."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from airflow_custody.sandbox.errors import ServiceError, invalid
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import MAIN_USER, UserStore
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.whitelist.models import Approval, ApprovalSearch, Deletion, Rejection
from airflow_custody.sandbox.whitelist.store import PENDING, REJECTED, REMOVED, WhitelistStore
from airflow_custody.sandbox.wire import decode_base64, dumps


class Approvals:
    """The decisions of users on whitelisting requests."""

    def __init__(self, state: State, users: UserStore, whitelist: WhitelistStore) -> None:
        self._state = state
        self._users = users
        self._whitelist = whitelist

    def approve(self, caller: Caller, approval: Approval) -> int:
        """
        Sign requests, and return the number of signed requests.

        If one of the requests cannot be signed, none is signed. The setting ``max_signatures`` limits how many of them
        are signed.
        """
        numbers = [int(each) for each in approval.ids if each.isdigit()]
        if len(numbers) != len(approval.ids) or numbers != sorted(set(numbers)):
            raise invalid("ids: must be numbers in ascending order, without duplicates")
        rows = [self._pending_row(caller, request_id) for request_id in approval.ids]
        groups = [self._group_to_sign_for(caller, row) for row in rows]
        hashes = [envelope["metadata"]["hash"] for envelope in self._whitelist.envelopes(rows)]
        self._verify(caller, approval.signature, dumps(hashes).encode())
        signed = rows[: self._state.settings.max_signatures]
        for row, group in zip(signed, groups, strict=False):
            self._whitelist.add_signatures([row], caller.user_id, group, approval.signature, approval.comment, hashes)
            if _is_complete(row["approvers"], self._signers(row)):
                self._whitelist.take_effect([row])
        return len(signed)

    def reject(self, caller: Caller, rejection: Rejection) -> None:
        """Reject all requests or none."""
        rows = [self._pending_row(caller, request_id) for request_id in rejection.ids]
        for row in rows:
            self._group_to_sign_for(caller, row)
        for row in rows:
            self._whitelist.set_whitelist_status(str(row["id"]), REJECTED)

    def delete(self, caller: Caller, deletion: Deletion) -> None:
        """Delete a request."""
        self._whitelist.row(caller, deletion.id)
        self._whitelist.set_whitelist_status(deletion.id, REMOVED)

    def find(self, caller: Caller, search: ApprovalSearch) -> dict[str, Any]:
        """Return one page of the requests for approval by the caller."""
        search = self._whitelist.listing.understood(search)
        found = self._rows_to_sign(caller, search)
        return self._whitelist.page(self._whitelist.cut(found, search), len(found))

    def count(self, caller: Caller) -> int:
        """Return the number of requests that the caller may still sign."""
        return len(self._rows_to_sign(caller, ApprovalSearch()))

    def _rows_to_sign(self, caller: Caller, search: ApprovalSearch) -> list[sqlite3.Row]:
        rows = self._whitelist.rows(caller, search)
        signers, groups = self._whitelist.signers(rows), self._groups_of(caller)
        return [
            row
            for row in rows
            if (
                search.include_signed
                if caller.user_id in signers[row["id"]]
                else _next_group(row["approvers"], signers[row["id"]], groups) is not None
            )
        ]

    def _signers(self, row: sqlite3.Row) -> dict[str, str]:
        return self._whitelist.signers([row])[row["id"]]

    def _pending_row(self, caller: Caller, request_id: str) -> sqlite3.Row:
        row = self._whitelist.row(caller, request_id)
        if row["status"] != PENDING:
            raise ServiceError(409, f"whitelisted address {request_id} is no longer pending approval")
        return row

    def _group_to_sign_for(self, caller: Caller, row: sqlite3.Row) -> str:
        signed = self._signers(row)
        if caller.user_id in signed:
            raise ServiceError(409, f"this user has already signed whitelisted address {row['id']}")
        group = _next_group(row["approvers"], signed, self._groups_of(caller))
        if group is None:
            raise ServiceError(
                403, f"permission denied: this user cannot sign whitelisted address {row['id']} at this stage"
            )
        return group

    def _groups_of(self, caller: Caller) -> Container[str] | None:
        """Return the caller's groups. None: every group."""
        user = self._users.get(caller.user_id)
        if user:
            return user.groups
        # The main token's user is in every group, unless a test adds a user with this id.
        return None if caller.user_id == MAIN_USER else ()

    def _verify(self, caller: Caller, signature: str, message: bytes) -> None:
        user = self._users.get(caller.user_id)
        if user is None or not user.public_key:
            raise invalid("signature: this user has no public key")
        raw = decode_base64(signature)
        if len(raw) != 64:
            raise invalid("signature: must be 64 bytes r||s in base64")
        key = load_pem_public_key(user.public_key.encode())
        assert isinstance(key, ec.EllipticCurvePublicKey)
        der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        try:
            key.verify(der, message, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise invalid("signature: does not verify against the current hashes of the requests") from None


def _next_group(approvers: str, signers: Mapping[str, str], groups: Container[str] | None) -> str | None:
    """
    Return the first of a user's groups that may sign next; None if none of them may.

    In each branch, the first group with too few signatures signs next.

    :param approvers: the branches of groups, as JSON.
    :param signers: the group for which each user has signed.
    :param groups: the user's groups; None: every group.
    """
    if _is_complete(approvers, signers):
        return None
    counts = Counter(signers.values())
    for branch in _branches(approvers):
        next_group = next((group for group, minimum in branch if counts[group] < minimum), None)
        if next_group is not None and (groups is None or next_group in groups):
            return next_group
    return None


def _is_complete(approvers: str, signers: Mapping[str, str]) -> bool:
    """Return whether all groups of at least one branch have signed."""
    counts = Counter(signers.values())
    return any(branch and all(counts[group] >= minimum for group, minimum in branch) for branch in _branches(approvers))


# Cached, because many requests have the same approvers.
@lru_cache(maxsize=100)
def _branches(approvers: str) -> list[list[tuple[str, int]]]:
    return [
        [(str(group["externalGroupID"]), max(1, int(group["minimumSignatures"]))) for group in branch["sequential"]]
        for branch in json.loads(approvers)
    ]
