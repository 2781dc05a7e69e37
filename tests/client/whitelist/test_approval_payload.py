"""The whole of a payload is accounted for, and its envelope does not contradict it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from approver import ChangingSigner, NoSigner, SignedInApprover, request

from airflow_custody.client import (
    CustodyRequestError,
    CustodyResponseError,
    CustodyServerError,
)

# --- the whole payload is accounted for --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"tnParticipantID": "p"}, r"tnParticipantID \(not asked for\)"),
        ({"tnParticipantID": 7}, r"tnParticipantID \(unclear"),
        ({"feeLimit": "1"}, r"feeLimit \(not asked for\)"),
        ({"feeLimit": ""}, r"feeLimit \(not asked for\)"),
        ({"": ""}, r" \(not asked for\)"),
        ({"network": "mainnet"}, r"network \(not asked for\)"),
        ({"addressType": "exchange"}, r"addressType \(not asked for\)"),
        ({"addressType": "Individual"}, r"addressType \(not asked for\)"),
        ({"addressType": ["individual"]}, r"address_type \(unclear"),
        ({"contractType": "ERC20"}, r"contractType \(not asked for\)"),
        ({"memo": "7"}, r"memo \(not asked for\)"),
        ({"memo": False}, r"memo \(unclear"),
        ({"memo": []}, r"memo \(unclear"),
        ({"customerId": "c"}, r"customerId \(not asked for\)"),
        ({"exchangeAccountId": 0}, r"exchange_account_id \(unclear"),
        ({"linkedInternalAddresses": False}, r"linked_internal_address_ids \(unclear"),
        ({"linkedInternalAddresses": {}}, r"linked_internal_address_ids \(unclear"),
        ({"linkedInternalAddresses": ""}, r"linked_internal_address_ids \(unclear"),
        ({"linkedInternalAddresses": [{"id": "1"}]}, r"linkedInternalAddresses \(not asked for\)"),
        ({"linkedWallets": [{"id": 1}]}, r"linkedWallets \(not asked for\)"),
        ({"linkedWallets": 0}, r"linked_wallet_ids \(unclear"),
        ({"label": ["Treasury"]}, r"label \(unclear"),
        ({"address": None}, r"address \(unclear"),
    ],
    ids=str,
)
def test_what_nobody_asked_for_is_not_signed(approver: SignedInApprover, keys: dict[str, Any], named: str) -> None:
    number = approver.create()
    approver.signer = NoSigner()
    approver.change_payload(number, **keys)
    with pytest.raises(CustodyRequestError, match=f"{number} is not what was asked for: {named}.*; nothing was signed"):
        approver.approve()


@pytest.mark.parametrize(
    ("links", "named"),
    [
        ([{"id": 7, "limit": "1"}], r"linkedWallets.limit \(not asked for\)"),
        ([{"id": 7}, {"id": 8}], "linked_wallet_ids"),
        ([{"id": 7}, {"id": 7}], r"linked_wallet_ids \(unclear"),
        ([{"id": True}], r"linked_wallet_ids \(unclear"),
        ([{"id": 7, "path": 1}], r"linked_wallet_ids \(unclear"),
        ([{"id": "07"}], r"linked_wallet_ids \(unclear"),
        ([{"name": "7"}], r"linked_wallet_ids \(unclear"),
        ([7], r"linked_wallet_ids \(unclear"),
    ],
    ids=str,
)
def test_every_key_of_a_link_is_accounted_for(approver: SignedInApprover, links: list[Any], named: str) -> None:
    number = approver.create(linked_wallet_ids=["7"])
    approver.change_payload(number, linkedWallets=links)
    with pytest.raises(CustodyRequestError, match=f"{number} is not what was asked for: {named}.*; nothing was signed"):
        approver.approve()
    assert approver.sent == 0


def test_empty_values_and_harmless_defaults_are_signed(approver: SignedInApprover) -> None:
    number = approver.create(linked_wallet_ids=["7"])
    wallets = [{"id": 7, "name": "hot", "path": "m/7", "label": "", "address": None}]
    keys: dict[str, Any] = {"addressType": "individual", "tnParticipantID": "", "memo": None, "linkedWallets": wallets}
    approver.change_payload(number, **keys, linkedInternalAddresses=None)
    assert approver.approve() == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"address":"%(a)s","Address":"%(b)s"}',
        '{"Address":"%(b)s","address":"%(a)s"}',
        '{"ADDRESS":"%(a)s"}',
        '{"address":"%(a)s","lin\u212aedWallets":[]}',
        '{"address":"%(a)s","x":{"y":1,"Y":2}}',
        '{"address":"%(a)s","linkedWallets":[{"id":1,"ID":2}]}',
        '{"address":"%(a)s","linkedWallets":[{"Id":1}]}',
        '{"address":"%(a)s","memo":NaN}',
    ],
)
def test_a_key_that_can_be_read_in_two_ways_is_not_signed(approver: SignedInApprover, text: str) -> None:
    number = approver.create()
    approver.signer = NoSigner()
    rest = '"currency":"ETH","label":"Treasury",'
    approver.set_payload(number, ("{" + rest + text[1:]) % {"a": "0x" + "a" * 40, "b": "0x" + "b" * 40})
    for expected in (approver.expected, None):
        with pytest.raises(CustodyResponseError, match="cannot be verified"):
            approver.approve(number, expected=expected, accept_fields=["Address", "address", "x", "linkedWallets"])


def test_a_letter_that_only_looks_like_that_of_a_chain_is_not_signed(approver: SignedInApprover) -> None:
    approver.sandbox.control.configure(currencies=["KSM"])
    number = approver.create(blockchain="ksm")
    assert approver.payload(number)["currency"] == "KSM"
    approver.sandbox.control.set_whitelist_envelope(number, blockchain="\u212asm")
    with pytest.raises(CustodyRequestError, match="blockchain"):
        approver.approve()
    approver.change_payload(number, currency="\u212asm")
    with pytest.raises(CustodyRequestError, match=r"blockchain \(unclear"):
        approver.approve()
    assert approver.sent == 0


def test_what_is_accepted_by_name_is_signed(approver: SignedInApprover) -> None:
    number = approver.create(linked_wallet_ids=["7"])
    links = [{"id": 7, "limit": "1"}]
    approver.change_payload(number, tnParticipantID="p", network="mainnet", linkedWallets=links, feeLimit={"a": 1})
    accepted = ["tnParticipantID", "network", "linkedWallets.limit", "feeLimit"]
    for lacking in accepted:
        rest = [each for each in accepted if each != lacking]
        with pytest.raises(CustodyRequestError, match="not asked for") as caught:
            approver.approve(accept_fields=rest)
        assert f"accept_fields=['{lacking}']" in str(caught.value)
    with pytest.raises(CustodyRequestError, match="not asked for"):
        approver.approve(accept_fields="tnParticipantID")
    assert approver.approve(accept_fields=accepted) == 1


@pytest.mark.parametrize(
    ("asked", "keys"),
    [({"memo": "1"}, {"memo": "2"}), ({}, {"memo": False}), ({}, {"label": "Other"}), ({"memo": "1"}, {"memo": ""})],
    ids=str,
)
def test_only_what_nobody_asked_for_can_be_accepted(
    approver: SignedInApprover, asked: dict[str, Any], keys: dict[str, Any]
) -> None:
    number = approver.create(**asked)
    approver.change_payload(number, **keys)
    with pytest.raises(CustodyRequestError, match="is not what was asked for"):
        approver.approve(accept_fields=["memo", "label"])
    assert approver.sent == 0


def test_the_log_shows_the_whole_of_what_is_signed(
    approver: SignedInApprover, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    label = "Trésor " + "x" * 500
    one = approver.create(label=label, linked_wallet_ids=["7"])
    two = approver.create("b", memo="1")
    approver.change_payload(one, addressType="individual", tnParticipantID="a\nb\u202e")
    seen: list[str] = []
    approver.signer = ChangingSigner(approver, lambda: seen.extend(each.getMessage() for each in caplog.records))
    approver.approve(accept_fields=["tnParticipantID"])
    first, second = seen[-2:]
    for text in (one, label, "0x" + "a" * 40, "Wallet 7", "m/44'/60'/7'", '"tnParticipantID":"a', "\\u202e"):
        assert text in first
    assert "\n" not in first
    assert "\u202e" not in first
    filled_in = first.split("Filled in by the service: ")[1].split(". ")[0]
    assert set(filled_in.split(", ")) == {"addressType", "tnParticipantID", "linkedWallets.name", "linkedWallets.path"}
    assert two in second
    assert '"memo":"1"' in second
    assert "Filled in" not in second
    assert "action create, tenantId 1" in second


# --- the envelope does not contradict it -------------------------------------------------------------------


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_network_that_was_asked_for_is_compared_wherever_it_is(
    approver: SignedInApprover, is_hashed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    control = approver.sandbox.control
    control.configure(network_is_hashed=is_hashed)
    number = approver.create(network="mainnet")
    assert ("network" in approver.payload(number)) is is_hashed
    for changes in ({"network": "testnet"}, {"network": "Mainnet"}):
        control.set_whitelist_envelope(number, **changes)
        with pytest.raises(CustodyRequestError, match=rf"whitelisting request {number} .*network"):
            approver.approve()
    with pytest.raises(CustodyRequestError, match="network"):
        approver.approve(expected={number: request(network="testnet")})
    control.set_whitelist_envelope(number, network=None)
    if not is_hashed:
        with pytest.raises(CustodyRequestError, match=r"network \(unclear"):
            approver.approve()
        control.set_whitelist_envelope(number)
    assert approver.sent == 0
    assert approver.approve() == 1
    assert ("not covered by the signature: network" in caplog.text) is not is_hashed


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_network_that_nobody_asked_for(approver: SignedInApprover, is_hashed: bool) -> None:
    approver.sandbox.control.configure(network_is_hashed=is_hashed)
    number = approver.create(network="mainnet")
    if is_hashed:
        with pytest.raises(CustodyRequestError, match=r"network \(not asked for\)"):
            approver.approve(expected={number: request()})
    else:
        # It is the chain's only or usual one, and nothing of it is signed.
        assert approver.approve(expected={number: request()}) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tenantId": "2"}, "tenantId '2' is not the tenant of this user, '1'"),
        ({"blockchain": "BTC"}, "blockchain 'BTC' is not the chain in its payload, 'ETH'"),
        *[
            ({"action": action}, f"action '{action}' does not say")
            for action in ("delete", "DELETE", "revoke", "create_update", "RemoveAddress", "approve", "address", "?")
        ],
    ],
    ids=str,
)
def test_an_envelope_that_contradicts_its_payload_is_not_signed(
    approver: SignedInApprover, fields: dict[str, Any], message: str
) -> None:
    number = approver.create()
    approver.signer = NoSigner()
    approver.sandbox.control.set_whitelist_envelope(number, **fields)
    for expected in (approver.expected, None):
        with pytest.raises(CustodyRequestError, match=f"{re.escape(message)}.*; nothing was signed"):
            approver.approve(number, expected=expected)


@pytest.mark.parametrize(
    "action", [None, "", "create", "CREATE", "created", "WhitelistedAddressCreation", "add", "New"]
)
def test_words_for_a_creation_are_signed(approver: SignedInApprover, action: str | None) -> None:
    number = approver.create()
    approver.sandbox.control.set_whitelist_envelope(number, action=action, tenantId=None, blockchain="eth")
    assert approver.approve() == 1


@pytest.mark.parametrize("action", ["uncreate", "withdraw_created", "grant", "createAdmin"])
def test_a_word_that_only_contains_one_for_a_creation_is_not_signed(approver: SignedInApprover, action: str) -> None:
    number = approver.create()
    approver.sandbox.control.set_whitelist_envelope(number, action=action)
    with pytest.raises(CustodyRequestError, match=r"'envelope\.action' in 'accept_fields' accepts it"):
        approver.approve()


def test_names_that_are_accepted_do_not_cover_others_that_read_alike(approver: SignedInApprover) -> None:
    names = [
        ("envelope.action", "envelope.action"),
        ("linkedWallets.x", "linkedWallets.x"),
        ("tnParticipantID\u200b", "tnParticipantID"),
        ("tnParticipantID\n", "tnParticipantID"),
        ("x" * 109, "x" * 59 + "…"),
    ]
    for key, accepted in names:
        number = approver.create()
        payload = approver.payload(number)
        approver.set_payload(number, {**payload, key: "all"})
        with pytest.raises(CustodyRequestError, match="not asked for"):
            approver.approve(number, accept_fields=[accepted])


def test_an_unknown_action_can_be_accepted_and_one_that_removes_cannot(approver: SignedInApprover) -> None:
    number = approver.create()
    approver.sandbox.control.set_whitelist_envelope(number, action="removal")
    with pytest.raises(CustodyRequestError, match="action 'removal'"):
        approver.approve(accept_fields=["envelope.action"])
    approver.sandbox.control.set_whitelist_envelope(number, action="whitelist")
    assert approver.approve(accept_fields=["envelope.action"]) == 1


def test_the_visibility_group_that_was_asked_for_is_compared_with_the_envelope(approver: SignedInApprover) -> None:
    number = approver.create(visibility_group_id="12")
    for other in ("13", None):
        approver.sandbox.control.set_whitelist_envelope(number, visibilityGroupID=other)
        with pytest.raises(CustodyRequestError, match="visibilityGroupID"):
            approver.approve()
    approver.sandbox.control.set_whitelist_envelope(number)
    assert approver.approve() == 1
    approver.expected.clear()
    number = approver.create("b", visibility_group_id="12")
    assert approver.approve(expected={number: request("b")}) == 1


@pytest.mark.parametrize("kind", ["status", "html"])
def test_where_the_user_is_not_offered_the_tenant_is_not_compared_and_the_log_says_so(
    approver: SignedInApprover, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    number = approver.create()
    approver.sandbox.control.add_fault(kind, path="/users/me", status=404)
    assert approver.approve(number) == 1
    assert "tenant cannot be compared" in caplog.text
    number = approver.create("b")
    approver.sandbox.control.add_fault("status", path="/users/me", status=500)
    with pytest.raises(CustodyServerError):
        approver.approve(number)
    assert approver.sent == 1


# --- compared with nothing ---------------------------------------------------------------------------------

#: What another kind of request may ask approvers to sign: a transaction, a contract, a change of the rules.
OTHER_KINDS = [
    {},
    {"id": "12", "type": "transfer", "amount": "1000000", "currency": "ETH", "address": "0x" + "a" * 40},
    {"blockchain": "ETH", "contractAddress": "0x" + "a" * 40, "symbol": "USDC", "isNFT": False},
    {"rulesContainer": "AAAA"},
]


@pytest.mark.parametrize("payload", OTHER_KINDS, ids=str)
def test_compared_with_nothing_only_the_text_of_an_address_is_signed(
    approver: SignedInApprover, payload: dict[str, Any]
) -> None:
    number = approver.create()
    approver.signer = NoSigner()
    approver.set_payload(number, payload)
    with pytest.raises(CustodyRequestError, match=f"{number} is not the text of an address: .*; nothing was signed"):
        approver.approve(number, expected=None)
    assert approver.sent == 0


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"amount": "1"}, "has keys that are not known: amount"),
        ({"linkedWallets": [{"id": 7, "limit": "1"}]}, "has keys that are not known: linkedWallets.limit"),
        ({"memo": 5}, "memo: Input should be a valid string"),
        ({"address": ""}, "address: String should have at least 1 character"),
    ],
    ids=str,
)
def test_compared_with_nothing_its_keys_are_known(approver: SignedInApprover, keys: dict[str, Any], why: str) -> None:
    number = approver.create()
    approver.change_payload(number, **keys)
    signer, approver.signer = approver.signer, NoSigner()
    with pytest.raises(CustodyRequestError, match=f"{why}.*; nothing was signed"):
        approver.approve(number, expected=None)
    assert approver.sent == 0
    if "not known" in why:
        approver.signer = signer
        assert approver.approve(number, expected=None, accept_fields=why.split(": ")[1]) == 1
