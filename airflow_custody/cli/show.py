"""One whitelisting request for people and for programs. Pure functions, no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import escape, sanitize
from airflow_custody.client.text_table import format_table

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_FIELDS = ("id", "status", "action", "tenant_id", "blockchain", "network", "visibility_group_id", "hash")


def describe_request(envelope: WhitelistEnvelope) -> dict[str, Any]:
    """
    Return a request as plain JSON data.

    :param envelope: the request.
    :return: what ``custody whitelist show --help`` says.
    """
    payload, fault = None, None
    try:
        payload = envelope.payload()
    except CustodyError as error:
        fault = error.message
    return {
        **{name: getattr(envelope, name) for name in _FIELDS},
        "verified": fault is None,
        "fault": fault,
        "payload": payload,
        "signatures": [
            {"user_id": each.user_id, "signature": each.signature, "hashes": list(each.hashes)}
            for each in envelope.signings
        ],
        "trail": [
            {
                "date": each.get("date"),
                "action": each.get("action"),
                "user_id": each.get("userId"),
                "external_user_id": each.get("externalUserId"),
                "comment": each.get("comment"),
            }
            for each in envelope.trails
        ],
    }


def show_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """
    Yield a request as lines of plain text.

    :param data: what :func:`describe_request` returns.
    """
    for name in _FIELDS:
        if data[name]:
            yield f"{name + ':':<21}{sanitize(data[name])}"
    yield f"{'payload:':<21}{'as its hash says' if data['verified'] else 'CANNOT BE VERIFIED: ' + str(data['fault'])}"
    for name, value in (data["payload"] or {}).items():
        if value not in (None, "", []):
            # Whole: people compare it.
            yield f"  {escape(name)}: {escape(value if isinstance(value, str) else json.dumps(value))}"
    if data["signatures"]:
        yield "signatures, as the service shows them:"
        rows = [(each["user_id"], each["signature"], len(each["hashes"])) for each in data["signatures"]]
        yield from _indented(format_table(("USER", "SIGNATURE", "HASHES"), rows, max_width=100))
    if data["trail"]:
        yield "trail:"
        columns = ("date", "action", "external_user_id", "comment")
        trail = [[each[name] for name in columns] for each in data["trail"]]
        yield from _indented(format_table(("DATE", "ACTION", "USER", "COMMENT"), trail, max_width=100))


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in text.splitlines())
