from __future__ import annotations

from collections.abc import Iterator

import pytest
from people import Person

from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.client.progress import Progress, find_listed, judge_progress
from airflow_custody.sandbox import Sandbox

LISTING = {"method": "GET", "path": "/whitelists/addresses"}
FOR_APPROVAL = {"method": "GET", "path": "/whitelists/addresses/for-approval"}


@pytest.fixture
def ann(sandbox: Sandbox) -> Iterator[CustodyClient]:
    """The client of an approver."""
    with CustodyClient(sandbox.url, Person(sandbox, "ann", "approvers").token, max_retries=0) as client:
        yield client


@pytest.fixture
def numbers(ann: CustodyClient) -> list[str]:
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    return [ann.create_whitelist_request(request) for _ in range(4)]


def states(client: CustodyClient, numbers: list[str]) -> list[str]:
    found = find_listed(client, numbers)
    return [judge(found[number]).state for number in numbers]


def judge(listed: object, **words: object) -> Progress:
    return judge_progress(listed, **{"effective_statuses": None, "rejected_statuses": ["rejected"], **words})


def test_each_is_told_apart(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]):
    for number, status in zip(numbers, ["active", "waiting", "rejected", "removed"], strict=True):
        sandbox.control.set_whitelist_status(number, status)
    assert states(ann, [*numbers, "9999"]) == ["effective", "waiting", "rejected", "gone", "gone"]
    assert find_listed(ann, []) == {}


def test_what_takes_effect_between_the_calls_has_not_gone(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]):
    sandbox.control.set_whitelist_status(numbers[0], "active")
    sandbox.control.order_fault("status", status=200, body={}, **LISTING)
    assert states(ann, numbers[:2]) == ["waiting", "waiting"]


def test_what_still_waits_for_the_user_is_not_in_effect_wherever_it_is_listed(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str]
):
    shown = {"result": [{"id": number, "status": "new word"} for number in numbers[:2]], "totalItems": "2"}
    sandbox.control.set_whitelist_status(numbers[1], "active")
    sandbox.control.order_fault("status", status=200, body=shown, **LISTING)
    assert states(ann, numbers[:2]) == ["waiting", "effective"]


@pytest.mark.parametrize("status", [403, 404, 405])
def test_somebody_for_whom_nothing_waits_sees_what_is_in_effect(sandbox, ann, numbers, status: int):
    sandbox.control.set_whitelist_status(numbers[0], "active")
    sandbox.control.order_fault("status", status=status, **FOR_APPROVAL)
    assert states(ann, numbers[:1]) == ["effective"]


@pytest.mark.parametrize(
    "fault",
    [{"kind": "status", "status": 500}, {"kind": "drop"}, {"kind": "html", "status": 404}, {"kind": "html"}],
    ids=str,
)
def test_without_the_list_of_what_waits_nothing_is_in_effect(sandbox, ann, numbers, fault):
    sandbox.control.set_whitelist_status(numbers[0], "active")
    sandbox.control.order_fault(fault.pop("kind"), **fault, **FOR_APPROVAL)
    with pytest.raises(CustodyError):
        find_listed(ann, numbers[:1])


def test_words_can_be_asked_for(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]):
    sandbox.control.set_whitelist_status(numbers[0], "active")
    listed = find_listed(ann, numbers[:1])[numbers[0]]
    assert judge(listed, effective_statuses=["ACTIVE"]).state == "effective"
    assert judge(listed, effective_statuses=["confirmed"]).state == "waiting"
    assert judge(listed, rejected_statuses=["Active"]).state == "rejected"
