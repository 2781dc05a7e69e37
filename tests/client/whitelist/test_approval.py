"""Approving, with and without faults: nothing is signed that should not be."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st
from people import Person, pem_of

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRequestError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.client.signers import PemSigner, raw_signature
from airflow_custody.client.whitelist.approval import Approver, message_to_sign
from airflow_custody.client.whitelist.models import check_request_ids
from airflow_custody.sandbox import Sandbox

APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
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
        self.signer: Any = PemSigner(lambda: person.pem, name="test key")

    def create(self, letter: str = "a", **changes: Any) -> str:
        asked = request(letter, **changes)
        number = self.client.create_whitelist_request(asked)
        self.expected[number] = asked
        return number

    def approve(self, *ids: str, **changes: Any) -> int:
        approval = Approver(self.client, self.signer, log=LOG, lookup_wait=0.3)
        arguments = {"expected": self.expected, "comment": "checked", **changes}
        return approval.approve(ids or list(self.expected), **arguments)

    @property
    def signed(self) -> list[str]:
        found = self.client.find_whitelist_requests(include_pending=True)
        return [each.id for each in found if self.person.id in each.signed_by]

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


def test_all_kinds_of_fields_compare(approver: SignedInApprover) -> None:
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
        import hashlib

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


def test_a_change_between_review_and_signature_is_refused(approver: SignedInApprover) -> None:
    number = approver.create()
    control = approver.sandbox.control
    good = approver.signer
    for change, kind in (
        (lambda: control.change_whitelist_request(number, label="Other"), CustodyRequestError),
        (lambda: control.set_whitelist_status(number, "removed"), CustodyConflictError),
    ):
        approver.signer = ChangingSigner(approver, change)
        with pytest.raises(kind) as caught:
            approver.approve()
        assert not caught.value.retryable
        control.change_whitelist_request(number, label="Treasury")
        approver.signer = good
    control.set_whitelist_status(number, "pending")
    approver.signer = ChangingSigner(approver, lambda: control.change_whitelist_request(number, label="Other"))
    with pytest.raises(CustodyConflictError, match="has changed since it was read"):
        approver.approve(expected=None)
    assert approver.sent == 0


def test_requests_that_are_not_pending_for_this_user_are_named(approver: SignedInApprover) -> None:
    number = approver.create()
    with pytest.raises(CustodyNotFoundError, match="there is no whitelisting request 9999"):
        approver.approve(number, "9999", expected=None)
    approver.approve()
    with pytest.raises(CustodyConflictError, match=rf"{number} \(status active\)"):
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
    approver.signer = PemSigner(lambda: pem_of(ec.generate_private_key(ec.SECP256R1())), name="wrong")
    with pytest.raises(CustodyRequestError, match="does not verify"):
        approver.approve()
    assert approver.signed == []


def test_a_token_that_is_revoked_in_between_signs_nothing(sandbox: Sandbox, approver: SignedInApprover) -> None:
    approver.create()
    approver.signer = ChangingSigner(approver, lambda: sandbox.control.revoke_tokens(approver.person.id))
    with pytest.raises(CustodyAuthenticationError):
        approver.approve()
    assert approver.sent == 0


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
    assert found.signed_by == {approver.person.id}
    for other in ({"blockchain": "BTC"}, {"network": "nowhere"}, {"query": "nothing"}):
        assert list(approver.client.find_whitelist_requests_for_approval(include_already_signed=True, **other)) == []
    filters: list[dict[str, Any]] = [{"ids": []}, {"query": ""}]
    for empty in filters:
        with pytest.raises(CustodyRequestError, match="a filter is empty"):
            list(approver.client.find_whitelist_requests_for_approval(**empty))
