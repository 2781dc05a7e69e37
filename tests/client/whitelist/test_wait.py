"""Waiting for requests: which listing contains them, and how the wait interprets this."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import SkippingTime
from support.service.people import Person
from support.service.refusals import OTHER_REFUSAL, role_refusal
from support.service.vanishing import vanish
from support.whitelist.whitelist_plans import SETTINGS, settings_of

from airflow_custody.client import (
    ClientSettings,
    CustodyClient,
    CustodyConflictError,
    CustodyError,
    CustodyPermissionError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyServerError,
    CustodyVerificationError,
    VerifiedAddress,
    WhitelistEnvelope,
    WhitelistRequest,
)
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.results import AppliedRule, GroupSignatures, VerifiedRules
from airflow_custody.client.verification.trust import Trust, what_to_do
from airflow_custody.client.wait_state import WaitState
from airflow_custody.client.whitelist.envelopes import UnreadableRow
from airflow_custody.client.whitelist.request import (
    ListedRequest,
    Request,
    compare_effective,
    judge_request,
    make_request,
)
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.client.whitelist.wait import PollResult, RequestWait
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
    found = read_snapshot(client, numbers)
    return [found[number].state for number in numbers]


def test_each_state_is_recognized(sandbox: Sandbox, ann: CustodyClient, numbers: list[str]) -> None:
    for number, status in zip(numbers, ["APPROVED", "pending", "rejected", "removed"], strict=True):
        sandbox.control.set_whitelist_status(number, status)
    assert states(ann, [*numbers, "9999"]) == ["effective", "pending", "rejected", "missing", "missing"]
    # A request that takes effect between two calls is not missing.
    sandbox.control.add_fault("status", status=200, body={}, **LISTING)
    assert states(ann, numbers[:2]) == ["pending", "pending"]


@pytest.mark.parametrize(
    ("fault", "is_known"),
    [
        # Only the service itself can say that nothing is pending for a user who is no signer.
        *(({"kind": "status", "status": status}, True) for status in (404, 501)),
        ({"kind": "status", "status": 403, "body": role_refusal("whitelistedaddressapprover")}, True),
        # The service may refuse this for a reason other than a missing role.
        ({"kind": "status", "status": 403, "body": OTHER_REFUSAL}, False),
        *(({"kind": "html", "status": status}, False) for status in (200, 404)),
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


def test_a_request_that_vanishes_between_two_listings_has_no_unknown_word(
    sandbox: Sandbox, ann: CustodyClient, numbers: list[str]
) -> None:
    sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
    vanish(sandbox, numbers[0], ids=numbers[0])
    found = RequestWait(numbers[0]).poll(ann)
    assert not found.is_done
    assert found.error is None
    assert found.warnings == []
    assert found.summary == (
        f"whitelisting request {numbers[0]} may have been deleted: it was listed as settled, but is missing from the "
        "later listing of all requests, so it does not count as in effect"
    )
    # The next poll reads everything again.
    sandbox.control.clear_faults()
    assert RequestWait(numbers[0]).poll(ann).is_done


# --- a wait, without a service ------------------------------------------------------------------------------


def envelope(status: str | None = "approved", **wire: Any) -> WhitelistEnvelope:
    text = json.dumps({"currency": "ETH", "address": "0x1", "label": "L"})
    metadata = {"payloadAsString": text, "hash": hashlib.sha256(text.encode()).hexdigest()}
    return WhitelistEnvelope({"id": "7", "status": status, "metadata": metadata, **wire})  # type: ignore[typeddict-item]


FIELDS = {"currency": "ETH", "address": "0x1", "label": "L", "memo": "", "linkedWallets": [{"id": 7, "name": "hot"}]}


def address(hash_: str = "ab", timestamp: int = 1767225600) -> VerifiedAddress:
    groups = GroupSignatures("ops", 2, ("alice", "bob")), GroupSignatures("board", 1, ("bob",))
    rule = AppliedRule("ETH", "", None, groups)
    return VerifiedAddress(FIELDS, False, hash_, VerifiedRules("cd" * 32, timestamp, ("ef" * 32,)), (rule,))


def verified(shown: WhitelistEnvelope, found: VerifiedAddress) -> Request:
    """Return a request in effect whose signatures prove an address."""
    request = judge_request(shown, "effective", None)
    return replace(request, trust=Trust("verified", address=found), fields=found.fields)


def settled(shown: WhitelistEnvelope, settings: ClientSettings = SETTINGS) -> Request:
    return make_request(ListedRequest("7", shown, is_settled=True), settings)


def updated(wait: RequestWait, requests: Mapping[str, Request | CustodyError]) -> WaitState:
    return wait.update(PollResult(requests, SETTINGS))


REFUSED = CustodyVerificationError(
    "whitelisting request 7 is not verified: no signature", why="no signature", advice="Pin 'networks'."
)
LISTED = {
    "effective": settled(envelope()),
    "verified": verified(envelope(), address()),
    "unverified": Request(
        "7", "unverified", "effective", envelope(), trust=Trust("unverified", error=REFUSED), reason="no signature"
    ),
    "pending": make_request(ListedRequest("7", envelope("pending")), SETTINGS),
    "rejected": settled(envelope("rejected")),
    "odd": settled(envelope("odd")),
    "missing": Request("7", "missing"),
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
    request = settled(envelope(word))
    assert request.state == expected
    found = updated(RequestWait("7"), {"7": request})
    assert found.is_done == (expected == "effective")
    assert (found.error is not None) == (expected == "rejected")
    if expected == "unknown":
        (warning,) = found.warnings
        assert warning == found.summary
        if word:
            assert f"its status {sanitize(word)!r} is unknown, so it does not count as in effect" in warning
            assert "add the word to 'effective_statuses' or 'rejected_statuses'" in warning
        else:
            assert warning.endswith("but it has no status, so it does not count as in effect")
    # The status words can be configured.
    others = settings_of(effective_statuses="y", rejected_statuses="n")
    assert settled(envelope(word), others).state == "unknown"
    if word and word == word.strip():
        chosen = settings_of(effective_statuses=["y", word], rejected_statuses="n")
        assert settled(envelope(word), chosen).state == "effective"
        chosen = settings_of(effective_statuses="y", rejected_statuses=word)
        assert settled(envelope(word), chosen).state == "rejected"


def test_only_what_is_in_effect_must_be_verified() -> None:
    """A pending request may have an invalid signature and still get the missing ones, so the wait continues."""
    for reported, state in (("effective", "unverified"), ("pending", "pending"), ("unknown", "unknown")):
        request = replace(LISTED["unverified"], reported=reported)  # type: ignore[arg-type]
        assert request.phase == state
        assert (updated(RequestWait("7"), {"7": request}).error is None) is (reported != "effective")


def test_a_request_that_cannot_be_read_ends_the_wait() -> None:
    for shown in (
        envelope(metadata={"payloadAsString": "{}", "hash": "0"}),
        WhitelistEnvelope(cast("Any", UnreadableRow(id="7"))),
    ):
        error = updated(RequestWait("7"), {"7": settled(shown)}).error
        assert isinstance(error, CustodyResponseError)
        assert "whitelisting request 7 cannot be read: it" in str(error)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SkippingTime:
    clock = SkippingTime()
    monkeypatch.setattr("airflow_custody.client.whitelist.wait.time", clock)
    return clock


def many(*kinds: str) -> tuple[RequestWait, dict[str, Request]]:
    """Return a wait for many, and the requests, by kind."""
    found = {str(number): replace(LISTED[kind], id=str(number)) for number, kind in enumerate(kinds)}
    return RequestWait(list(found)), found


def test_a_request_is_gone_when_it_has_been_missing_in_a_row_for_long_enough(clock: SkippingTime) -> None:
    wait = RequestWait("7")
    # Seconds since the poll before, what it shows, and whether that ends the wait.
    for seconds, shown, ends in (
        (0, LISTED["missing"], False),
        (29.5, LISTED["missing"], False),
        (2, LISTED["pending"], False),
        (31, LISTED["missing"], False),
        (29, LISTED["missing"], False),
        (0.5, CustodyServerError("down"), False),
        (5, LISTED["missing"], False),
        (29.5, LISTED["missing"], False),
        (0.5, LISTED["missing"], True),
    ):
        clock.sleep(seconds)
        if isinstance(shown, CustodyError):
            with pytest.raises(CustodyServerError):
                updated(wait, {"7": shown})
            continue
        found = updated(wait, {"7": shown})
        assert (found.error is not None) is ends
        assert found.in_doubt is (shown is LISTED["missing"])
    assert isinstance(found.error, CustodyConflictError)
    assert found.error.message == "whitelisting request 7 does not exist: not listed for 30 s"
    assert found.error.code == "request-missing"
    # The first poll already reports this, because the id may be wrong.
    wait = RequestWait("7")
    assert [updated(wait, {"7": LISTED["missing"]}).warnings for _ in range(2)] == [
        [
            "The service lists no whitelisting request 7. It may list a new request late, so the wait fails only after "
            "30 s"
        ],
        [],
    ]
    # Each of many requests has its own time limit.
    wait, listed = many("missing", "pending")
    assert updated(wait, listed).error is None
    for seconds, ends in ((20, False), (11, True)):
        clock.sleep(seconds)
        error = updated(wait, {**listed, "1": replace(LISTED["missing"], id="1")}).error
        assert (error is not None) is ends
    assert str(error).startswith("1 of 2 whitelisting requests is not going to take effect: whitelisting request 0 ")


def test_one_that_cannot_be_looked_up_keeps_the_wait_open_but_hides_no_end() -> None:
    wait, found = many("effective", "effective")
    busy = CustodyServerError("busy", retry_after=5)
    with pytest.raises(CustodyServerError, match="busy"):
        updated(wait, {**found, "0": CustodyServerError("down"), "1": busy})
    with pytest.raises(CustodyPermissionError):
        updated(wait, {"0": CustodyPermissionError("no"), "1": busy})
    assert isinstance(updated(wait, {"0": LISTED["rejected"], "1": busy}).error, CustodyConflictError)
    assert updated(wait, found).is_done


@given(st.lists(st.sampled_from([*LISTED]), min_size=1, max_size=4))
def test_it_is_done_only_if_all_are_in_effect_and_none_is_unverified(kinds: list[str]) -> None:
    wait, found = many(*kinds)
    assert updated(wait, found).is_done is ({*kinds} <= {"effective", "verified"})


# --- in words -----------------------------------------------------------------------------------------------


def test_many_are_counted_and_ten_are_named() -> None:
    wait, found = many("verified", "missing", "odd", "odd", *["pending"] * 12)
    first = updated(wait, found)
    assert "`custody whitelist show 1`" in first.advice
    assert first.summary == (
        "1 of 16 whitelisting requests is in effect, 1 verified (12 pending approval, 1 not listed, 2 in an "
        "unknown state); not yet: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 5 more"
    )
    # An unknown status is named once.
    assert len(first.warnings) == 2
    assert updated(wait, found).warnings == []
    wait, found = many(*["rejected"] * 12, *["pending"] * 8)
    error = updated(wait, found).error.message  # type: ignore[union-attr]
    assert error.startswith("12 of 20 whitelisting requests are not going to take effect: whitelisting request 0 was r")
    assert error.endswith("; and 2 more")
    assert error.count("was rejected") == 10


def test_unverified_requests_are_named_before_rejected_ones_with_advice() -> None:
    wait, found = many("unverified", "verified", "rejected", "unverified")
    error = updated(wait, found).error
    assert isinstance(error, CustodyVerificationError)
    assert error.advice == (
        "Pin 'networks'. Do not use them before you know who requested them; "
        "`custody whitelist verify --id 0` reports what is verified."
    )
    assert error.message.startswith("2 of 4 whitelisting requests are not verified: whitelisting request 0 is not veri")
    assert error.message.endswith(
        "; 1 of 4 whitelisting requests is not going to take effect: whitelisting request 2 "
        "was rejected (status rejected, 0 signatures)"
    )
    one = updated(RequestWait("7"), {"7": LISTED["unverified"]}).error
    assert str(one) == (
        "whitelisting request 7 is not verified: the service reports it as in effect (status approved, "
        f"0 signatures), but no signature\nPin 'networks'. {what_to_do(['7'])}\n[custody/not-verified]"
    )
    # A suggested command contains no malformed id.
    for odd in ("", "7; rm -r x", "`x`", "9" * 41, "\uff17"):
        assert "`custody whitelist verify` reports" in what_to_do([odd])


@pytest.mark.parametrize("number", [1, 5000])
def test_the_result_of_a_list_does_not_grow(number: int) -> None:
    wait, found = many(*["effective"] * number)
    result = updated(wait, found).result
    assert result == {"state": "effective", "count": number, "statuses": {"approved": number}, "verified": 0}
    long = replace(settled(envelope("Z\n" * 50_000)), state="effective")
    statuses = updated(RequestWait(list(found)), dict.fromkeys(found, long)).result["statuses"]
    assert len(json.dumps(statuses)) < 200


def test_equal_texts_are_named() -> None:
    wait = RequestWait(["0", "1", "2"])
    found = {str(n): verified(envelope(id=str(n)), address(each)) for n, each in enumerate("aba")}
    assert updated(wait, found).warnings == [
        "whitelisting requests 0, 2 have the same signed text, so signatures do not prove that each of them exists"
    ]


def test_a_verified_result_is_plain_json() -> None:
    found = updated(RequestWait("7"), {"7": LISTED["verified"]})
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


# --- what is expected ---------------------------------------------------------------------------------------


def test_a_verified_request_is_compared_by_its_signed_text_alone() -> None:
    def compared(request: Request, **changes: Any) -> None:
        asked = {"label": "L", "address": "0x1", "blockchain": "ETH", "linked_wallet_ids": ["7"], **changes}
        compare_effective(WhitelistRequest(**asked), request, SETTINGS)

    def signed(**wire: Any) -> Request:
        return verified(envelope(**wire), address())

    other = json.dumps({**FIELDS, "memo": "unsigned"})
    metadata = {"payloadAsString": other, "hash": hashlib.sha256(other.encode()).hexdigest()}
    compared(signed(metadata=metadata))
    # A field that only the envelope has is compared.
    unsigned = {"network": "main", "visibility_group_id": "g"}
    compared(signed(network="main", visibilityGroupID="g"), **unsigned)
    for request, changes, match in (
        (settled(envelope(metadata=metadata)), {}, r"7 differs from the requested content: memo \(not requested\)"),
        # A legacy form of the text does not have the field.
        (signed(), {"contract_type": "x"}, r"contract_type \(requested 'x', shown nothing\)"),
        (signed(network="test", visibilityGroupID="g"), unsigned, "network"),
        (signed(network="main"), unsigned, "visibilityGroupID"),
    ):
        with pytest.raises(CustodyRequestError, match=match):
            compared(request, **changes)
    for kind in ("missing", "pending", "unverified"):
        with pytest.raises(CustodyResponseError, match=f"7 is {kind}, and cannot be compared"):
            compared(LISTED[kind])
