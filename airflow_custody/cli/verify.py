"""The command that verifies the service's whitelist by signatures, and what an auditor keeps of it."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, NOTHING_TO_DO
from airflow_custody.cli.connection import open_client, read_pins, usage_error
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.pins import (
    NOTHING_PINNED,
    describe_pins,
    how_to_pin,
    name_texts,
    pins_to_json,
    rules_to_json,
    shorten_hashes,
)
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.verification.trust import REJECTED_STATUSES, decide_trust, describe_legacy

if TYPE_CHECKING:
    from airflow_custody.cli.evidence import Evidence, Listed
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.trust import RequestState
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

#: The states of a row, in the order of a summary.
STATES = ("verified", "unverified", "pending", "rejected", "absent")
_PLACES: dict[str, Listed] = {"rejected": "rejected", "pending": "pending"}
_PROVED = ("fields", "legacy", "omitted", "hash", "applied", "user_ids", "rules")


def verify(args: Namespace, output: Output) -> int:
    """
    Verify the service's whitelist by signatures, against the pinned keys: every request that is
    not pending, or those with the given ids. Of pending ones it says whose valid signatures they
    have; what the service says was rejected is only counted.

    With --evidence, the JSON has all that it takes to verify again. With --from, the "evidence" of
    such a file is verified again, and no service is asked; what is pinned comes from options,
    never from the file. The rest of the file proves nothing, and is not read.

    Verified means: enough people, under rules that the pinned super-administrators signed, signed
    this text once. No signature shows that it was not deleted since, what the service hides, or
    what somebody removed from every part of a file.

    Exit codes: 0 all are verified (or there are none); 2 some are not, an id is not listed, or a
    pending one has signatures that are not valid; 1 error, also if nothing is pinned.

    JSON: {"verified_at", "service": {"base_url", "tenant_id"} (null with --from), "file":
    {"name", "sha256"} (null otherwise), "pins": {"superadmin_keys", "fingerprints",
    "superadmin_minimum", "networks", "allow_legacy_signatures", "rules_not_before"}, "counts":
    {STATE: number}, "rows": [{"id", "state", "status", "verified", "reason", "fields", "legacy",
    "omitted", "hash", "applied": [{"currency", "network", "wallet_path", "path": [{"group_id",
    "minimum", "user_ids"}]}], "user_ids", "rules": {"sha256", "timestamp", "date",
    "signed_by"}}], "evidence": {"rules": [{"rulesContainer", "rulesSignatures"}],
    "rules_in_force": those that pending rows without rules were verified with, "rows": [{"id",
    "listed", "envelope", "rules"}]} (null without --evidence), "duplicates": lists of the ids of
    verified requests for one destination}. States are verified, unverified, pending, rejected,
    absent; "status" is as the service sent it. "fields" are those of the signed text and nothing
    else; what is not proved is null.
    """
    from airflow_custody.cli.evidence import Evidence, evidence_to_json, read_evidence
    from airflow_custody.client.verification.rules_in_force import verifier_for
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.matching import find_duplicates, read_destination
    from airflow_custody.client.whitelist.models import check_request_ids

    if args.evidence and output.form != "json":
        raise usage_error("--evidence needs -o json", "A file for --from is JSON.")
    ids = None if args.ids is None else check_request_ids(args.ids, "--id", limit=None, merge=True)
    service = file = None
    if args.file:
        pins = read_pins(args)
        kept, sha256 = read_evidence(args.file)
        file = {"name": args.file, "sha256": sha256}
        verifier = Verifier(pins, rules_in_force=kept.rules_in_force)
        by_id = {each.id: each for each in kept.rows}
        evidence = [by_id.get(each) or Evidence(id=each, listed="absent") for each in (by_id if ids is None else ids)]
    else:
        with open_client(args) as client:
            if client.verifier is None:
                advice = how_to_pin(client.settings.source)
                raise CustodyConfigurationError(NOTHING_PINNED, setting="superadmin_keys", advice=advice)
            service = _service(client)
            evidence = read_rows(client, ids, args.rejected_statuses)
            verifier = verifier_for(client, [each.envelope for each in evidence]) or client.verifier
    rows = [verify_row(verifier, each) for each in evidence]
    wires: list[Any] = [each.envelope for each, row in zip(evidence, rows, strict=True) if row["verified"]]
    duplicates = find_duplicates((e.id, read_destination(e, e.payload())) for e in map(WhitelistEnvelope, wires))
    counts = Counter(each["state"] for each in rows)
    data: dict[str, Any] = {
        "verified_at": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "service": service,
        "file": file,
        "pins": pins_to_json(verifier.pins),
        "counts": {state: counts[state] for state in STATES},
        "rows": rows,
        "evidence": evidence_to_json(evidence, verifier.rules_in_force) if args.evidence else None,
        "duplicates": duplicates,
    }
    found = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state] or state == "verified")
    summary = f"{count(len(rows), 'request')}: {found} ({shorten_hashes(describe_pins(verifier.pins))})"
    twice = [f"for one destination: requests {sanitize(', '.join(each), 600)}" for each in duplicates]
    output.data(data, [*filter(None, map(_line, rows)), *twice, summary])
    if not rows:
        message("there is nothing to verify: no requests are listed")
    return CHANGES if any(each["reason"] is not None for each in rows) else NOTHING_TO_DO


def verify_row(verifier: Verifier, row: Evidence) -> dict[str, Any]:
    """
    Verify one request.

    :param verifier: what verifies it.
    :param row: the request.
    :return: its row, as ``custody whitelist verify --help`` says.
    """
    reason: str | None = None
    proved: dict[str, Any] = {}
    state = {"settled": "unverified"}.get(row.listed, row.listed)
    if row.listed == "absent":
        reason = "it is not listed"
    else:
        trust = decide_trust(row.envelope, "effective" if row.listed == "settled" else row.listed, verifier)
        if trust.error is not None:
            # The line has the id already.
            reason = trust.error.text.removeprefix(f"whitelisting request {sanitize(row.id, 40)} is not verified: ")
        elif trust.address is not None:
            state = "verified"
            proved = {**trust.address.to_json(), "rules": rules_to_json(trust.address.rules)}
        elif (found := trust.signatures) is not None:
            rules = None if found.rules is None else rules_to_json(found.rules)
            proved = {"hash": found.hash, "user_ids": list(found.user_ids), "rules": rules}
    return {
        "id": row.id,
        "state": state,
        "status": status if isinstance(status := row.envelope.get("status"), str) else None,
        "verified": state == "verified",
        "reason": reason,
        **{name: proved.get(name) for name in _PROVED},
    }


# --- what is verified ---------------------------------------------------------------------------------------


def _service(client: CustodyClient) -> dict[str, Any]:
    try:
        tenant_id = client.get_current_user().get("tenantId")
    except CustodyError as error:
        if not error.not_offered:
            raise
        tenant_id = None
    return {"base_url": client.settings.base_url, "tenant_id": tenant_id}


def read_rows(
    client: CustodyClient, ids: Sequence[str] | None, rejected_statuses: Sequence[str] | None = None
) -> list[Evidence]:
    """
    Return the requests that the service lists, in its order; or those with the ids.

    :param client: the client.
    :param ids: the ids; None: all.
    :param rejected_statuses: status words of rejected requests. Default: those of the interface's samples.
    """
    from airflow_custody.cli.evidence import Evidence
    from airflow_custody.client.whitelist.listing import fetch_listing, find_listed

    # Whatever its status: being settled is enough.
    words = (None, rejected_statuses or REJECTED_STATUSES)
    found: list[tuple[str, WhitelistEnvelope | None, RequestState]]
    if ids is None:
        listing = fetch_listing(client, effective_statuses=None)
        found = [(each.id, each, listing.state_of(each, *words)) for each in listing.envelopes]
    else:
        found = [(each, row.envelope, row.state(*words)) for each, row in find_listed(client, ids).items()]
    return [
        Evidence(id=identifier, listed=_PLACES.get(state, "settled"), envelope=dict(envelope.wire))
        if envelope
        else Evidence(id=identifier, listed="absent")
        for identifier, envelope, state in found
    ]


# --- what is printed ----------------------------------------------------------------------------------------


def _line(row: Mapping[str, Any]) -> str:
    """Return a row as a line; empty: it was rejected."""
    name = f"request {sanitize(row['id'], 40)}"
    if row["reason"] is not None:
        return f"{name}: {row['state'].upper()}: {sanitize(row['reason'], 600)}"
    if row["state"] == "pending":
        return f"{name}: pending, {_signers(row['user_ids'])}"
    if not row["verified"]:
        return ""
    fields = row["fields"]
    chain = "/".join(sanitize(fields[name], 40) for name in ("currency", "network") if fields.get(name))
    label = sanitize(json.dumps(fields["label"], ensure_ascii=False), 100)
    legacy = f", {describe_legacy(row['omitted'])}" if row["legacy"] else ""
    what = f"{chain} {sanitize(fields['address'], 160)} {label}"
    return f"{name}: verified: {what}, {_signers(row['user_ids'])}{legacy}"


def _signers(user_ids: Sequence[str]) -> str:
    """Say who has validly signed a request."""
    return f"validly signed by {name_texts(user_ids)}" if user_ids else "signed by nobody"
