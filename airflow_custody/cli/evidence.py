"""What it takes to verify whitelisting requests again without the service, as plain JSON data. No network."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import sanitize

#: Where the service lists a request: with those that are not pending, with those that are, as rejected; or nowhere.
Listed = Literal["settled", "pending", "rejected", "absent"]

_RULES = ("rulesContainer", "rulesSignatures")
_ENVELOPE = ("status", "blockchain", "network", "metadata", "signedAddress", "rulesContainerHash")
_MISSING = object()


@dataclass(frozen=True)
class Evidence:
    """
    One whitelisting request, to be verified.

    :param id: its id.
    :param listed: where the service lists it, in its word.
    :param envelope: what verification reads of its envelope, and nothing else; empty if it is nowhere.
    """

    id: str
    listed: Listed
    envelope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str | None:
        """Its status, in the service's word."""
        status = self.envelope.get("status")
        return status if isinstance(status, str) else None


def take_evidence(id_: str, listed: Listed, envelope: Mapping[str, Any]) -> Evidence:
    """
    Return what verification reads of an envelope, as it came.

    It is verified from this copy, so that it cannot be verified from more than is kept.

    :param id_: the request's id.
    :param listed: where the service lists it.
    :param envelope: its envelope, as it came.
    """
    return Evidence(id_, listed, {**_pick(envelope, *_ENVELOPE, *_RULES), "id": id_})


def _pick(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


# --- the file -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvidenceFile:
    """
    A file with evidence.

    :param sha256: the file's own hash, in hex.
    :param rows: the requests.
    :param in_force: the rules in force, if pending requests were verified with them.
    :param said: the whole file. What it says besides its evidence proves nothing.
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
    positions: dict[str, int] = {}
    rules: list[dict[str, Any]] = []
    found = []
    for row in rows:
        own = {name: row.envelope.get(name) for name in _RULES}
        fields = {name: value for name, value in row.envelope.items() if name not in own}
        position = None
        if any(own.values()):
            position = positions.setdefault(_text(own), len(rules))
            if position == len(rules):
                rules.append({"sha256": _sha256(own["rulesContainer"]), **own})
        found.append({**fields, "id": row.id, "listed": row.listed, "rules": position})
    kept = [] if in_force is None else [_pick(in_force, *_RULES)]
    return {"rules": rules, "rules_in_force": kept, "rows": found}


def _sha256(container: object) -> str | None:
    """Return the hash of a container's bytes; None if there is none, or it is not base64."""
    if not isinstance(container, str) or not container:
        return None
    try:
        return hashlib.sha256(base64.b64decode(container, validate=True)).hexdigest()
    except (ValueError, binascii.Error):
        return None


def read_evidence(path: str) -> EvidenceFile:
    """
    Read a file that ``custody whitelist verify --evidence -o json`` has printed, as strictly as a signed text: a key
    that is there twice could be read in two ways.

    :param path: the file's path.
    :raises CustodyRequestError: if it cannot be read, or is another file.
    """
    from airflow_custody.client.verification.results import RefusalError
    from airflow_custody.client.verification.signed_text import decode_strictly

    try:
        data = Path(path).read_bytes()
        said = decode_strictly(data.decode())
    except OSError as error:
        raise _unusable(path, f"cannot be read: {sanitize(error.strerror, 160)}") from None
    except RefusalError as error:
        raise _unusable(path, str(error)) from None
    except ValueError:
        raise _unusable(path, "is not text in UTF-8") from None
    evidence = said.get("evidence") if isinstance(said, dict) else None
    if not isinstance(evidence, dict):
        raise _unusable(path, "has no evidence: it was printed without --evidence, or by something else")
    try:
        rows = [_read_row(row, evidence["rules"]) for row in evidence["rows"]]
        in_force = _pick(evidence["rules_in_force"][0], *_RULES) if evidence["rules_in_force"] else None
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _unusable(path, "has evidence in another form") from None
    if len({row.id for row in rows}) != len(rows):
        raise _unusable(path, "has evidence of a request twice")
    return EvidenceFile(hashlib.sha256(data).hexdigest(), rows, in_force, said)


def _read_row(row: Mapping[str, Any], rules: list[Any]) -> Evidence:
    if not isinstance(row["id"], str) or row["listed"] not in get_args(Listed):
        raise ValueError
    own = {} if row["rules"] is None else rules[row["rules"]]
    return take_evidence(row["id"], row["listed"], {**row, **_pick(own, *_RULES)})


def _unusable(path: str, why: str) -> CustodyRequestError:
    return CustodyRequestError(
        f"{sanitize(path, 200)} {why}",
        advice="Give a file that 'custody whitelist verify --evidence -o json' has printed.",
        code="file-wrong",
    )


# --- what a file says besides its evidence ------------------------------------------------------------------


def differences(said: Mapping[str, Any], found: Mapping[str, Any], ids: Sequence[str] | None = None) -> Iterator[str]:
    """
    Yield in words what a file says otherwise.

    :param said: the file.
    :param found: what was proved anew: ``pins``, ``counts`` and ``rows``, as the file has them.
    :param ids: the requests to compare; then the counts of all are not. Default: all of them.
    """
    for name in ("pins",) if ids is not None else ("pins", "counts"):
        if not _is_same(said.get(name, _MISSING), found[name]):
            yield f"the file says otherwise: its {name!r} are {_text(said.get(name))}, and now {_text(found[name])}"
    rows = said.get("rows")
    listed = rows if isinstance(rows, list) else [None]
    by_id = {row["id"]: row for row in listed if isinstance(row, dict) and isinstance(row.get("id"), str)}
    if len(by_id) != len(listed):
        yield "the file says otherwise: its 'rows' are no list of rows, each with an id of its own"
        return
    for row in found["rows"]:
        there = by_id.pop(row["id"], None)
        name = f"request {sanitize(row['id'], 40)}"
        if there is None:
            # One that was asked for, and that the file has nowhere, is no contradiction.
            if row["state"] != "absent":
                yield f"{name}: the file says otherwise: it is not among its 'rows'"
        elif fields := [each for each in {**row, **there} if not _is_same(there.get(each, _MISSING), row.get(each))]:
            yield f"{name}: the file says otherwise: {sanitize(', '.join(fields), 200)}"
    if ids is None:
        for identifier in by_id:
            yield f"request {sanitize(identifier, 40)}: the file has it in its 'rows', and no evidence of it"


def _is_same(said: object, found: object) -> bool:
    # As text: for Python, 1 is True.
    return said is not _MISSING and _text(said) == _text(found)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
