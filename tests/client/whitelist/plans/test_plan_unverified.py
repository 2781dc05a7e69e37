"""Plans with requests that signatures do not prove. The tests themselves decide which requests verify."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from support.service.people import public_pem_of
from support.whitelist import whitelist_plans
from support.whitelist.whitelist_plans import (
    ADDRESS,
    CASH,
    LEGACY,
    OTHER,
    PENDING,
    XRP,
    ask,
    listed,
    states,
    unreadable,
)

from airflow_custody.client import CustodyRequestError, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.errors import CustodyResponseError, CustodyVerificationError
from airflow_custody.client.verification.verifier import (
    RequestSignatures,
    VerificationPins,
    VerifiedAddress,
    VerifiedRules,
    Verifier,
)
from airflow_custody.client.whitelist.plans.plan import ROW_STATES, WhitelistPlan
from airflow_custody.client.whitelist.plans.report import plan_to_json, plan_to_markdown, plan_to_text

RULES = VerifiedRules("00", 0, ())
PINS = VerificationPins([public_pem_of(ec.generate_private_key(ec.SECP256R1())) for _ in range(3)], 2)
WHY = "not verified: nobody signed it"


class TellingVerifier(Verifier):
    """
    A verifier whose verdicts the test decides.

    :param forged: the ids of requests that do not verify.
    :param legacy: the ids of requests whose signatures do not cover ``contractType``.
    """

    def __init__(self, forged: Collection[int | str] = (), legacy: Collection[int] = ()) -> None:
        super().__init__(PINS)
        self._forged = {str(each) for each in forged}
        self._legacy = {str(each) for each in legacy}
        self.asked: list[tuple[str, str]] = []

    def verify(self, envelope: Mapping[str, Any]) -> VerifiedAddress:
        self._check("verify", envelope)
        shown = WhitelistEnvelope(dict(envelope))  # type: ignore[arg-type]
        try:
            fields = shown.payload()
        except CustodyResponseError as error:
            raise CustodyVerificationError(error.message) from None
        legacy = envelope["id"] in self._legacy
        omitted = [key for key in ("contractType",) if legacy and fields.pop(key, None) is not None]
        return VerifiedAddress(fields, legacy, "00", RULES, (), tuple(omitted))

    def verify_signatures(self, envelope: Mapping[str, Any]) -> RequestSignatures:
        self._check("verify_signatures", envelope)
        return RequestSignatures("00", RULES)

    def _check(self, how: str, envelope: Mapping[str, Any]) -> None:
        self.asked.append((how, envelope["id"]))
        if envelope["id"] in self._forged:
            raise CustodyVerificationError(f"{envelope['id']} is not verified", why="nobody signed it")


def plan(
    requests: WhitelistRequest | Sequence[WhitelistRequest],
    envelopes: WhitelistEnvelope | Sequence[WhitelistEnvelope],
    verifier: TellingVerifier | None,
    **options: Any,
) -> WhitelistPlan:
    return whitelist_plans.plan(requests, envelopes, verifier=verifier, **options)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, {}),
        ({}, {"wire": PENDING}),
        ({}, {"label": "Other"}),
        ({"blockchain": "Canton", "address": "alice::12"}, {"currency": "Canton", "address": "Alice::12"}),
    ],
    ids=str,
)
def test_an_unverified_request_blocks_its_row_and_serves_none(asked: dict[str, Any], shown: dict[str, Any]) -> None:
    for prune in (False, True):
        found = plan(ask(**asked), listed(**shown), TellingVerifier([3711]), prune=prune)
        assert states(found) == [("unverified", None, "3711")]
        (row,) = found.rows
        assert row.where == "line 2"
        assert row.request == ask(**asked)
        assert row.fields == ()
        assert row.note == f"{WHY}. This request may be for the row, so nothing is created"
        assert found.has_changes
        assert not found.operations


def test_a_forged_request_takes_no_row_from_a_true_one() -> None:
    # The forged request comes first, and is in effect with the file's content. The true request differs.
    found = plan(ask(), [listed(1), listed(2, wire=PENDING)], TellingVerifier([1]), prune=True)
    assert states(found) == [("pending", None, "2"), ("unverified", None, "1")]
    assert found.rows[1].note == f"{WHY}; it claims to be for the same destination as line 2"
    found = plan(ask(), [listed(1), listed(2, label="Other")], TellingVerifier([1]), prune=True)
    assert states(found) == [("differs", None, "2"), ("unverified", None, "1")]


def test_an_unverified_request_without_a_row_is_named_and_not_deleted() -> None:
    envelopes = [listed(1), listed(2, address=OTHER), listed(3, address=f" {XRP}", currency="XRP")]
    found = plan(ask(), envelopes, TellingVerifier([2, 3]), prune=True)
    assert states(found) == [("unchanged", None, "1"), ("unverified", None, "2"), ("unverified", None, "3")]
    assert [each.note.partition("; ")[0] for each in found.rows[1:]] == [WHY, WHY]
    assert found.rows[1].request == ask(address=OTHER)
    # A row of a file cannot express this request, but its claimed content is shown.
    assert found.rows[2].request is None
    assert found.rows[2].shown["address"] == f" {XRP}"
    # Without the unverified requests, the true request would be deleted.
    found = plan(ask(address=XRP, blockchain="XRP"), envelopes, TellingVerifier([2, 3]), prune=True)
    assert ("undeclared", "delete", "1") in states(found)


def test_a_claim_withholds_only_its_own_destination() -> None:
    rows = [ask(network="first"), ask(network="second"), ask(address=OTHER), ask(memo="1")]
    found = plan(rows, listed(1), TellingVerifier([1]))
    assert states(found) == [("unverified", None, "1")] * 2 + [("create", "create", "")] * 2
    assert len(found.observed) == 1


def test_each_state_has_its_own_verification() -> None:
    envelopes = [
        listed(1),
        listed(2, address=OTHER, wire=PENDING),
        listed(3, address=XRP, wire={"status": "rejected"}),
        listed(4, address=CASH, wire={"status": "FROZEN"}),
        unreadable("{}"),
    ]
    verifier = TellingVerifier()
    found = plan(ask(), envelopes, verifier, pending=["2"], settled=["4"])
    assert verifier.asked == [("verify", "1"), ("verify_signatures", "2"), ("verify", "4"), ("verify", "3799")]
    assert found.counts == {**dict.fromkeys(ROW_STATES, 0), "unchanged": 1, "undeclared": 2, "unreadable": 1}
    # Listed as pending, whatever its status says; and settled with a word of this installation.
    verifier.asked.clear()
    plan(ask(), envelopes[:2], verifier, pending=["1"], effective_statuses="pending")
    assert verifier.asked == [("verify_signatures", "1"), ("verify", "2")]


@pytest.mark.parametrize(
    ("asked", "state", "fields"),
    [({"contract_type": "ERC20"}, "differs", ("contract_type",)), ({}, "unchanged", ())],
    ids=str,
)
def test_a_field_that_a_legacy_form_omits_counts_as_missing(
    asked: dict[str, Any], state: str, fields: tuple[str, ...]
) -> None:
    envelope = listed(1, contractType="ERC20")
    (row,) = plan(ask(**asked), envelope, TellingVerifier(legacy=[1])).rows
    assert row.state == state
    assert row.fields == fields
    assert row.note == "signed in a legacy form that does not cover contractType"
    assert row.shown == dict.fromkeys(fields, "")
    _, row = plan(ask(address=OTHER, label="x"), envelope, TellingVerifier(legacy=[1])).rows
    assert row.request == ask()
    assert "does not cover contractType" in row.note


def test_the_hash_covers_what_does_not_verify() -> None:
    envelopes = [listed(1), listed(2, address=OTHER), listed(3, address=OTHER, memo="x")]
    forged: list[list[int]] = [[], [2], [3], [2, 3], [1]]
    hashes = {plan(ask(), envelopes, TellingVerifier(each)).plan_hash for each in forged}
    # A request for a row's destination, with another text.
    hashes.add(plan(ask(), [listed(1, memo="y"), *envelopes[1:]], TellingVerifier([1])).plan_hash)
    assert len(hashes) == 6
    assert plan(ask(), envelopes, None).plan_hash in hashes
    assert plan(ask(), envelopes[::-1], TellingVerifier([3, 2])).plan_hash in hashes


def test_a_report_names_them_right_after_all_that_is_done() -> None:
    rows = [ask(address=XRP, blockchain="XRP"), ask(), ask(address=OTHER)]
    differs = listed(3, address=XRP, currency="XRP", label="Other")
    found = plan(rows, [differs, listed(1, label="a")], TellingVerifier([1]))
    lines = [line for line in plan_to_markdown(found).splitlines() if line.startswith("| **")]
    assert [line.split(" | ")[0].strip("| *") for line in lines] == ["create", "unverified", "differs"]
    assert WHY in lines[1]
    text = plan_to_text(found)
    assert f"\n  ! ETH {ADDRESS}\n" in text
    assert WHY in text


def test_a_plan_says_whose_word_it_is() -> None:
    envelopes = [listed(1), listed(2, address=OTHER)]
    rows = [ask(), ask(address=XRP, blockchain="XRP", label="New")]
    pinned = plan(rows, envelopes, TellingVerifier())
    words = "Signatures: each request in effect is verified against 3 pinned keys (2 must have signed the rules)."
    assert f"\n\n{words}\nPlan hash: " in plan_to_text(pinned)
    assert f"\n\n{words}\n\n" in plan_to_markdown(pinned)
    assert plan_to_json(pinned)["pinned"] == {"keys": 3, "minimum": 2}
    hidden = " Some requests cannot be verified, and one of them may be for a row that is to be created."
    assert f"{words}{hidden}" in plan_to_markdown(plan(rows, envelopes, TellingVerifier([2])))
    assert hidden not in plan_to_text(plan(ask(), envelopes, TellingVerifier([2])))
    unpinned = plan(rows, envelopes, None)
    for text in (plan_to_text(unpinned), plan_to_markdown(unpinned)):
        assert "Signatures are not verified. No super-administrators' keys are pinned" in text
    assert plan_to_json(unpinned)["pinned"] is None


_FIELDS = {
    "address": st.sampled_from([ADDRESS, ADDRESS[2:].upper(), OTHER, XRP, XRP.lower(), CASH, LEGACY]),
    "label": st.sampled_from(["Treasury", "Treas", "Other"]),
    "memo": st.sampled_from(["", "7", "007", "x"]),
    "network": st.sampled_from(["", "mainnet", "main"]),
}
_STATUSES = st.sampled_from(["APPROVED", "PENDING", "rejected", "FROZEN"])
_LISTED = st.fixed_dictionaries({**_FIELDS, "status": _STATUSES, "forged": st.booleans()})


@given(
    st.lists(st.fixed_dictionaries(_FIELDS), max_size=5, unique_by=lambda each: (each["address"], each["memo"])),
    st.lists(_LISTED, max_size=6),
)
def test_a_forged_request_only_ever_withholds_a_creation(
    asked: list[dict[str, str]], shown: list[dict[str, Any]]
) -> None:
    requests: list[WhitelistRequest] = []
    for each in asked:
        request = ask(**{name: value for name, value in each.items() if value})
        # Two rows for one destination are refused.
        with suppress(CustodyRequestError):
            plan([*requests, request], [], None)
            requests.append(request)
    envelopes, forged = [], set()
    for number, each in enumerate(shown, 1):
        fields = {name: value for name, value in each.items() if name not in ("status", "forged")}
        envelopes.append(listed(number, wire={"status": each["status"]}, **fields))
        if each["forged"] and each["status"] != "rejected":
            forged.add(str(number))
    found = plan(requests, envelopes, TellingVerifier(forged), prune=True)
    true = plan(requests, [each for each in envelopes if each.id not in forged], TellingVerifier(), prune=True)
    assert {*found.operations} <= {*true.operations}
    assert {each.request_id for each in found.rows if each.state == "unverified"} == forged
    for row, other in zip(found.rows[: len(requests)], true.rows, strict=False):
        assert row == other or (row.state, other.state) in (("unverified", "create"), ("unverified", "unreadable"))
        assert row.state == "unverified" or row.request_id not in forged
    # Unverified requests do not cause or prevent a deletion.
    assert [each for each in found.rows[len(requests) :] if each.state != "unverified"] == [*true.rows[len(requests) :]]
