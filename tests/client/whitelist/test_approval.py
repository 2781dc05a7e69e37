"""Approving, with and without faults: nothing is signed that should not be."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from approver import APPROVE, FOR_APPROVAL, LOG, ChangingSigner, NoSigner, SignedInApprover, request
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from people import Person, pem_of

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConflictError,
    CustodyNotFoundError,
    CustodyPermissionError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.approval import Approver
from airflow_custody.client.whitelist.approval_batch import message_to_sign
from airflow_custody.client.whitelist.models import check_request_ids
from airflow_custody.sandbox import Sandbox

# --- without faults ----------------------------------------------------------------------------------------


def test_one_signature_approves_a_batch_whatever_its_order(approver: SignedInApprover) -> None:
    numbers = [approver.create(letter) for letter in "abc"]
    assert approver.approve(*reversed(numbers)) == 3
    assert approver.signed == numbers
    (call,) = approver.sandbox.control.request_log(**APPROVE)
    assert call["body"]["ids"] == numbers
    assert call["body"]["comment"] == "checked"
    assert [each.id for each in approver.client.find_whitelist_requests(include_pending=False)] == numbers


def test_a_hundred_at_once(approver: SignedInApprover) -> None:
    for _ in range(100):
        approver.create()
    assert approver.approve() == 100


def test_expected_may_explicitly_be_none(approver: SignedInApprover) -> None:
    number = approver.create()
    assert approver.approve(number, expected=None) == 1


@pytest.mark.parametrize("network_is_hashed", [True, False])
def test_all_kinds_of_fields_compare(approver: SignedInApprover, network_is_hashed: bool) -> None:
    approver.sandbox.control.configure(network_is_hashed=network_is_hashed)
    approver.create(linked_internal_address_ids=["7", "3"], memo="42", network="mainnet", customer_id="c")
    approver.create(linked_wallet_ids=["1"])
    assert approver.approve() == 2


def test_ids_are_ordered_by_number() -> None:
    assert check_request_ids(["100", "20", 3]) == ["3", "20", "100"]


@given(st.lists(st.integers(0, 10**18), unique=True, min_size=1, max_size=100))
def test_any_batch_is_in_ascending_order(ids: list[Any]) -> None:
    assert [int(each) for each in check_request_ids(str(each) for each in ids)] == sorted(ids)


def test_the_message_is_compact_json() -> None:
    assert message_to_sign(["h1", "h2"]) == b'["h1","h2"]'


# --- nothing is sent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids", [["1", "1"], ["1", "01"], [], ["x"], ["-1"], ["1 "], [None], ["٣"], [*range(200), 7]], ids=str
)
def test_malformed_batches_of_ids_are_refused(approver: SignedInApprover, ids: list[Any]) -> None:
    with pytest.raises(CustodyRequestError, match="nothing was sent"):
        Approver(approver.client, approver.signer, log=LOG).approve(ids, None, "checked")
    assert approver.sandbox.control.request_log() == []


def test_without_a_comment_or_a_description_nothing_is_signed(approver: SignedInApprover) -> None:
    number = approver.create()
    with pytest.raises(CustodyRequestError, match="comment"):
        approver.approve(comment=" ")
    with pytest.raises(CustodyRequestError, match="does not say what"):
        approver.approve(number, expected={})
    assert approver.sent == 0


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"label": "Other"}, "label"),
        ({"address": "0x" + "b" * 40}, "address"),
        ({"address": "0x" + "A" * 40}, r"address \(unclear: asked for '.*', shown "),
        ({"blockchain": "BTC"}, "blockchain"),
        ({"memo": "1"}, r"memo \(unclear: asked for '.*', shown "),
        ({"linked_internal_address_ids": ["9"]}, "linked_internal_address_ids"),
        ({"linked_wallet_ids": ["9"]}, "linked_wallet_ids"),
    ],
)
def test_a_request_that_differs_is_not_signed(approver: SignedInApprover, asked: dict[str, Any], named: str) -> None:
    number = approver.create()
    with pytest.raises(CustodyRequestError, match=f"{number} is not what was asked for: {named}"):
        approver.approve(expected={number: request(**asked)})
    assert approver.sent == 0


def test_both_values_are_shown_and_bounded(approver: SignedInApprover) -> None:
    number = approver.create()
    with pytest.raises(CustodyRequestError) as caught:
        approver.approve(expected={number: request(address="0x" + "b" * 40, label="y" * 900)})
    shown = approver.expected[number]
    assert f"address (asked for '0x{'b' * 40}', shown '{shown.address}')" in caught.value.message
    assert f"label (asked for '{'y' * 120}…', shown '{shown.label}')" in caught.value.message
    with pytest.raises(
        CustodyRequestError, match=r"\(unclear: asked for 0, 1, 2, 3, 4, \.\.\., shown nothing\); nothing"
    ):
        approver.approve(expected={number: request(linked_wallet_ids=[str(each) for each in range(9)])})


@pytest.mark.parametrize(
    "metadata",
    [
        {"hash": "0" * 64},
        {"hash": None},
        {"payloadAsString": None},
        {"payloadAsString": '{"label":"a","label":"b"}'},
        {"payloadAsString": json.dumps({"label": "a" * 2**20})},
    ],
    ids=lambda metadata: str(metadata)[:40],
)
def test_a_payload_that_cannot_be_verified_is_not_signed(approver: SignedInApprover, metadata: dict[str, Any]) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    if metadata.get("payloadAsString") and "hash" not in metadata:
        metadata = {**metadata, "hash": hashlib.sha256(metadata["payloadAsString"].encode()).hexdigest()}
    approver.sandbox.control.set_whitelist_metadata(numbers[1], **metadata)
    for expected in (approver.expected, None):
        with pytest.raises(CustodyResponseError, match=f"{numbers[1]} cannot be verified"):
            approver.approve(*numbers, expected=expected)
    assert approver.sent == 0


def changed_row(approver: SignedInApprover, number: str, **changes: Any) -> dict[str, Any]:
    """Return the listing as it is once fields have changed, without changing them."""
    control = approver.sandbox.control
    before = approver.expected[number].to_wire()
    control.change_whitelist_request(number, **changes)
    row = approver.client.get_whitelist_request(number).wire
    control.change_whitelist_request(number, **{name: before.get(name, "") for name in changes})
    return {"result": [row], "totalItems": "1"}


def test_a_change_between_review_and_signature_is_refused_before_the_key_is_used(approver: SignedInApprover) -> None:
    number = approver.create()
    approver.signer = NoSigner()
    changed = changed_row(approver, number, label="Other")
    for body, expected, kind in (
        (changed, approver.expected, CustodyRequestError),
        (changed, None, CustodyConflictError),
        ({}, approver.expected, CustodyConflictError),
    ):
        times = 1 if body else None
        approver.sandbox.control.add_fault("status", **FOR_APPROVAL, skip=1, times=times, status=200, body=body)
        with pytest.raises(kind, match="nothing was signed") as caught:
            approver.approve(expected=expected)
        assert not caught.value.retryable
    assert approver.sent == 0


def test_a_change_while_a_slow_key_signs_is_refused_and_the_signature_is_not_sent(approver: SignedInApprover) -> None:
    class ImpatientApprover(Approver):
        slow_signer = 0.0

    approver.kind = ImpatientApprover
    number = approver.create()
    control = approver.sandbox.control
    good = approver.signer
    for change, expected, kind in (
        (lambda: control.change_whitelist_request(number, label="Other"), approver.expected, CustodyRequestError),
        (lambda: control.change_whitelist_request(number, label="Other"), None, CustodyConflictError),
        (lambda: control.set_whitelist_status(number, "removed"), approver.expected, CustodyConflictError),
    ):
        approver.signer = ChangingSigner(approver, change)
        with pytest.raises(kind, match="a signature was made, and not sent") as caught:
            approver.approve(number, expected=expected)
        assert "nothing was signed" not in str(caught.value)
        assert not caught.value.retryable
        control.change_whitelist_request(number, label="Treasury")
        approver.signer = good
    control.set_whitelist_status(number, "pending")
    assert approver.sent == 0
    assert approver.approve() == 1


def test_a_change_while_the_key_signs_is_refused_by_the_service(approver: SignedInApprover) -> None:
    number = approver.create()
    change = lambda: approver.sandbox.control.change_whitelist_request(number, label="Other")  # noqa: E731
    approver.signer = ChangingSigner(approver, change)
    with pytest.raises(CustodyRequestError, match="does not verify") as caught:
        approver.approve()
    assert "nothing was signed" not in str(caught.value)
    assert approver.signed == []


def test_requests_that_are_not_pending_for_this_user_are_named(approver: SignedInApprover) -> None:
    number = approver.create()
    with pytest.raises(CustodyNotFoundError, match="there is no whitelisting request 9999"):
        approver.approve(number, "9999", expected=None)
    approver.approve()
    with pytest.raises(CustodyConflictError, match=rf"{number} \(status APPROVED\)"):
        approver.approve()
    assert approver.sent == 1
    assert approver.approve(earlier_try=True) == 1
    assert approver.sent == 1
    with pytest.raises(CustodyConflictError):
        approver.approve(number, approver.create("b"), earlier_try=True)


def test_a_user_who_is_not_an_approver_signs_nothing(sandbox: Sandbox, approver: SignedInApprover) -> None:
    number = approver.create()
    eve = Person(sandbox, "eve", "others")
    with (
        CustodyClient(sandbox.url, eve.token) as client,
        pytest.raises(CustodyConflictError, match="not pending this user"),
    ):
        Approver(client, approver.signer, log=LOG).approve([number], approver.expected, "checked")
    clerk = sandbox.control.add_user("clerk", ["TPUser"], groups=["approvers"])
    token = sandbox.control.add_token(roles=["TPUser"], user_id=clerk)
    with (
        CustodyClient(sandbox.url, token) as client,
        pytest.raises(CustodyPermissionError, match="WhitelistedAddressApprover"),
    ):
        Approver(client, approver.signer, log=LOG).approve([number], approver.expected, "checked")
    assert approver.signed == []


def test_a_key_the_service_does_not_know_is_refused_by_it(approver: SignedInApprover) -> None:
    approver.create()
    pem = pem_of(ec.generate_private_key(ec.SECP256R1()))
    approver.signer = PemSigner(lambda: pem, name="wrong")
    with pytest.raises(CustodyRequestError, match="does not verify"):
        approver.approve()
    assert approver.signed == []


def test_a_token_that_is_revoked_in_between_signs_nothing(sandbox: Sandbox, approver: SignedInApprover) -> None:
    approver.create()
    approver.signer = ChangingSigner(approver, lambda: sandbox.control.revoke_tokens(approver.person.id))
    with pytest.raises(CustodyAuthenticationError):
        approver.approve()
    assert sandbox.control.whitelist_requests()[0]["status"] == "pending"


def test_pages_that_shift_while_they_are_read_sign_nothing(approver: SignedInApprover) -> None:
    number = approver.create()
    one = next(approver.client.find_whitelist_requests_for_approval()).wire
    for body in ({"result": [one], "totalItems": "2"}, {"result": [one], "totalItems": "2"}):
        approver.sandbox.control.add_fault("status", **FOR_APPROVAL, status=200, body=body)
    with pytest.raises(CustodyResponseError) as caught:
        approver.approve(number)
    assert caught.value.retryable
    assert approver.sent == 0


# --- rejecting, deleting, getting one ----------------------------------------------------------------------


def test_get_one(approver: SignedInApprover) -> None:
    number = approver.create()
    assert approver.client.get_whitelist_request(number).status == "pending"
    with pytest.raises(CustodyNotFoundError):
        approver.client.get_whitelist_request("9999")
    malformed: list[Any] = ["", "../webhooks", "1?x", True]
    for bad in malformed:
        with pytest.raises(CustodyRequestError, match="nothing was sent"):
            approver.client.get_whitelist_request(bad)
    approver.sandbox.control.add_fault("status", status=200, body={"result": {"id": "1"}})
    with pytest.raises(CustodyResponseError, match="not this request"):
        approver.client.get_whitelist_request(number)


def test_reject_and_delete(approver: SignedInApprover) -> None:
    one, two = approver.create("a"), approver.create("b")
    approver.client.reject_whitelist_requests([one], "not ours")
    assert [each.id for each in approver.client.find_whitelist_requests_for_approval()] == [two]
    with pytest.raises(CustodyConflictError):
        approver.client.reject_whitelist_requests([one], "not ours")
    approver.client.delete_whitelist_request(two, "a slip")
    with pytest.raises(CustodyNotFoundError):
        approver.client.delete_whitelist_request(two, "a slip")
    with pytest.raises(CustodyRequestError):
        approver.client.reject_whitelist_requests(["x"], "no")


def test_requests_that_the_user_has_signed_can_be_listed(sandbox: Sandbox, approver: SignedInApprover) -> None:
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    number = approver.create()
    approver.approve()
    assert list(approver.client.find_whitelist_requests_for_approval(ids=[number])) == []
    (found,) = approver.client.find_whitelist_requests_for_approval(include_already_signed=True, blockchain="ETH")
    assert found.signed_by == {approver.person.external_id}
    for other in ({"blockchain": "BTC"}, {"network": "nowhere"}, {"query": "nothing"}):
        assert list(approver.client.find_whitelist_requests_for_approval(include_already_signed=True, **other)) == []
    filters: list[dict[str, Any]] = [{"ids": []}, {"query": ""}]
    for empty in filters:
        with pytest.raises(CustodyRequestError, match="a filter is empty"):
            list(approver.client.find_whitelist_requests_for_approval(**empty))
