"""Make rows of whitelist files, requests as a service lists them, and plans of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any

from airflow_custody.client import ClientSettings, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.verification.verifier import Verifier
from airflow_custody.client.whitelist.models import FileRow
from airflow_custody.client.whitelist.plans.plan import WhitelistPlan
from airflow_custody.client.whitelist.plans.planner import PlanSettings, check_ignored, make_plan
from airflow_custody.client.whitelist.request import ListedRequest, make_request
from airflow_custody.client.whitelist.snapshot import Snapshot

ADDRESS = "0x" + "ab" * 20
OTHER = "0x" + "cd" * 20
# A Bitcoin Cash address in its two forms, and an XRP address.
CASH = "bitcoincash:qpm2qsznhks23z7629mms6s4cwef74vcwvy22gdx6a"
LEGACY = "1BpEi6DfDAUFd7GtittLSdBeYJvcoaVggu"
XRP = "rN7n7otQDd6FczFgLdSqtcsAUxDkw6fzRH"
PENDING = {"status": "PENDING"}


def settings_of(**changes: Any) -> ClientSettings:
    return ClientSettings(base_url="https://custody.example.com", **changes)


SETTINGS = settings_of()


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


def snapshot_of(
    envelopes: Iterable[WhitelistEnvelope],
    *,
    settings: ClientSettings = SETTINGS,
    verifier: Verifier | None = None,
    pending: Collection[str] = (),
    settled: Collection[str] = (),
    deletions: Iterable[WhitelistEnvelope] = (),
) -> Snapshot:
    """
    Return requests as if the service had listed them.

    :param pending: ids of requests that are listed as pending.
    :param settled: ids of requests that are listed as settled. For all other requests, the status decides.
    :param deletions: requests whose deletion is listed for approval.
    """
    for_approval = {each.id: each for each in deletions}
    found = {}
    for each in envelopes:
        is_decided = settings.status_words.meaning(each.status) != "unknown"
        is_settled = each.id in settled or (is_decided and each.id not in pending)
        listed = ListedRequest(each.id, each, is_settled, for_approval.get(each.id))
        found[each.id] = make_request(listed, settings, verifier)
    return Snapshot(found, settings, verifier)


def plan(
    requests: WhitelistRequest | Sequence[WhitelistRequest],
    envelopes: WhitelistEnvelope | Sequence[WhitelistEnvelope],
    **options: Any,
) -> WhitelistPlan:
    """
    Return a plan for requests, against envelopes that the service lists.

    :param options: options of ``snapshot_of`` and of a plan, and the client's settings for words and accepted fields.
    """
    requests = [requests] if isinstance(requests, WhitelistRequest) else requests
    envelopes = [envelopes] if isinstance(envelopes, WhitelistEnvelope) else envelopes
    of_client = ("effective_statuses", "rejected_statuses", "accept_fields")
    client_settings = settings_of(**{name: options.pop(name) for name in of_client if name in options})
    settings = {each.name: options.pop(each.name) for each in fields(PlanSettings) if each.name in options}
    settings["ignore"] = check_ignored(settings.get("ignore", ()))
    names = {name: options.pop(name) for name in ("service", "name") if name in options}
    snapshot = snapshot_of(envelopes, settings=client_settings, **options)
    return make_plan(rows_of(*requests), snapshot, PlanSettings(**settings), **names)


def states(found: WhitelistPlan) -> list[tuple[str, str | None, str]]:
    return [(each.state, each.action, each.request_id) for each in found.rows]
