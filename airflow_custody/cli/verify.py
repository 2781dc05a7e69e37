"""The command that verifies the service's whitelist by signatures, and what an auditor keeps of it."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, NOTHING_TO_DO, REJECTED_HELP, Command, option
from airflow_custody.cli.connection import CONNECTION_OPTIONS, open_client, read_pins
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.trust import (
    NOTHING_PINNED,
    how_to_pin,
    pins_text,
    pins_to_json,
    rules_to_json,
    short_hashes,
    some_text,
)
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.verification.trust import REJECTED_STATUSES, decide_trust, describe_legacy

if TYPE_CHECKING:
    from airflow_custody.cli.evidence import Evidence
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.verification.verifier import Verifier

#: What a row may be, in the order of a summary.
STATES = ("verified", "unverified", "pending", "rejected", "absent")
_NOTHING_PROVED: Mapping[str, Any] = dict.fromkeys(
    ("fields", "legacy", "omitted", "hash", "applied", "user_ids", "rules")
)


def verify(args: Namespace, output: Output) -> int:
    """
    Verify the service's whitelist by signatures, against the pinned keys: every request that is
    not pending, or those with the given ids. Of pending ones it says whose valid signatures they
    have; what the service says was rejected is only counted.

    With --evidence, the JSON has all that it takes to verify again. With --from, the "evidence" of
    such a file is verified again, and no service is asked; what is pinned comes from options,
    never from the file. Its "pins", "counts" and "rows" prove nothing: they are compared with what
    is found now, and differences are named. The rest of it ("service", "verified_at") is not read.

    Verified means: enough people, under rules that the pinned super-administrators signed, signed
    this text once. No signature shows that it was not deleted since, or what the service hides.

    Exit codes: 0 all are verified (or there are none); 2 some are not, an id is not listed, a
    pending one has signatures that are not valid, or a file says otherwise; 1 error, also if
    nothing is pinned.

    JSON: {"verified_at", "service": {"base_url", "tenant_id"} (null with --from), "file":
    {"name", "sha256", "differences"} (null otherwise), "pins": {"superadmin_keys", "fingerprints",
    "superadmin_minimum", "networks", "allow_legacy_signatures", "rules_not_before"}, "counts":
    {STATE: number}, "rows": [{"id", "state", "status", "verified", "reason", "fields", "legacy",
    "omitted", "hash", "applied": [{"currency", "network", "wallet_path", "path": [{"group_id",
    "minimum", "user_ids"}]}], "user_ids", "rules": {"sha256", "timestamp", "date",
    "signed_by"}}], "evidence": {"rules": [{"sha256", "rulesContainer", "rulesSignatures"}],
    "rules_in_force": those that pending rows without rules were verified with, "rows"} (null
    without --evidence)}. States are verified, unverified, pending, rejected,
    absent; "status" is the service's word. "fields" are those of the signed text and nothing
    else; what is not proved is null.
    """
    from airflow_custody.cli.comparison import differences
    from airflow_custody.cli.evidence import evidence_to_json, read_evidence
    from airflow_custody.client.verification.rules_in_force import verifier_for
    from airflow_custody.client.verification.verifier import Verifier

    if args.evidence and output.form != "json":
        raise CustodyConfigurationError(
            "--evidence needs -o json", advice="A file for --from is JSON.", code="usage-wrong"
        )
    service = None
    file: dict[str, Any] | None = None
    said: Mapping[str, Any] = {}
    ids = _ids(args.ids)
    if args.file:
        found = read_evidence(args.file)
        verifier = Verifier(read_pins(args), rules_in_force=found.in_force)
        file = {"name": args.file, "sha256": found.sha256, "differences": []}
        said, in_force = found.said, found.in_force
        evidence: Sequence[Evidence] = _selected(found.rows, ids)
    else:
        with open_client(args) as client:
            if client.settings.pins is None or client.verifier is None:
                advice = how_to_pin(client.settings.source)
                raise CustodyConfigurationError(
                    NOTHING_PINNED, setting="superadmin_keys", advice=advice, code="pins-wrong"
                )
            verifier = client.verifier
            service = _service(client)
            evidence = _read(client, ids, args.rejected_statuses)
            verifier = verifier_for(client, [each.envelope for each in evidence]) or verifier
            in_force = verifier.rules_in_force
    rows = [verify_row(verifier, each) for each in evidence]
    counts = Counter(each["state"] for each in rows)
    data = {
        "verified_at": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "service": service,
        "file": file,
        "pins": pins_to_json(verifier.pins),
        "counts": {state: counts[state] for state in STATES},
        "rows": rows,
        "evidence": evidence_to_json(evidence, in_force) if args.evidence else None,
    }
    if file is not None:
        file["differences"] = list(differences(said, data, ids))
    output.data(data, _lines(data, short_hashes(pins_text(verifier.pins))), long="evidence")
    if not rows:
        message("there is nothing to verify: no requests are listed")
    has_findings = any(map(_is_finding, rows)) or (file is not None and file["differences"])
    return CHANGES if has_findings else NOTHING_TO_DO


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
        reason = row.fault or "the service does not list it"
    elif row.fault is not None:
        # What the service says was rejected is only counted.
        reason = None if row.listed == "rejected" else row.fault
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
        "status": row.status,
        "verified": state == "verified",
        "reason": reason,
        **_NOTHING_PROVED,
        **{name: value for name, value in proved.items() if name in _NOTHING_PROVED},
    }


# --- what is verified ---------------------------------------------------------------------------------------


def _ids(given: Sequence[str] | None) -> list[str] | None:
    from airflow_custody.client.whitelist.models import check_request_ids

    return None if given is None else check_request_ids(given, "--id", limit=None, merge=True)


def _service(client: CustodyClient) -> dict[str, Any]:
    try:
        tenant_id = client.get_current_user().get("tenantId")
    except CustodyError as error:
        if not error.not_offered:
            raise
        tenant_id = None
    return {"base_url": client.settings.base_url, "tenant_id": tenant_id}


def _read(client: CustodyClient, ids: list[str] | None, rejected_statuses: Sequence[str] | None) -> list[Evidence]:
    """Return the requests that the service lists, in its order; or those with the ids."""
    from airflow_custody.cli.evidence import Evidence, Listed, take_evidence
    from airflow_custody.client.whitelist.listing import fetch_listing
    from airflow_custody.client.whitelist.progress import ListedRequest, find_listed

    words = rejected_statuses or REJECTED_STATUSES
    if ids is None:
        listing = fetch_listing(client, by_status=False)
        by_id = {
            each.id: ListedRequest(each, listing.is_settled(each), for_approval=each.id in listing.for_approval_ids)
            for each in listing.envelopes
        }
    else:
        by_id = find_listed(client, ids, strict=False)
    rows = []
    for identifier in by_id if ids is None else ids:
        found = by_id[identifier]
        if found.envelope is None:
            rows.append(Evidence(identifier, "absent"))
            continue
        state = found.state(None, words)
        listed: Listed = state if state in ("rejected", "pending") else "settled"
        rows.append(take_evidence(identifier, listed, found.envelope.wire))
    return rows


def _selected(rows: Sequence[Evidence], ids: list[str] | None) -> list[Evidence]:
    from airflow_custody.cli.evidence import Evidence

    if ids is None:
        return list(rows)
    by_id = {each.id: each for each in rows}
    return [by_id.get(each, Evidence(each, "absent", fault="the file does not have it")) for each in ids]


# --- what is printed ----------------------------------------------------------------------------------------


def _is_finding(row: Mapping[str, Any]) -> bool:
    return row["reason"] is not None


def _lines(data: Mapping[str, Any], pinned: str) -> Iterator[str]:
    """Yield a line for each row but those that were rejected, what a file says otherwise, and a summary."""
    for row in data["rows"]:
        name = f"request {sanitize(row['id'], 40)}"
        if row["state"] == "pending" and row["reason"] is None:
            yield f"{name}: pending, {signers_text(row['user_ids'])}"
        elif row["reason"] is not None:
            yield f"{name}: {row['state'].upper()}: {sanitize(row['reason'], 600)}"
        elif row["verified"]:
            legacy = f", {describe_legacy(row['omitted'])}" if row["legacy"] else ""
            yield f"{name}: verified: {_address_text(row['fields'])}, {signers_text(row['user_ids'])}{legacy}"
    yield from data["file"]["differences"] if data["file"] else ()
    number = len(data["rows"])
    yield f"{count(number, 'request')}: {_counts_text(data['counts'])} ({pinned})"


def _address_text(fields: Mapping[str, Any]) -> str:
    """Name a verified address, as it was signed."""
    chain = "/".join(sanitize(fields[name], 40) for name in ("currency", "network") if fields.get(name))
    return (
        f"{chain} {sanitize(fields['address'], 160)} {sanitize(json.dumps(fields['label'], ensure_ascii=False), 100)}"
    )


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state] or state == "verified")


def signers_text(user_ids: Iterable[str]) -> str:
    """Say whose signatures are valid."""
    names = some_text(user_ids)
    return f"validly signed by {names}" if names else "signed by nobody"


COMMAND = Command(
    "verify",
    "Verify the service's whitelist by signatures",
    verify,
    (
        option(
            "--id", dest="ids", metavar="ID", action="append", help="id of a request; may be repeated. Default: all"
        ),
        option(
            "--rejected-status",
            dest="rejected_statuses",
            metavar="WORD",
            action="append",
            help=REJECTED_HELP,
        ),
        option("--evidence", action="store_true", help="print what it takes to verify again, too; needs -o json"),
        option(
            "--from",
            dest="file",
            metavar="FILE",
            help="verify the evidence in what --evidence has printed; no service is asked",
        ),
        *CONNECTION_OPTIONS,
    ),
)
