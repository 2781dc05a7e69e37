"""
Evidence: a JSON file with which requests can be verified again without the service.

This module does not use the network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.files import read_file
from airflow_custody.client.json_text import read_json
from airflow_custody.client.text import sanitize
from airflow_custody.client.wire import TypedDict

#: Maximum size in bytes of a file with evidence. A request that is signed in a batch of a hundred takes 9 KB for each
#: signature, so a file holds 24,000 requests with one signature each, or 13,000 with two.
MAX_EVIDENCE_BYTES = 256 * 1024 * 1024
#: How the service lists a request. ``settled``: the request is neither pending nor rejected. ``absent``: it is not
#: listed.
ListingState = Literal["settled", "pending", "rejected", "absent"]

# The parts of an envelope that verification reads, besides its id and its rules.
_READ = ("status", "metadata", "signedAddress", "blockchain", "network", "rulesContainerHash", "rulesFault")


class EvidenceRules(TypedDict, total=False):
    """Rules with their signatures, as the service sent them. The verification checks their types."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    rulesContainer: Any
    rulesSignatures: Any


_RULES = tuple(EvidenceRules.__annotations__)


class Evidence(BaseModel):
    """
    One whitelisting request, to be verified.

    :param id: its id.
    :param listed: how the service lists the request.
    :param envelope: its envelope, in the form of :attr:`WhitelistEnvelope.wire`. In a file, it has only the parts that
        verification reads, and not the rules. Default None: the request is not listed, or cannot be read.
    :param rules: in a file, the index of the request's rules in the file's ``rules``. Default None: the request has no
        rules.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    id: str
    listed: ListingState
    envelope: dict[str, Any] | None = None
    rules: NonNegativeInt | None = None


class EvidenceFile(BaseModel):
    """
    The content of a file with evidence.

    :param rules: the rules of the requests, with their signatures. Equal rules are kept only once.
    :param rules_in_force: the rules in force, if pending requests were verified with them.
    :param rows: the requests.
    :param hidden: number of requests that the service counted but did not return. Default 0.
    """

    model_config = ConfigDict(extra="forbid")

    rules: list[EvidenceRules]
    rules_in_force: EvidenceRules | None
    rows: list[Evidence]
    hidden: NonNegativeInt = 0


def evidence_to_json(rows: Iterable[Evidence], in_force: Mapping[str, Any] | None, hidden: int = 0) -> dict[str, Any]:
    """
    Return evidence as plain JSON data, which :func:`parse_evidence` reads from the key ``evidence`` of a file.

    :param rows: the requests.
    :param in_force: the rules in force, if pending requests were verified with them.
    :param hidden: number of requests that the service counts but does not return. Default 0.
    """
    kept = None if in_force is None else _rules_of(in_force)
    found = EvidenceFile(rules=[], rules_in_force=kept, rows=[], hidden=hidden)
    for row in rows:
        if row.envelope is None:
            found.rows.append(row)
            continue
        own = _rules_of(row.envelope)
        if own and own not in found.rules:
            found.rules.append(own)
        position = found.rules.index(own) if own else None
        envelope = {name: row.envelope[name] for name in _READ if name in row.envelope}
        found.rows.append(row.model_copy(update={"envelope": envelope, "rules": position}))
    return found.model_dump()


def _rules_of(envelope: Mapping[str, Any]) -> EvidenceRules:
    rules: Any = {name: envelope[name] for name in _RULES if envelope.get(name)}
    return rules  # type: ignore[no-any-return]


def read_evidence(path: str) -> tuple[EvidenceFile, str]:
    """
    Read a file with evidence.

    :param path: the file's path.
    :return: same as :func:`parse_evidence`.
    :raises CustodyRequestError: if the file cannot be read, or has no evidence.
    """
    try:
        data = read_file(path, MAX_EVIDENCE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise evidence_error(path, f"cannot be read: {sanitize(reason, 160)}") from None
    return parse_evidence(data, path)


def parse_evidence(data: bytes, name: str) -> tuple[EvidenceFile, str]:
    """
    Read evidence.

    A repeated key is refused, because it could be read in two ways. The content of an envelope is not checked here, so
    a malformed envelope makes its request unreadable, but not the file.

    :param data: the content of a file that ``CustodyVerifyWhitelistOperator`` has written, or that
        ``custody whitelist verify --evidence -o json`` has printed.
    :param name: the file's name, for messages.
    :return: the evidence, with the id and the rules added to the envelope of each row; and the file's SHA-256, in hex.
    :raises CustodyRequestError: if the data is not such a file.
    """
    found = _decode(data, name)
    if any(row.rules is not None and row.rules >= len(found.rules) for row in found.rows):
        raise evidence_error(name, "refers to rules that it does not contain")
    if len({row.id for row in found.rows}) != len(found.rows):
        raise evidence_error(name, "contains the same request twice")
    for row in found.rows:
        if row.envelope is not None:
            own = {} if row.rules is None else found.rules[row.rules]
            row.envelope = {**row.envelope, **own, "id": row.id}
    return found, hashlib.sha256(data).hexdigest()


def _decode(data: bytes, name: str) -> EvidenceFile:
    if len(data) > MAX_EVIDENCE_BYTES:
        raise evidence_error(name, f"is larger than {MAX_EVIDENCE_BYTES // 2**20} MiB")
    try:
        said = read_json(data, MAX_EVIDENCE_BYTES)
    except ValueError as error:
        raise evidence_error(name, f"is not JSON with unique keys: {sanitize(error, 160)}") from None
    try:
        return EvidenceFile.model_validate(said.get("evidence") if isinstance(said, dict) else None)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        why = f"has no evidence, or evidence in an unexpected form: {sanitize(where, 160) or 'evidence'}"
        raise evidence_error(name, why) from None


def evidence_error(name: str, why: str, *, retryable: bool = False) -> CustodyRequestError:
    """Return the error about a file that cannot be used as evidence."""
    advice = (
        "Use a file that CustodyVerifyWhitelistOperator or 'custody whitelist verify --evidence -o json' has written."
    )
    return CustodyRequestError(f"{sanitize(name, 200)} {why}", advice=advice, code="file-wrong", retryable=retryable)
