from __future__ import annotations

import json
from typing import Any

import pytest
from clocks import Clock
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import WhitelistEnvelope
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.group_progress import GroupProgress
from airflow_custody.client.whitelist.progress import ListedRequest

STATES = ["APPROVED", "pending", "rejected", "odd", None]


def listed(number: str, status: str | None) -> ListedRequest:
    """Return where a request is listed; without a status it is not."""
    envelope = None if status is None else WhitelistEnvelope({"id": number, "status": status})
    return ListedRequest(envelope, settled=status not in ("pending", "rejected", None))


def group_of(number: int, **changes: Any) -> GroupProgress:
    words = {"effective_statuses": EFFECTIVE_STATUSES, "rejected_statuses": REJECTED_STATUSES}
    return GroupProgress([str(each) for each in range(number)], **{**words, **changes})


def poll(group: GroupProgress, *statuses: str | None) -> None:
    """Poll what is open; the statuses are those of all."""
    group.begin_poll()
    group.update({each: group.judge(listed(each, statuses[int(each)])) for each in group.to_poll})


def test_a_summary_counts_each_state_and_names_ten() -> None:
    group = group_of(15)
    assert group.summary().startswith("0 of 15 whitelisting requests are in effect (15 not looked up yet); not yet: 0")
    poll(group, "APPROVED", None, "odd", *["pending"] * 12)
    assert group.summary() == (
        "1 of 15 whitelisting requests is in effect (12 pending approval, 1 not listed, 1 with a status that is not "
        "known); not yet: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 4 more"
    )
    assert group.to_poll == [str(each) for each in range(1, 15)]
    assert group.lagging == ["1"]
    assert not group.is_done


def test_all_in_one_poll_need_no_confirmation() -> None:
    group = group_of(2)
    poll(group, "APPROVED", "approved")
    assert group.is_done
    assert not group.confirm()
    assert group.summary() == "2 of 2 whitelisting requests are in effect"
    assert group.to_json() == {
        "state": "effective",
        "count": 2,
        "statuses": {"APPROVED": 1, "approved": 1},
        "verified": 0,
    }
    json.dumps(group.to_json())


def test_what_was_in_effect_in_different_polls_is_confirmed() -> None:
    group = group_of(2)
    poll(group, "APPROVED", "pending")
    poll(group, "APPROVED", "APPROVED")
    assert not group.is_done
    assert group.confirm()
    assert group.to_poll == ["0", "1"]
    # Deleted in between.
    poll(group, None, "APPROVED")
    assert not group.is_done
    assert not group.confirm()
    assert group.to_poll == ["0"]
    poll(group, "APPROVED", "APPROVED")
    # At no poll both were.
    assert not group.is_done
    assert group.confirm()
    poll(group, "APPROVED", "APPROVED")
    assert group.is_done


def test_all_that_will_not_take_effect_are_named_up_to_ten() -> None:
    group = group_of(20)
    poll(group, *["rejected"] * 12, *["pending"] * 8)
    failure = str(group.failure())
    assert failure.startswith(
        "12 of 20 whitelisting requests will not take effect: whitelisting request 0 was rejected"
    )
    assert failure.endswith("; and 2 more [custody/request-rejected]")
    assert failure.count("was rejected") == 10


def test_each_has_its_own_time_of_being_missing() -> None:
    clock = Clock()
    group = group_of(2, clock=clock, gone_after=30)
    poll(group, None, "pending")
    clock.now = 20
    poll(group, None, None)
    assert group.patience == 10
    assert group.failure() is None
    clock.now = 31
    poll(group, None, None)
    assert str(group.failure()) == (
        "1 of 2 whitelisting requests will not take effect: whitelisting request 0 does not exist: it has not been "
        "listed for 31 s [custody/request-rejected]"
    )
    group.forget_lagging(["0", "7"])
    poll(group, None, None)
    assert group.failure() is None
    clock.now = 52
    group.forget_lagging()
    poll(group, None, None)
    assert group.failure() is None


def test_a_status_that_is_not_known_is_named_once() -> None:
    group = group_of(3)
    poll(group, "odd", "odd", "even")
    assert len(list(group.unknown_statuses())) == 2
    assert list(group.unknown_statuses()) == []


@given(st.lists(st.lists(st.sampled_from(["APPROVED", *STATES]), min_size=3, max_size=3), max_size=6))
def test_it_is_done_only_when_one_poll_found_all_in_effect(polls: list[list[str | None]]) -> None:
    group, seen = group_of(3), dict[int, int]()
    for number, statuses in enumerate(polls):
        poll(group, *statuses)
        if group.failure():
            assert "rejected" in statuses
            return
        for each in range(3):
            if statuses[each] == "APPROVED":
                seen.setdefault(each, number)
        assert group.is_done is (list(seen.values()) == [number] * 3)
        if group.is_done:
            return
        assert group.confirm() is (len(seen) == 3)
        if len(seen) == 3:
            seen = {}


@pytest.mark.parametrize("number", [1, 5000])
def test_the_result_does_not_grow(number: int) -> None:
    group = group_of(number)
    poll(group, *["APPROVED"] * number)
    assert len(json.dumps(group.to_json())) < 100
