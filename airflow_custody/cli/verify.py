"""The command ``whitelist verify``: verifies a whitelist by signatures, and writes and reads evidence."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, NOTHING_TO_DO, usage_error
from airflow_custody.cli.connection import open_client, read_pins
from airflow_custody.cli.output import Mark, Output, as_state, message, shorten_hashes
from airflow_custody.client.verification.evidence import (
    MAX_EVIDENCE_BYTES,
    evidence_error,
    parse_evidence,
    read_evidence,
)
from airflow_custody.client.whitelist.hidden import describe_hidden
from airflow_custody.client.whitelist.ids import check_request_ids
from airflow_custody.client.whitelist.verified import describe_row, verify_evidence, verify_service
from airflow_custody.hooks._storage import StorageError, read_object, split_location

if TYPE_CHECKING:
    from airflow_custody.client.verification.evidence import EvidenceFile
    from airflow_custody.client.whitelist.verified import VerifiedWhitelist


def verify(args: Namespace, output: Output) -> int:
    """
    Verify the service's whitelist by signatures, against the pinned keys. A request is verified if enough users
    signed its text, under rules that the pinned super-administrators signed.

    Exit codes: 0 all requests are verified, or there are none; 2 a request is not verified, an id is not listed, a
    pending request has an invalid signature, or the service counts requests that it does not return (hidden); 1 error,
    including missing pins.

    By default, all requests are verified; with --id, only the given ones. For a pending request, the users with valid
    signatures are listed. Requests that the service reports as rejected are only counted. Signatures cannot show later
    deletions, requests that the service neither returns nor counts, or requests that were removed from a file.

    With --evidence, the JSON also contains all data that are needed to verify the requests again. --from verifies this
    evidence without the service. The pins then come from options, never from the file, and the rest of the file is not
    read. In a DAG, CustodyVerifyWhitelistOperator writes such files. A file in an object storage, such as
    s3://CONN_ID@bucket/key, is read with its Airflow connection.

    JSON: {"verified_at", "service": {"base_url", "tenant_id"} (null with --from), "file": {"name", "sha256"} (null
    without --from), "pins": {"superadmin_keys", "fingerprints", "superadmin_minimum", "networks",
    "allow_legacy_signatures", "rules_not_before"}, "counts": {STATE: number}, "hidden" (number), "rows": [{"id",
    "state", "status", "verified", "reason", "fields", "legacy", "omitted", "hash", "applied": [{"currency", "network",
    "wallet_path", "path": [{"group_id", "minimum", "user_ids"}]}], "user_ids", "rules": {"sha256", "timestamp", "date",
    "signed_by"}}], "evidence": {"rules": [{"rulesContainer", "rulesSignatures"}], "rules_in_force", "rows": [{"id",
    "listed", "envelope", "rules"}], "hidden"} (null without --evidence), "duplicates": [[ID]]}. The states are
    verified, unverified, pending, rejected and absent. The status is the service's own word. The fields are only those
    of the signed text; a value that is not proved is null. rules_in_force is used for pending rows without rules of
    their own. Each list in duplicates has the ids of verified requests for the same destination.
    """
    if args.evidence and output.form != "json":
        raise usage_error("--evidence needs -o json", "Evidence is written as JSON.")
    ids = None if args.ids is None else check_request_ids(args.ids, "--id", limit=None, merge=True)
    file = None
    if args.file:
        pins = read_pins(args)
        kept, sha256 = _read_evidence(args.file)
        file = {"name": args.file, "sha256": sha256}
        found = verify_evidence(kept, pins, ids)
    else:
        with open_client(args) as client:
            found = verify_service(client, ids)
    if args.evidence:
        output.text(found.to_file(file).decode())
    else:
        output.data(found.to_json(file), _view(found))
    if not found.rows and not found.hidden:
        message("nothing to verify: no requests are listed")
    return NOTHING_TO_DO if found.is_proved else CHANGES


def _view(found: VerifiedWhitelist) -> list[Any]:
    """Return a line for each request, the duplicates, and the summary."""
    lines = [_view_row(each, describe_row(each)) for each in found.rows]
    hidden = [Mark("NOT VERIFIED", "bad", rest=f": {describe_hidden(found.hidden)}")] if found.hidden else []
    return [*hidden, *lines, *found.duplicates_text, shorten_hashes(found.summary)]


def _view_row(row: dict[str, Any], text: str) -> Mark:
    """Return the line for a request, with its state in colour."""
    has_problem = row["reason"] is not None
    before, word, rest = text.partition(row["state"].upper() if has_problem else row["state"])
    return Mark(word, "bad", before, rest) if has_problem else as_state(word, before, rest)


def _read_evidence(path: str) -> tuple[EvidenceFile, str]:
    """Return the evidence in a file, and the file's SHA-256."""
    try:
        local, url = split_location(path)
        if not url:
            return read_evidence(local)
        return parse_evidence(read_object(url, MAX_EVIDENCE_BYTES + 1), url)
    except StorageError as error:
        raise evidence_error(error.name, f"cannot be read: {error.why}", retryable=error.retryable) from None
