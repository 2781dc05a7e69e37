"""Envelopes of all kinds, each with its verdict: the files of ``tests/verification_cases``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification import VerificationPins, Verifier, verify_envelope
from airflow_custody.client.verification.trust import ReportedState, decide_trust

FOLDER = Path(__file__).parents[2] / "verification_cases"
CASES = {str(file.relative_to(FOLDER).with_suffix("")): file for file in sorted(FOLDER.glob("*/*.json"))}
#: For each step of verification, the class of its refusals, and the beginning of their messages.
STEPS = {
    "text": ("request-differs", "its payload "),
    "rules": ("not-verified", "its rules|the signatures of its rules|the response lacks the rules"),
    "chain": ("request-differs", "its text is for the chain"),
    "rule": ("not-verified", "no rule covers|. rules cover|its network|its text is for the network|the service does"),
    "signatures": ("not-verified", "no signature covers|it has too few valid|it has more than 200|its signatures are"),
}
#: One for all cases with the same pins: what was verified before makes no difference.
REMEMBERING: dict[VerificationPins, Verifier] = {}


@pytest.mark.parametrize("name", CASES)
def test_verdict(name: str) -> None:
    case = json.loads(CASES[name].read_text())
    envelope, pins = case["envelope"], VerificationPins(**case["pins"])
    verifier = REMEMBERING.setdefault(pins, Verifier(pins))
    if case["verdict"] == "verified":
        found = verify_envelope(envelope, pins)
        assert found.fields == case["fields"]
        assert found.legacy == case["legacy"]
        assert bool(found.omitted) == case["legacy"]
        assert verifier.verify(envelope) == found
        return
    code, says = STEPS[case["step"]]
    reasons = []
    for verify in (Verifier(pins).verify, verifier.verify):
        with pytest.raises(CustodyVerificationError) as caught:
            verify(envelope)
        reasons.append(caught.value)
    first, again = map(str, reasons)
    assert first == again
    assert len(first) < 500
    assert all(line.isprintable() for line in first.split("\n"))
    assert len(first.split("\n")) == (3 if reasons[0].advice else 2)
    assert reasons[0].code == code
    assert reasons[0].retryable is False
    assert re.match(rf"whitelisting request \d+ is not verified: ({says})", first)
    # The text and the rules of a pending request must be as good.
    if case["step"] != "signatures":
        with pytest.raises(CustodyVerificationError):
            verifier.verify_signatures(envelope)


@pytest.mark.parametrize("identifier", [None, "", "7a", "$(id)", "1" * 60])
def test_a_request_whose_id_is_not_a_number_is_not_trusted(identifier: str | None) -> None:
    case = next(case for file in CASES.values() if (case := json.loads(file.read_text()))["verdict"] == "verified")
    verifier = Verifier(VerificationPins(**case["pins"]))
    assert decide_trust(case["envelope"], "effective", verifier).state == "verified"
    states: tuple[ReportedState, ...] = ("effective", "pending")
    for state in states:
        found = decide_trust({**case["envelope"], "id": identifier}, state, verifier)
        assert found.state == "unverified"
        assert "its id is not a number" in str(found.error)
        assert ("whitelisting request without an id is" in str(found.error)) is (not identifier)


def read(name: str) -> tuple[dict[str, Any], VerificationPins]:
    case = json.loads(CASES[name].read_text())
    return case["envelope"], VerificationPins(**case["pins"])


NETWORKS = "signatures/the-rule-of-each-possible-network-must-be-met-only-the-shown-one-s"
#: Words of the message and of the advice; no words: there is no advice.
TEXTS = {
    "text/worked-example-13-a-with-a-label-appended": ("has the key label twice", ""),
    "text/no-hash-of-the-text-a-number": ("its payload or its hash is missing", ""),
    "chain/worked-example-9-b-on-another-chain": ("for the chain 'ETH', but the service reports 'XLM'", ""),
    "rules/a-malicious-service-no-rules": (
        "signatures of its rules, are missing",
        "in force ('GET /rules') are enough",
    ),
    "rules/no-rules-named-only": ("lacks the rules that it refers to", "'rulesContainers'"),
    "rules/too-few-pinned-keys-by-one-and-a-stranger": ("by 1 of the 2 required pinned keys", "never from the service"),
    "rules/too-few-pinned-keys-by-a-stranger-and-one-must": ("signed by none of the pinned keys", "never from the"),
    "rules/a-pin-shows-older-rules-by-a-second": (
        "its rules are of 2026-01-01T00:00:00Z, but 'rules_not_before' is 2026-01-01T00:00:01Z",
        "Set an earlier 'rules_not_before' only if you accept them",
    ),
    "rules/a-pin-shows-older-rules-without-a-date": ("its rules are without a date", "'rules_not_before'"),
    "rules/a-pin-shows-older-rules-of-the-far-future": ("9223372036854775808 (Unix time)", "this machine's clock"),
    "rule/a-pin-shows-another-network-swapped": ("its network 'testnet' is not pinned", "add it to 'networks'"),
    "rule/a-pin-shows-another-network-not-shown": ("does not report its network", "leave out 'networks'"),
    "rule/no-rule-for-the-chain": ("no rule covers the chain 'ETH'", "Ask the super-admin"),
    "rule/two-rules-for-the-chain": ("2 rules cover the chain 'ETH' on the same network", "Ask the super-admin"),
    "signatures/worked-example-2-a-by-alice": ("1 of 2 in the group 'ops', or 0 of 1 in the group 'board'", ""),
    "signatures/worked-example-6-c-by-carol": ("no signature covers its text", "See 'allow_legacy_signatures'"),
    "signatures/not-a-legacy-form-a-renamed-label": ("no signature covers its text", ""),
    NETWORKS: ("1 of 2 in the group 'ops'", "pin 'networks'"),
    f"{NETWORKS}-and-both-are-pinned": ("1 of 2 in the group 'ops'", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_refusal_says_why_and_what_to_do(name: str) -> None:
    says, advice = TEXTS[name]
    with pytest.raises(CustodyVerificationError) as caught:
        verify_envelope(*read(name))
    assert says in caught.value.message
    assert (advice in str(caught.value.advice)) if advice else caught.value.advice is None


def test_a_pending_request_needs_what_each_rule_asks_for() -> None:
    envelope, pins = read(NETWORKS)
    (path,) = Verifier(pins).verify_signatures(envelope).paths
    assert [(group.group_id, group.minimum, len(group.user_ids)) for group in path] == [("ops", 2, 1)]


def test_a_pending_request_signed_with_a_key_that_cannot_be_used() -> None:
    envelope, pins = read("signatures/a-key-in-one-encoding-on-p-256-empty")
    with pytest.raises(
        CustodyVerificationError, match=r"signature 1 of 2 .* the key of 'alice@.*' in its rules cannot"
    ):
        Verifier(pins).verify_signatures(envelope)
