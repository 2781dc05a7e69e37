"""A whitelist verified by signatures, and the evidence to verify it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError

from airflow_custody.client.describe import NOTHING_PINNED, describe_pins, how_to_pin
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.text import count, name_some, sanitize
from airflow_custody.client.verification.evidence import (
    Evidence,
    EvidenceFile,
    ListingState,
    evidence_to_json,
    parse_evidence,
)
from airflow_custody.client.verification.trust import ReportedState, describe_legacy
from airflow_custody.client.verification.verifier import Verifier
from airflow_custody.client.whitelist.envelopes import UnreadableRow, WhitelistEnvelope, WireEnvelope
from airflow_custody.client.whitelist.hidden import describe_hidden
from airflow_custody.client.whitelist.matching import find_duplicates
from airflow_custody.client.whitelist.request import VANISHED, Request, judge_request
from airflow_custody.client.whitelist.snapshot import read_snapshot, tenant_of

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.verification.verifier import VerificationPins

#: States of requests after verification, in the order of a summary.
VerifiedState = Literal["verified", "unverified", "pending", "rejected", "absent"]
VERIFIED_STATES: tuple[VerifiedState, ...] = ("verified", "unverified", "pending", "rejected", "absent")

_PROVED = ("fields", "legacy", "omitted", "hash", "applied", "user_ids", "rules")
# How a request is marked in evidence, by its reported state. A settled request that was not rejected is verified like a
# request in effect, whatever its status word. "unknown" remains only for a request that has vanished or is missing.
_LISTED: dict[ReportedState, ListingState] = {
    "effective": "settled",
    "pending": "pending",
    "rejected": "rejected",
    "unknown": "absent",
}
_REPORTED = {listed: reported for reported, listed in _LISTED.items()}


@dataclass(frozen=True)
class VerifiedWhitelist:
    """
    A whitelist, verified by signatures.

    :param requests: the requests.
    :param verifier: the verifier of the requests.
    :param service: base URL and tenant of the service. Default None: the requests come from a file.
    :param hidden: number of requests that the service counts but does not return. Default 0.
    """

    requests: Sequence[Request]
    verifier: Verifier
    service: dict[str, Any] | None = None
    hidden: int = 0

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each request. ``custody whitelist verify --help-all`` describes its keys."""
        return [_row(each) for each in self.requests]

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of requests in each state."""
        found = Counter(each["state"] for each in self.rows)
        return {state: found[state] for state in VERIFIED_STATES}

    @cached_property
    def duplicates(self) -> list[tuple[str, ...]]:
        """Groups of verified requests for the same destination, by id."""
        return find_duplicates(each for each in self.requests if _state_of(each) == "verified")

    @cached_property
    def unproved(self) -> list[dict[str, Any]]:
        """The rows that lack the proof that their state requires; ``reason`` says why."""
        return [each for each in self.rows if each["reason"] is not None]

    @property
    def unproved_text(self) -> list[str]:
        """A line for each row that lacks a proof, after a line about hidden requests."""
        hidden = [f"NOT VERIFIED: {describe_hidden(self.hidden)}"] if self.hidden else []
        return [*hidden, *map(describe_row, self.unproved)]

    @property
    def is_proved(self) -> bool:
        """Whether every row has the proof that its state requires, and no request is hidden."""
        return not self.unproved and not self.hidden

    @property
    def summary(self) -> str:
        """The number of requests in each state, and the pins."""
        counts = [f"{number} {state}" for state, number in self.counts.items() if number or state == "verified"]
        counts += [f"{self.hidden} more hidden"] if self.hidden else []
        return f"{count(len(self.rows), 'request')}: {', '.join(counts)} ({describe_pins(self.verifier.pins)})"

    @property
    def duplicates_text(self) -> list[str]:
        """A line for each group of duplicates."""
        return [f"same destination: requests {sanitize(', '.join(each), 600)}" for each in self.duplicates]

    def to_json(self, file: dict[str, str] | None = None) -> dict[str, Any]:
        """
        Return the verified whitelist as plain JSON data, without the evidence.

        :param file: name and SHA-256 of the file with the evidence. Default None: the evidence comes from a service.
        """
        return {
            "verified_at": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "service": self.service,
            "file": file,
            "pins": self.verifier.pins.to_json(),
            "counts": self.counts,
            "hidden": self.hidden,
            "rows": self.rows,
            "evidence": None,
            "duplicates": self.duplicates,
        }

    def to_file(self, file: dict[str, str] | None = None) -> bytes:
        """
        Return the content of a file with the evidence.

        The content is read back with :func:`parse_evidence` first. Otherwise, an error in it would only be found by an
        auditor.

        :param file: as for :meth:`to_json`. Default None.
        :raises CustodyRequestError: if the evidence cannot be read again.
        """
        evidence = evidence_to_json(map(_evidence_of, self.requests), self.verifier.rules_in_force, self.hidden)
        data = f"{json.dumps({**self.to_json(file), 'evidence': evidence}, indent=2)}\n".encode()
        try:
            found, _ = parse_evidence(data, "the evidence")
        except CustodyRequestError as error:
            raise _not_kept(error.message) from None
        if [each.id for each in found.rows] != [each.id for each in self.requests]:
            raise _not_kept("the evidence does not have the same requests as those that were verified")
        return data


def _not_kept(why: str) -> CustodyRequestError:
    advice = "Verify fewer requests at once, by naming their ids."
    return CustodyRequestError(f"{why}; nothing was written", advice=advice, code="file-wrong")


def describe_row(row: Mapping[str, Any]) -> str:
    """Return a row as a line of text; empty for a rejected request."""
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
    """Return a description of the users with valid signatures."""
    return f"validly signed by {name_some(user_ids, 80)}" if user_ids else "no valid signature"


def verify_service(client: CustodyClient, ids: Iterable[str] | None = None) -> VerifiedWhitelist:
    """
    Verify the whitelist of a service with the client's pinned keys.

    :param client: the client.
    :param ids: ids of the requests to verify. Default None: all.
    :raises CustodyConfigurationError: if no keys are pinned.
    :raises CustodyError: if the service cannot be read.
    """
    if client.verifier is None:
        advice = how_to_pin(client.settings.source)
        raise CustodyConfigurationError(NOTHING_PINNED, setting="superadmin_keys", advice=advice)
    service = {"base_url": client.settings.base_url, "tenant_id": tenant_of(client)}
    snapshot = read_snapshot(client, ids)
    verifier = snapshot.verifier or client.verifier
    return VerifiedWhitelist([*map(_as_settled, snapshot)], verifier, service, snapshot.hidden)


def _as_settled(request: Request) -> Request:
    """Return a settled request as one in effect if only its status word is unknown, because it was verified as one."""
    if request.reported != "unknown" or request.has_vanished or request.envelope is None:
        return request
    return replace(request, reported="effective", state="effective" if request.state == "unknown" else request.state)


def verify_evidence(kept: EvidenceFile, pins: VerificationPins, ids: Iterable[str] | None = None) -> VerifiedWhitelist:
    """
    Verify the evidence in a file, without contacting a service.

    :param kept: the evidence.
    :param pins: the pinned keys, which must not come from the file.
    :param ids: ids of the requests to verify. Requests that the file lacks have the state ``absent``. Default None:
        all.
    """
    verifier = Verifier(pins, rules_in_force=kept.rules_in_force)
    found = {each.id: _read_evidence(each, verifier) for each in kept.rows}
    if ids is None:
        return VerifiedWhitelist([*found.values()], verifier, hidden=kept.hidden)
    # Each of these ids is either in the file or absent, so the number of requests that were hidden does not matter.
    return VerifiedWhitelist([found.get(each, Request(each, "missing")) for each in ids], verifier)


def _read_evidence(evidence: Evidence, verifier: Verifier) -> Request:
    if evidence.listed == "absent":
        return Request(evidence.id, "missing")
    wire: Any = UnreadableRow(id=evidence.id)
    with suppress(ValidationError):
        wire = _wire_form().validate_python(evidence.envelope)
    return judge_request(WhitelistEnvelope(wire), _REPORTED[evidence.listed], verifier)


@cache
def _wire_form() -> TypeAdapter[WireEnvelope]:
    """Return the type adapter for envelopes in files and in responses."""
    return TypeAdapter(WireEnvelope)


def _evidence_of(request: Request) -> Evidence:
    listed = _LISTED[request.reported]
    if request.envelope is None or listed == "absent":
        return Evidence(id=request.id, listed="absent")
    envelope = dict(request.envelope.wire) if request.envelope.is_readable else None
    return Evidence(id=request.id, listed=listed, envelope=envelope)


def _row(request: Request) -> dict[str, Any]:
    state, signatures, error = _state_of(request), request.trust.signatures, request.trust.error
    reason: str | None = None
    proved: dict[str, Any] = {}
    if state == "absent":
        reason = "it is not listed" if request.envelope is None else f"{VANISHED}: verify again"
    elif error is not None:
        reason = error.explanation
    elif request.state == "unreadable" and state != "rejected":
        reason = request.reason
    elif request.proved is not None:
        proved = {**request.proved.to_json(), "rules": request.proved.rules.to_json()}
    elif signatures is not None:
        rules = None if signatures.rules is None else signatures.rules.to_json()
        proved = {"hash": signatures.hash, "user_ids": list(signatures.user_ids), "rules": rules}
    return {
        "id": request.id,
        "state": state,
        "status": None if request.envelope is None else request.envelope.status,
        "verified": state == "verified",
        "reason": reason,
        **{name: proved.get(name) for name in _PROVED},
    }


def _state_of(request: Request) -> VerifiedState:
    if request.reported == "unknown":
        return "absent"
    if request.reported in ("pending", "rejected"):
        return request.reported
    return "verified" if request.state == "effective" and request.proved is not None else "unverified"
