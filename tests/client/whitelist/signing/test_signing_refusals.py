"""Everything that is refused before the key is used, one row each; and what is signed all the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.service.request_signing import LISTING, NoSigner, SignedInApprover, request
from support.service.sandbox_api import Api
from support.service.vanishing import vanish

from airflow_custody.client import CustodyConflictError, CustodyError, CustodyRequestError, CustodyResponseError
from airflow_custody.client.signers import PemSigner

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
    :param accept: the accepted fields in the client's settings.
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
        names = ("keys", "envelope", "text", "metadata", "created", "asked", "accept")
        return str({name: value for name in names if (value := getattr(self, name))})[:90]


def unverifiable(match: str, **changes: Any) -> Case:
    return Case(f"cannot be verified.*{match}", compared=None, error=CustodyResponseError, **changes)


def two_readings(keys: str) -> Case:
    text = '{"currency":"ETH","label":"Treasury",' + keys % {"a": ADDRESS, "b": OTHER} + "}"
    return unverifiable("", text=text, accept=("Address", "address", "x", "linkedWallets"))


WALLET = {"linked_wallet_ids": ["7"]}
MAINNET, SEPOLIA = {"network": "mainnet"}, {"network": "sepolia"}
GROUP = {"visibility_group_id": "12"}
HASHED, NOT_HASHED = {"network_is_hashed": True}, {"network_is_hashed": False}
KSM: dict[str, Any] = {"created": {"blockchain": "ksm"}, "settings": {"currencies": ["KSM"]}}
BAD_ACTIONS = ("approve", "address", "uncreate", "withdraw_created", "grant", "createAdmin")
REFUSED = [
    # What was asked for is something else.
    Case("blockchain", asked={"blockchain": "BTC"}),
    Case(r"address \(requested '.*', shown ", asked={"address": "0x" + "A" * 40}),
    Case(rf"address \(requested '{OTHER}', shown '{ADDRESS}'\)", asked={"address": OTHER}),
    Case(f"label .requested '{'y' * 120}…', shown 'Treasury'", asked={"label": "y" * 900}),
    # What looks the same.
    Case(
        r"label \(requested 'Treasury', shown 'Tr\u0435asury'; they differ at character 3: U\+0065 and U\+0435\)",
        {"label": "Tr\u0435asury"},
    ),
    Case(
        r"label \(requested 'y+…', shown 'y+…'; they differ at character 901: nothing and U\+0061\)",
        {"label": "y" * 900 + "a"},
        asked={"label": "y" * 900},
    ),
    Case(r"\(requested 0, 1, 2, 3, 4, \.\.\., shown nothing\)", asked={"linked_wallet_ids": [*"012345678"]}),
    # Nobody asked for it.
    *(
        Case(rf"{key} \(not requested\)", {key: value})
        for key, value in (
            ("tnParticipantID", "p"),
            ("feeLimit", ""),
            ("", ""),
            ("addressType", "Individual"),
            ("linkedWallets", [{"id": 1}]),
        )
    ),
    # It is of another type.
    *(
        Case(rf"{field} \(requested", {key: value})
        for field, key, value in (
            ("memo", "memo", False),
            ("exchange_account_id", "exchangeAccountId", 0),
            ("linked_internal_address_ids", "linkedInternalAddresses", ""),
            ("address", "address", None),
        )
    ),
    # It is in effect, so what is pending may be its deletion.
    Case("may approve its deletion", envelope={"status": "APPROVED", "action": ""}, error=CustodyConflictError),
    # Links.
    Case(r"linkedWallets.limit \(not requested\)", {"linkedWallets": [{"id": 7, "limit": "1"}]}, created=WALLET),
    # It says what was asked for, in another shape.
    *(
        Case("does not describe a whitelisted address", {key: None})
        for key in ("memo", "linkedInternalAddresses", "addressType")
    ),
    # It could be read in two ways.
    two_readings('"address":"%(a)s","Address":"%(b)s"'),
    two_readings('"Address":"%(b)s","address":"%(a)s"'),
    two_readings('"address":"%(a)s","lin\u212aedWallets":[]'),
    two_readings('"address":"%(a)s","linkedWallets":[{"Id":1}]'),
    # The text is not the one that its hash covers, or none.
    unverifiable("does not have the hash", metadata={"hash": "0" * 64}),
    unverifiable("is missing", metadata={"hash": None}),
    unverifiable("is missing", metadata={"payloadAsString": None}),
    unverifiable("label twice", metadata={"payloadAsString": '{"label":"a","label":"b"}'}),
    # Letters that look alike.
    Case(r"blockchain \(requested", {"currency": "\u212asm"}, **KSM),
    Case("blockchain", envelope={"blockchain": "\u212asm"}, **KSM),
    # Only what nobody asked for can be accepted by name, and only by its own name.
    Case("memo", {"memo": "2"}, created={"memo": "1"}, accept=("memo",)),
    Case("memo", {"memo": ""}, created={"memo": "1"}, accept=("memo",)),
    Case("memo", {"memo": False}, accept=("memo",)),
    *(Case("not requested", {key: "all"}, accept=(key,)) for key in ("envelope.action", "linkedWallets.x")),
    *(Case("not requested", {f"tnParticipantID{c}": "all"}, accept=("tnParticipantID",)) for c in "\u200b\n"),
    Case("not requested", {"x" * 109: "all"}, accept=("x" * 59 + "…",)),
    # The envelope contradicts the text, or what was asked for.
    Case("tenantId '2' is not the tenant of this user, '1'", envelope={"tenantId": "2"}, compared=None),
    Case("blockchain 'BTC' is not the chain in its payload, 'ETH'", envelope={"blockchain": "BTC"}, compared=None),
    *(
        Case("network", envelope={"network": shown}, created=MAINNET, settings=settings)
        for shown in ("testnet", "Mainnet 2")
        for settings in (HASHED, NOT_HASHED)
    ),
    Case("network", created=MAINNET, asked={"network": "testnet"}),
    Case(r"network \(requested", envelope={"network": None}, created=MAINNET, settings=NOT_HASHED),
    Case(r"network \(not requested\)", created=MAINNET, asked={}, settings=HASHED),
    Case(r"network \(not requested, shown 'sepolia'\)", created=SEPOLIA, asked={}, settings=NOT_HASHED),
    Case("network", created=SEPOLIA, asked=MAINNET, accept=("network",), settings=NOT_HASHED),
    *(Case("visibilityGroupID", envelope={"visibilityGroupID": shown}, created=GROUP) for shown in ("13", None)),
    *(
        Case(
            rf"action '{word}' is not a known word.*'envelope\.action' in 'acc",
            envelope={"action": word},
            compared=None,
        )
        for word in BAD_ACTIONS
    ),
    *(
        Case(f"action '{word}'", envelope={"action": word}, accept=("envelope.action",), compared=None)
        for word in ("DELETE", "revoke", "RemoveAddress", "removal", "create_update")
    ),
    # Compared with nothing: the text of another kind of thing, or keys that nobody knows.
    *(
        Case("(does not describe a whitelisted address: |has unknown keys: )", text=text, compared=False)
        for text in (
            {},
            {"id": "12", "type": "transfer", "amount": "1000000", "currency": "ETH", "address": ADDRESS},
            {"blockchain": "ETH", "contractAddress": ADDRESS, "symbol": "USDC", "isNFT": False},
            {"rulesContainer": "AAAA"},
        )
    ),
    Case("has unknown keys: amount", {"amount": "1"}, compared=False),
    Case("unknown keys: linkedWallets.x", {"linkedWallets": [{"id": 7, "x": "1"}]}, compared=False),
    *(
        Case("linkedInternalAddresses .not a list of links", {"linkedInternalAddresses": links}, compared=False)
        for links in ([{"id": "", "x": "1"}], [5], "x", {"x": 1})
    ),
    Case("memo: Input should be a valid string", {"memo": 5}, compared=False),
    Case("address: String should have at least 1 character", {"address": ""}, compared=False),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_it_is_refused_before_the_key_is_used(approver: SignedInApprover, case: Case) -> None:
    number = case.show(approver)
    approver.signer = NoSigner()
    approver.set_client(accept_fields=case.accept)
    for compared in (True, False) if case.compared is None else (case.compared,):
        with pytest.raises(case.error, match=rf"request {number} (?s:.)*{case.match}.*; nothing was signed") as caught:
            approver.approve(number, expected=approver.expected if compared else None)
        assert not caught.value.retryable
    assert approver.sent == 0


@pytest.mark.parametrize("word", ["ACTIVE", "pending", "", None])
@pytest.mark.parametrize("reading", ["review", "right before signing"])
def test_a_settled_request_without_an_action_is_refused_whatever_its_status_word(
    approver: SignedInApprover, word: str | None, reading: str
) -> None:
    number = approver.create()
    approver.sandbox.control.set_whitelist_envelope(number, status=word, action="")
    page = Api(approver.sandbox.url, approver.person.token).get(
        "/whitelists/addresses", params={"includeForApproval": "true"}
    )
    # Each reading begins with the requests for approval. As this one has no action, the settled requests follow, all of
    # them, and those for approval again.
    approver.sandbox.control.add_fault("status", body=page.json(), skip=1 if reading == "review" else 5, **LISTING)
    approver.signer = NoSigner()
    with pytest.raises(CustodyConflictError, match=r"without an action: the signature may approve its deletion; noth"):
        approver.approve(number)
    # A pending request without an action is signed.
    approver.signer = PemSigner(lambda: approver.person.pem, name="test key")
    approver.sandbox.control.clear_faults()
    assert approver.approve(number) == 1


LINKS = [{"id": 7, "name": "hot", "path": "m/7", "label": "", "address": None}]
SIGNED = [
    # What is empty or harmless.
    Case("", {"addressType": "individual", "tnParticipantID": "", "memo": "", "linkedInternalAddresses": []}),
    Case("", {"linkedWallets": LINKS}, created=WALLET),
    Case("", created={"linked_internal_address_ids": ["7", "3"], "memo": "42", "network": "n", "customer_id": "c"}),
    Case("", created=MAINNET, settings=NOT_HASHED),
    # It is the chain's main one, and nothing of it is signed.
    Case("", created=MAINNET, asked={}, settings=NOT_HASHED),
    Case("", created=SEPOLIA, asked={}, accept=("network",), settings=NOT_HASHED),
    Case("", created=GROUP),
    Case("", created=GROUP, asked={}),
    Case("", envelope={"action": "whitelist"}, accept=("envelope.action",)),
    *(
        Case("", envelope={"action": action, "tenantId": None, "blockchain": "eth"})
        for action in (None, "", "CREATE", "created", "WhitelistedAddressCreation", "add", "New")
    ),
    # An envelope that differs from the signed text in case only is no contradiction.
    Case("", envelope={"blockchain": "Eth", "network": "MainNet"}, created=MAINNET),
    Case("", {"amount": "1"}, accept=("amount",), compared=None),
]


@pytest.mark.parametrize("case", SIGNED, ids=str)
def test_what_is_asked_for_harmless_or_accepted_is_signed(approver: SignedInApprover, case: Case) -> None:
    approver.set_client(accept_fields=case.accept)
    for compared in (True, False) if case.compared is None else (case.compared,):
        number = case.show(approver)
        expected = approver.expected if compared else None
        assert approver.approve(number, expected=expected) == 1
        assert number in approver.signed


def test_each_name_that_is_lacking_is_given_as_it_is_accepted(approver: SignedInApprover) -> None:
    number = approver.create(linked_wallet_ids=["7"])
    links = [{"id": 7, "limit": "1"}]
    approver.change_payload(number, tnParticipantID="p", network="mainnet", linkedWallets=links, feeLimit={"a": 1})
    accepted = ["tnParticipantID", "network", "linkedWallets.limit", "feeLimit"]
    for lacking in accepted:
        approver.set_client(accept_fields=[each for each in accepted if each != lacking])
        with pytest.raises(CustodyRequestError, match="not requested") as caught:
            approver.approve()
        assert f"add '{lacking}' to 'accept_fields'" in str(caught.value)
    approver.set_client(accept_fields=accepted)
    assert approver.approve() == 1


def test_one_that_vanishes_between_two_listings_is_not_said_to_be_signed(approver: SignedInApprover) -> None:
    number = approver.create()
    assert approver.approve(number) == 1
    vanish(approver.sandbox, number, ids=number)
    with pytest.raises(
        CustodyConflictError, match=r"missing from the later listing of all requests\); nothing"
    ) as caught:
        approver.approve(number, expected=None)
    assert "signed by this user" not in caught.value.message


def test_without_ids_a_comment_or_a_description_nothing_is_signed(approver: SignedInApprover) -> None:
    number = approver.create()
    odd: list[tuple[dict[str, Any], str]] = [
        ({"comment": " "}, "comment"),
        ({"expected": {}}, f"no content for {number}"),
    ]
    for arguments, match in odd:
        with pytest.raises(CustodyRequestError, match=f"{match}.*; nothing was signed"):
            approver.approve(number, **arguments)
    with pytest.raises(CustodyRequestError, match="nothing is sent"):
        approver.approve("1", "01", expected=None)
    assert approver.sent == 0
