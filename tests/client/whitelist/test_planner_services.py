"""Plans against services that store and list requests in their own way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from checksums import eip55
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whitelist_plans import ADDRESS, OTHER, ask, listed, plan, rows_of

from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.whitelist.listing import fetch_listing, to_request
from airflow_custody.client.whitelist.plan import STATES, WhitelistPlan
from airflow_custody.client.whitelist.planner import make_plan
from airflow_custody.sandbox import Sandbox

# --- a service that stores what was asked for in its own way ------------------------------------------------


@st.composite
def _services(draw: st.DrawFn) -> dict[str, Any]:
    """Return a way to store requests: what it makes of each field."""
    spellings: list[Callable[[str], str]] = [
        str,
        str.lower,
        str.upper,
        lambda each: each.removeprefix("0x"),
    ]
    spell = draw(st.sampled_from(spellings))
    label_length = draw(st.sampled_from([None, 1, 4]))
    network = draw(st.sampled_from(["kept", "hidden", "filled", "renamed", "outside"]))
    chain = draw(st.sampled_from([{}, {"ETH": "eth", "MATIC": "matic"}, {"ETH": "Ethereum", "MATIC": "Polygon"}]))
    has_links, has_type = draw(st.booleans()), draw(st.booleans())

    def store(number: int, request: WhitelistRequest) -> WhitelistEnvelope:
        named = {"kept": request.network, "outside": request.network, "filled": request.network or "mainnet"}.get(
            network
        )
        if network == "renamed":
            named = {"testnet": "Testnet"}.get(request.network or "", "main")
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

    return {"store": store}


_ROW = st.builds(
    ask,
    label=st.sampled_from(["Treasury", "Trading", "Cold"]),
    address=st.sampled_from([ADDRESS, OTHER]),
    blockchain=st.sampled_from(["ETH", "MATIC"]),
    memo=st.sampled_from([None, "1", "2"]),
    network=st.sampled_from([None, "mainnet", "testnet"]),
    linked_wallet_ids=st.sampled_from([None, ["7"]]),
)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(_ROW, st.booleans()),
        min_size=1,
        max_size=6,
        unique_by=lambda each: (each[0].address, each[0].chain, each[0].memo, each[0].network),
    ),
    _services(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_what_was_created_is_neither_created_again_nor_deleted(
    drawn: list[tuple[WhitelistRequest, bool]], service: dict[str, Any], prune: bool, order: random.Random
) -> None:
    created = [request for request, is_there in drawn if is_there]
    envelopes = [service["store"](number, request) for number, request in enumerate(created)]
    order.shuffle(envelopes)
    found = plan([request for request, _ in drawn], envelopes, prune=prune)
    by_row = {row.where: row for row in found.rows}
    for number, (request, is_there) in enumerate(drawn, 2):
        if is_there:
            assert by_row[f"line {number}"].action is None, request
    assert not found.with_action("delete")


@settings(max_examples=150)
@given(
    st.lists(_ROW, min_size=1, max_size=6, unique_by=lambda each: (each.address, each.chain, each.memo, each.network)),
    st.lists(_ROW, max_size=6),
    _services(),
    st.randoms(use_true_random=False),
)
def test_no_order_matters(
    rows: list[WhitelistRequest], there: list[WhitelistRequest], service: dict[str, Any], order: random.Random
) -> None:
    envelopes = [service["store"](number, request) for number, request in enumerate(there)]

    def found() -> tuple[object, ...]:
        made = plan(rows, envelopes, prune=True)
        by_row = {
            row.request.model_dump_json(): (row.state, row.action, row.request_id)
            for row in made.rows
            if row.where and row.request
        }
        return made.plan_hash, by_row, [(row.request_id, row.state, row.action) for row in made.rows if not row.where]

    before = found()
    order.shuffle(rows)
    order.shuffle(envelopes)
    assert found() == before


# --- against the sandbox -----------------------------------------------------------------------------------


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


def read_plan(client: CustodyClient, *requests: WhitelistRequest, **options: Any) -> WhitelistPlan:
    return make_plan(rows_of(*requests), fetch_listing(client, **options))


FULL = ask(
    linked_internal_address_ids=["13", "12"],
    linked_wallet_ids=["7"],
    network="mainnet",
    memo="007",
    address_type="exchange",
    contract_type="ERC20",
    customer_id="c-1",
    exchange_account_id="9",
    visibility_group_id="g-2",
)


@pytest.mark.parametrize(
    "request_", [ask(address="0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB"), FULL], ids=["short", "full"]
)
@pytest.mark.parametrize("is_hashed", [False, True])
@pytest.mark.parametrize(
    ("behaviour", "state"),
    [
        ({}, "pending"),
        ({"address_form": "lower"}, "pending"),
        ({"address_form": "upper"}, "pending"),
        ({"address_form": "no prefix"}, "pending"),
        ({"chain_name": "eth"}, "pending"),
        ({"chain_name": "Ethereum"}, "pending"),
        ({"label_length": 4}, "differs"),
        ({"fill": {"addressType": "contract", "contractType": "x", "network": "mainnet"}}, "pending"),
    ],
    ids=str,
)
def test_nothing_is_created_twice_however_the_service_stores_it(
    sandbox: Sandbox,
    client: CustodyClient,
    request_: WhitelistRequest,
    is_hashed: bool,
    behaviour: dict[str, Any],
    state: str,
) -> None:
    sandbox.control.configure(network_is_hashed=is_hashed)
    sandbox.control.configure(**behaviour)
    assert read_plan(client, request_).with_action("create")
    number = client.create_whitelist_request(request_)
    for status in ("pending", "APPROVED"):
        sandbox.control.set_whitelist_status(number, status)
        (row,) = read_plan(client, request_).rows
        expected = state if status == "pending" or state == "differs" else "unchanged"
        assert (row.state, row.request_id) == (expected, number)
    # What the service has, in the words of a file, is what the service has.
    (envelope,) = client.find_whitelist_requests()
    (row,) = read_plan(client, to_request(envelope, envelope.payload())).rows
    assert row.state == "unchanged"


def test_asks_about_unknown_words_and_only_about_them(sandbox: Sandbox, client: CustodyClient) -> None:
    number = client.create_whitelist_request(ask())

    def read(status: str, shown: str | None = None) -> tuple[str, int]:
        sandbox.control.set_whitelist_status(number, status)
        sandbox.control.set_whitelist_envelope(number, status=shown or status)
        sandbox.control.clear_request_log()
        (row,) = read_plan(client, ask()).rows
        return row.state, len(sandbox.control.request_log())

    # Listed as pending for this user, who is an approver.
    assert read("pending") == ("pending", 2)
    # Once more: it may have taken effect since the user signed it.
    assert read("pending", "APPROVED") == ("pending", 3)
    assert read("APPROVED") == ("unchanged", 3)
    assert read("APPROVED", "FROZEN") == ("differs", 3)
    assert read("rejected") == ("rejected", 2)
    # A word that is listed with what is pending, and is not pending for this user.
    assert read("rejected", "HELD") == ("pending", 3)
    read("APPROVED")
    # Without the words: where a request is listed says it.
    listing = fetch_listing(client, by_status=False)
    assert make_plan(rows_of(ask()), listing, effective_statuses=None).counts["unchanged"] == 1


@pytest.mark.parametrize("has_total", [True, False])
def test_what_is_pending_is_not_in_effect_whatever_its_status_says(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, has_total: bool
) -> None:
    requests = [ask(address=f"0x{number:040x}", label=f"L{number}") for number in range(6)]
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as client:
        ids = [client.create_whitelist_request(each) for each in requests]
    statuses = ["pending", "APPROVED", "APPROVED", "rejected", "APPROVED", "APPROVED"]
    for number, status in zip(ids, statuses, strict=True):
        sandbox.control.set_whitelist_status(number, status)
    sandbox.control.set_whitelist_envelope(ids[0], status="APPROVED")
    sandbox.control.set_whitelist_envelope(ids[1], status="FROZEN")
    if not has_total:
        monkeypatch.setattr(CustodyClient, "count_whitelist_requests", lambda *_, **__: None)
    # A user who is no approver is not told what is pending.
    token = sandbox.control.add_token(roles=["TPUser"])
    with CustodyClient(sandbox.url, token, timeout=60, max_retries=0) as client:
        found = read_plan(client, *requests).rows
        assert [each.state for each in found] == ["pending", "differs", *["unchanged", "rejected"], *["unchanged"] * 2]
        assert client.count_whitelist_requests() == (6 if has_total else None)
        sandbox.control.set_whitelist_status(ids[0], "APPROVED")
        assert read_plan(client, *requests).counts["unchanged"] == 4


def test_a_listing_takes_one_call_for_each_hundred(sandbox: Sandbox, client: CustodyClient) -> None:
    for number in range(210):
        identifier = client.create_whitelist_request(ask(address=f"0x{number:040x}"))
        sandbox.control.set_whitelist_status(identifier, "APPROVED")
    sandbox.control.clear_request_log()
    assert len(fetch_listing(client).envelopes) == 210
    assert len(sandbox.control.request_log()) == 3 + 1 + 1


_TEXT = st.text("abc é|,:'\"#-<{", min_size=1, max_size=8).filter(str.strip)
_SYMBOL = st.text("abcXYZ019-_.", min_size=1, max_size=8)
_ADDRESS = st.builds(
    lambda digits, spell: f"0x{spell(digits)}",
    st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    st.sampled_from([str.lower, str.upper, eip55]),
)
_REQUESTS = st.fixed_dictionaries(
    {"label": _TEXT, "address": _ADDRESS},
    optional={
        "memo": _TEXT,
        "network": _SYMBOL,
        "address_type": st.sampled_from(["individual", "exchange", "contract"]),
        "contract_type": _SYMBOL,
        "customer_id": _SYMBOL,
        "exchange_account_id": st.from_regex("[1-9][0-9]{0,4}", fullmatch=True),
        "visibility_group_id": _SYMBOL,
        "linked_internal_address_ids": st.lists(
            st.from_regex("[1-9][0-9]?", fullmatch=True), min_size=1, max_size=3, unique=True
        ),
        "linked_wallet_ids": st.lists(
            st.from_regex("[1-9][0-9]?", fullmatch=True), min_size=1, max_size=3, unique=True
        ),
    },
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        _REQUESTS, min_size=1, max_size=4, unique_by=lambda each: (str(each["address"]).lower(), each.get("memo"))
    ),
    st.booleans(),
)
def test_a_dump_of_the_service_has_no_changes(
    sandbox: Sandbox, client: CustodyClient, asked: list[dict[str, Any]], is_hashed: bool
) -> None:
    sandbox.control.reset()
    sandbox.control.configure(network_is_hashed=is_hashed)
    requests = [ask(**each) for each in asked]
    for each in requests:
        client.create_whitelist_request(each)
    listing = fetch_listing(client)
    dump = [to_request(each, each.payload()) for each in listing.envelopes]
    for rows in (requests, dump):
        found = make_plan(rows_of(*rows), listing, prune=True)
        assert found.counts == {**dict.fromkeys(STATES, 0), "pending": len(requests)}
        assert not found.operations
        assert not found.has_changes
