"""How far requests have come where keys are pinned, and what is expected of those that are verified. No service."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import (
    CustodyConflictError,
    CustodyRequestError,
    CustodyVerificationError,
    VerifiedAddress,
    WhitelistEnvelope,
    WhitelistRequest,
)
from airflow_custody.client.verification.results import AppliedRule, GroupSignatures, VerifiedRules
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES, what_to_do
from airflow_custody.client.whitelist.expected import compare_listed
from airflow_custody.client.whitelist.group_progress import GroupProgress
from airflow_custody.client.whitelist.progress import (
    GracePeriod,
    ListedRequest,
    Progress,
    judge_progress,
    unverified_from_json,
    unverified_to_json,
    verified_facts,
)

WORDS: dict[str, Any] = {"effective_statuses": EFFECTIVE_STATUSES, "rejected_statuses": REJECTED_STATUSES}
FIELDS = {"currency": "ETH", "address": "0x1", "label": "L", "memo": "", "linkedWallets": [{"id": 7, "name": "hot"}]}
REQUEST = WhitelistRequest(label="L", address="0x1", blockchain="ETH", linked_wallet_ids=["7"])


def address(hash_: str = "ab", timestamp: int = 1767225600, **fields: Any) -> VerifiedAddress:
    group = GroupSignatures("ops", 2, ("alice", "bob"))
    rule = AppliedRule("ETH", "", None, (group, GroupSignatures("board", 1, ("bob",))))
    rules = VerifiedRules("cd" * 32, timestamp, ("ef" * 32,))
    return VerifiedAddress({**FIELDS, **fields}, False, hash_, rules, (rule,))


def envelope(status: str = "approved", **wire: Any) -> WhitelistEnvelope:
    return WhitelistEnvelope({"id": "7", "status": status, **wire})  # type: ignore[typeddict-item]


def unverified(status: str = "approved", settled: bool = True) -> ListedRequest:
    error = CustodyVerificationError("whitelisting request 7 is not verified: no signature", advice="Pin 'networks'.")
    return ListedRequest(envelope(status), settled, unverified=error)


@pytest.mark.parametrize(
    ("status", "settled", "state"),
    [
        ("approved", True, "unverified"),
        ("rejected", True, "rejected"),
        ("approved", False, "pending"),
        ("archived", True, "unknown"),
    ],
)
def test_only_what_would_be_in_effect_is_unverified(status: str, settled: bool, state: str) -> None:
    found = judge_progress(unverified(status, settled), **WORDS)
    assert found.state == state
    assert found.ended is (state == "rejected")


def test_an_unverified_request_fails_in_a_second_poll() -> None:
    clock = iter([0, 4.9, 5, 6, 7, 8])
    lag = GracePeriod(clock=lambda: next(clock))
    progress = judge_progress(unverified(), **WORDS)
    found = [lag.judge(progress) for _ in range(3)]
    assert [each.ended for each in found] == [False, False, True]
    assert [round(each.patience, 1) for each in found] == [5, 0.1, 0]
    error = found[-1].failure("7")
    assert isinstance(error, CustodyVerificationError)
    assert str(error) == (
        "whitelisting request 7 is not verified: the service says that it is in effect (status approved, "
        f"0 signatures), but no signature. Pin 'networks'. {what_to_do(['7'])} [custody/not-verified]"
    )
    # Missing in between: that has a time of its own.
    assert lag.judge(Progress("missing", None, 0)).patience == 30
    assert lag.judge(progress).ended
    # Pending in between, or a failed poll: it has not been verified.
    lag.judge(Progress("pending", None, 0))
    lag.reset()
    assert lag.unverified is progress
    assert lag.judge(progress).ended
    # Verified in between: from the beginning.
    lag.judge(Progress("effective", None, 0))
    assert lag.unverified is None
    assert isinstance(Progress("rejected", "rejected", 0).failure("7"), CustodyConflictError)


STATES = ["unverified", "missing", "pending", "unknown", "effective", "reset"]


@given(st.lists(st.sampled_from(STATES), max_size=12), st.integers(1, 9))
def test_one_poll_never_decides(states: list[Any], step: int) -> None:
    now = 0
    lag, since = GracePeriod(6, 3, clock=lambda: now), dict[str, int]()
    for state in states:
        now += step
        if state != "missing":
            # It is listed, or nobody knows.
            since.pop("missing", None)
        if state == "reset":
            lag.reset()
            continue
        found = lag.judge(Progress(state, "approved", 0))
        if state == "effective":
            since.clear()
        waited = now - since.setdefault(state, now)
        limit = {"missing": 6, "unverified": 3}.get(state)
        assert found.ended is (limit is not None and waited > 0 and waited >= limit)
        assert (lag.unverified is not None) is ("unverified" in since)
        assert lag.unverified_patience == max(0, 3 - now + since.get("unverified", now - 3))


def test_what_is_verified_is_plain_json() -> None:
    progress = judge_progress(ListedRequest(envelope(), True, verified=address()), **WORDS)
    assert progress.summary("7") == (
        "whitelisting request 7 is in effect (status approved, 0 signatures), verified: signed by alice, bob under "
        "rules of 2026-01-01 00:00:00 UTC"
    )
    found = progress.to_json("7")
    assert json.loads(json.dumps(found)) == found
    assert found["verified"] is True
    assert found["fields"] == {"blockchain": "ETH", "address": "0x1", "label": "L", "linked_wallet_ids": ["7"]}
    assert found["signed_by"] == ["alice", "bob"]


@pytest.mark.parametrize(("timestamp", "text"), [(0, ""), (10**18, str(10**18)), (1, "1970-01-01T00:00:01+00:00")])
def test_rules_without_a_usual_date(timestamp: int, text: str) -> None:
    assert verified_facts(address(timestamp=timestamp))["rules_date"] == text


def test_swapping_between_missing_and_unverified_ends() -> None:
    now = 0.0
    lag = GracePeriod(clock=lambda: now)
    progress = judge_progress(unverified(), **WORDS)
    for poll in range(60):
        if lag.judge(progress if poll % 2 else Progress("missing", None, 0)).ended:
            break
        now += 1
    assert now <= 7


# --- a group -------------------------------------------------------------------------------------------------------


def group_of(*listed: ListedRequest) -> GroupProgress:
    group = GroupProgress([str(each) for each in range(len(listed))], **WORDS, unverified_after=0)
    for _ in range(2):
        group.begin_poll()
        group.update({each: group.judge(listed[int(each)]) for each in group.to_poll})
    return group


def test_a_group_names_what_is_unverified_before_what_was_rejected() -> None:
    good = ListedRequest(envelope(), True, verified=address())
    group = group_of(unverified(), good, ListedRequest(envelope("rejected"), True), unverified())
    error = group.failure()
    assert isinstance(error, CustodyVerificationError)
    assert error.advice == what_to_do(["0", "3"], "Pin 'networks'.")
    assert error.message.startswith("2 of 4 whitelisting requests are not verified: whitelisting request 0 is not ver")
    assert error.message.endswith(
        "; 1 of 4 whitelisting requests will not take effect: whitelisting request 2 was rejected (status rejected, "
        "0 signatures)"
    )
    assert "1 of 4 whitelisting requests is in effect, 1 verified (2 not verified)" in group.summary()


def test_a_group_counts_what_is_verified_and_names_equal_texts() -> None:
    rows = [ListedRequest(envelope(), True, verified=address(each)) for each in ("a", "b", "a")]
    group = group_of(*rows)
    assert group.to_json()["verified"] == 3
    assert list(group.same_texts()) == [
        "whitelisting requests 0, 2 have the same signed text: signatures do not show that each of them exists"
    ]
    assert list(group_of(*rows[:2]).same_texts()) == []


def poll(group: GroupProgress, *listed: ListedRequest) -> None:
    group.begin_poll()
    group.update({each: group.judge(listed[int(each)]) for each in group.to_poll})


@pytest.mark.parametrize("other", [ListedRequest(envelope(), False), ListedRequest(envelope("odd"), True)])
def test_requests_of_a_group_that_swap_stay_unverified_until_each_is_verified(other: ListedRequest) -> None:
    now = 0.0
    good = ListedRequest(envelope(), True, verified=address())
    group = GroupProgress(["0", "1"], **WORDS, unverified_after=5, clock=lambda: now)
    poll(group, unverified(), other)
    poll(group, other, other)
    assert group.lagging == []
    assert group.unverified_ids == ["0"]
    poll(group, other, unverified())
    assert group.failure() is None
    assert group.unverified().keys() == {"0", "1"}
    now = 4
    poll(group, good, other)
    assert group.unverified_ids == ["1"]
    group.confirm_unverified()
    assert group.failure() is None
    now = 5
    group.confirm_unverified()
    assert isinstance(group.failure(), CustodyVerificationError)


def test_unverified_polls_cross_a_process_border_and_name_ten() -> None:
    progress = judge_progress(unverified(), **WORDS)
    stored = json.dumps(unverified_to_json({str(each): progress for each in range(12)}))
    found = unverified_from_json(json.loads(stored))
    assert str(found["9"].failure("9")) == str(progress.failure("9"))
    assert "status not given, 0 signatures), but when that was seen first" in str(found["11"].failure("11"))
    group = GroupProgress([str(each) for each in range(12)], **WORDS, unverified_after=5)
    group.take_over(found)
    poll(group, *[ListedRequest(envelope(), False)] * 12)
    assert group.failure() is None
    assert str(group.unverified_error()).startswith(
        "12 of 12 whitelisting requests are not verified: whitelisting request 0 is"
    )


# --- what is expected ----------------------------------------------------------------------------------------------


def test_a_verified_request_is_compared_by_its_signed_text_alone() -> None:
    other = json.dumps({**FIELDS, "memo": "unsigned"})
    metadata = {"payloadAsString": other, "hash": hashlib.sha256(other.encode()).hexdigest()}
    row = envelope(blockchain="ETH", metadata=metadata)
    assert compare_listed(REQUEST, ListedRequest(row, True, verified=address())) == ()
    with pytest.raises(CustodyRequestError, match=r"7 is not what was asked for: memo \(not asked for\)"):
        compare_listed(REQUEST, ListedRequest(row, True))


def test_what_no_signature_covers_is_no_match() -> None:
    # A legacy form does not have it.
    request = WhitelistRequest(label="L", address="0x1", blockchain="ETH", linked_wallet_ids=["7"], contract_type="x")
    with pytest.raises(
        CustodyRequestError, match=r"is not what was asked for: contract_type \(unclear: asked for 'x', shown nothing\)"
    ):
        compare_listed(request, ListedRequest(envelope(), True, verified=address()))


def test_what_only_the_envelope_has_is_compared_and_named() -> None:
    request = WhitelistRequest(
        label="L", address="0x1", blockchain="ETH", linked_wallet_ids=["7"], network="main", visibility_group_id="g"
    )
    row = envelope(network="main", visibilityGroupID="g")
    unsigned = compare_listed(request, ListedRequest(row, True, verified=address()))
    assert unsigned == ("network", "visibility_group_id")
    for wire in ({"network": "test", "visibilityGroupID": "g"}, {"network": "main"}):
        with pytest.raises(CustodyRequestError, match=r"network|visibilityGroupID"):
            compare_listed(request, ListedRequest(envelope(**wire), True, verified=address()))


def test_what_is_not_listed_cannot_be_compared() -> None:
    with pytest.raises(CustodyRequestError, match="not listed"):
        compare_listed(REQUEST, ListedRequest(None, False))
