"""Comparing a payload with the requested content: before signing, and when searching."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.whitelist.whitelist_plans import settings_of

from airflow_custody.client import WhitelistRequest
from airflow_custody.client.verification.signed_text import TEXT_KEYS
from airflow_custody.client.whitelist.comparison import PAYLOAD_KEYS, Comparison, compare, is_deletion
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

ADDRESS = "0x" + "ab" * 20
REQUEST = WhitelistRequest(label="Treasury", address=ADDRESS, blockchain="ETH")
PAYLOAD: dict[str, Any] = {
    "currency": "ETH",
    "addressType": "",
    "address": ADDRESS,
    "memo": "",
    "label": "Treasury",
    "customerId": "",
    "exchangeAccountId": "",
    "linkedInternalAddresses": [],
    "contractType": "",
}
OPTIONAL = {"network": "n", "linkedWallets": [{"id": 1}], "tnParticipantID": "p"}


def compared(
    request: WhitelistRequest, payload: dict[str, Any], *accepted: str, network: str | None = None
) -> Comparison:
    envelope = WhitelistEnvelope({"id": "7", "network": network})
    return compare(request, envelope, payload, settings_of(accept_fields=accepted))


def test_the_table_has_the_published_keys() -> None:
    assert set(PAYLOAD_KEYS) == set(TEXT_KEYS) == {*PAYLOAD, *OPTIONAL}


def test_every_field_of_a_request_is_in_the_table_once() -> None:
    fields = [key.field for key in PAYLOAD_KEYS.values() if key.field]
    # The first field is another name of blockchain; the second is not part of a payload.
    assert sorted([*fields, "currency", "visibility_group_id"]) == sorted(WhitelistRequest.model_fields)


# For each field, a requested value, the form in which the payload shows it, and another value.
ASKED: dict[str, tuple[Any, Any, Any]] = {
    "blockchain": ("ETH", "ETH", "BTC"),
    "network": ("mainnet", "mainnet", "testnet"),
    "address_type": ("exchange", "exchange", "individual"),
    "address": (ADDRESS, ADDRESS, "0x" + "cd" * 20),
    "memo": ("1", "1", "2"),
    "label": ("Treasury", "Treasury", "Other"),
    "customer_id": ("c", "c", "d"),
    "exchange_account_id": ("4", "4", "5"),
    "linked_internal_address_ids": (["12"], [{"id": "12", "address": "a", "label": "l"}], [{"id": "13"}]),
    "linked_wallet_ids": (["12"], [{"id": 12, "name": "n", "path": "p"}], [{"id": 13}]),
    "contract_type": ("ERC20", "ERC20", "ERC721"),
}


@pytest.mark.parametrize("name", [name for name, key in PAYLOAD_KEYS.items() if key.field])
def test_each_key_is_compared_with_its_field(name: str) -> None:
    field = str(PAYLOAD_KEYS[name].field)
    asked, shown, other = ASKED[field]
    request = REQUEST.model_copy(update={field: asked})
    right = compared(request, {**PAYLOAD, name: shown})
    assert right.faults == right.differs == ()
    wrong = compared(request, {**PAYLOAD, name: other}, name)
    assert [each.split(" (requested ")[0] for each in wrong.faults] == [field]
    assert wrong.differs == (field,)
    missing = {key: value for key, value in PAYLOAD.items() if key != name}
    for left_out in (missing, {**missing, name: None}):
        (fault,) = compared(request, left_out, name).faults
        assert fault.startswith(f"{field} (requested ")
        assert fault.endswith(", shown nothing)")
    for wrong_type in (False, 0, 1, {}, [1], {"id": "12"}, [{"id": None}]):
        assert compared(request, {**PAYLOAD, name: wrong_type}, name).faults
    if name in ("currency", "address", "label"):
        return
    unrequested = compared(REQUEST, {**PAYLOAD, name: shown})
    assert unrequested.unaccounted == (name,)
    assert unrequested.faults == (f"{name} (not requested)",)
    accepted = compared(REQUEST, {**PAYLOAD, name: shown}, name)
    assert accepted.faults == accepted.differs == ()
    assert name in accepted.filled_in


OTHER_LINKS: list[Any] = [[{"id": 7}] * 2, [{"id": 7}, {"id": 8}], [{"id": "07"}], [{"id": 6}], [{"id": 8}]]
NO_LINKS: list[Any] = [[{"id": True}], [{"id": ""}], [{"id": 7, "path": 1}], [{"name": "7"}], [7], {}, 0]


@pytest.mark.parametrize("name", ["linkedInternalAddresses", "linkedWallets"])
@pytest.mark.parametrize("links", [*OTHER_LINKS, *NO_LINKS], ids=str)
def test_other_links(links: Any, name: str) -> None:
    field, shown = str(PAYLOAD_KEYS[name].field), {**PAYLOAD, name: links}
    found = compared(REQUEST.model_copy(update={field: ["7"]}), shown, name)
    assert found.faults[0].startswith(f"{field} (requested 7, ")
    # A value that was not requested can be accepted, but not one that is not a list of links.
    assert bool(compared(REQUEST, shown, name).faults) is (links in NO_LINKS)


@pytest.mark.parametrize(
    ("action", "expected"),
    [("DELETE", True), ("remove", True), ("Revoked", True), ("update", False), ("create", False), ("", False)],
)
def test_a_deletion_says_so(action: str, expected: bool) -> None:
    assert is_deletion(action) is expected


@pytest.mark.parametrize(
    ("asked", "shown", "same"),
    [("ETH", "eth", True), ("ksm", "KSM", True), ("ksm", "\u212asm", False), ("Solſ", "SOLS", False)],
)
def test_only_letters_of_ascii_have_a_case(asked: str, shown: str, same: bool) -> None:
    found = compared(REQUEST.model_copy(update={"blockchain": asked}), {**PAYLOAD, "currency": shown})
    assert (not found.faults) is same


@pytest.mark.parametrize(
    ("asked", "shown", "same"),
    [
        (None, "individual", True),
        ("individual", "", True),
        ("individual", "exchange", False),
        ("exchange", "", False),
        (None, "exchange", False),
        (None, "zone", False),
        ("individual", False, False),
    ],
)
def test_the_default_address_type_equals_none(asked: str | None, shown: Any, same: bool) -> None:
    request = REQUEST.model_copy(update={"address_type": asked})
    # Accepting a field by name has no effect if the field was requested with another value.
    accepted = ["addressType"] if asked else []
    assert bool(compared(request, {**PAYLOAD, "addressType": shown}, *accepted).faults) is not same


@pytest.mark.parametrize("network", ["mainnet", None, "", "testnet"])
def test_the_network_of_the_envelope_counts_only_where_the_payload_has_none(network: str | None) -> None:
    request = REQUEST.model_copy(update={"network": "mainnet"})
    outside = compared(request, PAYLOAD, network=network)
    assert (not outside.faults) is (network == "mainnet")
    assert outside.unsigned == (("network",) if network else ())
    inside = compared(request, {**PAYLOAD, "network": "mainnet"}, network=network)
    assert not inside.faults
    assert inside.unsigned == ()
    # If no network was requested, the network must be the main one, or be accepted by name.
    unasked = compared(REQUEST, PAYLOAD, network=network)
    assert unasked.faults == (("network (not requested, shown 'testnet')",) if network == "testnet" else ())
    assert compared(REQUEST, PAYLOAD, "network", network=network).faults == ()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from([*PAYLOAD_KEYS]) | st.text(max_size=8)


@given(st.dictionaries(_KEYS, _JSON, max_size=4))
def test_a_signed_payload_is_accounted_for_as_a_whole(changes: dict[str, Any]) -> None:
    shown = json.loads(json.dumps({**PAYLOAD, **changes}))
    if not compared(REQUEST, shown).faults:
        assert set(shown) <= set(PAYLOAD_KEYS)
        for name, value in shown.items():
            default = "individual" if name == "addressType" else None
            assert value in (None, "", [], PAYLOAD.get(name), default)
            assert value is not False
