from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from people import Person

from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.client.whitelist.progress import Progress, find_listed, judge_progress
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
    for number, status in zip(numbers, ["active", "pending", "rejected", "removed"], strict=True):
        sandbox.control.set_whitelist_status(number, status)
    assert states(ann, [*numbers, "9999"]) == ["effective", "pending", "rejected", "gone", "gone"]
    assert find_listed(ann, []) == {}


def test_a_request_that_takes_effect_between_the_calls_is_not_gone(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str]
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "active")
    sandbox.control.add_fault("status", status=200, body={}, **LISTING)
    assert states(ann, numbers[:2]) == ["pending", "pending"]


def test_a_request_pending_for_the_user_is_not_in_effect_wherever_it_is_listed(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str]
) -> None:
    listing = {"result": [{"id": number, "status": "unknown"} for number in numbers[:2]], "totalItems": "2"}
    sandbox.control.set_whitelist_status(numbers[1], "active")
    sandbox.control.add_fault("status", status=200, body=listing, **LISTING)
    assert states(ann, numbers[:2]) == ["pending", "effective"]


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_user_who_cannot_list_approvals_sees_what_is_in_effect(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str], status: int
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "active")
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
    sandbox.control.set_whitelist_status(numbers[0], "active")
    sandbox.control.add_fault(fault.pop("kind"), **fault, **FOR_APPROVAL)
    with pytest.raises(CustodyError):
        find_listed(ann, numbers[:1])


def test_status_words_can_be_chosen(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "active")
    listed = find_listed(ann, numbers[:1])[numbers[0]]
    assert judge(listed, effective_statuses=["ACTIVE"]).state == "effective"
    assert judge(listed, effective_statuses=["confirmed"]).state == "pending"
    assert judge(listed, rejected_statuses=["Active"]).state == "rejected"


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_only_the_service_itself_can_say_that_nothing_is_pending(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str], status: int
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "active")
    sandbox.control.add_fault("status", path="/whitelists/addresses/for-approval", status=status)
    assert states(ann, numbers[:1]) == ["effective"]
    sandbox.control.add_fault("html", path="/whitelists/addresses/for-approval", status=status)
    with pytest.raises(CustodyError):
        states(ann, numbers[:1])
