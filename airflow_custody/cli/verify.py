"""The command that verifies the service's whitelist by signatures, and what an auditor keeps of it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from airflow_custody.cli.commands import CHANGES, NOTHING_TO_DO
from airflow_custody.cli.connection import open_client, read_pins, usage_error
from airflow_custody.cli.output import Output, message, shorten_hashes
from airflow_custody.client.verification.evidence import (
    MAX_EVIDENCE_BYTES,
    evidence_error,
    parse_evidence,
    read_evidence,
)
from airflow_custody.client.whitelist.ids import check_request_ids
from airflow_custody.client.whitelist.verified import describe_row, verify_evidence, verify_service
from airflow_custody.hooks._storage import StorageError, read_object, split_location

if TYPE_CHECKING:
    from airflow_custody.client.verification.evidence import EvidenceFile
    from airflow_custody.client.whitelist.verified import VerifiedWhitelist


def verify(args: Namespace, output: Output) -> int:
    """
    Verify the service's whitelist by signatures, against the pinned keys: every request that is
    not pending, or those with the given ids. Of pending ones it says whose valid signatures they
    have; what the service says was rejected is only counted.

    With --evidence, the JSON has all that it takes to verify again. With --from, the "evidence" of
    such a file is verified again, and no service is asked; what is pinned comes from options,
    never from the file. The rest of the file proves nothing, and is not read. In a DAG,
    CustodyVerifyWhitelistOperator writes such files. An object storage (s3://CONN_ID@bucket/key)
    is read with its Airflow connection.

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
    if args.evidence and output.form != "json":
        raise usage_error("--evidence needs -o json", "A file for --from is JSON.")
    ids = None if args.ids is None else check_request_ids(args.ids, "--id", limit=None, merge=True)
    file = None
    if args.file:
        pins = read_pins(args)
        kept, sha256 = _read_evidence(args.file)
        file = {"name": args.file, "sha256": sha256}
        found = verify_evidence(kept, pins, ids)
    else:
        with open_client(args) as client:
            found = verify_service(client, ids, args.rejected_statuses)
    output.data(found.to_json(file=file, with_evidence=args.evidence), _to_lines(found))
    if not found.rows:
        message("there is nothing to verify: no requests are listed")
    return NOTHING_TO_DO if found.is_proved else CHANGES


def _to_lines(found: VerifiedWhitelist) -> list[str]:
    """Return a line for each request that was not rejected, one for each group of duplicates, and the summary."""
    lines = filter(None, map(describe_row, found.rows))
    return [*lines, *found.duplicates_text, shorten_hashes(found.summary)]


def _read_evidence(path: str) -> tuple[EvidenceFile, str]:
    """Return the evidence of a file, on this machine or in an object storage, and the file's SHA-256."""
    try:
        local, url = split_location(path)
        if not url:
            return read_evidence(local)
        return parse_evidence(read_object(url, MAX_EVIDENCE_BYTES + 1), url)
    except StorageError as error:
        raise evidence_error(error.name, f"cannot be read: {error.why}", retryable=error.retryable) from None
