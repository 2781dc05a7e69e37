"""The command that shows one whitelisting request."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO
from airflow_custody.cli.connection import open_client
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.verify import name_signers, read_rows, verify_row
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.verification.trust import describe_legacy

if TYPE_CHECKING:
    from airflow_custody.cli.evidence import Evidence
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_FIELDS = ("id", "status", "action", "tenant_id", "blockchain", "network", "visibility_group_id", "hash")
# Names on the wire, by names in the output.
_TRAIL = {
    "date": "date",
    "action": "action",
    "user_id": "userId",
    "external_user_id": "externalUserId",
    "comment": "comment",
}


def show(args: Namespace, output: Output) -> int:
    """
    Show one whitelisting request: its status, its payload, its signatures, its trail. With pinned
    keys it says whether signatures prove that it is whitelisted, and by whom; without, nothing is
    verified: the payload is what its hash says, and all else is the service's word. Whether it is
    pending is the service's word, too.

    Exit codes: 0 shown; 1 there is no such request, its payload is not what its hash says (it is
    not shown then), or another error.

    JSON: {"id", "status", "action", "tenant_id", "blockchain", "network",
    "visibility_group_id", "hash", "fault" (why its payload is not what its hash says; or null),
    "payload" (null then; with pinned keys, what is signed and nothing else: null if it is not
    verified), "unverified_payload" (with pinned keys, what its hash says, if it is another:
    nothing proves it; or null), "verified" (whether signatures prove it; null if nothing is
    pinned), "reason" (why they do not; null if it is pending or rejected), "verification" (what
    they prove: as a row of verify, with its state; or null), "signatures": [{"user_id",
    "signature", "hashes"}], "trail": [{"date", "action",
    "user_id", "external_user_id", "comment"}]}.
    """
    from airflow_custody.client.verification.rules_in_force import verifier_for

    with open_client(args) as client:
        envelope = client.get_whitelist_request(args.id)
        verifier = verifier_for(client, [envelope.wire])
        row = None
        if verifier is not None:
            (evidence,) = read_rows(client, [envelope.id])
            # One that is listed nowhere counts as settled: what is signed is signed.
            listed = "settled" if evidence.listed == "absent" else evidence.listed
            row = _verify(verifier, evidence.model_copy(update={"listed": listed, "envelope": envelope.wire}))
        data = _describe(envelope, row)
    output.data(data, _view(data))
    if data["fault"]:
        message(data["fault"])
        return ERROR
    return NOTHING_TO_DO


def _describe(envelope: WhitelistEnvelope, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a request as plain JSON data, with what its signatures prove; None: nothing is pinned."""
    payload, unverified, fault = None, None, None
    try:
        payload = envelope.payload()
    except CustodyError as error:
        fault = error.message
    if row is not None:
        # Nobody shall take the one for the other: what is not signed has another name.
        unverified = None if payload == row["fields"] else payload
        payload = row["fields"]
    return {
        **{name: getattr(envelope, name) for name in _FIELDS},
        "fault": fault,
        "payload": payload,
        "unverified_payload": unverified,
        "verified": row and row["verified"],
        "reason": row and row["reason"],
        "verification": row,
        "signatures": [
            {"user_id": each.user_id, "signature": each.signature, "hashes": list(each.hashes)}
            for each in envelope.signings
        ],
        "trail": [{name: each.get(wire) for name, wire in _TRAIL.items()} for each in envelope.trails],
    }


def _verify(verifier: Verifier, evidence: Evidence) -> dict[str, Any]:
    """Return what signatures prove of a request."""
    row = verify_row(verifier, evidence)
    if row["state"] == "unverified":
        # Those that it has may be valid, and too few.
        signed = verify_row(verifier, evidence.model_copy(update={"listed": "pending"}))
        row |= {name: signed[name] for name in ("hash", "user_ids", "rules")}
    return row


def _view(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what people see of it: first whether it is proved, and what."""
    row = data["verification"]
    seen: dict[str, Any] = {name: data[name] for name in _FIELDS}
    if row is None:
        seen["verified"] = "no: nothing is pinned, the payload is what its hash says"
    elif row["verified"]:
        seen["verified"] = f"yes: {name_signers(row['user_ids'])}"
    else:
        why = row["reason"] or ("in the service's word" if row["user_ids"] is None else name_signers(row["user_ids"]))
        seen["verified"] = f"NO: {row['state']}, {why}"
    if row is not None and row["legacy"]:
        seen["signed"] = describe_legacy(row["omitted"])
    signatures = [{**each, "hashes": len(each["hashes"])} for each in data["signatures"]]
    return {
        **seen,
        "rules": row and row["rules"],
        "fault": data["fault"] and f"UNUSABLE: {data['fault']}",
        "payload": data["payload"],
        "payload, UNVERIFIED": None if row and row["verified"] else data["unverified_payload"],
        "signatures, as the service shows them": signatures,
        "trail, as the service shows it": data["trail"],
    }
