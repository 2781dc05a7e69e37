"""Waiting for requests: where the service lists them, and what a wait makes of that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from clocks import SkippingTime
from hypothesis import given
from hypothesis import strategies as st
from people import Person

from airflow_custody.client import (
    CustodyClient,
    CustodyConflictError,
    CustodyError,
    CustodyPermissionError,
    CustodyRequestError,
    CustodyServerError,
    CustodyVerificationError,
    VerifiedAddress,
    WhitelistEnvelope,
    WhitelistRequest,
)
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.results import AppliedRule, GroupSignatures, VerifiedRules
from airflow_custody.client.verification.trust import what_to_do
from airflow_custody.client.whitelist.expected import compare_listed
from airflow_custody.client.whitelist.listing import ListedRequest, find_listed, verified_facts
from airflow_custody.client.whitelist.wait import RequestWait
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
    return [state(found[number], effective_statuses=None) for number in numbers]


def state(listed: ListedRequest, **statuses: Any) -> str:
    return RequestWait("7", **statuses).state_of(listed)


def test_each_state_is_recognized(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]) -> None:
    for number, status in zip(numbers, ["APPROVED", "pending", "rejected", "removed"], strict=True):
        sandbox.control.set_whitelist_status(number, status)
    assert states(ann, [*numbers, "9999"]) == ["effective", "pending", "rejected", "missing", "missing"]
    assert find_listed(ann, []) == {}
    # What takes effect between the calls is not gone.
    sandbox.control.add_fault("status", status=200, body={}, **LISTING)
    assert states(ann, numbers[:2]) == ["pending", "pending"]


def test_a_request_pending_for_the_user_is_not_in_effect_wherever_it_is_listed(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str]
) -> None:
    listing = {"result": [{"id": number, "status": "unknown"} for number in numbers[:2]], "totalItems": "2"}
    sandbox.control.set_whitelist_status(numbers[1], "APPROVED")
    sandbox.control.add_fault("status", status=200, body=listing, **LISTING)
    assert states(ann, numbers[:2]) == ["pending", "effective"]


@pytest.mark.parametrize(
    ("fault", "is_known"),
    [
        # Only the service itself can say that nothing is pending for a user who is no signer.
        *(({"kind": "status", "status": status}, True) for status in (403, 404, 405, 501)),
        *(({"kind": "html", "status": status}, False) for status in (200, 403, 404, 501)),
        ({"kind": "status", "status": 500}, False),
        ({"kind": "drop"}, False),
    ],
    ids=str,
)
def test_without_the_list_of_pending_requests_nothing_is_in_effect(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str], fault: dict[str, Any], is_known: bool
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
    sandbox.control.add_fault(**fault, **FOR_APPROVAL)
    if is_known:
        assert states(ann, numbers[:1]) == ["effective"]
    else:
        with pytest.raises(CustodyError):
            states(ann, numbers[:1])


# --- a wait, without a service ------------------------------------------------------------------------------


def envelope(status: str | None = "approved", **wire: Any) -> WhitelistEnvelope:
    return WhitelistEnvelope({"id": "7", "status": status, **wire})  # type: ignore[typeddict-item]


FIELDS = {"currency": "ETH", "address": "0x1", "label": "L", "memo": "", "linkedWallets": [{"id": 7, "name": "hot"}]}


def address(hash_: str = "ab", timestamp: int = 1767225600) -> VerifiedAddress:
    groups = GroupSignatures("ops", 2, ("alice", "bob")), GroupSignatures("board", 1, ("bob",))
    rule = AppliedRule("ETH", "", None, groups)
    return VerifiedAddress(FIELDS, False, hash_, VerifiedRules("cd" * 32, timestamp, ("ef" * 32,)), (rule,))


REFUSED = CustodyVerificationError("whitelisting request 7 is not verified: no signature", advice="Pin 'networks'.")
LISTED = {
    "effective": ListedRequest(envelope(), "settled"),
    "verified": ListedRequest(envelope(), "settled", verified=address()),
    "unverified": ListedRequest(envelope(), "settled", unverified=REFUSED),
    "pending": ListedRequest(envelope("pending")),
    "rejected": ListedRequest(envelope("rejected"), "settled"),
    "odd": ListedRequest(envelope("odd"), "settled"),
    "missing": ListedRequest(None),
}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((word, "effective") for word in ("APPROVED", "Approved")),
        *((word, "rejected") for word in ("REJECTED", "declined", "Expired", "CANCELED", "cancelled")),
        *((word, "unknown") for word in ("active", "approved ", "ar\u017dchived", "expired\u017f", "", None)),
    ],
)
def test_by_default_only_a_known_word_is_in_effect(word: str | None, expected: str) -> None:
    listed = ListedRequest(envelope(word), "settled")
    assert state(listed) == expected
    found = RequestWait("7").update({"7": listed})
    assert (found.is_done, found.error is not None) == (expected == "effective", expected == "rejected")
    if expected == "unknown":
        (warning,) = found.warnings
        assert repr(sanitize(word or "not given")) in warning == found.summary
        assert "effective_statuses" in warning
        assert "rejected_statuses" in warning
    pending = ListedRequest(listed.envelope, "pending")
    assert state(pending) == ("rejected" if expected == "rejected" else "pending")
    # Words can be chosen.
    if word:
        assert state(listed, effective_statuses=["y", word], rejected_statuses=[]) == "effective"
        assert state(listed, effective_statuses=None, rejected_statuses=[word]) == "rejected"
    assert state(listed, effective_statuses=["y"], rejected_statuses=[]) == "unknown"
    assert state(listed, effective_statuses=None, rejected_statuses=[]) == "effective"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SkippingTime:
    clock = SkippingTime()
    monkeypatch.setattr("airflow_custody.client.whitelist.wait.time", clock)
    return clock


def many(*kinds: str) -> tuple[RequestWait, dict[str, ListedRequest]]:
    """Return a wait for many, and where they are listed, by kind."""
    found = {str(number): LISTED[kind] for number, kind in enumerate(kinds)}
    return RequestWait(list(found)), found


def test_a_request_is_gone_when_it_has_been_missing_in_a_row_for_long_enough(clock: SkippingTime) -> None:
    wait = RequestWait("7")
    # Seconds since the poll before, what it shows, and whether that ends the wait.
    for seconds, shown, ends in (
        (0, LISTED["missing"], False),
        (29.9, LISTED["missing"], False),
        (2, LISTED["pending"], False),
        (31, LISTED["missing"], False),
        (29, LISTED["missing"], False),
        (0.5, CustodyServerError("down"), False),
        (5, LISTED["missing"], False),
        (31, LISTED["missing"], True),
    ):
        clock.sleep(seconds)
        if isinstance(shown, CustodyError):
            with pytest.raises(CustodyServerError):
                wait.update({"7": shown})
            continue
        found = wait.update({"7": shown})
        assert (found.error is not None) is ends
        assert found.in_doubt is (shown is LISTED["missing"])
    assert isinstance(found.error, CustodyConflictError)
    assert found.error.message == "whitelisting request 7 does not exist: it has not been listed for 31 s"
    # Of many, each has its own time.
    wait, listed = many("missing", "pending", "pending")
    assert wait.update(listed).error is None
    for seconds, ends in ((20, False), (11, True)):
        clock.sleep(seconds)
        error = wait.update({**listed, "1": LISTED["missing"]}).error
        assert (error is not None) is ends
    assert str(error).startswith(
        "1 of 3 whitelisting requests is not going to take effect: whitelisting request 0 does not exist"
    )


def test_one_that_cannot_be_looked_up_keeps_the_wait_open_but_hides_no_end() -> None:
    wait, found = many("effective", "effective")
    busy = CustodyServerError("busy", retry_after=5)
    with pytest.raises(CustodyServerError, match="busy"):
        wait.update({**found, "0": CustodyServerError("down"), "1": busy})
    with pytest.raises(CustodyPermissionError):
        wait.update({"0": CustodyPermissionError("no"), "1": busy})
    assert isinstance(wait.update({"0": LISTED["rejected"], "1": busy}).error, CustodyConflictError)
    assert wait.update(found).is_done


@given(st.lists(st.sampled_from([*LISTED]), min_size=1, max_size=4))
def test_it_is_done_only_if_all_are_in_effect_and_none_is_unverified(kinds: list[str]) -> None:
    wait, found = many(*kinds)
    assert wait.update(found).is_done is ({*kinds} <= {"effective", "verified"})


# --- in words -----------------------------------------------------------------------------------------------


def test_many_are_counted_and_ten_are_named() -> None:
    wait, found = many("verified", "missing", "odd", "odd", *["pending"] * 12)
    first = wait.update(found)
    assert first.summary == (
        "1 of 16 whitelisting requests is in effect, 1 verified (12 pending approval, 1 not listed, 2 with a status "
        "that is not known); not yet: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 5 more"
    )
    # A status that is not known is named once.
    assert (len(first.warnings), wait.update(found).warnings) == (1, [])
    wait, found = many(*["rejected"] * 12, *["pending"] * 8)
    error = wait.update(found).error.message  # type: ignore[union-attr]
    assert error.startswith("12 of 20 whitelisting requests are not going to take effect: whitelisting request 0 was r")
    assert error.endswith("; and 2 more")
    assert error.count("was rejected") == 10


def test_what_is_unverified_is_named_before_what_was_rejected_and_says_what_to_do() -> None:
    wait, found = many("unverified", "verified", "rejected", "unverified")
    error = wait.update(found).error
    assert isinstance(error, CustodyVerificationError)
    assert error.advice == (
        "Pin 'networks'. Do not use them before somebody has found out who put them there; "
        "`custody whitelist verify --id 0` shows what is proved."
    )
    assert error.message.startswith("2 of 4 whitelisting requests are not verified: whitelisting request 0 is not veri")
    assert error.message.endswith(
        "; 1 of 4 whitelisting requests is not going to take effect: whitelisting request 2 "
        "was rejected (status rejected, 0 signatures)"
    )
    one = RequestWait("7").update({"7": LISTED["unverified"]}).error
    assert str(one) == (
        "whitelisting request 7 is not verified: the service says that it is in effect (status approved, "
        f"0 signatures), but no signature\nPin 'networks'. {what_to_do(['7'])}\n[custody/not-verified]"
    )
    # A command has no odd id.
    for odd in ("", "7; rm -r x", "`x`", "9" * 41, "\uff17"):
        assert "`custody whitelist verify` shows" in what_to_do([odd])


@pytest.mark.parametrize("number", [1, 5000])
def test_the_result_of_a_list_does_not_grow(number: int) -> None:
    wait, found = many(*["effective"] * number)
    result = wait.update(found).result
    assert result == {"state": "effective", "count": number, "statuses": {"approved": number}, "verified": 0}
    odd = ListedRequest(envelope("Z\n" * 50_000), "settled")
    statuses = RequestWait(list(found), effective_statuses=None).update(dict.fromkeys(found, odd)).result["statuses"]
    assert len(json.dumps(statuses)) < 200


def test_equal_texts_are_named() -> None:
    wait = RequestWait(["0", "1", "2"])
    found = {str(n): ListedRequest(envelope(), "settled", verified=address(each)) for n, each in enumerate("aba")}
    assert wait.update(found).warnings == [
        "whitelisting requests 0, 2 have the same signed text: signatures do not show that each of them exists"
    ]


def test_what_is_verified_is_plain_json() -> None:
    found = RequestWait("7").update({"7": LISTED["verified"]})
    assert found.summary == (
        "whitelisting request 7 is in effect (status approved, 0 signatures), verified: signed by alice, bob under "
        "rules of 2026-01-01 00:00:00 UTC"
    )
    assert json.loads(json.dumps(found.result)) == {
        "id": "7",
        "state": "effective",
        "status": "approved",
        "signatures": 0,
        "verified": True,
        "fields": {"blockchain": "ETH", "address": "0x1", "label": "L", "linked_wallet_ids": ["7"]},
        "signed_by": ["alice", "bob"],
        "rules_date": "2026-01-01T00:00:00Z",
    }
    # Rules without a usual date.
    for timestamp, text in ((0, ""), (10**18, str(10**18)), (1, "1970-01-01T00:00:01Z")):
        assert verified_facts(address(timestamp=timestamp))["rules_date"] == text


# --- what is expected ---------------------------------------------------------------------------------------


def test_a_verified_request_is_compared_by_its_signed_text_alone() -> None:
    def compared(listed: ListedRequest, **changes: Any) -> tuple[str, ...]:
        asked = {"label": "L", "address": "0x1", "blockchain": "ETH", "linked_wallet_ids": ["7"], **changes}
        return compare_listed(WhitelistRequest(**asked), listed)

    def verified(**wire: Any) -> ListedRequest:
        return ListedRequest(envelope(**wire), "settled", verified=address())

    other = json.dumps({**FIELDS, "memo": "unsigned"})
    metadata = {"payloadAsString": other, "hash": hashlib.sha256(other.encode()).hexdigest()}
    assert compared(verified(metadata=metadata)) == ()
    # What only the envelope has is compared and named.
    unsigned = {"network": "main", "visibility_group_id": "g"}
    assert compared(verified(network="main", visibilityGroupID="g"), **unsigned) == ("network", "visibility_group_id")
    for listed, changes, match in (
        (
            ListedRequest(envelope(metadata=metadata), "settled"),
            {},
            r"7 is not what was asked for: memo \(not asked for\)",
        ),
        # A legacy form does not have it.
        (verified(), {"contract_type": "x"}, r"contract_type \(asked for 'x', shown nothing\)"),
        (verified(network="test", visibilityGroupID="g"), unsigned, "network"),
        (verified(network="main"), unsigned, "visibilityGroupID"),
        (ListedRequest(None), {}, "not listed"),
    ):
        with pytest.raises(CustodyRequestError, match=match):
            compared(listed, **changes)
