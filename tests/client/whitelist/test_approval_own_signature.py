"""This user's own signature: found again by the signer's public key and the hash, whatever name the service shows."""

from __future__ import annotations

from typing import Any

import pytest
from approver import (
    APPROVE,
    FOR_APPROVAL,
    ChangingSigner,
    KeylessSigner,
    NoSigner,
    SignedInApprover,
    current_hash,
    show_signed,
    signing,
)
from cryptography.hazmat.primitives.asymmetric import ec
from people import Person, pem_of

from airflow_custody.client import CustodyConflictError, CustodyOutcomeUnknownError, CustodyResponseError
from airflow_custody.client.signers import PemSigner
from airflow_custody.sandbox import Sandbox

#: What the service may say of this user: not offered, without an external id, or with that of another.
USERS = [
    {"status": 404},
    {"status": 200, "body": {"result": {"id": "101", "tenantId": "1"}}},
    {"status": 200, "body": {"result": {"id": "101", "tenantId": "1", "externalUserId": "bob@example.test"}}},
]


@pytest.mark.parametrize("user", USERS, ids=["not offered", "no external id", "another's external id"])
def test_it_is_found_whoever_the_service_says_that_this_user_is(
    approver: SignedInApprover, user: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.add_fault("status", path="/users/me", times=None, **user)
    approver.sandbox.control.add_fault("drop", **APPROVE, work=True)
    assert approver.approve() == 2
    assert approver.signed == numbers
    for number in numbers:
        approver.sandbox.control.set_whitelist_envelope(number, trails=[])
    assert approver.approve(earlier_try=True) == 2
    with pytest.raises(CustodyConflictError, match="not pending this user's approval"):
        approver.approve()
    assert approver.sent == 1
    assert "may not be found out" not in caplog.text


def test_without_a_public_key_the_log_says_what_may_not_be_found_out(
    approver: SignedInApprover, caplog: pytest.LogCaptureFixture
) -> None:
    approver.create()
    approver.signer = KeylessSigner(approver)
    approver.sandbox.control.add_fault("status", path="/users/me", status=404, times=None)
    assert approver.approve() == 1
    assert "may not be found out if its response is lost" in caplog.text


@pytest.mark.parametrize("name", ["bob@example.test", "", "101"])
def test_it_counts_under_any_name(approver: SignedInApprover, name: str) -> None:
    number = approver.create()
    shown = signing(approver, ["1" * 64, current_hash(approver, number)])
    shown["signature"]["userId"] = name
    show_signed(approver, number, shown)
    assert approver.approve(earlier_try=True) == 1
    shown = signing(approver, ["1" * 64])
    shown["signature"]["userId"] = name
    show_signed(approver, number, shown)
    with pytest.raises(CustodyConflictError, match="covers another hash"):
        approver.approve(earlier_try=True)
    # By name, it is another's.
    approver.signer = KeylessSigner(approver)
    with pytest.raises(CustodyConflictError, match="not pending this user's approval"):
        approver.approve(earlier_try=True)


def test_a_colleagues_signature_under_this_users_name_is_not_this_users(
    approver: SignedInApprover, sandbox: Sandbox
) -> None:
    number = approver.create()
    bob = Person(sandbox, "bob", "approvers")
    show_signed(approver, number, signing(approver, [current_hash(approver, number)], key=bob.key))
    with pytest.raises(CustodyConflictError, match="does not verify the signature that has this user's name"):
        approver.approve(earlier_try=True)


def test_what_a_lying_service_shows_does_not_confirm_a_lost_approval(approver: SignedInApprover) -> None:
    number = approver.create()
    hash_ = current_hash(approver, number)

    class LyingSigner:
        """A signer; when it has signed, the service shows another signature in this user's name."""

        name = "lying"
        public_key = approver.person.key.public_key()

        def sign(self, message: bytes) -> bytes:
            show_signed(approver, number, signing(approver, [hash_], key=ec.generate_private_key(ec.SECP256R1())))
            return inner.sign(message)

    inner = PemSigner(lambda: approver.person.pem, name="inner")
    approver.signer = LyingSigner()
    approver.sandbox.control.add_fault("drop", **APPROVE, work=False)
    with pytest.raises(CustodyOutcomeUnknownError, match="does not verify the signature that has this") as caught:
        approver.approve()
    assert not caught.value.retryable


@pytest.mark.parametrize("by_key", [True, False])
def test_an_invalid_entry_in_this_users_name_decides_nothing(approver: SignedInApprover, by_key: bool) -> None:
    approver.lookup_wait = 2
    number = approver.create()
    other = ec.generate_private_key(ec.SECP256R1())
    entry = signing(approver, [current_hash(approver, number)], key=other)
    approver.sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": [entry]})
    # The listing of what this user may approve is late.
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, status=200, body={}, times=1)
    if by_key:
        assert approver.approve() == 1
    else:
        approver.signer = KeylessSigner(approver)
        with pytest.raises(CustodyConflictError, match="not pending"):
            approver.approve()


def test_odd_entries_are_nobodys(approver: SignedInApprover) -> None:
    number = approver.create()
    hash_ = current_hash(approver, number)
    good = signing(approver, [hash_])
    odd: list[Any] = [
        {},
        {"signature": None, "hashes": None},
        {"signature": {"signature": "é" * 88}, "hashes": [hash_]},
        {"signature": {"signature": good["signature"]["signature"][:-4]}, "hashes": [hash_]},
        {"signature": good["signature"], "hashes": []},
        {"signature": good["signature"], "hashes": ["é", hash_]},
    ]
    show_signed(approver, number, *odd)
    with pytest.raises(CustodyConflictError):
        approver.approve(earlier_try=True)
    show_signed(approver, number, *odd, good)
    assert approver.approve(earlier_try=True) == 1


def test_a_key_that_was_replaced_since_has_not_signed(approver: SignedInApprover) -> None:
    number = approver.create()
    approver.approve()
    approver.signer = PemSigner(lambda: pem_of(ec.generate_private_key(ec.SECP256R1())), name="new")
    new = approver.signer.public_key()
    approver.signer.public_key = lambda: new
    with pytest.raises(CustodyConflictError, match=f"{number} .the signer's public key does not verify the signature"):
        approver.approve(earlier_try=True)


@pytest.mark.parametrize("earlier_try", [False, True])
@pytest.mark.parametrize("many", ["signatures", "hashes"])
def test_too_many_signatures_to_look_through(approver: SignedInApprover, many: str, earlier_try: bool) -> None:
    number = approver.create()
    entry = {"signature": {"userId": "u", "signature": "A" * 86 + "=="}, "hashes": ["x"]}
    signings = [entry] * 20_000 if many == "signatures" else [{**entry, "hashes": ["x"] * 20_000}]
    show_signed(approver, number, *signings)
    approver.signer = NoSigner()
    with pytest.raises(CustodyResponseError, match=f"{number} cannot .* than .*{many}.*; nothing was signed"):
        approver.approve(earlier_try=earlier_try)


def test_too_many_signatures_after_a_lost_response(approver: SignedInApprover) -> None:
    number = approver.create()
    entry = {"signature": {"userId": "u", "signature": "A" * 86 + "=="}, "hashes": ["x"]}
    approver.signer = ChangingSigner(
        approver,
        lambda: approver.sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": [entry] * 300}),
    )
    approver.sandbox.control.add_fault("drop", **APPROVE)
    with pytest.raises(
        CustodyOutcomeUnknownError, match=r"more than 200 signatures.*; it may have been signed"
    ) as caught:
        approver.approve()
    assert not caught.value.retryable
