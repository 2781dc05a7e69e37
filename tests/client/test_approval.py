"""Approving on good and bad days: nothing is signed that should not be."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
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
from airflow_custody.client.approval import Approving, in_order, message_to_sign
from airflow_custody.client.signers import PemSigner, raw_signature
from airflow_custody.sandbox import Sandbox

APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
FOR_APPROVAL = {"method": "GET", "path": "/whitelists/addresses/for-approval"}
LOG = logging.getLogger(__name__)


def request(letter: str = "a", **changes: Any) -> WhitelistRequest:
    return WhitelistRequest(**{"label": "Treasury", "address": "0x" + letter * 40, "blockchain": "ETH", **changes})


class Desk:
    """One approver at work."""

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
        approving = Approving(self.client, self.signer, log=LOG, lookup_wait=0.3)
        arguments = {"expected": self.expected, "comment": "checked", **changes}
        return approving.approve(ids or list(self.expected), **arguments)

    @property
    def signed(self) -> list[str]:
        found = self.client.find_whitelist_requests(include_waiting=True)
        return [each.id for each in found if self.person.id in each.signed_by]

    @property
    def sent(self) -> int:
        return len(self.sandbox.control.received(**APPROVE))


@pytest.fixture
def desk(sandbox: Sandbox) -> Iterator[Desk]:
    person = Person(sandbox, "ann", "approvers")
    with CustodyClient(sandbox.url, person.token, timeout=2, max_retries=0) as client:
        yield Desk(sandbox, person, client)


# --- good days ---------------------------------------------------------------------------------------------


def test_one_signature_approves_a_batch_whatever_its_order(desk: Desk):
    numbers = [desk.create(letter) for letter in "abc"]
    assert desk.approve(*reversed(numbers)) == 3
    assert desk.signed == numbers
    (call,) = desk.sandbox.control.received(**APPROVE)
    assert call["body"]["ids"] == numbers
    assert call["body"]["comment"] == "checked"
    assert [each.id for each in desk.client.find_whitelist_requests(include_waiting=False)] == numbers


def test_a_hundred_at_once(desk: Desk):
    for _ in range(100):
        desk.create()
    assert desk.approve() == 100


def test_what_is_expected_can_be_left_out_explicitly(desk: Desk):
    number = desk.create()
    assert desk.approve(number, expected=None) == 1


def test_all_kinds_of_fields_compare(desk: Desk):
    desk.create(linked_internal_address_ids=["7", "3"], memo="42", network="mainnet", customer_id="c")
    desk.create(linked_wallet_ids=["1"])
    assert desk.approve() == 2


def test_ids_are_ordered_by_number():
    assert in_order(["100", "20", 3]) == ["3", "20", "100"]


@given(st.lists(st.integers(0, 10**18), unique=True, min_size=1, max_size=100))
def test_any_batch_is_in_ascending_order(ids):
    assert [int(each) for each in in_order(str(each) for each in ids)] == sorted(ids)


def test_the_message_is_compact_json():
    assert message_to_sign(["h1", "h2"]) == b'["h1","h2"]'


# --- bad days: nothing is sent -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids", [["1", "1"], ["1", "01"], [], ["x"], ["-1"], ["1 "], [None], ["٣"], list(range(101))], ids=str
)
def test_ids_that_are_no_batch_are_refused(desk: Desk, ids):
    with pytest.raises(CustodyRequestError, match="nothing was signed"):
        Approving(desk.client, desk.signer, log=LOG).approve(ids, None, "checked")
    assert desk.sandbox.control.received() == []


def test_without_a_comment_or_a_description_nothing_is_signed(desk: Desk):
    number = desk.create()
    with pytest.raises(CustodyRequestError, match="comment"):
        desk.approve(comment=" ")
    with pytest.raises(CustodyRequestError, match="it is not said what"):
        desk.approve(number, expected={})
    assert desk.sent == 0


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"label": "Other"}, "label"),
        ({"address": "0x" + "b" * 40}, "address"),
        ({"address": "0x" + "A" * 40}, r"address \(not clear\)"),
        ({"blockchain": "BTC"}, "blockchain"),
        ({"memo": "1"}, r"memo \(not clear\)"),
        ({"linked_internal_address_ids": ["9"]}, "linked_internal_address_ids"),
        ({"linked_wallet_ids": ["9"]}, "linked_wallet_ids"),
    ],
)
def test_what_was_not_asked_for_is_not_signed(desk: Desk, asked, named):
    number = desk.create()
    with pytest.raises(CustodyRequestError, match=f"{number} is not what was asked for: {named}"):
        desk.approve(expected={number: request(**asked)})
    assert desk.sent == 0


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
def test_a_payload_that_can_not_be_verified_is_not_signed(desk: Desk, metadata):
    numbers = [desk.create("a"), desk.create("b")]
    if metadata.get("payloadAsString") and "hash" not in metadata:
        import hashlib

        metadata = {**metadata, "hash": hashlib.sha256(metadata["payloadAsString"].encode()).hexdigest()}
    desk.sandbox.control.set_whitelist_metadata(numbers[1], **metadata)
    for expected in (desk.expected, None):
        with pytest.raises(CustodyResponseError, match=f"{numbers[1]} can not be verified"):
            desk.approve(*numbers, expected=expected)
    assert desk.sent == 0


class Meddling:
    """Sign, after something has happened to a request."""

    name = "meddling"

    def __init__(self, desk: Desk, meddle: Any) -> None:
        self._signer = desk.signer
        self._meddle = meddle

    def sign(self, message: bytes) -> bytes:
        self._meddle()
        return self._signer.sign(message)


def test_a_change_between_review_and_signature_is_refused(desk: Desk):
    number = desk.create()
    control = desk.sandbox.control
    good = desk.signer
    for meddle, kind in (
        (lambda: control.change_whitelist_request(number, label="Other"), CustodyRequestError),
        (lambda: control.set_whitelist_status(number, "removed"), CustodyConflictError),
    ):
        desk.signer = Meddling(desk, meddle)
        with pytest.raises(kind) as caught:
            desk.approve()
        assert not caught.value.retryable
        control.change_whitelist_request(number, label="Treasury")
        desk.signer = good
    control.set_whitelist_status(number, "waiting")
    desk.signer = Meddling(desk, lambda: control.change_whitelist_request(number, label="Other"))
    with pytest.raises(CustodyConflictError, match="has changed since it was read"):
        desk.approve(expected=None)
    assert desk.sent == 0


def test_requests_that_do_not_wait_for_this_user_are_named(desk: Desk):
    number = desk.create()
    with pytest.raises(CustodyNotFoundError, match="there is no whitelisting request 9999"):
        desk.approve(number, "9999", expected=None)
    desk.approve()
    with pytest.raises(CustodyConflictError, match=rf"{number} \(status active\)"):
        desk.approve()
    assert desk.sent == 1
    assert desk.approve(earlier_try=True) == 1
    assert desk.sent == 1
    with pytest.raises(CustodyConflictError):
        desk.approve(number, desk.create("b"), earlier_try=True)


def test_somebody_who_is_no_approver_signs_nothing(sandbox: Sandbox, desk: Desk):
    number = desk.create()
    eve = Person(sandbox, "eve", "others")
    with CustodyClient(sandbox.url, eve.token) as client, pytest.raises(CustodyConflictError, match="not waiting for"):
        Approving(client, desk.signer, log=LOG).approve([number], desk.expected, "checked")
    clerk = sandbox.control.add_user("clerk", ["TPUser"], groups=["approvers"])
    token = sandbox.control.add_token(roles=["TPUser"], user_id=clerk)
    with (
        CustodyClient(sandbox.url, token) as client,
        pytest.raises(CustodyPermissionError, match="WhitelistedAddressApprover"),
    ):
        Approving(client, desk.signer, log=LOG).approve([number], desk.expected, "checked")
    assert desk.signed == []


def test_a_key_the_service_does_not_know_is_refused_by_it(desk: Desk):
    desk.create()
    desk.signer = PemSigner(lambda: pem_of(ec.generate_private_key(ec.SECP256R1())), name="wrong")
    with pytest.raises(CustodyRequestError, match="does not verify"):
        desk.approve()
    assert desk.signed == []


def test_a_token_that_ends_in_the_middle_signs_nothing(sandbox: Sandbox, desk: Desk):
    desk.create()
    desk.signer = Meddling(desk, lambda: sandbox.control.revoke_tokens(desk.person.id))
    with pytest.raises(CustodyAuthenticationError):
        desk.approve()
    assert desk.sent == 0


def test_pages_that_shift_while_they_are_read_sign_nothing(desk: Desk):
    number = desk.create()
    one = next(desk.client.find_whitelist_requests_for_approval()).wire
    for body in ({"result": [one], "totalItems": "2"}, {"result": [one], "totalItems": "2"}):
        desk.sandbox.control.order_fault("status", **FOR_APPROVAL, status=200, body=body)
    with pytest.raises(CustodyResponseError) as caught:
        desk.approve(number)
    assert caught.value.retryable
    assert desk.sent == 0


# --- bad days: it was sent ---------------------------------------------------------------------------------

LOST = [{"answer": "drop"}, {"answer": "status", "status": 500}, {"answer": "html"}, {"answer": "cut_body"}]


@pytest.mark.parametrize("fault", [*LOST, {"answer": "status", "status": 200, "body": {}}], ids=str)
def test_an_answer_lost_after_the_work_is_found_out(desk: Desk, fault):
    numbers = [desk.create("a"), desk.create("b")]
    desk.sandbox.control.order_fault(**APPROVE, **{**fault, "work": True})
    assert desk.approve() == 2
    assert desk.signed == numbers
    assert desk.sent == 1


@pytest.mark.parametrize("fault", LOST[:3], ids=str)
def test_an_answer_lost_before_the_work_may_be_tried_again(desk: Desk, fault):
    desk.create()
    desk.sandbox.control.order_fault(**APPROVE, **{**fault, "work": False})
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
        desk.approve()
    assert caught.value.retryable
    assert desk.approve(earlier_try=True) == 1


def test_where_it_can_not_be_found_out_nothing_is_repeated(desk: Desk):
    desk.create()
    desk.sandbox.control.order_fault("drop", **APPROVE, work=True)
    desk.sandbox.control.order_fault("status", path="/users/me", status=404, times=None)
    with pytest.raises(CustodyOutcomeUnknownError) as caught:
        desk.approve()
    assert not caught.value.retryable
    assert desk.sent == 1


def test_what_neither_waits_nor_is_signed_afterwards_is_not_repeated(desk: Desk):
    desk.create()
    desk.sandbox.control.order_fault("drop", **APPROVE)
    # Both readings before the approval find it, and then it is gone.
    desk.sandbox.control.order_fault("status", **FOR_APPROVAL, skip=2, times=None, status=200, body={})
    with pytest.raises(CustodyOutcomeUnknownError) as caught:
        desk.approve()
    assert not caught.value.retryable
    assert "Trying again is safe" not in str(caught.value)


# --- keys --------------------------------------------------------------------------------------------------


def pem_of_an_unknown_curve() -> str:
    lines = pem_of(ec.generate_private_key(ec.SECP256R1())).strip().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    other = der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030106"))
    return "\n".join([lines[0], base64.b64encode(other).decode(), lines[-1], ""])


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (lambda: pem_of(ec.generate_private_key(ec.SECP384R1())), "no P-256"),
        (lambda: pem_of(ec.generate_private_key(ec.SECP256K1())), "no P-256"),
        (lambda: pem_of(ed25519.Ed25519PrivateKey.generate()), "no P-256"),
        (pem_of_an_unknown_curve, "of a kind that is known"),
        (lambda: pem_of(rsa.generate_private_key(65537, 2048)), "no P-256"),
        (lambda: "-----BEGIN PRIVATE KEY-----\nsecretsecret\n-----END PRIVATE KEY-----", "no private key in PEM"),
        (lambda: pem_of(ec.generate_private_key(ec.SECP256R1()), "pw"), "password"),
        (lambda: Path("/no/such/key.pem").read_text(), "can not be read"),
    ],
)
def test_a_key_that_can_not_be_used_is_refused_before_anything_is_read(desk: Desk, pem, said):
    number = desk.create()
    desk.sandbox.control.clear_received()
    desk.signer = PemSigner(pem, name="the key")
    with pytest.raises(CustodyConfigurationError, match=said) as caught:
        desk.approve(number)
    assert "'the key'" in str(caught.value)
    assert "secretsecret" not in str(caught.value)
    assert desk.sandbox.control.received() == []


def test_a_key_from_a_file_with_a_password(tmp_path: Path):
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
def test_der_becomes_raw(r: int, s: int):
    assert raw_signature(encode_dss_signature(r, s)) == r.to_bytes(32, "big") + s.to_bytes(32, "big")


@pytest.mark.parametrize("der", [b"", b"x" * 64, encode_dss_signature(2**300, 1)])
def test_what_is_no_p256_signature_is_refused(der: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 - the words are those of a library
        raw_signature(der)


@pytest.mark.parametrize("signature", [b"", b"x" * 63, b"x" * 70, "x" * 64])
def test_a_signer_that_gives_something_else_signs_nothing(desk: Desk, signature):
    class Odd:
        name = "odd"

        def sign(self, message: bytes) -> Any:
            return signature

    desk.create()
    desk.signer = Odd()
    with pytest.raises(CustodyConfigurationError, match="64 bytes"):
        desk.approve()
    assert desk.sent == 0


# --- rejecting, deleting, getting one ----------------------------------------------------------------------


def test_get_one(desk: Desk):
    number = desk.create()
    assert desk.client.get_whitelist_request(number).status == "waiting"
    with pytest.raises(CustodyNotFoundError):
        desk.client.get_whitelist_request("9999")
    for bad in ("", "../webhooks", "1?x", True):
        with pytest.raises(CustodyRequestError, match="nothing was sent"):
            desk.client.get_whitelist_request(bad)
    desk.sandbox.control.order_fault("status", status=200, body={"result": {"id": "1"}})
    with pytest.raises(CustodyResponseError, match="not this request"):
        desk.client.get_whitelist_request(number)


def test_reject_and_delete(desk: Desk):
    one, two = desk.create("a"), desk.create("b")
    desk.client.reject_whitelist_requests([one], "not ours")
    assert [each.id for each in desk.client.find_whitelist_requests_for_approval()] == [two]
    with pytest.raises(CustodyConflictError):
        desk.client.reject_whitelist_requests([one], "not ours")
    desk.client.delete_whitelist_request(two, "a slip")
    with pytest.raises(CustodyNotFoundError):
        desk.client.delete_whitelist_request(two, "a slip")
    with pytest.raises(CustodyRequestError):
        desk.client.reject_whitelist_requests(["x"], "no")


def test_what_the_user_has_signed_already_can_be_listed(sandbox: Sandbox, desk: Desk):
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    number = desk.create()
    desk.approve()
    assert list(desk.client.find_whitelist_requests_for_approval(ids=[number])) == []
    (found,) = desk.client.find_whitelist_requests_for_approval(include_already_signed=True, blockchain="ETH")
    assert found.signed_by == {desk.person.id}
    for other in ({"blockchain": "BTC"}, {"network": "nowhere"}, {"query": "nothing"}):
        assert list(desk.client.find_whitelist_requests_for_approval(include_already_signed=True, **other)) == []
    for empty in ({"ids": []}, {"query": ""}):
        with pytest.raises(CustodyRequestError, match="a filter is empty"):
            list(desk.client.find_whitelist_requests_for_approval(**empty))
