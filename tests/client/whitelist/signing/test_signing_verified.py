"""With pinned keys, nothing is signed whose rules or earlier signatures do not verify."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.keys.attacks import ATTACKS, Unsuitable, attack
from support.service.people import ROLES, Person, pem_of, public_pem_of
from support.service.request_signing import (
    APPROVE,
    LISTING,
    ChangingSigner,
    KeylessSigner,
    NoSigner,
    SignedInApprover,
    current_hash,
    signing,
)
from support.service.sandbox_api import Api

from airflow_custody.client import (
    CustodyClient,
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyError,
    CustodyOutcomeUnknownError,
)
from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist import ids as ids_module
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.sandbox import Sandbox

RULES = {"method": "GET", "path": "/rules"}


class Approvers:
    """Three approvers, who have pinned the super-administrators' keys."""

    def __init__(self, sandbox: Sandbox, *, minimum: int = 2, **pins: Any) -> None:
        self.sandbox = sandbox
        self._clients = []
        people = [Person(sandbox, name, "approvers") for name in ("ann", "bob", "cat")]
        group = {"externalGroupID": "approvers", "minimumSignatures": minimum}
        sandbox.control.set_approvers([{"sequential": [group]}])
        for person in people:
            given = {**sandbox.control.pins(), **pins}
            self._clients.append(CustodyClient(sandbox.url, person.token, timeout=60, max_retries=0, **given))
        self.ann, self.bob, self.cat = (
            SignedInApprover(sandbox, person, client) for person, client in zip(people, self._clients, strict=True)
        )
        # What one has created, all know.
        self.bob.expected = self.cat.expected = self.ann.expected

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def forge(self, number: str) -> None:
        """Make the service show a signature of bob that bob has not made, after the real ones."""
        entry = signing(self.ann, [current_hash(self.ann, number)], key=new_key(), user=self.bob.person.external_id)
        shown = self.ann.client.get_whitelist_request(number).wire.get("signedAddress") or {}
        signatures = [*(shown.get("signatures") or []), entry]
        self.sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": signatures})


def new_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(params=[True, False], ids=["rules shown", "rules not shown"])
def approvers(sandbox: Sandbox, request: pytest.FixtureRequest) -> Iterator[Approvers]:
    """Approvers at a service that shows rules on pending requests, or does not: which is not published."""
    made = Approvers(sandbox)
    sandbox.control.configure(rules_on_pending=request.param)
    yield made
    made.close()


def described(text: str) -> list[str]:
    return re.findall(r"Existing signatures, verified: .*", text)


def test_what_is_signed_says_whose_signatures_are_there(approvers: Approvers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    numbers = [approvers.ann.create("a"), approvers.ann.create("b")]
    assert approvers.bob.approve() == 2
    rules = r"rules [0-9a-f]{12}, of 20\d\d-\d\d-\d\dT\S*Z\."
    none_yet = f"Existing signatures, verified: none; {rules}"
    assert [bool(re.fullmatch(none_yet, each)) for each in described(caplog.text)] == [True, True]
    caplog.clear()
    assert approvers.ann.approve() == 2
    bob = re.escape(approvers.bob.person.external_id)
    assert all(re.fullmatch(f"Existing signatures, verified: {bob}; {rules}", each) for each in described(caplog.text))
    assert len(described(caplog.text)) == 2
    assert approvers.ann.signed == approvers.bob.signed == numbers
    assert "the service is trusted" not in caplog.text


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("pinned", "others"), [(0, 2), (1, 1), (2, 0)])
def test_rules_that_are_not_signed_as_pinned(sandbox: Sandbox, pinned: int, others: int, signed: bool) -> None:
    keys = sandbox.control.pins()["superadmin_keys"][:pinned] + [public_pem_of(new_key()) for _ in range(others)]
    # Those that are signed are from before a date.
    approvers = Approvers(sandbox, superadmin_keys=keys, rules_not_before=None if others else 4_000_000_000)
    number = approvers.ann.create()
    if signed:
        with CustodyClient(sandbox.url, approvers.bob.person.token) as unpinned:
            approvers.bob.client = unpinned
            approvers.bob.approve()
    approvers.ann.signer = NoSigner()
    sandbox.control.clear_request_log()
    with pytest.raises(CustodyVerificationError, match=rf"{number}.*; nothing was signed") as caught:
        approvers.ann.approve()
    assert not caught.value.retryable
    assert ("rules_not_before" in str(caught.value)) is (not others)
    assert f"`custody whitelist verify --id {number}` reports what is verified." in str(caught.value.advice)
    assert caught.value.operation == "sign whitelisting requests"
    assert approvers.ann.sent == 0
    approvers.close()


@pytest.mark.parametrize("owner", ["bob", "nobody"])
def test_another_users_key_is_refused_before_anything_is_signed(approvers: Approvers, owner: str) -> None:
    ann, bob = approvers.ann, approvers.bob
    number = ann.create()
    pem = bob.person.pem if owner == "bob" else pem_of(new_key())
    ann.signer = PemSigner(lambda: pem, name="custody_ann_key")
    whose = bob.person.external_id if owner == "bob" else "no user"
    text = (
        f"sign whitelisting requests failed: according to the rules of whitelisting request {number}, the signing key "
        f"'custody_ann_key' belongs to {whose}, not to {ann.person.external_id}; nothing was signed"
    )
    with pytest.raises(CustodyConfigurationError, match=f"^{text}") as caught:
        ann.approve()
    assert caught.value.code == "signing-failed"
    assert caught.value.retryable is False
    assert ann.sent == 0


def test_it_is_verified_again_right_before_it_is_signed(approvers: Approvers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "MAX_PAGE_SIZE", 1)
    ann = approvers.ann
    one, two = (ann.create(letter) for letter in "ab")
    ann.signer = ChangingSigner(ann, lambda: approvers.forge(two))
    with pytest.raises(CustodyVerificationError, match=rf"{two}.*; nothing of this batch was signed"):
        ann.approve()
    assert ann.signed == [one]
    assert ann.sent == 1


@pytest.mark.parametrize("change", [lambda each: each, KeylessSigner], ids=["by key", "by name"])
def test_what_an_earlier_try_signed_is_verified_too(approvers: Approvers, change: Callable[..., Any]) -> None:
    number = approvers.ann.create()
    if change is KeylessSigner:
        approvers.ann.signer = KeylessSigner(approvers.ann)
    approvers.sandbox.control.add_fault("drop", **APPROVE, work=True)
    assert approvers.ann.approve() == 1
    assert approvers.ann.approve(earlier_try=True) == 1
    approvers.forge(number)
    with pytest.raises(CustodyVerificationError, match=rf"{number}.*; this user has signed it already"):
        approvers.ann.approve(earlier_try=True)
    assert approvers.ann.sent == 1


def test_what_the_old_key_has_signed_is_in_effect_or_is_not_signed_any_more(approvers: Approvers) -> None:
    ann, bob, person = approvers.ann, approvers.bob, approvers.ann.person
    effective, half, untouched = (ann.create(letter) for letter in "abc")
    assert ann.approve(effective, half) == 2
    assert bob.approve(effective) == 1
    old, person.key = person.key, new_key()
    # The worker still has the old key, which the service does not know any more.
    approvers.sandbox.control.add_user(
        person.name, ROLES, user_id=person.id, groups=["approvers"], public_key=public_pem_of(person.key)
    )
    assert person.pem == pem_of(old)
    with pytest.raises(CustodyConfigurationError, match=r"the signing key .* belongs to .*, not to "):
        ann.approve(untouched)
    person.pem = pem_of(person.key)
    assert ann.approve(untouched) == bob.approve(untouched) == 1
    assert ann.client.verifier is not None
    for number in (effective, untouched):
        assert len(ann.client.verifier.verify(ann.client.get_whitelist_request(number).wire).user_ids) == 2
    with pytest.raises(CustodyVerificationError, match=rf"{half} is not verified: .*; nothing was signed"):
        bob.approve(half)


def test_what_is_in_effect_is_still_found_by_a_later_try(approvers: Approvers) -> None:
    number = approvers.ann.create()
    assert approvers.bob.approve() == approvers.ann.approve() == 1
    assert approvers.ann.client.verifier is not None
    verified = approvers.ann.client.verifier.verify(approvers.ann.client.get_whitelist_request(number).wire)
    assert set(verified.user_ids) == {approvers.ann.person.external_id, approvers.bob.person.external_id}
    assert approvers.ann.approve(earlier_try=True) == approvers.bob.approve(earlier_try=True) == 1
    # Also if somebody else has signed it.
    approvers.cat.signer = NoSigner()
    assert approvers.cat.approve(number) == 1
    with pytest.raises(CustodyConflictError, match="not pending"):
        approvers.ann.approve(expected=None)


def test_a_lost_response_is_not_cleared_up_by_what_does_not_verify(approvers: Approvers) -> None:
    number = approvers.ann.create()

    def lie() -> None:
        approvers.sandbox.control.configure(rules_on_pending=True)
        attack(approvers.sandbox.control, approvers.sandbox.token, number, "changed rules")

    approvers.ann.signer = ChangingSigner(approvers.ann, lie)
    approvers.sandbox.control.add_fault("drop", **APPROVE, work=True)
    with pytest.raises(
        CustodyOutcomeUnknownError, match=r"checking at the service failed: .*is not verified"
    ) as caught:
        approvers.ann.approve()
    assert not caught.value.retryable


@pytest.mark.parametrize("signatures", [0, 2])
def test_what_is_listed_for_approval_and_said_to_be_in_effect(
    approvers: Approvers, sandbox: Sandbox, signatures: int
) -> None:
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 3}]}])
    sandbox.control.configure(rules_on_pending=True)
    ann = approvers.ann
    number = ann.create()
    for other in (approvers.bob, approvers.cat)[:signatures]:
        other.approve()
    sandbox.control.set_whitelist_envelope(number, status="APPROVED")
    sandbox.control.clear_request_log()
    ann.signer = NoSigner()
    match = rf"{number} is not verified: .*as in effect \(status APPROVED\); nothing was signed"
    with pytest.raises(CustodyVerificationError, match=match) as caught:
        ann.approve()
    assert caught.value.retryable is False
    assert ann.sent == 0
    # Without pins, too: it is not known whether this signature would approve a deletion.
    with (
        CustodyClient(sandbox.url, ann.person.token) as ann.client,
        pytest.raises(CustodyConflictError, match=r"listed as settled .* with the action 'create'"),
    ):
        ann.approve()
    assert ann.sent == 0


def test_a_request_in_effect_whose_last_signature_is_listed_late_is_read_again(
    approvers: Approvers, sandbox: Sandbox
) -> None:
    number = approvers.ann.create()
    approvers.bob.approve()
    sandbox.control.set_whitelist_status(number, "APPROVED")
    late = Api(sandbox.url, approvers.ann.person.token).get("/whitelists/addresses").json()
    sandbox.control.set_whitelist_status(number, "pending")
    approvers.cat.approve()
    # The first reading: after the requests for approval, the settled requests, and all of them.
    sandbox.control.add_fault("status", body=late, skip=1, times=2, **LISTING)
    approvers.ann.signer = NoSigner()
    assert approvers.ann.approve() == 1


@pytest.mark.parametrize("earlier_try", [False, True])
def test_an_address_that_nobody_signed_is_named(approvers: Approvers, earlier_try: bool) -> None:
    number = approvers.ann.create()
    approvers.sandbox.control.set_whitelist_status(number, "APPROVED")
    with pytest.raises(
        CustodyVerificationError,
        match=rf"{number} is not verified: .*as in effect \(status APPROVED\).*nothing was sig",
    ):
        approvers.ann.approve(earlier_try=earlier_try)
    # What was really signed by others needs no signature; what was rejected is not pending.
    signed, rejected = approvers.ann.create("b"), approvers.ann.create("c")
    approvers.bob.approve(signed)
    approvers.cat.approve(signed)
    approvers.sandbox.control.set_whitelist_status(rejected, "rejected")
    assert approvers.ann.approve(signed, earlier_try=earlier_try) == 1
    with pytest.raises(CustodyConflictError, match="not pending this user's signature"):
        approvers.ann.approve(rejected, earlier_try=earlier_try)


def test_the_error_names_the_group_that_is_waiting_and_who_has_signed(sandbox: Sandbox, approvers: Approvers) -> None:
    eve = Person(sandbox, "eve", "others")
    waiting, decided = approvers.ann.create(), approvers.ann.create("b")
    approvers.bob.approve()
    approvers.cat.approve(decided)
    pinned, bob = sandbox.control.pins(), approvers.bob.person.external_id
    facts = {
        "verified": f"status pending; waiting for approvers (1 of 2); signed by {bob}; no signature of this user",
        "listed": f"status pending; the service lists signatures of {bob}; no signature of this user",
    }
    for pins, fact in ((pinned, facts["verified"]), ({}, facts["listed"])):
        with CustodyClient(sandbox.url, eve.token, **pins) as client:
            signer = RequestSigner(client, NoSigner(), log=logging.getLogger(__name__), lookup_wait=0.1)
            with pytest.raises(CustodyConflictError) as caught:
                signer.sign([waiting, decided], None, "checked")
        message = str(caught.value)
        assert f"{waiting} ({fact})" in message
        assert f"{decided} (status APPROVED; in effect; no signature of this user)" in message


#: The attacks that change nothing of what an approver signs, and nothing of the signatures that are there. The signer
#: outside of the group has really signed; thresholds decide later.
HARMLESS = {
    *("payload", "older rules", "weaker approvers", "swapped network"),
    *("bad key of somebody else", "signer outside of the group", "one user repeated"),
    # The rules in force are used instead.
    "no rules",
}


@pytest.mark.parametrize("compared", [True, False])
def test_whatever_a_malicious_service_shows(sandbox: Sandbox, compared: bool) -> None:
    approvers = Approvers(sandbox, minimum=3)
    ann = approvers.ann
    ann.lookup_wait = 0.1
    carried_out = 0
    for name in ATTACKS:
        ann.expected.clear()
        number = ann.create()
        hash_ = current_hash(ann, number)
        assert approvers.bob.approve() == approvers.cat.approve() == 1
        try:
            attack(sandbox.control, sandbox.token, number, name)
        except Unsuitable:
            # It takes another kind of request.
            continue
        carried_out += 1
        sandbox.control.clear_request_log()
        if name in HARMLESS and not (compared and name == "swapped network"):
            assert ann.approve(**({} if compared else {"expected": None})) == 1
        else:
            with pytest.raises(CustodyError) as caught:
                ann.approve(**({} if compared else {"expected": None}))
            assert caught.value.retryable is False, name
            assert ann.sent == 0, name
        sandbox.control.set_whitelist_envelope(number)
        # Whatever it is that ann has signed: it is what ann was asked to sign.
        signings = ann.client.get_whitelist_request(number).signings
        assert {tuple(each.hashes) for each in signings} == {(hash_,)}
    assert carried_out > 30
    approvers.close()
