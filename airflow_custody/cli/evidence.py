"""What it takes to verify whitelisting requests again without the service, as plain JSON data. No network."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from airflow_custody.cli.comparison import COMPARED
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import as_name, sanitize

#: Where the service lists a request: with those that are not pending, with those that are, as rejected; or nowhere.
Listed = Literal["settled", "pending", "rejected", "absent"]

_MAX_FILE_BYTES = 1024 * 1024 * 1024
# What verification reads of an envelope, besides the text, the signatures and the rules.
_LABELS = ("status", "blockchain", "network")
_HASH = re.compile("[0-9a-f]{64}")
# Longer than 64 bytes in base64.
_MAX_SIGNATURE = 100


@dataclass(frozen=True)
class Evidence:
    """
    One whitelisting request, to be verified.

    :param id: its id.
    :param listed: where the service lists it, in its word.
    :param envelope: what verification reads of its envelope, and nothing else; empty if it is nowhere.
    :param fault: why it cannot be verified, whatever it is; None: it can be tried.
    """

    id: str
    listed: Listed
    envelope: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None

    @property
    def status(self) -> str | None:
        """Its status, in the service's word."""
        status = self.envelope.get("status")
        return status if isinstance(status, str) else None


def take_evidence(id_: str, listed: Listed, envelope: Mapping[str, Any]) -> Evidence:
    """
    Return what verification reads of an envelope.

    What it would refuse unread is not copied: what is left out is named in place of it, so that evidence is never much
    larger than what came. It is verified from the copy, so that it cannot be verified from more than is kept.

    :param id_: the request's id.
    :param listed: where the service lists it.
    :param envelope: its envelope, as it came.
    """
    from airflow_custody.client.whitelist.envelopes import UnreadableRow

    labels = {name: envelope[name] for name in _LABELS if isinstance(envelope.get(name), str)}
    if isinstance(envelope, UnreadableRow):
        return Evidence(id_, listed, {"id": id_}, "it cannot be read: a field of it has another type than is known")
    if fault := _too_large(envelope):
        return Evidence(id_, listed, {"id": id_, **labels}, f"{fault}: it is refused unread")
    kept: dict[str, Any] = {"id": id_, **labels}
    for name in (*_LABELS, "rulesContainer", "rulesSignatures", "rulesContainerHash"):
        if envelope.get(name) is not None:
            # What is there and no text is refused as such.
            kept[name] = envelope[name] if isinstance(envelope[name], str) else True
    metadata = envelope.get("metadata")
    if isinstance(metadata, Mapping):
        kept["metadata"] = {name: _text(metadata.get(name)) for name in ("payloadAsString", "hash")}
    if (address := envelope.get("signedAddress")) is not None:
        kept["signedAddress"] = _take_signatures(address)
    return Evidence(id_, listed, kept)


def _too_large(envelope: Mapping[str, Any]) -> str | None:
    """Say what verification would refuse unread; None: nothing."""
    from airflow_custody.client.verification.rules_container import MAX_CONTAINER_BYTES, MAX_SIGNATURES_BYTES
    from airflow_custody.client.verification.signature_count import MAX_ENTRIES
    from airflow_custody.client.verification.signed_text import MAX_PAYLOAD_BYTES

    metadata, address = envelope.get("metadata"), envelope.get("signedAddress")
    text = metadata.get("payloadAsString") if isinstance(metadata, Mapping) else None
    entries = address.get("signatures") if isinstance(address, Mapping) else None
    if isinstance(text, str) and len(text) > MAX_PAYLOAD_BYTES:
        return f"its payload is larger than {MAX_PAYLOAD_BYTES} bytes"
    if isinstance(entries, list) and len(entries) > MAX_ENTRIES:
        return f"it has more than {MAX_ENTRIES} signatures"
    for name, what, most in (
        ("rulesContainer", "its rules are", MAX_CONTAINER_BYTES),
        ("rulesSignatures", "the signatures of its rules are", MAX_SIGNATURES_BYTES),
    ):
        found = envelope.get(name)
        if isinstance(found, str) and len(found) > (most + 2) // 3 * 4:
            return f"{what} larger than {most} bytes"
    return None


def _take_signatures(address: object) -> dict[str, Any]:
    entries = address.get("signatures") if isinstance(address, Mapping) else False
    if isinstance(entries, list):
        return {"signatures": [_take_entry(each) for each in entries]}
    # Neither a list nor nothing at all: refused as such.
    return {"signatures": None if entries is None else False}


def _take_entry(found: object) -> dict[str, Any] | None:
    """Return a signature that may count as it came; of another one no more than shows that it does not."""
    from airflow_custody.client.verification.signature_count import MAX_HASHES

    signature = found.get("signature") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(signature, Mapping):
        return None
    text, user_id = _text(signature.get("signature")), as_name(signature.get("userId"))
    kept = {} if user_id is None else {"userId": user_id}
    if text is not None and len(text) <= _MAX_SIGNATURE:
        kept["signature"] = text
    hashes = found.get("hashes")
    if hashes is None:
        return {"signature": kept}
    # What stands in place of the hashes is refused, too.
    if not isinstance(hashes, list) or len(hashes) > MAX_HASHES:
        return {"signature": kept, "hashes": False, "left_out": f"hashes: no list, or more than {MAX_HASHES}"}
    if not all(isinstance(each, str) and _HASH.fullmatch(each) for each in hashes):
        return {"signature": kept, "hashes": [None], "left_out": "hashes: one of them is none, so nobody can sign them"}
    return {"signature": kept, "hashes": hashes}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@dataclass(frozen=True)
class EvidenceFile:
    """
    A file with evidence.

    :param sha256: the file's own hash, in hex.
    :param rows: the requests.
    :param in_force: the rules in force, if pending requests were verified with them.
    :param said: what it says besides, which proves nothing: ``pins``, ``counts`` and ``rows``, whatever they are.
    """

    sha256: str
    rows: list[Evidence]
    in_force: Mapping[str, Any] | None
    said: Mapping[str, Any]


def evidence_to_json(rows: Iterable[Evidence], in_force: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """
    Return evidence as plain JSON data.

    :param rows: the requests.
    :param in_force: the rules in force, if pending requests were verified with them. Default: none were.
    :return: ``rules``, each container with its signatures once, ``rules_in_force``, and ``rows``, which name theirs of
        the former by its position.
    """
    positions: dict[tuple[Any, ...], int] = {}
    rules: list[dict[str, Any]] = []
    found = []
    for row in rows:
        own = {name: row.envelope.get(name) for name in ("rulesContainer", "rulesSignatures")}
        position = None
        if any(own.values()):
            key = (own["rulesContainer"], own["rulesSignatures"])
            position = positions.setdefault(key, len(rules))
            if position == len(rules):
                rules.append({"sha256": _sha256(own["rulesContainer"]), **own})
        fields = {name: value for name, value in row.envelope.items() if name not in own}
        fault = {} if row.fault is None else {"fault": row.fault}
        found.append({**fields, "id": row.id, "listed": row.listed, **fault, "rules": position})
    return {"rules": rules, "rules_in_force": [] if in_force is None else [_take_rules(in_force)], "rows": found}


def _take_rules(rules: object) -> dict[str, Any]:
    """Return what verification reads of rules as ``GET /rules`` shows them."""
    found = rules if isinstance(rules, Mapping) else {}
    entries = found.get("rulesSignatures")
    signatures = [each for each in entries if isinstance(each, Mapping)] if isinstance(entries, list) else []
    return {
        "rulesContainer": _text(found.get("rulesContainer")),
        "rulesSignatures": [
            {name: _text(each.get(name)) for name in ("userId", "signature")}
            for each in signatures
            if 0 < len(_text(each.get("signature")) or "") <= _MAX_SIGNATURE
        ],
    }


def read_evidence(path: str) -> EvidenceFile:
    """
    Read a file that ``custody whitelist verify --evidence -o json`` has printed.

    :param path: the file's path.
    :raises CustodyRequestError: if it cannot be read, or is another file.
    """
    data, why = b"", ""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = f"cannot be read: {sanitize(getattr(error, 'strerror', None) or error, 160)}"
    if len(data) > _MAX_FILE_BYTES:
        why = f"is larger than {_MAX_FILE_BYTES} bytes"
    found = None
    if not why:
        found, why = _parse(data)
    if found is None:
        raise CustodyRequestError(
            f"{sanitize(path, 200)} {why}",
            advice="Give a file that 'custody whitelist verify --evidence -o json' has printed.",
            code="file-wrong",
        )
    return found


def _parse(data: bytes) -> tuple[EvidenceFile | None, str]:
    """Return what is in a file; or None, and why it cannot be read."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None, "is not JSON"
    evidence = found.get("evidence") if isinstance(found, dict) else None
    if not isinstance(evidence, dict):
        return None, "has no evidence: it was printed without --evidence, or by something else"
    rules, rows = evidence.get("rules"), evidence.get("rows")
    in_force = evidence.get("rules_in_force", [])
    if not (isinstance(rules, list) and isinstance(rows, list) and isinstance(in_force, list)):
        return None, "has evidence in another form"
    read: dict[str, Evidence] = {}
    for row in rows:
        one = _row(row, rules)
        if one is None:
            return None, f"has evidence in another form: row {len(read) + 1}"
        if one.id in read:
            return None, f"has evidence of request {sanitize(one.id, 40)} twice"
        read[one.id] = one
    kept = _take_rules(in_force[0]) if in_force else None
    said = {name: found[name] for name in COMPARED if name in found}
    return EvidenceFile(hashlib.sha256(data).hexdigest(), list(read.values()), kept, said), ""


def _row(row: object, rules: list[Any]) -> Evidence | None:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or row.get("listed") not in get_args(Listed):
        return None
    position = row.get("rules")
    own: Any = {}
    if position is not None:
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(rules):
            return None
        own = rules[position]
        if not isinstance(own, dict):
            return None
    rules_of_row = {name: own.get(name) for name in ("rulesContainer", "rulesSignatures")}
    found = take_evidence(row["id"], row["listed"], {**row, **rules_of_row})
    # A file can say that something is wrong with a row, and never that nothing is.
    fault = row.get("fault")
    return found if fault is None or found.fault else replace(found, fault=sanitize(fault, 300))


def _sha256(container: object) -> str | None:
    """Return the hash of a container's bytes; None if there is none, or it is not base64."""
    if not isinstance(container, str) or not container:
        return None
    try:
        return hashlib.sha256(base64.b64decode(container, validate=True)).hexdigest()
    except (ValueError, binascii.Error):
        return None
