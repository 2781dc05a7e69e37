"""The envelope in which a whitelisting request is returned."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Any

from airflow_custody.sandbox.wire import dumps, omit_empty, omit_none

# The words of a trail's `action` are assumptions.
_CREATED = "created"
_APPROVED = "approved"


def build_envelope(row: sqlite3.Row, signatures: list[sqlite3.Row], metadata: dict[str, Any]) -> dict[str, Any]:
    """
    Return the envelope of a whitelisting request.

    :param metadata: fields to replace in the metadata, or to remove if they are None.
    """
    fields = json.loads(row["fields"])
    payload = _payload(row["blockchain"], fields)
    text = dumps(payload)
    original = {"hash": hashlib.sha256(text.encode()).hexdigest(), "payloadAsString": text, "payload": payload}
    created = {"id": "1", "userId": row["user_id"], "action": _CREATED, "date": row["created_at"]}
    return omit_empty(
        id=str(row["id"]),
        tenantId=row["tenant_id"],
        status=row["status"],
        action="create",
        blockchain=row["blockchain"],
        network=row["network"],
        metadata=omit_none({**original, **metadata}),
        signedAddress=_signed_address(text, signatures),
        approvers={"parallel": json.loads(row["approvers"])},
        trails=[created, *(_approval_trail(number, each) for number, each in enumerate(signatures, start=2))],
        visibilityGroupID=fields.get("visibilityGroupID", ""),
    )


def _payload(blockchain: str, fields: dict[str, Any]) -> dict[str, Any]:
    payload = {
        "currency": blockchain,
        "addressType": fields.get("addressType", ""),
        "address": fields["address"],
        "memo": fields.get("memo", ""),
        "label": fields["label"],
        "customerId": fields.get("customerId", ""),
        "exchangeAccountId": fields.get("exchangeAccountId", ""),
        # The sandbox has no internal addresses and no wallets: it makes these details up.
        "linkedInternalAddresses": [
            {"id": each, "address": f"internal-address-{each}", "label": f"Internal address {each}"}
            for each in fields.get("linkedInternalAddressIds", [])
        ],
        "contractType": fields.get("contractType", ""),
        "tnParticipantID": "",
    }
    if wallets := fields.get("linkedWalletIds"):
        payload["linkedWallets"] = [
            {"id": each, "path": f"m/44'/60'/{each}'", "label": f"Wallet {each}"} for each in wallets
        ]
    if network := fields.get("network"):
        payload["network"] = network
    return payload


def _signed_address(payload: str, signatures: list[sqlite3.Row]) -> dict[str, Any] | None:
    if not signatures:
        return None
    return {
        "payload": payload,
        "signatures": [
            {
                "signature": {"userId": each["user_id"], "signature": each["signature"], "comment": each["comment"]},
                "hashes": json.loads(each["hashes"]),
            }
            for each in signatures
        ],
    }


def _approval_trail(number: int, signature: sqlite3.Row) -> dict[str, Any]:
    return {
        "id": str(number),
        "userId": signature["user_id"],
        "action": _APPROVED,
        "comment": signature["comment"],
        "date": signature["signed_at"],
    }
