"""
With pinned keys, nothing is signed whose rules or earlier signatures do not verify.

Pending requests may be listed without rules. Then the rules in force verify them, for signing and for plans.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.keys.attacks import ATTACKS, Unsuitable, attack
from support.service.people import Person, pem_of, public_pem_of
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
from support.whitelist.whitelist_plans import ask, rows_of

from airflow_custody.client import (
    CustodyClient,
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyServerError,
)
from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist import ids as ids_module
from airflow_custody.client.whitelist.plans.plan import PlanRow
from airflow_custody.client.whitelist.plans.planner import make_plan
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.client.whitelist.snapshot import read_snapshot
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
        # Everyone knows the request that one of them has created.
        self.bob.expected = self.cat.expected = self.ann.expected

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def create_signed(self, letter: str = "a") -> str:
        """Return a request that bob has signed."""
        number = self.ann.create(letter)
        assert self.bob.approve(number) == 1
        self.sandbox.control.clear_request_log()
        return number

    @property
    def rules_read(self) -> int:
        """The number of calls that read the rules in force."""
        return len(self.sandbox.control.request_log(**RULES))

    def plan(self, *letters: str) -> list[PlanRow]:
        requests = [ask(address="0x" + each * 40) for each in letters]
        return list(make_plan(rows_of(*requests), read_snapshot(self.ann.client)).rows)

    def forge(self, number: str) -> None:
        """Make the service show a signature of bob that bob has not made, after the real ones."""
        entry = signing(self.ann, [current_hash(self.ann, number)], key=new_key(), user=self.bob.person.external_id)
        shown = self.ann.client.get_whitelist_request(number).wire.get("signedAddress") or {}
        signatures = [*(shown.get("signatures") or []), entry]
        self.sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": signatures})


def new_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(params=[True, False], ids=["rules shown", "rules not shown"])
def rules_shown(request: pytest.FixtureRequest) -> bool:
    """Return whether the service lists the rules with pending requests, which is not published."""
    return bool(request.param)


@pytest.fixture
def approvers(sandbox: Sandbox, rules_shown: bool) -> Iterator[Approvers]:
    made = Approvers(sandbox)
    sandbox.control.configure(rules_on_pending=rules_shown)
    yield made
    made.close()


def test_the_log_names_the_verified_signers_and_the_rules(
    approvers: Approvers, rules_shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    numbers = [approvers.ann.create("a"), approvers.ann.create("b")]
    for approver, signers in ((approvers.bob, "none"), (approvers.ann, approvers.bob.person.external_id)):
        approvers.sandbox.control.clear_request_log()
        caplog.clear()
        assert approver.approve() == 2
        assert approver.signed == numbers
        described = (
            rf"Existing signatures, verified: {re.escape(signers)}; rules [0-9a-f]{{12}}, of 20\d\d-\d\d-\d\dT\S*Z\."
        )
        assert len(re.findall(described, caplog.text)) == 2
        assert approvers.rules_read == (0 if rules_shown else 1)
    assert "the service is trusted" not in caplog.text


@pytest.mark.parametrize(("pinned", "others"), [(1, 1), (2, 0)])
def test_rules_that_the_pinned_keys_have_not_signed_are_refused(sandbox: Sandbox, pinned: int, others: int) -> None:
    keys = sandbox.control.pins()["superadmin_keys"][:pinned] + [public_pem_of(new_key()) for _ in range(others)]
    # These rules were signed before the minimum date.
    approvers = Approvers(sandbox, superadmin_keys=keys, rules_not_before=None if others else 4_000_000_000)
    number = approvers.ann.create()
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


def test_a_request_is_verified_again_right_before_it_is_signed(
    approvers: Approvers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids_module, "MAX_PAGE_SIZE", 1)
    ann = approvers.ann
    one, two = (ann.create(letter) for letter in "ab")
    ann.signer = ChangingSigner(ann, lambda: approvers.forge(two))
    with pytest.raises(CustodyVerificationError, match=rf"{two}.*; nothing of this batch was signed"):
        ann.approve()
    assert ann.signed == [one]
    assert ann.sent == 1


@pytest.mark.parametrize("change", [lambda each: each, KeylessSigner], ids=["by key", "by name"])
def test_a_request_that_an_earlier_try_signed_is_verified_too(approvers: Approvers, change: Callable[..., Any]) -> None:
    number = approvers.ann.create()
    if change is KeylessSigner:
        approvers.ann.signer = KeylessSigner(approvers.ann)
    approvers.sandbox.control.add_fault("drop", **APPROVE, work=True)
    assert approvers.ann.approve() == 1
    assert approvers.ann.approve(earlier_try=True) == 1
    approvers.forge(number)
    with pytest.raises(CustodyVerificationError, match=rf"{number}.*; this user has already signed the request"):
        approvers.ann.approve(earlier_try=True)
    assert approvers.ann.sent == 1


def test_a_request_in_effect_needs_no_signature(approvers: Approvers) -> None:
    number = approvers.ann.create()
    assert approvers.bob.approve() == approvers.ann.approve() == 1
    assert approvers.ann.approve(earlier_try=True) == approvers.bob.approve(earlier_try=True) == 1
    # This is also true if others have signed it.
    approvers.cat.signer = NoSigner()
    assert approvers.cat.approve(number) == 1
    with pytest.raises(CustodyConflictError, match="not pending"):
        approvers.ann.approve(expected=None)


def test_a_request_that_does_not_verify_confirms_no_lost_response(approvers: Approvers) -> None:
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


def test_a_request_listed_for_approval_and_as_in_effect_is_refused(approvers: Approvers, sandbox: Sandbox) -> None:
    sandbox.control.configure(rules_on_pending=True)
    ann = approvers.ann
    number = ann.create()
    approvers.bob.approve()
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
def test_a_request_in_effect_without_signatures_is_refused(approvers: Approvers, earlier_try: bool) -> None:
    number = approvers.ann.create()
    approvers.sandbox.control.set_whitelist_status(number, "APPROVED")
    with pytest.raises(
        CustodyVerificationError,
        match=rf"{number} is not verified: .*as in effect \(status APPROVED\).*nothing was sig",
    ):
        approvers.ann.approve(earlier_try=earlier_try)


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


#: The attacks that change neither the content to sign nor the existing signatures. The signer
#: outside of the group has really signed; thresholds decide later.
HARMLESS = {
    *("payload", "older rules", "weaker approvers", "swapped network"),
    *("bad key of somebody else", "signer outside of the group", "one user repeated"),
    # The rules in force are used instead.
    "no rules",
}


def test_an_attack_by_the_service_changes_nothing_that_is_signed(sandbox: Sandbox) -> None:
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
            # This attack needs another kind of request.
            continue
        carried_out += 1
        sandbox.control.clear_request_log()
        if name in HARMLESS:
            assert ann.approve(expected=None) == 1
        else:
            with pytest.raises(CustodyError) as caught:
                ann.approve(expected=None)
            assert caught.value.retryable is False, name
            assert ann.sent == 0, name
        sandbox.control.set_whitelist_envelope(number)
        # Any text that ann has signed is a text that ann was asked to sign.
        signings = ann.client.get_whitelist_request(number).signings
        assert {tuple(each.hashes) for each in signings} == {(hash_,)}
    assert carried_out > 30
    approvers.close()


# --- the rules in force ------------------------------------------------------------------------------------

NOT_SHOWN = pytest.mark.parametrize("rules_shown", [False], indirect=True)
FAULTS: list[Any] = [
    ({"status": 403}, "GET /rules"),
    (
        {"status": 200, "body": {"result": {"rulesContainer": "AAAA", "rulesSignatures": []}}},
        "0 of the 2 required pinned",
    ),
]


@NOT_SHOWN
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize(("fault", "why"), FAULTS, ids=lambda each: str(each)[:40])
def test_without_usable_rules_nothing_is_signed(
    approvers: Approvers, fault: dict[str, Any], why: str, is_signed: bool
) -> None:
    number = approvers.create_signed() if is_signed else approvers.ann.create("a")
    approvers.sandbox.control.clear_request_log()
    approvers.sandbox.control.add_fault("status", **RULES, times=None, **fault)
    approvers.ann.signer = NoSigner()
    match = (
        rf"{number} is not verified: the service returns it without rules.*{why}.*; nothing was signed\nWithout rules"
    )
    with pytest.raises(CustodyVerificationError, match=match) as caught:
        approvers.ann.approve()
    assert not caught.value.retryable
    assert approvers.rules_read == 1
    # A request that is only listed, and whose signatures do not matter, needs no rules.
    (row, other) = approvers.plan("a", "b")
    assert row.state == ("unverified" if is_signed else "pending")
    assert other.state == "create"
    assert ("the service returns it without rules, and the rules in force cannot be used" in row.note) is is_signed


@NOT_SHOWN
def test_an_unavailable_service_is_a_transient_failure(approvers: Approvers) -> None:
    approvers.create_signed()
    approvers.sandbox.control.add_fault("status", **RULES, status=503, times=None)
    for work in (approvers.ann.approve, approvers.plan):
        with pytest.raises(CustodyServerError) as caught:
            work()
        assert caught.value.retryable
    assert approvers.ann.sent == 0
