"""The outcome of a sent signature, and requests that are listed late: nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.clocks import SkippingTime
from support.service.request_signing import (
    APPROVE,
    FOR_APPROVAL,
    LISTING,
    LOG,
    ChangingSigner,
    KeylessSigner,
    NoSigner,
    SignedInApprover,
    current_hash,
    request,
    show_signed,
    signing,
)

from airflow_custody.client import (
    CustodyClient,
    CustodyConflictError,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.signing.sending import RequestSigner

# --- it was sent -------------------------------------------------------------------------------------------

LOST = [{"kind": "drop"}, {"kind": "status", "status": 500}, {"kind": "html"}]
# Responses of a gateway in between, which may refuse what the service has accepted.
GATEWAY = [
    *({"kind": "html", "status": status} for status in (403, 404)),
    {"kind": "status", "status": 403, "body": {"error": "forbidden"}},
    {"kind": "redirect", "location": "https://elsewhere.example/"},
]
# A response of the service itself, with another number of signatures.
UNCLEAR = [{"kind": "status", "status": 200, "body": body} for body in ({}, {"signatures": "3"})]


@pytest.mark.parametrize("fault", [*LOST, *GATEWAY, *UNCLEAR], ids=str)
def test_an_accepted_signature_is_confirmed_whatever_the_response(
    approver: SignedInApprover, fault: dict[str, Any]
) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.add_fault(**APPROVE, **{**fault, "work": True})
    assert approver.approve() == 2
    assert approver.signed == numbers
    assert approver.sent == 1


@pytest.mark.parametrize("fault", [LOST[0], {"kind": "status", "status": 200, "body": {"signatures": "2"}}], ids=str)
def test_a_signature_that_certainly_did_not_arrive_is_retryable(
    approver: SignedInApprover, fault: dict[str, Any]
) -> None:
    approver.create()
    approver.sandbox.control.add_fault(**APPROVE, **{**fault, "work": False})
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
        approver.approve()
    assert caught.value.retryable
    assert approver.approve(earlier_try=True) == 1


@pytest.mark.parametrize("fault", GATEWAY, ids=str)
def test_the_error_of_a_gateway_says_whether_the_signature_was_accepted(
    approver: SignedInApprover, fault: dict[str, Any]
) -> None:
    number = approver.create()
    fault = {**fault, "work": False}
    approver.sandbox.control.add_fault(**APPROVE, **fault)
    with pytest.raises(CustodyError, match=r"The signature had no effect.*Trying again is safe") as one:
        approver.approve()
    # The next try would be redirected, too.
    is_redirect = fault["kind"] == "redirect"
    assert isinstance(one.value, CustodyResponseError) is is_redirect
    assert one.value.retryable is not is_redirect
    # The service does not report what happened to the signature.
    approver.sandbox.control.add_fault(**APPROVE, **fault)
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, skip=2, times=None, status=200, body={})
    with pytest.raises(CustodyError, match="may have been accepted") as two:
        approver.approve(number)
    assert type(two.value) is type(one.value)
    assert "Trying again is safe" not in str(two.value)
    assert not two.value.retryable


@pytest.mark.parametrize(("listing", "is_waited"), [(404, False), (503, True)])
@pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "status", "status": 409}], ids=str)
def test_only_a_transient_failure_is_waited_for(
    approver: SignedInApprover, waits: SkippingTime, fault: dict[str, Any], listing: int, is_waited: bool
) -> None:
    approver.lookup_wait = 30
    approver.create()
    approver.sandbox.control.add_fault(**APPROVE, **fault)
    approver.sandbox.control.add_fault("status", **LISTING, skip=6, times=None, status=listing)
    skipped = waits.skipped
    with pytest.raises(CustodyError) as caught:
        approver.approve()
    assert (waits.skipped - skipped >= 30) is is_waited
    assert waits.skipped - skipped < (45 if is_waited else 5)
    # After a refusal, it is certain that nothing was done.
    assert caught.value.retryable is (is_waited and fault["kind"] == "status")


@pytest.mark.parametrize("status", [400, 401, 409, 429])
def test_a_refusal_of_the_service_itself_stays_as_it_is(approver: SignedInApprover, status: int) -> None:
    approver.create()
    approver.sandbox.control.add_fault("status", **APPROVE, status=status)
    with pytest.raises(CustodyError) as caught:
        approver.approve()
    assert caught.value.from_service
    assert "not carried out" not in str(caught.value)
    assert caught.value.retryable is (status == 429)
    # A refusal that cannot be caused by the request's state is not investigated.
    is_last = approver.sandbox.control.request_log()[-1]["path"].endswith("/approve")
    assert is_last is (status in (401, 429))


def sign_in_an_earlier_try(approver: SignedInApprover) -> None:
    """Sign like a worker that was wrongly taken for dead."""
    with CustodyClient(approver.sandbox.url, approver.person.token) as client:
        earlier = RequestSigner(client, PemSigner(lambda: approver.person.pem, name="earlier"), log=LOG)
        assert earlier.sign(list(approver.expected), approver.expected, "earlier try") == len(approver.expected)


@pytest.mark.parametrize("groups", [1, 2], ids=["in effect", "still pending"])
def test_an_earlier_try_may_sign_while_a_later_one_does(
    approver: SignedInApprover, groups: int, caplog: pytest.LogCaptureFixture
) -> None:
    approver.sandbox.control.set_approvers(
        [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": groups}]}]
    )
    numbers = [approver.create("a"), approver.create("b")]
    approver.signer = ChangingSigner(approver, lambda: sign_in_an_earlier_try(approver))
    assert approver.approve(earlier_try=True) == 2
    sent = approver.sandbox.control.request_log(**APPROVE)
    assert [call["body"]["comment"] for call in sent] == ["earlier try", "checked"]
    assert sent[-1]["status"] == 409
    assert "but no request needs it" in caplog.text
    assert approver.signed == numbers


def test_an_earlier_signature_of_something_else_does_not_settle_a_refusal(approver: SignedInApprover) -> None:
    number = approver.create()

    def change_and_sign() -> None:
        approver.sandbox.control.change_whitelist_request(number, label="Other")
        show_signed(approver, number, signing(approver, [current_hash(approver, number)]))

    approver.signer, signer = ChangingSigner(approver, change_and_sign), approver.signer
    with pytest.raises(CustodyConflictError, match=r"Reading the requests again failed: .*label") as caught:
        approver.approve(earlier_try=True)
    assert not caught.value.retryable
    # If the check cannot be read, this is left to a retry, which reads first.
    approver.expected = {}
    approver.create("c")
    approver.signer = ChangingSigner(approver, lambda: sign_in_an_earlier_try(approver))
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, status=503, skip=4, times=None)
    with pytest.raises(CustodyConflictError, match=r"already|no longer") as caught:
        approver.approve(earlier_try=True)
    assert caught.value.retryable
    approver.sandbox.control.clear_faults()
    approver.signer = signer
    assert approver.approve(earlier_try=True) == 1


def test_a_signature_that_was_never_sent_is_not_looked_for(approver: SignedInApprover) -> None:
    number = approver.create()
    unplug = lambda: object.__setattr__(approver.client.settings, "base_url", "http://127.0.0.1:9")  # noqa: E731
    approver.signer = ChangingSigner(approver, unplug)
    with pytest.raises(CustodyConnectionError, match="this request was not sent") as caught:
        approver.approve(number)
    assert "not carried out" not in str(caught.value)
    assert approver.sandbox.control.request_log()[-1]["method"] == "GET"


def gone(approver: SignedInApprover, number: str) -> None:
    """Make the request disappear after the two readings before the approval."""
    approver.sandbox.control.add_fault("status", **FOR_APPROVAL, skip=2, times=None, status=200, body={})


def keyless_and_unknown(approver: SignedInApprover, number: str) -> None:
    approver.signer = KeylessSigner(approver)
    approver.sandbox.control.add_fault("status", path="/users/me", status=404, times=None)


@pytest.mark.parametrize(
    ("arrange", "why"),
    [(gone, "look at the service"), (keyless_and_unknown, "does not return this user's external id")],
)
def test_an_unknown_outcome_is_not_retried(approver: SignedInApprover, arrange: Any, why: str) -> None:
    number = approver.create()
    arrange(approver, number)
    approver.sandbox.control.add_fault("drop", **APPROVE, work=arrange is keyless_and_unknown)
    with pytest.raises(CustodyOutcomeUnknownError, match=why) as caught:
        approver.approve()
    assert not caught.value.retryable
    assert "Trying again is safe" not in str(caught.value)
    assert approver.sent == 1


def test_an_older_text_with_an_older_signature_is_no_confirmation(approver: SignedInApprover) -> None:
    number = approver.create("a")
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
    match = f"the text of whitelisting request {number} has changed since it was signed"
    with pytest.raises(CustodyOutcomeUnknownError, match=match) as caught:
        approver.approve(number)
    assert not caught.value.retryable


def test_fewer_accepted_signatures_than_requests_are_no_success(approver: SignedInApprover) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.configure(max_signatures=1)
    with pytest.raises(
        CustodyOutcomeUnknownError, match=rf"(?s)1 signature for 2 requests.*{numbers[1]} \(no sig"
    ) as caught:
        approver.approve()
    assert numbers[0] not in str(caught.value.advice)
    assert not caught.value.retryable
    assert approver.signed == numbers[:1]
    # The next try signs the remaining requests.
    assert approver.approve(earlier_try=True) == 2
    assert approver.signed == numbers
    assert approver.sent == 2


# --- it is listed late -------------------------------------------------------------------------------------


def test_a_request_that_is_listed_late_is_waited_for(approver: SignedInApprover, waits: SkippingTime) -> None:
    approver.lookup_wait = 60
    approver.sandbox.control.configure(whitelist_lag=3600)
    number = approver.create()
    waits.after(20, lambda: approver.sandbox.control.configure(whitelist_lag=0))
    assert approver.approve() == 1
    assert approver.signed == [number]


@pytest.mark.parametrize("earlier_try", [False, True])
def test_a_request_that_is_never_listed_is_refused_after_the_wait(
    approver: SignedInApprover, earlier_try: bool, waits: SkippingTime
) -> None:
    approver.lookup_wait = 60
    number = approver.create()
    skipped = waits.skipped
    with pytest.raises(CustodyNotFoundError, match=r"no whitelisting request 9999 \(not listed within 60 s\); nothing"):
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


# --- an earlier try ----------------------------------------------------------------------------------------

#: What the service may say of this user: not offered, without an external id, or with that of another.
USERS: list[dict[str, Any]] = [
    {"status": 404},
    {"status": 200, "body": {"result": {"id": "101", "tenantId": "1"}}},
    {"status": 200, "body": {"result": {"id": "101", "tenantId": "1", "externalUserId": "bob@example.test"}}},
]


@pytest.mark.parametrize("user", USERS, ids=["not offered", "no external id", "another's external id"])
def test_its_signature_is_found_by_key_whatever_the_users_details(
    approver: SignedInApprover, user: dict[str, Any]
) -> None:
    numbers = [approver.create("a"), approver.create("b")]
    approver.sandbox.control.add_fault("status", path="/users/me", times=None, **user)
    approver.sandbox.control.add_fault("drop", **APPROVE, work=True)
    assert approver.approve() == 2
    assert approver.signed == numbers
    assert approver.approve(earlier_try=True) == 2
    with pytest.raises(CustodyConflictError, match="not pending this user's signature"):
        approver.approve(expected=None)
    assert approver.sent == 1


def test_without_a_public_key_and_an_external_id_a_signature_is_not_recognized(
    approver: SignedInApprover, caplog: pytest.LogCaptureFixture
) -> None:
    approver.create()
    approver.signer = KeylessSigner(approver)
    approver.sandbox.control.add_fault("status", path="/users/me", times=None, **USERS[0])
    assert approver.approve() == 1
    assert "recognized only by the signer's public key" in caplog.text
    with pytest.raises(CustodyConflictError, match="does not return this user's external id") as caught:
        approver.approve(earlier_try=True, expected=None)
    assert not caught.value.retryable
    assert approver.sent == 1


#: How signatures are shown, with the hash of the request in place of HASH; whether they are this user's for a signer
#: with a public key, and why not.
HASH = "its hash"
NOT_ITS_KEY = "does not verify"
NOBODYS = "not pending this user's signature"
SHOWN: list[tuple[dict[str, Any], str | None, Any]] = [
    ({"hashes": ["1" * 64, HASH]}, None, None),
    ({"hashes": ["0" * 64]}, "does not cover its current hash", "does not cover its current hash"),
    # A signature that covers another list of hashes than the list that is shown with it.
    ({"hashes": ["0" * 64], "claims": ["0" * 64, HASH]}, NOT_ITS_KEY, None),
    ({"signature": "x"}, NOBODYS, NOBODYS),
    ({"key": "another's"}, NOT_ITS_KEY, None),
    # The signature has another name: by its key it is this user's, by its name it is another user's.
    ({"user": "bob@example.test"}, None, NOBODYS),
    ({"user": ""}, None, NOBODYS),
    ({"user": "bob@example.test", "hashes": ["1" * 64]}, "does not cover its current hash", NOBODYS),
    ({"user": "somebody@example.test", "key": "another's"}, NOBODYS, NOBODYS),
    ({"entry": {}}, NOBODYS, NOBODYS),
    ({"entry": {"signature": {"userId": "u", "signature": "A"}, "hashes": ["x"]}, "times": 300}, "than 200 sig", ...),
]


@pytest.mark.parametrize(("shown", "by_key", "by_name"), SHOWN, ids=lambda each: str(each)[:70])
def test_an_earlier_signature_counts_by_key_or_else_by_name(
    approver: SignedInApprover, shown: dict[str, Any], by_key: str | None, by_name: Any
) -> None:
    number = approver.create()
    hash_ = current_hash(approver, number)

    def hashes(name: str) -> list[str]:
        return [hash_ if each == HASH else each for each in shown.get(name, [HASH])]

    key = ec.generate_private_key(ec.SECP256R1()) if "key" in shown else None
    entry = signing(approver, hashes("hashes"), key=key)
    entry["signature"]["userId"] = shown.get("user", approver.person.external_id)
    entry["signature"]["signature"] = shown.get("signature", entry["signature"]["signature"])
    entry["hashes"] = hashes("claims" if "claims" in shown else "hashes")
    entry = shown.get("entry", entry)
    show_signed(approver, number, *[entry] * shown.get("times", 1))
    for signer, why in ((approver.signer, by_key), (KeylessSigner(approver), by_key if by_name is ... else by_name)):
        approver.signer = signer
        if why is None:
            assert approver.approve(earlier_try=True) == 1
        else:
            error = CustodyResponseError if "cannot" in why or "than" in why else CustodyConflictError
            with pytest.raises(error, match=why):
                approver.approve(earlier_try=True, expected=None)
    assert approver.sent == 0


# --- nothing to sign ---------------------------------------------------------------------------------------

TWO = [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}]


@pytest.mark.parametrize("earlier_try", [False, True])
def test_only_requests_that_need_a_signature_are_signed(
    approver: SignedInApprover, earlier_try: bool, caplog: pytest.LogCaptureFixture
) -> None:
    control = approver.sandbox.control
    control.set_approvers(TWO)
    signed = approver.create("a")
    approver.approve()
    in_effect, pending = approver.create("b"), approver.create("c")
    control.set_whitelist_status(in_effect, "APPROVED")
    with caplog.at_level("INFO"):
        assert approver.approve(earlier_try=earlier_try) == 3
    sent = [call["body"]["ids"] for call in control.request_log(**APPROVE)]
    assert sent == [[signed], [pending]]
    assert f"Already signed: {signed}" in caplog.text
    assert f"Already in effect (status APPROVED): {in_effect}" in caplog.text
    # In the next run, no request is left to sign.
    approver.signer = NoSigner()
    assert approver.approve() == 3
    assert approver.sent == 2


def set_status(status: str) -> Callable[[SignedInApprover, str], object]:
    return lambda approver, number: approver.sandbox.control.set_whitelist_status(number, status)


def change(approver: SignedInApprover, number: str) -> None:
    approver.expected[number] = approver.expected[number].model_copy(update={"label": "Other"})


NEEDED: list[tuple[Callable[[SignedInApprover, str], object], str]] = [
    (set_status("rejected"), "(?s)not pending this user's signature.*Remove their ids, and sign the other requests"),
    (set_status("frozen"), "not pending this user's signature"),
    (change, r"label \(.*\);.* nothing was signed"),
]


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "in effect"])
@pytest.mark.parametrize(("happens", "why"), NEEDED, ids=["rejected", "odd status", "other content"])
def test_a_request_decided_in_another_way_is_refused(
    approver: SignedInApprover, happens: Callable[[SignedInApprover, str], object], why: str, is_signed: bool
) -> None:
    number = approver.create()
    approver.sandbox.control.set_approvers(TWO)
    if is_signed:
        approver.approve()
    else:
        approver.sandbox.control.set_whitelist_status(number, "APPROVED")
    happens(approver, number)
    approver.signer = NoSigner()
    with pytest.raises((CustodyConflictError, CustodyRequestError), match=why):
        approver.approve()
