"""The envelope of a whitelisting request: the form in which the service returns the request."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_custody.sandbox.settings import Settings
from airflow_custody.sandbox.wire import dumps, omit_empty, omit_none

# The values of `action` in a trail are assumptions.
_CREATED = "created"
_APPROVED = "approved"


#: The address in the envelopes of forged requests.
FORGED_ADDRESS = "0x" + "66" * 20


def build_envelope(
    row: sqlite3.Row,
    signatures: list[sqlite3.Row],
    *,
    settings: Settings,
    external_id: Callable[[str], str],
    rules: Mapping[str, str],
    metadata: dict[str, Any],
    replaced: dict[str, Any],
) -> dict[str, Any]:
    """
    Return the envelope of a whitelisting request.

    :param row: the request.
    :param signatures: its signatures.
    :param settings: the settings of the sandbox.
    :param external_id: returns the external id of a user.
    :param rules: the envelope's fields for the rules.
    :param metadata: fields to replace in the metadata. None removes the field.
    :param replaced: fields to replace in the envelope. None removes the field.
    """
    fields = json.loads(row["fields"])
    if str(row["id"]) in settings.forged:
        fields["address"] = FORGED_ADDRESS
    payload = build_payload(row["blockchain"], fields, network_is_hashed=settings.network_is_hashed)
    text = dumps(payload)
    original = {"hash": hashlib.sha256(text.encode()).hexdigest(), "payloadAsString": text, "payload": payload}
    creation = {"id": "1", **_user_ids(row, external_id), "action": _CREATED, "date": row["created_at"]}
    approvals = [_approval_trail(number, each, external_id) for number, each in enumerate(signatures, start=2)]
    envelope = omit_empty(
        id=str(row["id"]),
        tenantId=row["tenant_id"],
        status=settings.status_words.get(row["status"], row["status"]),
        action="create",
        blockchain=row["blockchain"],
        network=row["network"],
        metadata=omit_none({**original, **metadata}),
        **rules,
        signedAddress=_signed_address(text, signatures, external_id),
        approvers={"parallel": json.loads(row["approvers"])},
        trails=[creation, *approvals],
        visibilityGroupID=fields.get("visibilityGroupID", ""),
        tnParticipantID=fields.get("tnParticipantID", ""),
    )
    return omit_none({**envelope, **replaced})


def share_rules(envelopes: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """
    Return envelopes that refer to rules by a label, and these rules.

    :param envelopes: the envelopes. If the same rules have several lists of signatures, only the first list is shared,
        because the label depends only on the rules. Envelopes with another list keep their own rules.
    """
    shared: dict[str, str] = {}
    found = []
    for envelope in envelopes:
        container, signatures = envelope.get("rulesContainer"), envelope.get("rulesSignatures")
        if (
            not isinstance(container, str)
            or not isinstance(signatures, str)
            or shared.setdefault(container, signatures) != signatures
        ):
            found.append(envelope)
            continue
        others = {key: value for key, value in envelope.items() if key not in ("rulesContainer", "rulesSignatures")}
        found.append({**others, "rulesContainerHash": _label_of(container)})
    return found, [
        {"hash": _label_of(container), "rulesContainer": container, "rulesSignatures": signatures}
        for container, signatures in shared.items()
    ]


def _label_of(container: str) -> str:
    return base64.b64encode(hashlib.sha256(container.encode()).digest()).decode()


def build_payload(blockchain: str, fields: Mapping[str, Any], *, network_is_hashed: bool) -> dict[str, Any]:
    """Return the payload of a whitelisting request, the content that is hashed."""
    network = fields.get("network") if network_is_hashed else None
    wallets = fields.get("linkedWalletIds")
    # The keys are in the published order, because the hash depends on the order. The details of internal addresses and
    # wallets are invented, because the sandbox has none.
    return {
        "currency": blockchain,
        **({"network": network} if network else {}),
        "addressType": fields.get("addressType", ""),
        "address": fields["address"],
        "memo": fields.get("memo", ""),
        "label": fields["label"],
        "customerId": fields.get("customerId", ""),
        "exchangeAccountId": fields.get("exchangeAccountId", ""),
        "linkedInternalAddresses": [
            {"id": each, "address": f"internal-address-{each}", "label": f"Internal address {each}"}
            for each in fields.get("linkedInternalAddressIds") or ()
        ],
        **({"linkedWallets": [_wallet(each) for each in wallets]} if wallets else {}),
        "contractType": fields.get("contractType", ""),
        **({"tnParticipantID": fields["tnParticipantID"]} if fields.get("tnParticipantID") else {}),
    }


def _wallet(wallet_id: str) -> dict[str, Any]:
    return {"id": int(wallet_id), "name": f"Wallet {wallet_id}", "path": f"m/44'/60'/{wallet_id}'"}


def _signed_address(
    text: str, signatures: list[sqlite3.Row], external_id: Callable[[str], str]
) -> dict[str, Any] | None:
    if not signatures:
        return None
    return {
        "payload": base64.b64encode(text.encode()).decode(),
        "signatures": [
            {
                "signature": {
                    "userId": external_id(each["user_id"]),
                    "signature": each["signature"],
                    "comment": each["comment"],
                },
                "hashes": json.loads(each["hashes"]),
            }
            for each in signatures
        ],
    }


def _approval_trail(number: int, signature: sqlite3.Row, external_id: Callable[[str], str]) -> dict[str, Any]:
    return {
        "id": str(number),
        **_user_ids(signature, external_id),
        "action": _APPROVED,
        "comment": signature["comment"],
        "date": signature["signed_at"],
    }


def _user_ids(row: sqlite3.Row, external_id: Callable[[str], str]) -> dict[str, str]:
    return {"userId": row["user_id"], "externalUserId": external_id(row["user_id"])}
