"""One whitelisting request for people and for programs. Pure functions, no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.evidence import Listed, take_evidence
from airflow_custody.cli.verify import signers_text, verify_row
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import count, escape, sanitize
from airflow_custody.client.text_table import format_table
from airflow_custody.client.verification.trust import describe_legacy

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_FIELDS = ("id", "status", "action", "tenant_id", "blockchain", "network", "visibility_group_id", "hash")
_MAX_SHOWN = 50


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


def describe_request(
    envelope: WhitelistEnvelope, verifier: Verifier | None = None, listed: Listed = "settled"
) -> dict[str, Any]:
    """
    Return a request as plain JSON data.

    :param envelope: the request.
    :param verifier: what verifies it. Default None: nothing is pinned.
    :param listed: where the service lists it. Default: where it lists what is not pending.
    :return: what ``custody whitelist show --help`` says.
    """
    payload, unverified, fault = None, None, None
    try:
        payload = envelope.payload()
    except CustodyError as error:
        fault = error.message
    verification = _verification(envelope, verifier, listed)
    if proved := verification["verification"]:
        # Nobody shall take the one for the other: what is not signed has another name.
        unverified = None if payload == proved["fields"] else payload
        payload = proved["fields"]
    return {
        **{name: getattr(envelope, name) for name in _FIELDS},
        "fault": fault,
        "payload": payload,
        "unverified_payload": unverified,
        **verification,
        "signatures": [
            {"user_id": each.user_id, "signature": each.signature, "hashes": list(each.hashes)}
            for each in envelope.signings
        ],
        "trail": [
            {
                "date": each.get("date"),
                "action": each.get("action"),
                "user_id": each.get("userId"),
                "external_user_id": each.get("externalUserId"),
                "comment": each.get("comment"),
            }
            for each in envelope.trails
        ],
    }


def _verification(envelope: WhitelistEnvelope, verifier: Verifier | None, listed: Listed) -> dict[str, Any]:
    """Return what signatures prove of a request."""
    if verifier is None:
        return {"verified": None, "reason": None, "verification": None}
    row = verify_row(verifier, take_evidence(envelope.id, listed, envelope.wire))
    if row["state"] == "unverified":
        # Those that it has may be valid, and too few.
        signed = verify_row(verifier, take_evidence(envelope.id, "pending", envelope.wire))
        row |= {name: signed[name] for name in ("hash", "user_ids", "rules")}
    return {"verified": row["verified"], "reason": row["reason"], "verification": row}


def show_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """
    Yield a request as lines of plain text.

    :param data: what :func:`describe_request` returns.
    """
    for name in _FIELDS:
        if data[name]:
            yield f"{name + ':':<21}{sanitize(data[name])}"
    if data["verified"] is not None:
        yield f"{'verified:':<21}{_verified_text(data)}"
    yield f"{'payload:':<21}{_payload_text(data)}"
    for name, value in (data["payload"] or (not data["verified"] and data["unverified_payload"]) or {}).items():
        if value not in (None, "", []):
            # Whole: people compare it.
            yield f"  {escape(name)}: {escape(value if isinstance(value, str) else json.dumps(value))}"
    if data["signatures"]:
        yield "signatures, as the service shows them:"
        rows = [(each["user_id"], each["signature"], len(each["hashes"])) for each in data["signatures"]]
        yield from _table(("USER", "SIGNATURE", "HASHES"), rows)
    if data["trail"]:
        yield "trail, as the service shows it:"
        columns = ("date", "action", "external_user_id", "comment")
        trail = [[each[name] for name in columns] for each in data["trail"]]
        yield from _table(("DATE", "ACTION", "USER", "COMMENT"), trail)


def _payload_text(data: Mapping[str, Any]) -> str:
    if data["fault"]:
        return f"UNUSABLE: {sanitize(data['fault'])}"
    if data["verified"] is None:
        return "as its hash says"
    if not data["verified"]:
        return "as its hash says, UNVERIFIED"
    proved = data["verification"]
    return f"as signed, {describe_legacy(proved['omitted'])}, and left out" if proved["legacy"] else "as signed"


def _verified_text(data: Mapping[str, Any]) -> str:
    proved = data["verification"]
    rules = proved["rules"]
    since = f", under rules of {rules['date'] or 'an unknown date'} (SHA-256 {rules['sha256']})" if rules else ""
    names = proved["user_ids"]
    signers = "" if names is None else signers_text(names) + (since if names else "")
    if data["verified"]:
        return f"yes: {signers}"
    if proved["state"] == "rejected":
        return "NO: rejected, in the service's word"
    if proved["state"] == "pending":
        return f"NO: pending, {sanitize(data['reason'], 600) if data['reason'] else signers}"
    return "; ".join(filter(None, (f"NO: {sanitize(data['reason'], 600)}", signers)))


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    for line in format_table(header, rows[:_MAX_SHOWN], max_width=100).splitlines():
        yield f"  {line}"
    if len(rows) > _MAX_SHOWN:
        yield f"  and {count(len(rows) - _MAX_SHOWN, 'more row')}: -o json has all"
