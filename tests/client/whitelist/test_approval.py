"""Approving, with and without faults: nothing is signed that should not be."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from people import Person, pem_of

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyServerError,
    WhitelistRequest,
)
from airflow_custody.client.signers import PemSigner, raw_signature
from airflow_custody.client.whitelist.approval import Approver
from airflow_custody.client.whitelist.approval_batch import message_to_sign
from airflow_custody.client.whitelist.models import check_request_ids
from airflow_custody.sandbox import Sandbox

APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
LISTING = {"method": "GET", "path": "/whitelists/addresses"}
FOR_APPROVAL = {"method": "GET", "path": "/whitelists/addresses/for-approval"}
LOG = logging.getLogger(__name__)


def request(letter: str = "a", **changes: Any) -> WhitelistRequest:
    return WhitelistRequest(**{"label": "Treasury", "address": "0x" + letter * 40, "blockchain": "ETH", **changes})


class SignedInApprover:
    """An approver who is signed in to the sandbox and has a key."""

    def __init__(self, sandbox: Sandbox, person: Person, client: CustodyClient) -> None:
        self.sandbox = sandbox
        self.person = person
        self.client = client
        self.expected: dict[str, WhitelistRequest] = {}
        self.kind = Approver
        self.lookup_wait = 0.3
        self.signer: Any = PemSigner(lambda: person.pem, name="test key")

    def create(self, letter: str = "a", **changes: Any) -> str:
        asked = request(letter, **changes)
        number = self.client.create_whitelist_request(asked)
        self.expected[number] = asked
        return number

    def approve(self, *ids: str, **changes: Any) -> int:
        approval = self.kind(self.client, self.signer, log=LOG, lookup_wait=self.lookup_wait)
        arguments = {"expected": self.expected, "comment": "checked", **changes}
        return approval.approve(ids or list(self.expected), **arguments)

    def payload(self, number: str) -> dict[str, Any]:
        return self.client.get_whitelist_request(number).payload()

    def set_payload(self, number: str, payload: dict[str, Any] | str) -> None:
        """Replace a request's payload, and its hash."""
        text = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
        hash_ = hashlib.sha256(text.encode()).hexdigest()
        self.sandbox.control.set_whitelist_metadata(number, payloadAsString=text, hash=hash_)

    def change_payload(self, number: str, **keys: Any) -> None:
        self.set_payload(number, {**self.payload(number), **keys})

    @property
    def signed(self) -> list[str]:
        found = self.client.find_whitelist_requests(include_pending=True)
        return [each.id for each in found if self.person.external_id in each.signed_by]

    @property
    def sent(self) -> int:
        return len(self.sandbox.control.request_log(**APPROVE))


@pytest.fixture
def approver(sandbox: Sandbox) -> Iterator[SignedInApprover]:
    person = Person(sandbox, "ann", "approvers")
    with CustodyClient(sandbox.url, person.token, timeout=2, max_retries=0) as client:
        yield SignedInApprover(sandbox, person, client)


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
    approver.sandbox.control.set_network_is_hashed(network_is_hashed)
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
    "ids", [["1", "1"], ["1", "01"], [], ["x"], ["-1"], ["1 "], [None], ["٣"], list(range(101))], ids=str
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
        ({"address": "0x" + "A" * 40}, r"address \(unclear\)"),
        ({"blockchain": "BTC"}, "blockchain"),
        ({"memo": "1"}, r"memo \(unclear\)"),
        ({"linked_internal_address_ids": ["9"]}, "linked_internal_address_ids"),
        ({"linked_wallet_ids": ["9"]}, "linked_wallet_ids"),
    ],
)
def test_a_request_that_differs_is_not_signed(approver: SignedInApprover, asked: dict[str, Any], named: str) -> None:
    number = approver.create()
    with pytest.raises(CustodyRequestError, match=f"{number} is not what was asked for: {named}"):
        approver.approve(expected={number: request(**asked)})
    assert approver.sent == 0


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


class ChangingSigner:
    """A signer that changes something right before it signs."""

    name = "changing"

    def __init__(self, approver: SignedInApprover, change: Any) -> None:
        self._signer = approver.signer
        self._change = change

    def sign(self, message: bytes) -> bytes:
        self._change()
        signature: bytes = self._signer.sign(message)
        return signature


def changed_row(approver: SignedInApprover, number: str, **changes: Any) -> dict[str, Any]:
    """Return the listing as it is once fields have changed, without changing them."""
    control = approver.sandbox.control
    before = approver.expected[number].to_wire()
    control.change_whitelist_request(number, **changes)
    row = approver.client.get_whitelist_request(number).wire
    control.change_whitelist_request(number, **{name: before.get(name, "") for name in changes})
    return {"result": [row], "totalItems": "1"}


class NoSigner:
    """A signer that must not be used."""

    name = "unused"

    def sign(self, message: bytes) -> bytes:
        raise AssertionError("the key was used")


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


# --- it was sent -------------------------------------------------------------------------------------------

LOST = [{"kind": "drop"}, {"kind": "status", "status": 500}, {"kind": "html"}, {"kind": "truncate_body"}]


@pytest.mark.parametrize("fault", [*LOST, {"kind": "status", "status": 200, "body": {}}], ids=str)
def test_an_approval_whose_response_is_lost_is_confirmed(approver: SignedInApprover, fault: dict[str, Any]) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.add_fault(**APPROVE, **{**fault, "work": True})
    assert approver.approve() == 2
    assert approver.signed == numbers
    assert approver.sent == 1


@pytest.mark.parametrize("fault", LOST[:3], ids=str)
def test_an_approval_lost_before_the_work_is_retryable(approver: SignedInApprover, fault: dict[str, Any]) -> None:
    approver.create()
    approver.sandbox.control.add_fault(**APPROVE, **{**fault, "work": False})
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
        approver.approve()
    assert caught.value.retryable
    assert approver.approve(earlier_try=True) == 1


def test_an_outcome_that_cannot_be_confirmed_is_not_repeated(approver: SignedInApprover) -> None:
    approver.create()
    approver.sandbox.control.add_fault("drop", **APPROVE, work=True)
    approver.sandbox.control.add_fault("status", path="/users/me", status=404, times=None)
    with pytest.raises(CustodyOutcomeUnknownError) as caught:
        approver.approve()
    assert not caught.value.retryable
    assert approver.sent == 1


def test_an_approval_neither_pending_nor_signed_afterwards_is_not_repeated(approver: SignedInApprover) -> None:
    approver.create()
    approver.sandbox.control.add_fault("drop", **APPROVE)
    # It is found both times before the approval, and then it is gone.
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, skip=2, times=None, status=200, body={})
    with pytest.raises(CustodyOutcomeUnknownError) as caught:
        approver.approve()
    assert not caught.value.retryable
    assert "Trying again is safe" not in str(caught.value)


# A page of a gateway in between: it may refuse what the service has taken.
GATEWAY = [
    *({"kind": "html", "status": status} for status in (401, 403, 404, 405, 409, 413, 422, 429)),
    {"kind": "status", "status": 403, "body": {"error": "forbidden"}},
    {"kind": "rate_limit", "body": "slow down", "content_type": "text/plain"},
    {"kind": "redirect", "location": "https://elsewhere.example/"},
    {"kind": "empty", "status": 403},
]


@pytest.mark.parametrize("fault", GATEWAY, ids=str)
def test_a_gateway_that_refuses_an_approval_that_was_taken_is_no_failure(
    approver: SignedInApprover, fault: dict[str, Any]
) -> None:
    number = approver.create()
    approver.sandbox.control.add_fault(**APPROVE, **fault, work=True)
    assert approver.approve() == 1
    assert approver.signed == [number]
    assert approver.sent == 1


@pytest.mark.parametrize("fault", GATEWAY, ids=str)
def test_a_gateway_that_refuses_an_approval_says_whether_it_was_taken(
    approver: SignedInApprover, fault: dict[str, Any]
) -> None:
    number = approver.create()
    fault = {**fault, "work": False}
    approver.sandbox.control.add_fault(**APPROVE, **fault)
    with pytest.raises(
        CustodyError, match=r"not the service's own\. It was not carried out.*Trying again is safe"
    ) as one:
        approver.approve()
    assert one.value.status == fault.get("status", 429 if fault["kind"] == "rate_limit" else 302)
    assert not isinstance(one.value, CustodyOutcomeUnknownError)
    assert one.value.retryable is (one.value.status == 429)
    # The service does not say what became of it.
    approver.sandbox.control.add_fault(**APPROVE, **fault)
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, skip=2, times=None, status=200, body={})
    with pytest.raises(CustodyError, match="may have been taken") as two:
        approver.approve(number)
    assert type(two.value) is type(one.value)
    assert "Trying again is safe" not in str(two.value)
    assert not two.value.retryable
    # Nor can it be asked.
    approver.sandbox.control.clear_faults()
    approver.sandbox.control.add_fault(**APPROVE, **fault)
    approver.sandbox.control.add_fault("status", **LISTING, skip=2, times=None, status=404)
    with pytest.raises(CustodyError, match=r"may have been taken.*could not be found out") as three:
        approver.approve(number)
    assert not three.value.retryable


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429])
def test_a_refusal_of_the_service_itself_stays_as_it_is(approver: SignedInApprover, status: int) -> None:
    approver.create()
    approver.sandbox.control.add_fault("status", **APPROVE, status=status)
    with pytest.raises(CustodyError) as caught:
        approver.approve()
    assert caught.value.from_service
    assert "not the service's own" not in str(caught.value)
    # Nothing was looked up afterwards.
    assert approver.sandbox.control.request_log()[-1]["path"].endswith("/approve")


def test_an_approval_that_was_never_sent_is_not_looked_into(approver: SignedInApprover) -> None:
    number = approver.create()

    class Unplugged:
        """A signer after which there is no network."""

        name = "unplugged"

        def sign(self, message: bytes) -> bytes:
            object.__setattr__(approver.client.settings, "base_url", "http://127.0.0.1:9")
            return signer.sign(message)  # type: ignore[no-any-return]

    signer, approver.signer = approver.signer, Unplugged()
    with pytest.raises(CustodyConnectionError, match="nothing was sent") as caught:
        approver.approve(number)
    assert "not carried out" not in str(caught.value)
    assert approver.sandbox.control.request_log()[-1]["method"] == "GET"


# --- it is listed late -------------------------------------------------------------------------------------


def test_a_request_that_is_listed_late_is_waited_for(approver: SignedInApprover) -> None:
    approver.lookup_wait = 10
    approver.sandbox.control.set_whitelist_lag(2)
    number = approver.create()
    assert approver.approve() == 1
    approver.sandbox.control.set_whitelist_lag(0)
    assert approver.signed == [number]


@pytest.mark.parametrize("earlier_try", [False, True])
def test_a_request_that_is_never_listed_is_refused_when_it_has_had_time(
    approver: SignedInApprover, earlier_try: bool
) -> None:
    approver.lookup_wait = 1.2
    number = approver.create()
    started = time.monotonic()
    with pytest.raises(CustodyNotFoundError, match=r"no whitelisting request 9999: not listed within 1.2 s; nothing"):
        approver.approve(number, "9999", expected=None, earlier_try=earlier_try)
    assert 1.2 <= time.monotonic() - started < 3
    assert approver.sent == 0


@pytest.mark.parametrize("skip", [0, 1])
def test_the_listing_for_approval_may_lag_behind_the_others(approver: SignedInApprover, skip: int) -> None:
    approver.lookup_wait = 10
    number = approver.create()
    # Before the first read, or one of several replicas before the second.
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, skip=skip, status=200, body={}, times=2)
    assert approver.approve() == 1
    assert approver.signed == [number]


def test_who_has_no_turn_is_told_so_within_a_few_seconds(approver: SignedInApprover) -> None:
    approver.lookup_wait = 30
    approver.sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "risk", "minimumSignatures": 1}]}])
    number = approver.create()
    started = time.monotonic()
    with pytest.raises(CustodyConflictError, match=rf"not pending this user's approval: {number} \(status pending\)"):
        approver.approve()
    assert time.monotonic() - started < 5
    assert approver.sent == 0


@pytest.mark.parametrize("other", ["9999", None])
def test_what_is_decided_is_refused_at_once(approver: SignedInApprover, other: str | None) -> None:
    approver.lookup_wait = 30
    approver.sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    signed = approver.create("a")
    approver.approve()
    approved, rejected = approver.create("b"), approver.create("c")
    approver.sandbox.control.set_whitelist_status(approved, "APPROVED")
    approver.sandbox.control.set_whitelist_status(rejected, "rejected")
    started = time.monotonic()
    for number in (signed, approved, rejected):
        with pytest.raises(CustodyConflictError, match=f"not pending this user's approval: {number}"):
            approver.approve(*filter(None, [number, other]), expected=None)
    assert time.monotonic() - started < 2


# --- the whole payload is accounted for --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"tnParticipantID": "p"}, r"tnParticipantID \(not asked for\)"),
        ({"tnParticipantID": 7}, r"tnParticipantID \(unclear\)"),
        ({"feeLimit": "1"}, r"feeLimit \(not asked for\)"),
        ({"feeLimit": ""}, r"feeLimit \(not asked for\)"),
        ({"": ""}, r" \(not asked for\)"),
        ({"network": "mainnet"}, r"network \(not asked for\)"),
        ({"addressType": "exchange"}, r"addressType \(not asked for\)"),
        ({"addressType": "Individual"}, r"addressType \(not asked for\)"),
        ({"addressType": ["individual"]}, r"address_type \(unclear\)"),
        ({"contractType": "ERC20"}, r"contractType \(not asked for\)"),
        ({"memo": "7"}, r"memo \(not asked for\)"),
        ({"memo": False}, r"memo \(unclear\)"),
        ({"memo": []}, r"memo \(unclear\)"),
        ({"customerId": "c"}, r"customerId \(not asked for\)"),
        ({"exchangeAccountId": 0}, r"exchange_account_id \(unclear\)"),
        ({"linkedInternalAddresses": False}, r"linked_internal_address_ids \(unclear\)"),
        ({"linkedInternalAddresses": {}}, r"linked_internal_address_ids \(unclear\)"),
        ({"linkedInternalAddresses": ""}, r"linked_internal_address_ids \(unclear\)"),
        ({"linkedInternalAddresses": [{"id": "1"}]}, r"linkedInternalAddresses \(not asked for\)"),
        ({"linkedWallets": [{"id": 1}]}, r"linkedWallets \(not asked for\)"),
        ({"linkedWallets": 0}, r"linked_wallet_ids \(unclear\)"),
        ({"label": ["Treasury"]}, r"label \(unclear\)"),
        ({"address": None}, r"address \(unclear\)"),
    ],
    ids=str,
)
def test_what_nobody_asked_for_is_not_signed(approver: SignedInApprover, keys: dict[str, Any], named: str) -> None:
    number = approver.create()
    approver.signer = NoSigner()
    approver.change_payload(number, **keys)
    with pytest.raises(CustodyRequestError, match=f"{number} is not what was asked for: {named}; nothing was signed"):
        approver.approve()


@pytest.mark.parametrize(
    ("links", "named"),
    [
        ([{"id": 7, "limit": "1"}], r"linkedWallets.limit \(not asked for\)"),
        ([{"id": 7}, {"id": 8}], "linked_wallet_ids"),
        ([{"id": 7}, {"id": 7}], r"linked_wallet_ids \(unclear\)"),
        ([{"id": True}], r"linked_wallet_ids \(unclear\)"),
        ([{"id": 7, "path": 1}], r"linked_wallet_ids \(unclear\)"),
        ([{"id": "07"}], r"linked_wallet_ids \(unclear\)"),
        ([{"name": "7"}], r"linked_wallet_ids \(unclear\)"),
        ([7], r"linked_wallet_ids \(unclear\)"),
    ],
    ids=str,
)
def test_every_key_of_a_link_is_accounted_for(approver: SignedInApprover, links: list[Any], named: str) -> None:
    number = approver.create(linked_wallet_ids=["7"])
    approver.change_payload(number, linkedWallets=links)
    with pytest.raises(CustodyRequestError, match=f"{number} is not what was asked for: {named}; nothing was signed"):
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
    approver.sandbox.control.set_currencies(["KSM"])
    number = approver.create(blockchain="ksm")
    assert approver.payload(number)["currency"] == "KSM"
    approver.sandbox.control.set_whitelist_envelope(number, blockchain="\u212asm")
    with pytest.raises(CustodyRequestError, match="blockchain"):
        approver.approve()
    approver.change_payload(number, currency="\u212asm")
    with pytest.raises(CustodyRequestError, match=r"blockchain \(unclear\)"):
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
    control.set_network_is_hashed(is_hashed)
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
        with pytest.raises(CustodyRequestError, match=r"network \(unclear\)"):
            approver.approve()
        control.set_whitelist_envelope(number)
    assert approver.sent == 0
    assert approver.approve() == 1
    assert ("not covered by the signature: network" in caplog.text) is not is_hashed


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_network_that_nobody_asked_for(approver: SignedInApprover, is_hashed: bool) -> None:
    approver.sandbox.control.set_network_is_hashed(is_hashed)
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


class FailingSigner:
    name = "a key"

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def sign(self, message: bytes) -> bytes:
        raise self._failure


@pytest.mark.parametrize("failure", [ValueError("no DER"), TypeError("None"), TimeoutError("KMS"), RuntimeError("HSM")])
def test_what_a_signer_raises_is_an_error_of_ours(approver: SignedInApprover, failure: Exception) -> None:
    approver.create()
    approver.signer = FailingSigner(failure)
    with pytest.raises(CustodyError, match=f"'a key' failed: {type(failure).__name__}") as caught:
        approver.approve()
    assert caught.value.retryable is not isinstance(failure, (ValueError, TypeError))
    assert approver.sent == 0


class FixedSigner:
    name = "fixed"

    def __init__(self, signature: bytes) -> None:
        self._signature = signature

    def sign(self, message: bytes) -> bytes:
        return self._signature


@pytest.mark.parametrize("signature", [bytes(64), b"\xff" * 64, bytes(32) + b"\x01" * 32], ids=str)
def test_what_cannot_be_a_signature_is_not_sent(approver: SignedInApprover, signature: bytes) -> None:
    approver.create()
    approver.signer = FixedSigner(signature)
    with pytest.raises(CustodyConfigurationError, match="no number of a P-256 signature"):
        approver.approve()
    assert approver.sent == 0


class CheckedSigner(FixedSigner):
    def check(self) -> None:
        raise RuntimeError("HSM away")


def test_what_a_check_raises_is_an_error_of_ours(approver: SignedInApprover) -> None:
    approver.create()
    approver.signer = CheckedSigner(b"")
    with pytest.raises(CustodyError, match="'fixed' failed: RuntimeError: HSM away"):
        approver.approve()


class NamelessSigner:
    def sign(self, message: bytes) -> bytes:
        return b""


@pytest.mark.parametrize("signer", [None, object(), NamelessSigner(), "key"], ids=lambda each: type(each).__name__)
def test_what_is_no_signer_is_refused_before_anything_is_read(approver: SignedInApprover, signer: Any) -> None:
    approver.create()
    approver.sandbox.control.clear_request_log()
    approver.signer = (
        signer if signer is not FailingSigner else type("Nameless", (), {"sign": lambda self, message: b""})()
    )
    with pytest.raises(CustodyConfigurationError, match="must have a 'name' and a method 'sign'"):
        approver.approve()
    assert approver.sandbox.control.request_log() == []


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


# --- a signature is verified before it is sent -------------------------------------------------------------


def public_key(person: Person, encoding: Encoding = Encoding.PEM) -> bytes:
    return person.key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


class OddSigner:
    """A signer that changes its signature, and gives its public key in one of many ways."""

    name = "odd"

    def __init__(self, person: Person, public_key: Any, change: Callable[[bytes], bytes] = bytes) -> None:
        self._signer = PemSigner(lambda: person.pem, name="inner")
        self._change = change
        self.public_key = public_key

    def sign(self, message: bytes) -> bytes:
        return self._change(self._signer.sign(message))


def test_a_public_key_can_be_given_in_many_ways(approver: SignedInApprover) -> None:
    person = approver.person
    pem = public_key(person)
    given: list[Any] = [pem, pem.decode(), public_key(person, Encoding.DER), person.key.public_key(), None]
    for each in (*given, *[lambda each=each: each for each in given]):
        approver.expected.clear()
        approver.create()
        approver.signer = OddSigner(person, each)
        assert approver.approve() == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[32:] + raw[:32],
        lambda raw: raw[:32][::-1] + raw[32:][::-1],
        lambda raw: bytes(64),
        lambda raw: b"\xff" * 64,
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))[:64],
    ],
)
def test_a_signature_that_does_not_verify_is_not_sent(
    approver: SignedInApprover, change: Callable[[bytes], bytes]
) -> None:
    approver.create()
    approver.signer = OddSigner(approver.person, public_key(approver.person), change)
    with pytest.raises(CustodyConfigurationError, match="does not verify it; it was not sent") as caught:
        approver.approve()
    assert caught.value.setting == "signer"
    assert "nothing was signed" not in str(caught.value)
    assert approver.sent == 0


def test_a_signature_of_another_key_is_not_sent(approver: SignedInApprover, sandbox: Sandbox) -> None:
    approver.create()
    approver.signer = OddSigner(approver.person, public_key(Person(sandbox, "bob")))
    with pytest.raises(CustodyConfigurationError, match="does not verify"):
        approver.approve()
    assert approver.sent == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nonsense", "not a public key in PEM or DER"),
        (b"", "not a public key in PEM or DER"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "not a public key in PEM or DER"),
        (7, "not a P-256"),
        (ec.generate_private_key(ec.SECP384R1()).public_key(), "not a P-256"),
        (ed25519.Ed25519PrivateKey.generate().public_key(), "not a P-256"),
        (ec.generate_private_key(ec.SECP256R1()), "not a P-256"),
    ],
)
def test_an_unusable_public_key_is_refused_before_anything_is_read(
    approver: SignedInApprover, given: Any, why: str
) -> None:
    number = approver.create()
    approver.sandbox.control.clear_request_log()
    approver.signer = OddSigner(approver.person, given)
    with pytest.raises(CustodyConfigurationError, match=why):
        approver.approve(number)
    assert approver.sandbox.control.request_log() == []


# --- did it arrive? ----------------------------------------------------------------------------------------


def test_an_approval_of_which_the_service_took_less_is_no_success(approver: SignedInApprover) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.set_max_signatures(1)
    with pytest.raises(
        CustodyOutcomeUnknownError, match=rf"1 signature for 2 requests.*{numbers[1]} \(no sig"
    ) as caught:
        approver.approve()
    assert numbers[0] not in str(caught.value.advice)
    assert not caught.value.retryable
    assert approver.signed == numbers[:1]
    assert approver.sent == 1
    with pytest.raises(CustodyConflictError, match=numbers[0]):
        approver.approve(earlier_try=True)
    assert approver.sent == 1


@pytest.mark.parametrize("said", ["1", "3", 5])
def test_another_number_of_signatures_is_looked_into(approver: SignedInApprover, said: Any) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.add_fault("status", **APPROVE, status=200, body={"signatures": said}, work=True)
    assert approver.approve() == 2
    assert approver.signed == numbers


def test_a_number_of_signatures_for_nothing_is_no_success(approver: SignedInApprover) -> None:
    approver.create("a")
    approver.sandbox.control.add_fault("status", **APPROVE, status=200, body={"signatures": "2"}, work=False)
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
        approver.approve()
    assert caught.value.retryable


def signing(approver: SignedInApprover, hashes: list[str], *, user: str | None = None, key: Any = None) -> Any:
    signer = PemSigner(lambda: pem_of(key or approver.person.key), name="k")
    return {
        "signature": {
            "userId": user or approver.person.external_id,
            "signature": base64.b64encode(signer.sign(message_to_sign(hashes))).decode(),
        },
        "hashes": hashes,
    }


def show_signed(approver: SignedInApprover, number: str, *signings: Any) -> None:
    """Make the service show signatures, and a request that is not pending any more."""
    approver.sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": list(signings)})
    approver.sandbox.control.set_whitelist_status(number, "APPROVED")


def current_hash(approver: SignedInApprover, number: str) -> str:
    return str(approver.client.get_whitelist_request(number).hash)


def test_an_earlier_signature_counts_only_over_the_current_hash(approver: SignedInApprover) -> None:
    number = approver.create()
    current = current_hash(approver, number)
    show_signed(approver, number, signing(approver, ["0" * 64]))
    with pytest.raises(CustodyConflictError, match="covers another hash"):
        approver.approve(earlier_try=True)
    show_signed(approver, number, signing(approver, ["0" * 64]), signing(approver, ["1" * 64, current]))
    assert approver.approve(earlier_try=True) == 1
    approver.sandbox.control.change_whitelist_request(number, label="Other")
    with pytest.raises(CustodyConflictError, match="covers another hash"):
        approver.approve(earlier_try=True, expected=None)
    assert approver.sent == 0


def test_an_earlier_signature_is_verified_with_the_public_key(approver: SignedInApprover) -> None:
    number = approver.create()
    current = current_hash(approver, number)
    other = ec.generate_private_key(ec.SECP256R1())
    added = {**signing(approver, ["0" * 64]), "hashes": ["0" * 64, current]}
    swapped = {**signing(approver, ["0" * 64, current]), "hashes": [current, "0" * 64]}
    junk = {"signature": {"userId": approver.person.external_id, "signature": "x"}, "hashes": [current]}
    for bad in (added, swapped, junk, signing(approver, [current], key=other)):
        show_signed(approver, number, bad)
        with pytest.raises(CustodyConflictError, match="does not verify"):
            approver.approve(earlier_try=True)
        show_signed(approver, number, bad, signing(approver, [current]))
        assert approver.approve(earlier_try=True) == 1
    # Without a public key, the list of hashes is the service's word.
    show_signed(approver, number, junk)
    approver.signer = NoSigner()
    assert approver.approve(earlier_try=True) == 1


def test_the_signature_of_another_user_is_not_this_users(approver: SignedInApprover) -> None:
    number = approver.create()
    current = current_hash(approver, number)
    # Among them is one whose external id is this user's number.
    for user in ("somebody@example.test", approver.person.id, approver.person.external_id.upper()):
        show_signed(approver, number, signing(approver, [current], user=user))
        with pytest.raises(CustodyConflictError, match="not pending this user's approval"):
            approver.approve(earlier_try=True)


ME = {"id": "101", "tenantId": "1"}


def test_the_external_id_is_found_in_a_trail(approver: SignedInApprover) -> None:
    number = approver.create()
    approver.sandbox.control.add_fault("status", path="/users/me", status=200, body={"result": ME}, times=None)
    approver.sandbox.control.add_fault("drop", **APPROVE, work=True)
    assert approver.person.id == ME["id"]
    assert approver.approve() == 1
    assert approver.approve(earlier_try=True) == 1
    trail = {"userId": ME["id"], "externalUserId": "another@example.test"}
    trails = [*approver.client.get_whitelist_request(number).trails, trail]
    approver.sandbox.control.set_whitelist_envelope(number, trails=trails)
    with pytest.raises(CustodyOutcomeUnknownError, match="cannot be known"):
        approver.approve(earlier_try=True)


def test_without_an_external_id_a_retry_does_not_know(approver: SignedInApprover) -> None:
    number = approver.create()
    approver.approve()
    approver.sandbox.control.add_fault("status", path="/users/me", status=200, body={"result": ME}, times=None)
    approver.sandbox.control.set_whitelist_envelope(number, trails=[])
    with pytest.raises(CustodyOutcomeUnknownError, match="cannot be known whether an earlier try has signed") as caught:
        approver.approve(earlier_try=True)
    assert not caught.value.retryable
    assert approver.sent == 1


def test_a_lost_approval_is_not_confirmed_by_a_signature_over_another_hash(approver: SignedInApprover) -> None:
    number = approver.create()
    other = signing(approver, ["0" * 64])
    approver.signer = ChangingSigner(approver, lambda: show_signed(approver, number, other))
    approver.sandbox.control.add_fault("drop", **APPROVE, work=False)
    with pytest.raises(
        CustodyOutcomeUnknownError, match=rf"{number} \(this user's signature covers another hash"
    ) as caught:
        approver.approve()
    assert not caught.value.retryable
    assert approver.sent == 1


# --- keys --------------------------------------------------------------------------------------------------


def pem_of_an_unknown_curve() -> str:
    lines = pem_of(ec.generate_private_key(ec.SECP256R1())).strip().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    other = der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030106"))
    return "\n".join([lines[0], base64.b64encode(other).decode(), lines[-1], ""])


@pytest.mark.parametrize(
    ("pem", "message"),
    [
        (lambda: pem_of(ec.generate_private_key(ec.SECP384R1())), "not a P-256"),
        (lambda: pem_of(ec.generate_private_key(ec.SECP256K1())), "not a P-256"),
        (lambda: pem_of(ed25519.Ed25519PrivateKey.generate()), "not a P-256"),
        (pem_of_an_unknown_curve, "of a known type"),
        (lambda: pem_of(rsa.generate_private_key(65537, 2048)), "not a P-256"),
        (lambda: "-----BEGIN PRIVATE KEY-----\nsecretsecret\n-----END PRIVATE KEY-----", "not a private key in PEM"),
        (lambda: pem_of(ec.generate_private_key(ec.SECP256R1()), "pw"), "password"),
        (lambda: Path("/no/such/key.pem").read_text(), "cannot be read"),
    ],
)
def test_an_unusable_key_is_refused_before_anything_is_read(
    approver: SignedInApprover, pem: Callable[[], str], message: str
) -> None:
    number = approver.create()
    approver.sandbox.control.clear_request_log()
    approver.signer = PemSigner(pem, name="the key")
    with pytest.raises(CustodyConfigurationError, match=message) as caught:
        approver.approve(number)
    assert "'the key'" in str(caught.value)
    assert "secretsecret" not in str(caught.value)
    assert approver.sandbox.control.request_log() == []


def test_a_key_from_a_file_with_a_password(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "key.pem"
    path.write_text(pem_of(key, "open sesame"))
    signer = PemSigner.from_file(path, password="open sesame")
    signature = signer.sign(b"message")
    assert len(signature) == 64
    der = encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
    key.public_key().verify(der, b"message", ec.ECDSA(SHA256()))
    assert "sesame" not in repr(signer)


@given(st.integers(1, 2**256 - 1), st.integers(1, 2**256 - 1))
def test_a_der_signature_becomes_a_raw_one(r: int, s: int) -> None:
    assert raw_signature(encode_dss_signature(r, s)) == r.to_bytes(32, "big") + s.to_bytes(32, "big")


@pytest.mark.parametrize("der", [b"", b"x" * 64, encode_dss_signature(2**300, 1)])
def test_a_malformed_der_signature_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is a library's
        raw_signature(der)


@pytest.mark.parametrize("signature", [b"", b"x" * 63, b"x" * 70, "x" * 64])
def test_a_signer_that_returns_no_signature_signs_nothing(approver: SignedInApprover, signature: Any) -> None:
    class Odd:
        name = "odd"

        def sign(self, message: bytes) -> Any:
            return signature

    approver.create()
    approver.signer = Odd()
    with pytest.raises(CustodyConfigurationError, match="64 bytes"):
        approver.approve()
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
