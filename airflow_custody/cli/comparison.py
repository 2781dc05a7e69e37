"""What a file with evidence says was proved, compared with what was proved anew. Pure functions, no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_custody.client.text import sanitize

#: What such a file says besides its evidence, and can be compared.
COMPARED = ("pins", "counts", "rows")
_MAX_SHOWN = 5
_MISSING = object()


def differences(said: Mapping[str, Any], found: Mapping[str, Any], ids: Sequence[str] | None = None) -> Iterator[str]:
    """
    Yield in words what a file says otherwise.

    :param said: what the file says: ``pins``, ``counts`` and ``rows``, whatever they are.
    :param found: what was proved anew, by the same names.
    :param ids: the requests to compare; then the counts of all are not. Default: all of them.
    """
    for name in ("pins",) if ids is not None else ("pins", "counts"):
        if texts := _texts(_plain(said.get(name, _MISSING)), _plain(found[name]), name):
            yield f"the file says otherwise: {texts}"
    rows = said.get("rows")
    if not isinstance(rows, list):
        yield "the file says otherwise: its 'rows' are missing, or no list"
        return
    by_id: dict[str, Any] = {}
    for number, row in enumerate(rows, 1):
        identifier = row.get("id") if isinstance(row, dict) else None
        if not isinstance(identifier, str) or identifier in by_id:
            yield f"the file says otherwise: row {number} of its 'rows' has no id, or one that another row has"
            continue
        by_id[identifier] = row
    for row in found["rows"]:
        texts = _texts(_plain(by_id.pop(row["id"], _MISSING)), _plain(row), "")
        if texts and not _is_in_neither(row, texts):
            yield f"request {sanitize(row['id'], 40)}: the file says otherwise: {texts}"
    for identifier in by_id:
        if ids is None:
            yield f"request {sanitize(identifier, 40)}: the file has it in its 'rows', and no evidence of it"


def _is_in_neither(row: Mapping[str, Any], texts: str) -> bool:
    """Tell whether a request was asked for that the file has nowhere."""
    return row["state"] == "absent" and texts == _NOT_THERE


_NOT_THERE = "it is missing"


def _plain(value: Any) -> Any:
    """Return a value in which the order of pinned keys does not matter: it says nothing."""
    if not isinstance(value, dict):
        return value
    return {
        name: sorted(each)
        if name in ("superadmin_keys", "fingerprints", "signed_by") and _is_texts(each)
        else _plain(each)
        for name, each in value.items()
    }


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _texts(said: object, found: object, name: str) -> str:
    """Return the differences of two values in words, not all of many; nothing if there are none."""
    texts: list[str] = []
    for path, one, other in _pairs(said, found, name):
        if len(texts) == _MAX_SHOWN:
            return f"{'; '.join(texts)}; and more"
        if not path:
            return _NOT_THERE if one is _MISSING else "it is in another form"
        texts.append(f"{sanitize(path, 80)} is {_text(one)} there, and {_text(other)} now")
    return "; ".join(texts)


def _pairs(said: object, found: object, path: str) -> Iterator[tuple[str, object, object]]:
    """Yield the paths at which two values differ, with both."""
    if isinstance(said, dict) and isinstance(found, dict):
        for name in {**found, **said}:
            below = f"{path}.{name}" if path else name
            yield from _pairs(said.get(name, _MISSING), found.get(name, _MISSING), below)
    elif _text_of(said) != _text_of(found):
        yield path, said, found


def _text_of(value: object) -> str | None:
    """Return a value as JSON, where ``1`` is not ``true``; None: it is missing, or cannot be one of ours."""
    if value is _MISSING:
        return None
    try:
        return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return "missing" if value is _MISSING else sanitize(_text_of(value) or "another", 80)
