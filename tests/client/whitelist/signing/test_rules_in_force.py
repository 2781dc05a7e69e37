"""A service that shows no rules on pending requests: their signatures are verified by the rules in force."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.service.people import Person
from support.service.request_signing import NoSigner, SignedInApprover
from support.whitelist.whitelist_plans import ask, rows_of

from airflow_custody.client import CustodyClient, CustodyError
from airflow_custody.client.errors import CustodyServerError, CustodyVerificationError
from airflow_custody.client.verification.verifier import Verifier
from airflow_custody.client.whitelist.plans.plan import PlanRow
from airflow_custody.client.whitelist.plans.planner import make_plan
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.sandbox import Sandbox

RULES = {"method": "GET", "path": "/rules"}


class Service:
    """A service that shows no rules on pending requests, and two users of it who have pinned keys."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        people = [Person(sandbox, name, "approvers") for name in ("ann", "bob")]
        group = {"externalGroupID": "approvers", "minimumSignatures": 2}
        sandbox.control.set_approvers([{"sequential": [group]}])
        sandbox.control.configure(rules_on_pending=False)
        pins = sandbox.control.pins()
        self.clients = [CustodyClient(sandbox.url, each.token, timeout=60, max_retries=0, **pins) for each in people]
        self.ann, self.bob = map(SignedInApprover, [sandbox] * 2, people, self.clients)
        self.bob.expected = self.ann.expected

    def create_signed(self, letter: str = "a") -> str:
        """Return a request that bob has signed."""
        number = self.ann.create(letter)
        assert self.bob.approve(number) == 1
        self.sandbox.control.clear_request_log()
        return number

    @property
    def asked(self) -> int:
        """How often the rules in force were asked for."""
        return len(self.sandbox.control.request_log(**RULES))

    def plan(self, *letters: str) -> list[PlanRow]:
        requests = [ask(address="0x" + each * 40) for each in letters]
        return list(make_plan(rows_of(*requests), read_snapshot(self.ann.client)).rows)


@pytest.fixture
def service(sandbox: Sandbox) -> Iterator[Service]:
    made = Service(sandbox)
    yield made
    for client in made.clients:
        client.close()


def test_they_are_got_once_for_all_that_is_approved(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    numbers = [service.create_signed(each) for each in "ab"]
    assert service.ann.approve(*numbers) == 2
    assert service.asked == 1
    bob = re.escape(service.bob.person.external_id)
    assert len(re.findall(rf"Existing signatures, verified: {bob}; rules [0-9a-f]{{12}}, of 20", caplog.text)) == 2
    # Also for what nobody has signed.
    service.ann.create("c")
    service.sandbox.control.clear_request_log()
    caplog.clear()
    assert service.ann.approve(list(service.ann.expected)[-1]) == 1
    assert service.asked == 1
    assert re.search(r"Existing signatures, verified: none; rules [0-9a-f]{12}, of 20", caplog.text)


def test_requests_that_show_their_rules_need_no_others(service: Service) -> None:
    service.create_signed()
    service.sandbox.control.configure(rules_on_pending=True)
    (row,) = service.plan("a")
    assert row.state == "pending"
    assert service.asked == 0


FAULTS: list[Any] = [
    ({"status": 404}, "GET /rules"),
    ({"status": 403}, "GET /rules"),
    (
        {"status": 200, "body": {"result": {"rulesContainer": "AAAA", "rulesSignatures": []}}},
        "0 of the 2 required pinned",
    ),
    ({"status": 200, "body": {"result": {"rulesContainer": 5, "rulesSignatures": "x"}}}, "missing"),
]


@pytest.mark.parametrize("half", [{"rulesSignatures": "AAAA"}, {"rulesContainer": "", "rulesSignatures": "AAAA"}])
def test_half_of_the_rules_is_none(service: Service, half: dict[str, Any]) -> None:
    service.sandbox.control.set_whitelist_envelope(service.ann.create("a"), **half)
    service.ann.signer = NoSigner()
    with pytest.raises(CustodyVerificationError, match="are missing; nothing was signed"):
        service.ann.approve()


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize(("fault", "why"), FAULTS, ids=lambda each: str(each)[:40])
def test_without_them_nobody_signs_first(service: Service, fault: dict[str, Any], why: str, is_signed: bool) -> None:
    number = service.create_signed() if is_signed else service.ann.create("a")
    service.sandbox.control.clear_request_log()
    service.sandbox.control.add_fault("status", **RULES, times=None, **fault)
    service.ann.signer = NoSigner()
    match = (
        rf"{number} is not verified: the service returns it without rules.*{why}.*; nothing was signed\nWithout rules"
    )
    with pytest.raises(CustodyVerificationError, match=match) as caught:
        service.ann.approve()
    assert not caught.value.retryable
    assert service.asked == 1
    # What is only listed, and not relied on, needs none.
    (row, other) = service.plan("a", "b")
    assert row.state == ("unverified" if is_signed else "pending")
    assert other.state == "create"
    assert ("the service returns it without rules, and the rules in force cannot be used" in row.note) is is_signed


def test_a_service_that_is_away_is_not_one_without_rules(service: Service) -> None:
    service.create_signed()
    service.sandbox.control.add_fault("status", **RULES, status=503, times=None)
    for work in (service.ann.approve, service.plan):
        with pytest.raises(CustodyServerError) as caught:
            work()
        assert caught.value.retryable
    assert service.ann.sent == 0


def test_they_do_not_make_valid_what_is_not(service: Service) -> None:
    number = service.create_signed()
    service.sandbox.control.change_whitelist_request(number, label="Another")
    with pytest.raises(CustodyVerificationError, match="covers another text"):
        service.ann.approve(expected=None)
    assert [each.state for each in service.plan("a")] == ["unverified"]
    # Nor what is in effect, which must show those it was signed under.
    other = service.create_signed("b")
    assert service.ann.approve(other) == 1
    service.sandbox.control.set_whitelist_envelope(other, rulesContainer=None, rulesSignatures=None)
    assert [each.state for each in service.plan("b")] == ["unverified", "unverified"]


def test_a_plan_gets_them_once_and_only_if_needed(service: Service) -> None:
    service.ann.create("a")
    service.sandbox.control.clear_request_log()
    assert [each.state for each in service.plan("a")] == ["pending"]
    assert service.asked == 0
    service.create_signed("b")
    service.create_signed("c")
    assert [each.state for each in service.plan("a", "b", "c")] == ["pending"] * 3
    assert service.asked == 1


def test_the_first_failure_is_remembered(service: Service) -> None:
    from airflow_custody.client.verification.rules_in_force import verifier_for

    envelope = service.ann.client.get_whitelist_request(service.create_signed()).wire
    verifier = verifier_for(service.ann.client)
    assert verifier is not None
    service.sandbox.control.add_fault("status", **RULES, status=503, times=1)
    with pytest.raises(CustodyError):
        verifier.fetch_for([envelope])
    # What may pass is not kept.
    service.sandbox.control.add_fault("status", **RULES, status=404, times=1)
    verifier.fetch_for([envelope])
    verifier.fetch_for([envelope])
    with pytest.raises(CustodyVerificationError, match="without rules"):
        verifier.verify_signatures(envelope)
    again = Verifier(verifier.pins, rules_in_force=service.ann.client.get_rules())
    assert again.verify_signatures(envelope).user_ids
    assert service.asked == 3
