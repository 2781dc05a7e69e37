"""Rows of whitelist files, requests as a service lists them, and the plans that they make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from airflow_custody.client import WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.whitelist.listing import Listing
from airflow_custody.client.whitelist.plan import FileRow, WhitelistPlan
from airflow_custody.client.whitelist.planner import make_plan

ADDRESS = "0x" + "ab" * 20
OTHER = "0x" + "cd" * 20
# The same address of one chain in two forms, and one in base58.
CASH = "bitcoincash:qpm2qsznhks23z7629mms6s4cwef74vcwvy22gdx6a"
LEGACY = "1BpEi6DfDAUFd7GtittLSdBeYJvcoaVggu"
XRP = "rN7n7otQDd6FczFgLdSqtcsAUxDkw6fzRH"
PENDING = {"status": "PENDING"}


def ask(**fields: Any) -> WhitelistRequest:
    return WhitelistRequest(**{"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", **fields})


def rows_of(*requests: WhitelistRequest) -> list[FileRow]:
    return [FileRow(each, f"line {number}") for number, each in enumerate(requests, 2)]


def listed(number: int = 3711, *, wire: dict[str, Any] | None = None, **payload: Any) -> WhitelistEnvelope:
    """Return a request as the service shows it; ``wire`` changes its envelope."""
    shown = {"currency": "ETH", "address": ADDRESS, "memo": "", "label": "Treasury", **payload}
    text = json.dumps({name: value for name, value in shown.items() if value is not None})
    metadata = {"payloadAsString": text, "hash": hashlib.sha256(text.encode()).hexdigest()}
    envelope = {"id": str(number), "status": "APPROVED", "action": "create", "metadata": metadata}
    return WhitelistEnvelope({**envelope, **(wire or {})})  # type: ignore[typeddict-item]


def unreadable(text: str | None, **wire: Any) -> WhitelistEnvelope:
    return listed(3799, wire={"metadata": {"payloadAsString": text, "hash": "0" * 64}, **wire})


def plan(
    requests: WhitelistRequest | Sequence[WhitelistRequest],
    envelopes: WhitelistEnvelope | Sequence[WhitelistEnvelope],
    **options: Any,
) -> WhitelistPlan:
    requests = [requests] if isinstance(requests, WhitelistRequest) else requests
    envelopes = [envelopes] if isinstance(envelopes, WhitelistEnvelope) else envelopes
    return make_plan(rows_of(*requests), Listing(envelopes), **options)


def states(found: WhitelistPlan) -> list[tuple[str, str | None, str]]:
    return [(each.state, each.action, each.request_id) for each in found.rows]
