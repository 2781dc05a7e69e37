"""Plans against services that store and list requests in their own way."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.service.vanishing import vanish
from support.whitelist.whitelist_plans import ADDRESS, OTHER, ask, listed, plan, rows_of, states

from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.whitelist.plans.planner import PlanSettings, make_plan
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.sandbox import Sandbox

# --- a service that stores what was asked for in its own way ------------------------------------------------


@st.composite
def _services(draw: st.DrawFn) -> Callable[[int, WhitelistRequest], WhitelistEnvelope]:
    """Return a service's way of storing requests, as a change of each field."""
    spellings: list[Callable[[str], str]] = [str, str.lower, str.upper, lambda each: each.removeprefix("0x")]
    spell = draw(st.sampled_from(spellings))
    label_length = draw(st.sampled_from([None, 1, 4]))
    network = draw(st.sampled_from(["kept", "hidden", "filled", "renamed", "outside"]))
    chain = draw(st.sampled_from([{}, {"ETH": "eth", "MATIC": "matic"}, {"ETH": "Ethereum", "MATIC": "Polygon"}]))
    has_links, has_type = draw(st.booleans()), draw(st.booleans())

    def store(number: int, request: WhitelistRequest) -> WhitelistEnvelope:
        asked = request.network
        renamed = {"testnet": "Testnet"}.get(asked or "", "main")
        named = {"kept": asked, "outside": asked, "filled": asked or "mainnet", "renamed": renamed}.get(network)
        payload: dict[str, Any] = {
            "currency": chain.get(request.chain, request.chain),
            "address": spell(request.address),
            "label": request.label[:label_length],
            "memo": request.memo or "",
            "linkedWallets": [{"id": each} for each in request.linked_wallet_ids or ()] if has_links else [],
            "addressType": "exchange" if has_type else "",
        }
        if network == "outside":
            return listed(number, **payload, wire={"network": named} if named else {})
        return listed(number, **payload, network=named)

    return store


_ROW = st.builds(
    ask,
    label=st.sampled_from(["Treasury", "Trading", "Cold"]),
    address=st.sampled_from([ADDRESS, OTHER]),
    blockchain=st.sampled_from(["ETH", "MATIC"]),
    memo=st.sampled_from([None, "1", "2"]),
    network=st.sampled_from([None, "mainnet", "testnet"]),
    linked_wallet_ids=st.sampled_from([None, ["7"]]),
)


def _key(request: WhitelistRequest) -> tuple[str | None, ...]:
    return request.address, request.chain, request.memo, request.network


_ROWS = st.lists(_ROW, min_size=1, max_size=6, unique_by=_key)


@settings(max_examples=200)
@given(_ROWS, st.sets(st.integers(0, 5)), _services(), st.booleans(), st.randoms(use_true_random=False))
def test_a_created_request_is_neither_created_again_nor_deleted(
    rows: list[WhitelistRequest], there: set[int], store: Any, prune: bool, order: random.Random
) -> None:
    envelopes = [store(number, request) for number, request in enumerate(rows) if number in there]
    order.shuffle(envelopes)
    found = plan(rows, envelopes, prune=prune)
    by_row = {row.where: row for row in found.rows}
    assert all(by_row[f"line {number + 2}"].action is None for number in there if number < len(rows))
    assert not found.with_action("delete")


@settings(max_examples=150)
@given(_ROWS, st.lists(_ROW, max_size=6), _services(), st.randoms(use_true_random=False))
def test_no_order_matters(
    rows: list[WhitelistRequest], there: list[WhitelistRequest], store: Any, order: random.Random
) -> None:
    envelopes = [store(number, request) for number, request in enumerate(there)]

    def found() -> tuple[object, ...]:
        made = plan(rows, envelopes, prune=True)
        seen = [(row.request_id, row.state, row.action, row.request) for row in made.rows]
        declared = {str(each[-1]): each for row, each in zip(made.rows, seen, strict=True) if row.where}
        return made.plan_hash, declared, seen[len(rows) :]

    before = found()
    order.shuffle(rows)
    order.shuffle(envelopes)
    assert found() == before


# --- against the sandbox -----------------------------------------------------------------------------------


def test_a_request_that_vanishes_between_two_listings_is_neither_created_nor_deleted(
    sandbox: Sandbox, client: CustodyClient
) -> None:
    first, second = map(client.create_whitelist_request, [ask(), ask(address=OTHER)])
    for each in (first, second):
        sandbox.control.set_whitelist_status(each, "APPROVED")
    vanish(sandbox, first)
    why = "it was listed as settled, but is missing from the later listing of all requests"
    both = PlanSettings(prune=True, replace=True)
    found = make_plan(rows_of(ask(label="Other"), ask(address=OTHER)), read_snapshot(client), both)
    assert states(found) == [("differs", None, first), ("unchanged", None, second)]
    assert f"{why}: plan again" in found.rows[0].note
    found = make_plan(rows_of(ask(address=OTHER)), read_snapshot(client), both)
    assert states(found) == [("unchanged", None, second), ("undeclared", None, first)]
    assert found.rows[1].note == f"it is unknown whether it is in effect; {why}, so it is not deleted: plan again"
