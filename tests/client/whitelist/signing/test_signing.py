"""Signing any number of requests: all are reviewed before the first signature, and again right before each."""

from __future__ import annotations

import random
import re

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.service.people import Person, pem_of
from support.service.request_signing import (
    APPROVE,
    FOR_APPROVAL,
    LOG,
    ChangingSigner,
    NoSigner,
    SignedInApprover,
)

from airflow_custody.client import (
    CustodyClient,
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRequestError,
    CustodyServerError,
)
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist import ids as ids_module
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the batches to two requests."""
    monkeypatch.setattr(ids_module, "MAX_PAGE_SIZE", 2)


def batches_sent(approver: SignedInApprover) -> list[list[str]]:
    return [call["body"]["ids"] for call in approver.sandbox.control.request_log(**APPROVE)]


# --- what is sent and logged ------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 100, 101, 201])
def test_a_batch_has_up_to_a_hundred_requests_in_order(
    approver: SignedInApprover, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    numbers = [approver.create() for _ in range(number)]
    assert approver.approve(*random.sample(numbers, len(numbers))) == number
    assert approver.signed == numbers
    assert batches_sent(approver) == [numbers[start : start + 100] for start in range(0, number, 100)]
    assert {call["body"]["comment"] for call in approver.sandbox.control.request_log(**APPROVE)} == {"checked"}
    assert [each for each in numbers if f"To be signed, whitelisting request {each}," not in caplog.text] == []


def test_the_log_has_the_whole_content_that_is_signed(
    approver: SignedInApprover, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    label = "Trésor " + "x" * 500
    one = approver.create(label=label, linked_wallet_ids=["7"], network="mainnet")
    approver.change_payload(one, addressType="individual", tnParticipantID="a\nb\u202e")
    approver.sandbox.control.configure(network_is_hashed=False)
    two = approver.create("b", memo="1", network="mainnet")
    seen: list[str] = []
    approver.signer = ChangingSigner(approver, lambda: seen.extend(each.getMessage() for each in caplog.records))
    approver.set_client(accept_fields=["tnParticipantID"])
    approver.approve()
    first, second = seen[-2:]
    for text in (one, label, "0x" + "a" * 40, "Wallet 7", "m/44'/60'/7'", '"tnParticipantID":"a', "\\u202e"):
        assert text in first
    assert "\u202e" not in first
    # Airflow does not wrap a line. What is signed is all on one, so nothing in it looks like a line of the log.
    start, text, filled_in, envelope = first.split("\n")
    assert re.fullmatch(rf"To be signed, whitelisting request {one}, hash [0-9a-f]{{64}}:", start)
    assert text[0] == "{"
    assert text[-1] == "}"
    # The network is part of the text.
    assert envelope == "Only in the envelope, which is not signed: action create, tenantId 1"
    filled_in = filled_in.removeprefix("Filled in by the service: ")
    assert set(filled_in.split(", ")) == {"addressType", "tnParticipantID", "linkedWallets.name", "linkedWallets.path"}
    assert "not covered by the signature" not in first
    outside = "which is not signed: network mainnet, action create, tenantId 1"
    for text in (two, '"memo":"1"', outside, "Compared, but not covered by the signature: network"):
        assert text in second
    assert "Filled in" not in second
    assert caplog.text.count("so the service is trusted without verification") == 1


def test_two_ids_with_the_same_text_are_named(approver: SignedInApprover, caplog: pytest.LogCaptureFixture) -> None:
    numbers = [approver.create(letter) for letter in "abaa"]
    assert approver.approve(*numbers[:2]) == 2
    assert "same text" not in caplog.text
    assert approver.approve(*numbers[2:]) == 2
    (warned,) = [each for each in caplog.records if "same text" in each.getMessage()]
    assert warned.levelname == "WARNING"
    assert f"requests {numbers[2]}, {numbers[3]} have the same text" in warned.getMessage()


@pytest.mark.parametrize("kind", ["status", "html"])
def test_without_the_users_details_the_tenant_is_not_compared_and_the_log_says_so(
    approver: SignedInApprover, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    number = approver.create()
    approver.sandbox.control.add_fault(kind, path="/users/me", status=404)
    assert approver.approve(number) == 1
    assert "tenant of the requests cannot be compared" in caplog.text
    number = approver.create("b")
    approver.sandbox.control.add_fault("status", path="/users/me", status=500)
    with pytest.raises(CustodyServerError):
        approver.approve(number)
    assert approver.sent == 1


# --- changes between the readings --------------------------------------------------------------------------------


def test_a_change_between_review_and_signature_is_refused_before_the_key_is_used(approver: SignedInApprover) -> None:
    number = approver.create()
    approver.signer = NoSigner()
    control = approver.sandbox.control
    control.change_whitelist_request(number, label="Other")
    changed = {"result": [approver.client.get_whitelist_request(number).wire], "totalItems": "1"}
    control.change_whitelist_request(number, label="Treasury")
    for body, expected, kind in (
        (changed, approver.expected, CustodyRequestError),
        (changed, None, CustodyConflictError),
        ({}, approver.expected, CustodyConflictError),
    ):
        control.add_fault("status", **FOR_APPROVAL, skip=1, times=1 if body else None, status=200, body=body)
        with pytest.raises(kind, match="nothing was signed") as caught:
            approver.approve(expected=expected)
        assert not caught.value.retryable
    assert approver.sent == 0


# --- users who may not sign --------------------------------------------------------------------------------------


def test_a_user_who_is_not_an_approver_signs_nothing(sandbox: Sandbox, approver: SignedInApprover) -> None:
    number = approver.create()
    eve = Person(sandbox, "eve", "others")
    clerk = sandbox.control.add_user("clerk", ["TPUser"], groups=["approvers"])
    clerks = sandbox.control.add_token(roles=["TPUser"], user_id=clerk)
    refusals: list[tuple[str, type[CustodyError], str]] = [
        (eve.token, CustodyConflictError, "not pending this user"),
        (clerks, CustodyPermissionError, "needs the role whitelistedaddressapprover. This operation also needs TPUser"),
    ]
    for token, error, match in refusals:
        with CustodyClient(sandbox.url, token) as client, pytest.raises(error, match=match):
            RequestSigner(client, approver.signer, log=LOG).sign([number], approver.expected, "checked")
    # The service refuses a key that it does not know, and names the key.
    pem = pem_of(ec.generate_private_key(ec.SECP256R1()))
    approver.signer = PemSigner(lambda: pem, name="custody_bob_key")
    first = "the signing key 'custody_bob_key' may not belong to the user of connection 'custody_ann': .*not verify"
    with CustodyClient(sandbox.url, approver.person.token, source="connection 'custody_ann'") as client:
        approver.client = client
        with pytest.raises(CustodyRequestError, match=f"^sign whitelisting requests failed: {first}") as caught:
            approver.approve()
        assert approver.signed == []
    assert caught.value.code == "request-refused"
    assert caught.value.retryable is False


# --- batches and later tries -------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_one_wrong_request_stops_all(approver: SignedInApprover) -> None:
    numbers = [approver.create() for _ in range(5)]
    approver.signer = NoSigner()
    approver.change_payload(numbers[4], memo="7")
    with pytest.raises(
        CustodyRequestError, match=rf"{numbers[4]} differs from the requested content.*; nothing was signed"
    ) as caught:
        approver.approve()
    assert f"batch 3 of 3: 1 request, from {numbers[4]} to {numbers[4]}. 0 of 5 requests are already signed" in str(
        caught.value
    )
    with pytest.raises(CustodyNotFoundError, match="nothing was signed"):
        approver.approve(*numbers[:4], "9999", expected=None)
    with pytest.raises(CustodyRequestError, match=f"has no content for {numbers[4]}"):
        approver.approve(*numbers, expected={each: approver.expected[each] for each in numbers[:4]})
    assert approver.sent == 0


@pytest.mark.usefixtures("small_batches")
def test_a_later_try_continues_where_a_batch_failed(approver: SignedInApprover) -> None:
    numbers = [approver.create() for _ in range(6)]
    approver.sandbox.control.add_fault("drop", **APPROVE, skip=1)
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
        approver.approve()
    assert caught.value.retryable
    progress = "2 of 6 requests are already signed. A later try continues with the remaining requests."
    first, last = numbers[2:4]
    assert f"batch 2 of 3: 2 requests, from {first} to {last}. {progress}" in str(caught.value)
    assert approver.signed == numbers[:2]
    assert approver.approve(*reversed(numbers), earlier_try=True) == 6
    assert approver.signed == numbers
    assert batches_sent(approver)[-2:] == [numbers[2:4], numbers[4:]]
    # In a first try, an existing signature counts only if the content is compared.
    with pytest.raises(CustodyConflictError, match=f"not pending this user's signature: {numbers[0]}"):
        approver.approve(expected=None)
    assert approver.approve() == approver.approve(earlier_try=True, expected=None) == 6
    assert approver.sent == 4


@pytest.mark.usefixtures("small_batches")
def test_a_batch_that_changes_after_its_review_is_not_signed(approver: SignedInApprover) -> None:
    numbers = [approver.create() for _ in range(4)]
    signer, control = approver.signer, approver.sandbox.control
    approver.signer = ChangingSigner(approver, lambda: control.change_whitelist_request(numbers[3], label="Other"))
    with pytest.raises(CustodyRequestError, match=f"{numbers[3]} differs .*; nothing of this batch was sig") as one:
        approver.approve()
    assert "2 of 4 requests are already signed" in str(one.value)
    approver.signer = signer
    with pytest.raises(CustodyRequestError, match="nothing of this batch was signed in this try"):
        approver.approve(earlier_try=True)
    # A request that was signed earlier is reviewed before its signature counts.
    approver.signer = NoSigner()
    other = {**approver.expected, numbers[1]: approver.expected[numbers[1]].model_copy(update={"label": "Other"})}
    match = rf"{numbers[1]} differs from the requested content: label \(.*\); this user has already signed the request"
    with pytest.raises(CustodyRequestError, match=match):
        approver.approve(*numbers[:3], earlier_try=True, expected=other)
    assert approver.signed == numbers[:2]


@pytest.mark.usefixtures("small_batches")
def test_a_signature_that_arrives_between_the_readings_is_not_made_again(approver: SignedInApprover) -> None:
    numbers = [approver.create() for _ in range(4)]
    with CustodyClient(approver.sandbox.url, approver.person.token) as client:
        earlier = RequestSigner(client, PemSigner(lambda: approver.person.pem, name="earlier"), log=LOG)
        # The key of the first batch is used after the review of both batches.
        change = lambda: earlier.sign(numbers[2:], approver.expected, "earlier try")  # noqa: E731
        approver.signer = ChangingSigner(approver, change)
        assert approver.approve(earlier_try=True) == 4
    assert batches_sent(approver) == [numbers[2:], numbers[:2]]
    assert approver.signed == numbers
