"""What becomes of an approval that was sent, or of what is listed late: it is found out, and never guessed."""

from __future__ import annotations

from typing import Any

import pytest
from approver import (
    APPROVE,
    FOR_APPROVAL,
    LISTING,
    ChangingSigner,
    KeylessSigner,
    NoSigner,
    SignedInApprover,
    current_hash,
    request,
    show_signed,
    signing,
)
from clocks import SkippingTime
from cryptography.hazmat.primitives.asymmetric import ec

from airflow_custody.client import (
    CustodyConflictError,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
)

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
    approver.signer = KeylessSigner(approver)
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


@pytest.mark.parametrize("compared", [True, False])
def test_an_older_text_with_an_older_signature_is_no_confirmation(approver: SignedInApprover, compared: bool) -> None:
    number, other = approver.create("a"), approver.create("b")
    older = current_hash(approver, number)
    text = approver.client.get_whitelist_request(number).wire.get("metadata") or {}
    shown = signing(approver, [older])
    approver.change_payload(number, label="Newer")
    approver.expected[number] = request(label="Newer")
    control = approver.sandbox.control

    def show_the_older_one() -> None:
        control.set_whitelist_metadata(number, payloadAsString=text.get("payloadAsString"), hash=older)
        control.set_whitelist_envelope(number, signedAddress={"signatures": [shown]})

    approver.sandbox.control.add_fault("drop", **APPROVE)
    approver.signer = ChangingSigner(approver, show_the_older_one)
    approver.lookup_wait = 5
    match = f"another text than the one that was signed is shown now for whitelisting request {number}"
    with pytest.raises(CustodyOutcomeUnknownError, match=match) as caught:
        approver.approve(number, **({} if compared else {"expected": None}))
    assert not caught.value.retryable
    assert other not in str(caught.value)


def test_two_ids_that_show_the_same_text_are_named(
    approver: SignedInApprover, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [approver.create("a"), approver.create("b"), approver.create("a")]
    assert approver.approve(*numbers[:2]) == 2
    assert "same text" not in caplog.text
    numbers.append(approver.create("a"))
    assert approver.approve(*numbers[2:]) == 2
    (warned,) = [each for each in caplog.records if "same text" in each.getMessage()]
    assert warned.levelname == "WARNING"
    assert f"requests {numbers[2]}, {numbers[3]} show the same text" in warned.getMessage()


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
    # Nothing was looked up afterwards, but with 400 the rules, which say whether the key is the user's.
    paths = [each["path"] for each in approver.sandbox.control.request_log()]
    assert paths[-1].endswith("/rules" if status == 400 else "/approve")
    assert paths[-2 if status == 400 else -1].endswith("/approve")


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


def test_a_request_that_is_listed_late_is_waited_for(approver: SignedInApprover, waits: SkippingTime) -> None:
    approver.lookup_wait = 60
    approver.sandbox.control.configure(whitelist_lag=3600)
    number = approver.create()
    waits.after(20, lambda: approver.sandbox.control.configure(whitelist_lag=0))
    assert approver.approve() == 1
    assert approver.signed == [number]


@pytest.mark.parametrize("earlier_try", [False, True])
def test_a_request_that_is_never_listed_is_refused_when_it_has_had_time(
    approver: SignedInApprover, earlier_try: bool, waits: SkippingTime
) -> None:
    approver.lookup_wait = 60
    number = approver.create()
    skipped = waits.skipped
    with pytest.raises(CustodyNotFoundError, match=r"no whitelisting request 9999: not listed within 60 s; nothing"):
        approver.approve(number, "9999", expected=None, earlier_try=earlier_try)
    assert 60 <= waits.skipped - skipped < 90
    assert approver.sent == 0


@pytest.mark.parametrize("skip", [0, 1])
def test_the_listing_for_approval_may_lag_behind_the_others(approver: SignedInApprover, skip: int) -> None:
    approver.lookup_wait = 10
    number = approver.create()
    # Before the first read, or one of several replicas before the second.
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, skip=skip, status=200, body={}, times=2)
    assert approver.approve() == 1
    assert approver.signed == [number]


def test_who_has_no_turn_is_told_so_within_a_few_seconds(approver: SignedInApprover, waits: SkippingTime) -> None:
    approver.lookup_wait = 30
    approver.sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "risk", "minimumSignatures": 1}]}])
    number = approver.create()
    skipped = waits.skipped
    with pytest.raises(CustodyConflictError, match=rf"not pending this user's approval: {number} \(status pending\)"):
        approver.approve()
    assert waits.skipped - skipped < 15
    assert approver.sent == 0


@pytest.mark.parametrize("other", ["9999", None])
def test_what_is_decided_is_refused_at_once(approver: SignedInApprover, other: str | None, waits: SkippingTime) -> None:
    approver.lookup_wait = 30
    approver.sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    signed = approver.create("a")
    approver.approve()
    approved, rejected = approver.create("b"), approver.create("c")
    approver.sandbox.control.set_whitelist_status(approved, "APPROVED")
    approver.sandbox.control.set_whitelist_status(rejected, "rejected")
    skipped = waits.skipped
    for number in (signed, approved, rejected):
        with pytest.raises(CustodyConflictError, match=f"not pending this user's approval: {number}"):
            approver.approve(*filter(None, [number, other]), expected=None)
    assert waits.skipped - skipped < 15


# --- did it arrive? ----------------------------------------------------------------------------------------


def test_an_approval_of_which_the_service_took_less_is_no_success(approver: SignedInApprover) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.configure(max_signatures=1)
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
        approver.signer = NoSigner()
        with pytest.raises(CustodyConflictError, match="not pending this user's approval"):
            approver.approve(earlier_try=True)


ME = {"id": "101", "tenantId": "1"}


def test_the_external_id_is_found_in_a_trail(approver: SignedInApprover) -> None:
    number = approver.create()
    approver.signer = KeylessSigner(approver)
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
    approver.signer = KeylessSigner(approver)
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
