"""Approving any number of requests: all are reviewed before the first signature, and a later try goes on."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from approver import APPROVE, FOR_APPROVAL, ChangingSigner, NoSigner, SignedInApprover
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import (
    CustodyConflictError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.whitelist import models
from airflow_custody.client.whitelist.models import check_request_ids, cut_into_batches


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a batch hold two requests."""
    monkeypatch.setattr(models, "MAX_PAGE_SIZE", 2)


def batches_sent(approver: SignedInApprover) -> list[list[str]]:
    return [call["body"]["ids"] for call in approver.sandbox.control.request_log(**APPROVE)]


def test_many_take_three_calls_for_each_hundred(approver: SignedInApprover, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    numbers = [approver.create() for _ in range(230)]
    approver.sandbox.control.clear_request_log()
    assert approver.approve(*random.sample(numbers, len(numbers))) == 230
    assert [len(each) for each in batches_sent(approver)] == [100, 100, 30]
    assert [number for batch in batches_sent(approver) for number in batch] == numbers
    paths = [call["path"] for call in approver.sandbox.control.request_log()]
    assert len([each for each in paths if each.endswith("/users/me")]) == 1
    assert len(paths) == 1 + 3 * 3
    assert approver.signed == numbers
    for number in numbers:
        assert f"To be signed, whitelisting request {number}," in caplog.text
    assert re.search(r"Batch 2 of 3: 200 of 230 requests are signed \(\S+ a second\)", caplog.text)


@given(st.lists(st.integers(0, 2**63 - 1), unique=True, min_size=1, max_size=350), st.randoms())
def test_the_same_ids_make_the_same_batches(ids: list[int], shuffler: random.Random) -> None:
    batches = cut_into_batches(check_request_ids(ids, limit=None))
    assert [int(each) for batch in batches for each in batch] == sorted(ids)
    assert {len(batch) for batch in batches[:-1]} <= {100}
    assert 0 < len(batches[-1]) <= 100
    shuffler.shuffle(ids)
    assert cut_into_batches(check_request_ids(map(str, ids), limit=None)) == batches


def test_one_call_of_the_client_still_takes_a_hundred_at_most(approver: SignedInApprover) -> None:
    ids = [str(each) for each in range(101)]
    for call in (
        lambda: approver.client.approve_whitelist_requests(ids, "s" * 88, "why"),
        lambda: approver.client.reject_whitelist_requests(ids, "why"),
    ):
        with pytest.raises(CustodyRequestError, match="at most 100; nothing was sent"):
            call()
    assert approver.sandbox.control.request_log() == []


@pytest.mark.usefixtures("small_batches")
class TestSmallBatches:
    def test_one_that_does_not_match_stops_all(self, approver: SignedInApprover) -> None:
        numbers = [approver.create() for _ in range(5)]
        approver.signer = NoSigner()
        approver.change_payload(numbers[4], memo="7")
        with pytest.raises(
            CustodyRequestError, match=rf"{numbers[4]} is not what was .*; nothing was signed"
        ) as caught:
            approver.approve()
        assert f"batch 3 of 3: 1 request, from {numbers[4]} to {numbers[4]}. 0 of 5 requests are signed" in str(
            caught.value
        )
        with pytest.raises(CustodyNotFoundError, match="nothing was signed"):
            approver.approve(*numbers[:4], "9999", expected=None)
        with pytest.raises(CustodyRequestError, match=f"does not say what {numbers[4]} must ask for"):
            approver.approve(*numbers, expected={each: approver.expected[each] for each in numbers[:4]})
        assert approver.sent == 0

    @pytest.mark.parametrize("work", [False, True])
    def test_a_later_try_goes_on_where_a_batch_failed(self, approver: SignedInApprover, work: bool) -> None:
        numbers = [approver.create() for _ in range(6)]
        approver.sandbox.control.add_fault("drop", **APPROVE, skip=1, work=work)
        if work:
            # Its response is lost, and it is found out that it was taken.
            assert approver.approve() == 6
        else:
            with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
                approver.approve()
            assert caught.value.retryable
            assert "batch 2 of 3: 2 requests" in str(caught.value)
            assert "2 of 6 requests are signed already. A later try leaves these as they are" in str(caught.value)
            assert approver.signed == numbers[:2]
            assert approver.approve(earlier_try=True) == 6
        assert approver.signed == numbers
        assert approver.sent == (3 if work else 4)
        # In a first try, what is signed already is refused.
        with pytest.raises(CustodyConflictError, match=f"not pending this user's approval: {numbers[0]}"):
            approver.approve()
        assert approver.approve(earlier_try=True) == 6
        assert approver.sent == (3 if work else 4)

    def test_a_try_that_is_killed_between_two_batches_is_gone_on_with(self, approver: SignedInApprover) -> None:
        numbers = [approver.create() for _ in range(5)]
        signer, calls = approver.signer, []

        class Killed(BaseException):
            pass

        class KilledSigner:
            name = "killed"

            def sign(self, message: bytes) -> Any:
                calls.append(message)
                if len(calls) == 2:
                    raise Killed
                return signer.sign(message)

        approver.signer = KilledSigner()
        with pytest.raises(Killed):
            approver.approve()
        approver.signer = signer
        assert approver.signed == numbers[:2]
        assert approver.approve(*reversed(numbers), earlier_try=True) == 5
        assert batches_sent(approver) == [numbers[:2], numbers[2:4], numbers[4:]]

    def test_a_batch_that_changes_after_its_review_is_not_signed(self, approver: SignedInApprover) -> None:
        numbers = [approver.create() for _ in range(4)]
        signer = approver.signer
        approver.signer = ChangingSigner(
            approver, lambda: approver.sandbox.control.change_whitelist_request(numbers[3], label="Other")
        )
        with pytest.raises(CustodyRequestError, match=f"{numbers[3]} is not .*; nothing of this batch was sig") as one:
            approver.approve()
        assert "2 of 4 requests are signed already" in str(one.value)
        approver.signer = signer
        with pytest.raises(CustodyRequestError, match="nothing of this batch was signed"):
            approver.approve(earlier_try=True)
        approver.sandbox.control.set_whitelist_status(numbers[3], "rejected")
        with pytest.raises(CustodyConflictError, match=r"nothing of this batch was signed.*sign the others without it"):
            approver.approve(earlier_try=True, expected=None)
        assert approver.signed == numbers[:2]

    def test_what_was_signed_before_is_reviewed_before_it_counts(self, approver: SignedInApprover) -> None:
        numbers = [approver.create() for _ in range(4)]
        approver.approve(*numbers[:2])
        approver.signer = NoSigner()
        other = {**approver.expected, numbers[1]: approver.expected[numbers[1]].model_copy(update={"label": "Other"})}
        with pytest.raises(
            CustodyRequestError, match=rf"{numbers[1]} is not what was asked for: label \(.*\); it was signed"
        ):
            approver.approve(*numbers, earlier_try=True, expected=other)
        assert approver.signed == numbers[:2]

    def test_each_batch_is_read_right_before_it_is_signed(self, approver: SignedInApprover) -> None:
        for _ in range(4):
            approver.create()
        approver.sandbox.control.clear_request_log()
        approver.approve()
        log = approver.sandbox.control.request_log()
        kinds = ["read" if each["path"].endswith(FOR_APPROVAL["path"]) else each["method"] for each in log]
        assert kinds == ["GET", "read", "read", "read", "POST", "read", "POST"]
