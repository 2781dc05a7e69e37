"""Rows are made of whatever a service sends."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.verification.verifier import RequestSignatures
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
from airflow_custody.overview.models import GroupSignatures
from airflow_custody.overview.rows import MAX_TEXT, bound, make_row, paths_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
GROUP = st.fixed_dictionaries({}, optional={"externalGroupID": JSON, "minimumSignatures": JSON})
PATH = st.fixed_dictionaries({}, optional={"sequential": JSON | st.lists(GROUP, max_size=3)})
APPROVERS = JSON | st.fixed_dictionaries({"parallel": JSON | st.lists(PATH, max_size=3)})


def envelope(**wire: Any) -> WhitelistEnvelope:
    return WhitelistEnvelope({"id": "1", **wire})  # type: ignore[typeddict-item]


@given(APPROVERS)
def test_any_approvers_are_survived(approvers: Any) -> None:
    for path in paths_of(envelope(approvers=approvers), None):
        assert path
        assert all(each.needed >= 1 and each.present == 0 for each in path)


def test_signatures_of_the_one_group_are_counted_and_no_more_than_needed() -> None:
    approvers = {"parallel": [{"sequential": [{"externalGroupID": 7, "minimumSignatures": "1"}]}]}
    entries = [{"signature": {"userId": name, "signature": "s"}, "hashes": []} for name in ("ann", "bob")]
    signed = {"approvers": approvers, "signedAddress": {"signatures": entries}}
    assert paths_of(envelope(**signed), None) == ((GroupSignatures("7", 1, 1),),)
    # Those that are shown may be of the address's creation.
    assert paths_of(envelope(**signed, action="delete"), None) == ((GroupSignatures("7", None, 1),),)


@given(st.dictionaries(st.sampled_from(["status", "action", "network", "blockchain"]), st.text(max_size=500)))
def test_any_envelope_becomes_a_row(wire: dict[str, str]) -> None:
    row = make_row(envelope(**wire), "pending", None)
    assert "its payload or its hash is missing" in row.problem


@given(JSON, st.integers(1, 2 * MAX_TEXT))
def test_a_text_is_kept_as_it_is_up_to_its_limit(value: Any, times: int) -> None:
    text = bound(value * times if isinstance(value, str) else value)
    assert len(text) <= MAX_TEXT
    if isinstance(value, str) and len(value * times) <= MAX_TEXT:
        assert text == value * times


class Refusing:
    """A verifier that verifies nothing."""

    def examine(self, envelope: object) -> RequestSignatures:
        return RequestSignatures("00", None)


def test_without_rules_the_ways_are_those_that_the_service_shows() -> None:
    approvers = {"parallel": [{"sequential": [{"externalGroupID": "ops"}]}]}
    found = paths_of(envelope(approvers=approvers), Refusing())  # type: ignore[arg-type]
    assert found == ((GroupSignatures("ops", 0, 1),),)


def test_an_id_that_is_no_number_is_never_verified() -> None:
    text = json.dumps({"currency": "ETH", "address": "0x1"})
    metadata = {"payloadAsString": text, "hash": hashlib.sha256(text.encode()).hexdigest()}
    odd = WhitelistEnvelope({"id": "3711a", "metadata": metadata})  # type: ignore[typeddict-item]
    row = make_row(odd, "effective", Refusing())  # type: ignore[arg-type]
    assert (row.trust, row.problem) == (
        "unverified",
        "whitelisting request 3711a is not verified: its id is no number [custody/not-verified]",
    )
