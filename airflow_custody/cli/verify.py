"""The command that verifies the service's whitelist by signatures, and what an auditor keeps of it."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, NOTHING_TO_DO
from airflow_custody.cli.connection import open_client, read_pins, usage_error
from airflow_custody.cli.output import Output, message, shorten_hashes
from airflow_custody.client.describe import describe_pins, name_texts
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.verification.trust import describe_legacy

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.verified import VerifiedWhitelist


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
    from airflow_custody.client.verification.evidence import read_evidence
    from airflow_custody.client.whitelist.models import check_request_ids
    from airflow_custody.client.whitelist.verified import verify_evidence, verify_service

    if args.evidence and output.form != "json":
        raise usage_error("--evidence needs -o json", "A file for --from is JSON.")
    ids = None if args.ids is None else check_request_ids(args.ids, "--id", limit=None, merge=True)
    file = None
    if args.file:
        pins = read_pins(args)
        kept, sha256 = read_evidence(args.file)
        file = {"name": args.file, "sha256": sha256}
        found = verify_evidence(kept, pins, ids)
    else:
        with open_client(args) as client:
            found = verify_service(client, ids, args.rejected_statuses)
    output.data(found.to_json(file=file, with_evidence=args.evidence), _to_lines(found))
    if not found.rows:
        message("there is nothing to verify: no requests are listed")
    return NOTHING_TO_DO if found.is_proved else CHANGES


# --- what is printed ----------------------------------------------------------------------------------------


def _to_lines(found: VerifiedWhitelist) -> list[str]:
    """Return what was found as lines: each request but the rejected ones, duplicates, and a summary."""
    lines = [*filter(None, map(_line, found.rows))]
    lines += [f"for one destination: requests {sanitize(', '.join(each), 600)}" for each in found.duplicates]
    counts = [f"{number} {state}" for state, number in found.counts.items() if number or state == "verified"]
    pins = shorten_hashes(describe_pins(found.verifier.pins))
    return [*lines, f"{count(len(found.rows), 'request')}: {', '.join(counts)} ({pins})"]


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
