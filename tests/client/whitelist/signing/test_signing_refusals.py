"""Contents that are refused before the key is used, and contents that are signed."""

from __future__ import annotations

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
    A request that is created, listed, and reviewed.

    :param match: the end of the error, before "nothing was signed".
    :param keys: changed keys of its payload.
    :param envelope: changed keys of its envelope.
    :param text: its whole payload.
    :param created: fields that it is created with.
    :param asked: fields that it is expected to have instead.
    :param accept: the accepted fields in the client's settings.
    :param compared: whether it is compared with expected content; None: both are tried.
    :param settings: settings of the sandbox.
    """

    match: str
    keys: dict[str, Any] = field(default_factory=dict)
    envelope: dict[str, Any] = field(default_factory=dict)
    text: Any = None
    created: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] | None = None
    accept: tuple[str, ...] = ()
    compared: bool | None = True
    settings: dict[str, Any] = field(default_factory=dict)
    error: type[CustodyError] = CustodyRequestError

    def make(self, approver: SignedInApprover) -> str:
        approver.sandbox.control.configure(**self.settings)
        number = approver.create(**self.created)
        if self.keys:
            approver.change_payload(number, **self.keys)
        if self.text is not None:
            approver.set_payload(number, self.text)
        if self.envelope:
            approver.sandbox.control.set_whitelist_envelope(number, **self.envelope)
        if self.asked is not None:
            approver.expected[number] = request(**self.asked)
        return number

    def __str__(self) -> str:
        names = ("keys", "envelope", "text", "created", "asked", "accept")
        return str({name: value for name in names if (value := getattr(self, name))})[:90]


WALLET = {"linked_wallet_ids": ["7"]}
MAINNET, SEPOLIA = {"network": "mainnet"}, {"network": "sepolia"}
GROUP = {"visibility_group_id": "12"}
NOT_HASHED = {"network_is_hashed": False}
BAD_ACTIONS = ("approve", "uncreate", "createAdmin")
REFUSED = [
    # The content differs from the requested content.
    Case(rf"address \(requested '{OTHER}', shown '{ADDRESS}'\)", asked={"address": OTHER}),
    Case("shown 'Tr\u0435asury'; they differ at character 3: U\\+0065 and U", {"label": "Tr\u0435asury"}),
    Case(r"feeLimit \(not requested\)", {"feeLimit": ""}),
    Case(r"linkedWallets.limit \(not requested\)", {"linkedWallets": [{"id": 7, "limit": "1"}]}, created=WALLET),
    # The request is in effect, so its pending change may be its deletion.
    Case("may approve its deletion", envelope={"status": "APPROVED", "action": ""}, error=CustodyConflictError),
    # The text can be read in two ways.
    Case("cannot be verified", text='{"address":"a","Address":"b"}', compared=None, error=CustodyResponseError),
    # A value is accepted by its own name only.
    *(Case("not requested", {key: "all"}, accept=(key,)) for key in ("envelope.action", "linkedWallets.x")),
    Case("not requested", {"tnParticipantID\u200b": "all"}, accept=("tnParticipantID",)),
    Case("not requested", {"x" * 109: "all"}, accept=("x" * 59 + "…",)),
    # The envelope contradicts the text, or the requested content.
    Case("tenantId '2' is not the tenant of this user, '1'", envelope={"tenantId": "2"}, compared=None),
    Case("blockchain 'BTC' is not the chain in its payload, 'ETH'", envelope={"blockchain": "BTC"}, compared=None),
    Case(
        "blockchain '\u212asm' is not the chain",
        envelope={"blockchain": "\u212asm"},
        created={"blockchain": "ksm"},
        settings={"currencies": ["KSM"]},
    ),
    Case("network", envelope={"network": "testnet"}, created=MAINNET),
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
    # Without expected content: the text of another kind of object, or unknown keys.
    *(
        Case("(does not describe a whitelisted address: |has unknown keys: )", text=text, compared=False)
        for text in (
            {},
            {"id": "12", "type": "transfer", "amount": "1000000", "currency": "ETH", "address": ADDRESS},
        )
    ),
    Case("unknown keys: linkedWallets.x", {"linkedWallets": [{"id": 7, "x": "1"}]}, compared=False),
    Case("linkedInternalAddresses .not a list of links", {"linkedInternalAddresses": [5]}, compared=False),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_request_is_refused_before_the_key_is_used(approver: SignedInApprover, case: Case) -> None:
    number = case.make(approver)
    approver.signer = NoSigner()
    approver.set_client(accept_fields=case.accept)
    for compared in (True, False) if case.compared is None else (case.compared,):
        with pytest.raises(case.error, match=rf"request {number} (?s:.)*{case.match}.*; nothing was signed") as caught:
            approver.approve(number, expected=approver.expected if compared else None)
        assert not caught.value.retryable
        # A single batch is not mentioned.
        assert "batch" not in str(caught.value)
    assert approver.sent == 0


@pytest.mark.parametrize("word", ["ACTIVE", None])
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
    Case("", {"addressType": "individual", "tnParticipantID": "", "linkedWallets": LINKS}, created=WALLET),
    # The service fills in the main network, which no signature covers.
    Case("", created=MAINNET, asked={}, settings=NOT_HASHED),
    Case("", created=SEPOLIA, asked={}, accept=("network",), settings=NOT_HASHED),
    *(Case("", created=GROUP, asked=each) for each in (GROUP, {})),
    Case("", envelope={"action": "whitelist"}, accept=("envelope.action",)),
    *(
        Case("", envelope={"action": action, "tenantId": None, "blockchain": "eth"})
        for action in (None, "", "CREATE", "WhitelistedAddressCreation", "New")
    ),
    Case("", envelope={"blockchain": "Eth", "network": "MainNet"}, created=MAINNET),
    Case("", {"amount": "1"}, accept=("amount",), compared=None),
]


@pytest.mark.parametrize("case", SIGNED, ids=str)
def test_requested_harmless_and_accepted_values_are_signed(approver: SignedInApprover, case: Case) -> None:
    approver.set_client(accept_fields=case.accept)
    for compared in (True, False) if case.compared is None else (case.compared,):
        number = case.make(approver)
        expected = approver.expected if compared else None
        assert approver.approve(number, expected=expected) == 1
        assert number in approver.signed


def test_an_error_names_the_field_to_accept(approver: SignedInApprover) -> None:
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


def test_a_request_that_vanishes_between_two_listings_does_not_count_as_signed(approver: SignedInApprover) -> None:
    number = approver.create()
    assert approver.approve(number) == 1
    vanish(approver.sandbox, number, ids=number)
    with pytest.raises(
        CustodyConflictError, match=r"missing from the later listing of all requests\); nothing"
    ) as caught:
        approver.approve(number, expected=None)
    assert "signed by this user" not in caught.value.message


@pytest.mark.parametrize(("earlier_try", "words"), [(False, ""), (True, " in this try")])
def test_without_a_comment_or_expected_content_nothing_is_signed(
    approver: SignedInApprover, earlier_try: bool, words: str
) -> None:
    number = approver.create()
    odd: list[tuple[dict[str, Any], str]] = [
        ({"comment": " "}, "comment is empty"),
        ({"expected": {}}, f"no content for {number}"),
    ]
    for arguments, match in odd:
        with pytest.raises(CustodyRequestError, match=f"{match}; nothing was signed{words}\n"):
            approver.approve(number, earlier_try=earlier_try, **arguments)
    with pytest.raises(CustodyRequestError, match="nothing is sent"):
        approver.approve("1", "01", expected=None)
    assert approver.sent == 0
