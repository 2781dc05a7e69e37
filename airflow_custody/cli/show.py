"""The command that shows one whitelisting request."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.verify import name_signers, verify_row
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.verification.trust import describe_legacy

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.cli.evidence import Listed
    from airflow_custody.client import CustodyClient
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
        listed = "settled" if client.verifier is None else listed_as(client, envelope)
        data = _describe(envelope, verifier_for(client, [envelope.wire]), listed)
    output.data(data, _view(data))
    if data["fault"]:
        message(data["fault"])
        return ERROR
    return NOTHING_TO_DO


def listed_as(client: CustodyClient, envelope: WhitelistEnvelope) -> Listed:
    """
    Return where the service lists a request, in its word.

    :param client: the client.
    :param envelope: the request. One that is listed nowhere counts as settled: what is signed is signed.
    """
    from airflow_custody.client.whitelist.progress import find_listed

    found = find_listed(client, [envelope.id], strict=False)[envelope.id]
    if replace(found, envelope=envelope).state(None) == "rejected":
        return "rejected"
    return "pending" if found.envelope is not None and found.state(None) == "pending" else "settled"


def _describe(envelope: WhitelistEnvelope, verifier: Verifier | None, listed: Listed) -> dict[str, Any]:
    """Return a request as plain JSON data."""
    payload, unverified, fault = None, None, None
    try:
        payload = envelope.payload()
    except CustodyError as error:
        fault = error.message
    row = None if verifier is None else _verify(envelope, verifier, listed)
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


def _verify(envelope: WhitelistEnvelope, verifier: Verifier, listed: Listed) -> dict[str, Any]:
    """Return what signatures prove of a request."""
    from airflow_custody.cli.evidence import take_evidence

    row = verify_row(verifier, take_evidence(envelope.id, listed, envelope.wire))
    if row["state"] == "unverified":
        # Those that it has may be valid, and too few.
        signed = verify_row(verifier, take_evidence(envelope.id, "pending", envelope.wire))
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


def add_to(group: Commands) -> None:
    """Add the command to its group."""
    parser = add_command(group, "show", "Show one whitelisting request", show)
    parser.add_argument("id", metavar="ID", help="id of the request")
    add_connection_options(parser)
