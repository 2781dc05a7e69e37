from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from people import Person

from airflow_custody.client import CustodyClient, CustodyError, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.progress import GracePeriod, ListedRequest, Progress, find_listed, judge_progress
from airflow_custody.sandbox import Sandbox

LISTING = {"method": "GET", "path": "/whitelists/addresses"}
FOR_APPROVAL = {"method": "GET", "path": "/whitelists/addresses/for-approval"}


@pytest.fixture
def ann(sandbox: Sandbox) -> Iterator[CustodyClient]:
    """Yield the client of an approver."""
    with CustodyClient(sandbox.url, Person(sandbox, "ann", "approvers").token, max_retries=0) as client:
        yield client


@pytest.fixture
def numbers(ann: CustodyClient) -> list[str]:
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    return [ann.create_whitelist_request(request) for _ in range(4)]


def states(client: CustodyClient, numbers: list[str]) -> list[str]:
    found = find_listed(client, numbers)
    return [judge(found[number]).state for number in numbers]


def judge(listed: Any, **statuses: Any) -> Progress:
    return judge_progress(listed, **{"effective_statuses": None, "rejected_statuses": ["rejected"], **statuses})


def test_each_state_is_recognized(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]) -> None:
    for number, status in zip(numbers, ["APPROVED", "pending", "rejected", "removed"], strict=True):
        sandbox.control.set_whitelist_status(number, status)
    assert states(ann, [*numbers, "9999"]) == ["effective", "pending", "rejected", "missing", "missing"]
    assert find_listed(ann, []) == {}


def test_a_request_that_takes_effect_between_the_calls_is_not_gone(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str]
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
    sandbox.control.add_fault("status", status=200, body={}, **LISTING)
    assert states(ann, numbers[:2]) == ["pending", "pending"]


def test_a_request_pending_for_the_user_is_not_in_effect_wherever_it_is_listed(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str]
) -> None:
    listing = {"result": [{"id": number, "status": "unknown"} for number in numbers[:2]], "totalItems": "2"}
    sandbox.control.set_whitelist_status(numbers[1], "APPROVED")
    sandbox.control.add_fault("status", status=200, body=listing, **LISTING)
    assert states(ann, numbers[:2]) == ["pending", "effective"]


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_user_who_cannot_list_approvals_sees_what_is_in_effect(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str], status: int
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
    sandbox.control.add_fault("status", status=status, **FOR_APPROVAL)
    assert states(ann, numbers[:1]) == ["effective"]


@pytest.mark.parametrize(
    "fault",
    [{"kind": "status", "status": 500}, {"kind": "drop"}, {"kind": "html", "status": 404}, {"kind": "html"}],
    ids=str,
)
def test_without_the_list_of_pending_requests_nothing_is_in_effect(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str], fault: dict[str, Any]
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
    sandbox.control.add_fault(fault.pop("kind"), **fault, **FOR_APPROVAL)
    with pytest.raises(CustodyError):
        find_listed(ann, numbers[:1])


def test_status_words_can_be_chosen(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]) -> None:
    sandbox.control.configure(status_words={"APPROVED": "Signed"})
    sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
    listed = find_listed(ann, numbers[:1])[numbers[0]]
    assert judge(listed, effective_statuses=["SIGNED"]).state == "effective"
    assert judge(listed, effective_statuses=["confirmed"]).state == "unknown"
    assert judge(listed, effective_statuses=[]).state == "unknown"
    assert judge(listed, effective_statuses=None).state == "effective"
    assert judge(listed, effective_statuses=None, rejected_statuses=["signed"]).state == "rejected"


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("APPROVED", "effective"),
        ("Approved", "effective"),
        ("REJECTED", "rejected"),
        ("declined", "rejected"),
        ("Expired", "rejected"),
        ("CANCELED", "rejected"),
        ("cancelled", "rejected"),
        ("active", "unknown"),
        ("approved ", "unknown"),
        ("suspended", "unknown"),
        ("ar\u017dchived", "unknown"),
        ("decl\u0131ned", "unknown"),
        ("expired\u017f", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_by_default_only_a_known_word_is_in_effect(word: str | None, state: str) -> None:
    words = {"effective_statuses": EFFECTIVE_STATUSES, "rejected_statuses": REJECTED_STATUSES}
    listed = ListedRequest(WhitelistEnvelope({"id": "7", "status": word}), settled=True)
    found = judge(listed, **words)
    assert found.state == state
    assert found.ended is (state == "rejected")
    if state == "unknown":
        assert repr(sanitize(word or "not given")) in found.summary("7")
        assert "effective_statuses" in found.summary("7")
        assert "rejected_statuses" in found.summary("7")
    pending = judge(ListedRequest(listed.envelope, settled=False), **words).state
    assert pending == ("rejected" if state == "rejected" else "pending")


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_only_the_service_itself_can_say_that_nothing_is_pending(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str], status: int
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
    sandbox.control.add_fault("status", path="/whitelists/addresses/for-approval", status=status)
    assert states(ann, numbers[:1]) == ["effective"]
    sandbox.control.add_fault("html", path="/whitelists/addresses/for-approval", status=status)
    with pytest.raises(CustodyError):
        states(ann, numbers[:1])


def test_a_request_is_gone_when_it_has_been_missing_in_a_row_for_long_enough() -> None:
    clock = iter([5, 34.9, 37, 66.9, 67, 70, 70])
    gone = GracePeriod(clock=lambda: next(clock))
    missing, pending = Progress("missing", None, 0), Progress("pending", "pending", 0)
    found = [gone.judge(each) for each in (missing, missing, pending, missing, missing, missing)]
    assert [each.state for each in found] == ["missing", "missing", "pending", "missing", "missing", "gone"]
    assert [each.ended for each in found] == [False] * 5 + [True]
    assert found[-1].summary("7") == "whitelisting request 7 does not exist: it has not been listed for 30 s"
    gone.reset()
    assert not gone.judge(missing).ended
    assert gone.judge(missing).summary("7") == "whitelisting request 7 is not listed, for 0 s so far"
