"""Everything that is refused before the key is used, one row each; and what is signed all the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from request_signing import NoSigner, SignedInApprover, request

from airflow_custody.client import CustodyError, CustodyRequestError, CustodyResponseError

ADDRESS, OTHER = "0x" + "a" * 40, "0x" + "b" * 40


@dataclass
class Case:
    """
    A request that is created, shown, and reviewed.

    :param match: the end of the error, before "nothing was signed".
    :param keys: changed keys of its payload.
    :param envelope: changed keys of its envelope.
    :param text: its whole payload.
    :param metadata: what is shown of its text and hash.
    :param created: fields that it is created with.
    :param asked: fields that it is expected to have instead.
    :param accept: the names in ``accept_fields``.
    :param compared: whether it is compared with what was asked for; None: both are tried.
    :param settings: settings of the sandbox.
    """

    match: str
    keys: dict[str, Any] = field(default_factory=dict)
    envelope: dict[str, Any] = field(default_factory=dict)
    text: Any = None
    metadata: dict[str, Any] | None = None
    created: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] | None = None
    accept: tuple[str, ...] = ()
    compared: bool | None = True
    settings: dict[str, Any] = field(default_factory=dict)
    error: type[CustodyError] = CustodyRequestError

    def show(self, approver: SignedInApprover) -> str:
        approver.sandbox.control.configure(**self.settings)
        number = approver.create(**self.created)
        if self.keys:
            approver.change_payload(number, **self.keys)
        if self.text is not None:
            approver.set_payload(number, self.text)
        if self.metadata is not None:
            text = self.metadata.get("payloadAsString")
            hash_ = {"hash": hashlib.sha256(text.encode()).hexdigest()} if text else {}
            approver.sandbox.control.set_whitelist_metadata(number, **{**hash_, **self.metadata})
        if self.envelope:
            approver.sandbox.control.set_whitelist_envelope(number, **self.envelope)
        if self.asked is not None:
            approver.expected[number] = request(**self.asked)
        return number

    def __str__(self) -> str:
        changes = {name: getattr(self, name) for name in ("keys", "envelope", "text", "metadata", "asked", "accept")}
        return str({name: value for name, value in changes.items() if value})[:90]


def unverifiable(match: str, **changes: Any) -> Case:
    return Case(f"cannot be verified.*{match}", compared=None, error=CustodyResponseError, **changes)


def two_readings(keys: str) -> Case:
    text = '{"currency":"ETH","label":"Treasury",' + keys % {"a": ADDRESS, "b": OTHER} + "}"
    return unverifiable("", text=text, accept=("Address", "address", "x", "linkedWallets"))


WALLET = {"linked_wallet_ids": ["7"]}
REFUSED = [
    # What was asked for is something else.
    Case("label", asked={"label": "Other"}),
    Case("address", asked={"address": OTHER}),
    Case(r"address \(asked for '.*', shown ", asked={"address": "0x" + "A" * 40}),
    Case("blockchain", asked={"blockchain": "BTC"}),
    Case(r"memo \(asked for '.*', shown ", asked={"memo": "1"}),
    Case("linked_internal_address_ids", asked={"linked_internal_address_ids": ["9"]}),
    Case("linked_wallet_ids", asked=WALLET),
    Case(r"\(asked for 0, 1, 2, 3, 4, \.\.\., shown nothing\)", asked={"linked_wallet_ids": [*"012345678"]}),
    Case(rf"address \(asked for '{OTHER}', shown '{ADDRESS}'\)", asked={"address": OTHER}),
    Case(f"label .asked for '{'y' * 120}…', shown 'Treasury'", asked={"label": "y" * 900}),
    # Nobody asked for it.
    Case(r"tnParticipantID \(not asked for\)", {"tnParticipantID": "p"}),
    Case(r"tnParticipantID \(asked for", {"tnParticipantID": 7}),
    Case(r"feeLimit \(not asked for\)", {"feeLimit": "1"}),
    Case(r"feeLimit \(not asked for\)", {"feeLimit": ""}),
    Case(r" \(not asked for\)", {"": ""}),
    Case(r"network \(not asked for\)", {"network": "mainnet"}),
    Case(r"addressType \(not asked for\)", {"addressType": "exchange"}),
    Case(r"addressType \(not asked for\)", {"addressType": "Individual"}),
    Case(r"address_type \(asked for", {"addressType": ["individual"]}),
    Case(r"contractType \(not asked for\)", {"contractType": "ERC20"}),
    Case(r"memo \(not asked for\)", {"memo": "7"}),
    Case(r"memo \(asked for", {"memo": False}),
    Case(r"memo \(asked for", {"memo": []}),
    Case(r"customerId \(not asked for\)", {"customerId": "c"}),
    Case(r"exchange_account_id \(asked for", {"exchangeAccountId": 0}),
    Case(r"linked_internal_address_ids \(asked for", {"linkedInternalAddresses": False}),
    Case(r"linked_internal_address_ids \(asked for", {"linkedInternalAddresses": {}}),
    Case(r"linked_internal_address_ids \(asked for", {"linkedInternalAddresses": ""}),
    Case(r"linkedInternalAddresses \(not asked for\)", {"linkedInternalAddresses": [{"id": "1"}]}),
    Case(r"linkedWallets \(not asked for\)", {"linkedWallets": [{"id": 1}]}),
    Case(r"linked_wallet_ids \(asked for", {"linkedWallets": 0}),
    Case(r"label \(asked for", {"label": ["Treasury"]}),
    Case(r"address \(asked for", {"address": None}),
    # Links.
    Case(r"linkedWallets.limit \(not asked for\)", {"linkedWallets": [{"id": 7, "limit": "1"}]}, created=WALLET),
    Case("linked_wallet_ids", {"linkedWallets": [{"id": 7}, {"id": 8}]}, created=WALLET),
    *(
        Case(r"linked_wallet_ids \(asked for", {"linkedWallets": links}, created=WALLET)
        for links in ([{"id": 7}] * 2, [{"id": True}], [{"id": 7, "path": 1}], [{"id": "07"}], [{"name": "7"}], [7])
    ),
    # It says what was asked for, in another shape.
    Case("is not the text of an address", {"memo": None}),
    Case("is not the text of an address", {"linkedInternalAddresses": None}),
    Case("is not the text of an address", {"addressType": None}),
    # It could be read in two ways.
    two_readings('"address":"%(a)s","Address":"%(b)s"'),
    two_readings('"Address":"%(b)s","address":"%(a)s"'),
    two_readings('"ADDRESS":"%(a)s"'),
    two_readings('"address":"%(a)s","lin\u212aedWallets":[]'),
    two_readings('"address":"%(a)s","x":{"y":1,"Y":2}'),
    two_readings('"address":"%(a)s","linkedWallets":[{"id":1,"ID":2}]'),
    two_readings('"address":"%(a)s","linkedWallets":[{"Id":1}]'),
    two_readings('"address":"%(a)s","memo":NaN'),
    # The text is not the one that its hash covers, or none.
    unverifiable("does not have the hash", metadata={"hash": "0" * 64}),
    unverifiable("is missing", metadata={"hash": None}),
    unverifiable("is missing", metadata={"payloadAsString": None}),
    unverifiable("label twice", metadata={"payloadAsString": '{"label":"a","label":"b"}'}),
    unverifiable("larger than", metadata={"payloadAsString": json.dumps({"label": "a" * 2**20})}),
    # Letters that look alike.
    Case(
        r"blockchain \(asked for",
        {"currency": "\u212asm"},
        created={"blockchain": "ksm"},
        settings={"currencies": ["KSM"]},
    ),
    Case(
        "blockchain",
        envelope={"blockchain": "\u212asm"},
        created={"blockchain": "ksm"},
        settings={"currencies": ["KSM"]},
    ),
    # Only what nobody asked for can be accepted by name, and only by its own name.
    Case("memo", {"memo": "2"}, created={"memo": "1"}, accept=("memo",)),
    Case("memo", {"memo": ""}, created={"memo": "1"}, accept=("memo",)),
    Case("memo", {"memo": False}, accept=("memo",)),
    Case("label", {"label": "Other"}, accept=("label",)),
    Case("not asked for", {"envelope.action": "all"}, accept=("envelope.action",)),
    Case("not asked for", {"linkedWallets.x": "all"}, accept=("linkedWallets.x",)),
    Case("not asked for", {"tnParticipantID\u200b": "all"}, accept=("tnParticipantID",)),
    Case("not asked for", {"tnParticipantID\n": "all"}, accept=("tnParticipantID",)),
    Case("not asked for", {"x" * 109: "all"}, accept=("x" * 59 + "…",)),
    # The envelope contradicts the text, or what was asked for.
    Case("tenantId '2' is not the tenant of this user, '1'", envelope={"tenantId": "2"}, compared=None),
    Case("blockchain 'BTC' is not the chain in its payload, 'ETH'", envelope={"blockchain": "BTC"}, compared=None),
    *(
        Case(
            "network",
            envelope={"network": shown},
            created={"network": "mainnet"},
            settings={"network_is_hashed": hashed},
        )
        for shown in ("testnet", "Mainnet")
        for hashed in (True, False)
    ),
    Case("network", created={"network": "mainnet"}, asked={"network": "testnet"}),
    Case(
        r"network \(asked for",
        envelope={"network": None},
        created={"network": "mainnet"},
        settings={"network_is_hashed": False},
    ),
    Case(r"network \(not asked for\)", created={"network": "mainnet"}, asked={}, settings={"network_is_hashed": True}),
    Case("visibilityGroupID", envelope={"visibilityGroupID": "13"}, created={"visibility_group_id": "12"}),
    Case("visibilityGroupID", envelope={"visibilityGroupID": None}, created={"visibility_group_id": "12"}),
    *(
        Case(
            rf"action '{word}' does not say.*'envelope\.action' in 'accept_fields'",
            envelope={"action": word},
            compared=None,
        )
        for word in ("create_update", "approve", "address", "uncreate", "withdraw_created", "grant", "createAdmin")
    ),
    *(
        Case(f"action '{word}'", envelope={"action": word}, accept=("envelope.action",), compared=None)
        for word in ("delete", "DELETE", "revoke", "RemoveAddress", "removal")
    ),
    # Compared with nothing: the text of another kind of thing, or keys that nobody knows.
    *(
        Case("is not the text of an address: ", text=text, compared=False)
        for text in (
            {},
            {"id": "12", "type": "transfer", "amount": "1000000", "currency": "ETH", "address": ADDRESS},
            {"blockchain": "ETH", "contractAddress": ADDRESS, "symbol": "USDC", "isNFT": False},
            {"rulesContainer": "AAAA"},
        )
    ),
    Case("has keys that are not known: amount", {"amount": "1"}, compared=False),
    Case(
        "has keys that are not known: linkedWallets.limit", {"linkedWallets": [{"id": 7, "limit": "1"}]}, compared=False
    ),
    Case("memo: Input should be a valid string", {"memo": 5}, compared=False),
    Case("address: String should have at least 1 character", {"address": ""}, compared=False),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_it_is_refused_before_the_key_is_used(approver: SignedInApprover, case: Case) -> None:
    number = case.show(approver)
    approver.signer = NoSigner()
    for compared in (True, False) if case.compared is None else (case.compared,):
        with pytest.raises(case.error, match=rf"request {number} (?s:.)*{case.match}.*; nothing was signed") as caught:
            approver.approve(number, expected=approver.expected if compared else None, accept_fields=case.accept)
        assert not caught.value.retryable
    assert approver.sent == 0


SIGNED = [
    Case(
        "empty and harmless",
        {"addressType": "individual", "tnParticipantID": "", "memo": "", "linkedInternalAddresses": []},
    ),
    Case(
        "links",
        {"linkedWallets": [{"id": 7, "name": "hot", "path": "m/7", "label": "", "address": None}]},
        created=WALLET,
    ),
    Case(
        "fields", created={"linked_internal_address_ids": ["7", "3"], "memo": "42", "network": "n", "customer_id": "c"}
    ),
    Case("network", created={"network": "mainnet"}, settings={"network_is_hashed": False}),
    # It is the chain's only or usual one, and nothing of it is signed.
    Case("usual network", created={"network": "mainnet"}, asked={}, settings={"network_is_hashed": False}),
    Case("group", created={"visibility_group_id": "12"}),
    Case("group that nobody asked for", created={"visibility_group_id": "12"}, asked={}),
    Case("word", envelope={"action": "whitelist"}, accept=("envelope.action",)),
    *(
        Case("creation", envelope={"action": action, "tenantId": None, "blockchain": "eth"})
        for action in (None, "", "create", "CREATE", "created", "WhitelistedAddressCreation", "add", "New")
    ),
    Case("unknown key", {"amount": "1"}, accept=("amount",), compared=None),
]


@pytest.mark.parametrize("case", SIGNED, ids=str)
def test_what_is_asked_for_harmless_or_accepted_is_signed(approver: SignedInApprover, case: Case) -> None:
    for compared in (True, False) if case.compared is None else (case.compared,):
        number = case.show(approver)
        assert (
            approver.approve(number, expected=approver.expected if compared else None, accept_fields=case.accept) == 1
        )
        assert number in approver.signed


def test_each_name_that_is_lacking_is_given_as_it_is_accepted(approver: SignedInApprover) -> None:
    number = approver.create(linked_wallet_ids=["7"])
    links = [{"id": 7, "limit": "1"}]
    approver.change_payload(number, tnParticipantID="p", network="mainnet", linkedWallets=links, feeLimit={"a": 1})
    accepted = ["tnParticipantID", "network", "linkedWallets.limit", "feeLimit"]
    for lacking in accepted:
        with pytest.raises(CustodyRequestError, match="not asked for") as caught:
            approver.approve(accept_fields=[each for each in accepted if each != lacking])
        assert f"accept_fields=['{lacking}']" in str(caught.value)
    assert approver.approve(accept_fields=accepted) == 1


@pytest.mark.parametrize(
    "ids", [["1", "1"], ["1", "01"], [], ["x"], ["-1"], ["1 "], [None], ["٣"], [*range(200), 7]], ids=str
)
def test_malformed_ids_are_refused(approver: SignedInApprover, ids: list[Any]) -> None:
    with pytest.raises(CustodyRequestError, match="nothing was sent"):
        approver.approve(*ids, expected=None)
    assert approver.sandbox.control.request_log() == []


def test_without_a_comment_or_a_description_nothing_is_signed(approver: SignedInApprover) -> None:
    number = approver.create()
    for arguments, match in (({"comment": " "}, "comment"), ({"expected": {}}, f"does not say what {number} must")):
        with pytest.raises(CustodyRequestError, match=f"{match}.*; nothing was signed"):
            approver.approve(number, **arguments)
    assert approver.sent == 0
