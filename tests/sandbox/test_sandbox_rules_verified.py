"""What the sandbox signs by its reading of the rules, verified by the client's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox_api import Api
from sandbox_approvers import PATH, create

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.verifier import VerificationPins, VerifiedAddress, Verifier
from airflow_custody.sandbox import Sandbox

WALLETS = ["7", "8"]
PATHS = [f"m/44'/60'/{each}'" for each in WALLETS]
groups = st.builds(
    lambda name, minimum: {"externalGroupID": name, "minimumSignatures": minimum},
    st.sampled_from("abc"),
    st.integers(0, 3),
)
parallel = st.lists(
    st.builds(
        lambda found: {"sequential": found},
        st.lists(groups, min_size=1, max_size=2, unique_by=lambda group: group["externalGroupID"]),
    ),
    min_size=1,
    max_size=2,
)
rule = st.fixed_dictionaries(
    {
        "currency": st.just("ETH"),
        "network": st.sampled_from(["", "main", "test"]),
        "parallel": parallel,
        "lines": st.lists(st.fixed_dictionaries({"path": st.sampled_from(PATHS), "parallel": parallel}), max_size=2),
    }
)
others = st.fixed_dictionaries({"currency": st.sampled_from(["", "Any"]), "parallel": parallel})
rules = st.builds(
    lambda found, default: [*found, default],
    st.lists(rule, max_size=3, unique_by=lambda rule: rule["network"]),
    others,
)
requests = st.fixed_dictionaries(
    {
        "blockchain": st.just("ETH"),
        "label": st.sampled_from(["Treasury", 'a "b" <c> & \u00e9']),
        "address": st.just("0x" + "a" * 40),
        "network": st.sampled_from(["main", "test", "other"]),
    },
    optional={
        "linkedWalletIds": st.lists(st.sampled_from(WALLETS), min_size=1, max_size=2, unique=True),
        "linkedInternalAddressIds": st.just(["3"]),
        "memo": st.just("42"),
    },
)


def verify(sandbox: Sandbox, envelope: dict[str, Any]) -> VerifiedAddress:
    return Verifier(VerificationPins(**sandbox.control.pins())).verify(envelope)


def get(api: Api, number: str) -> dict[str, Any]:
    result: dict[str, Any] = api.get(f"{PATH}/{number}").json()["result"]
    return result


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=rules, asked=requests)
def test_what_the_sandbox_signs_is_verified(
    sandbox: Sandbox, api: Api, rules: list[dict[str, Any]], asked: dict[str, Any]
) -> None:
    sandbox.control.reset()
    sandbox.control.set_rules(rules)
    (number,) = sandbox.control.add_whitelist_requests([asked], signed=True)
    envelope = get(api, number)
    verified = verify(sandbox, envelope)
    assert verified.fields == envelope["metadata"]["payload"]
    assert set(verified.user_ids) <= {each["signature"]["userId"] for each in envelope["signedAddress"]["signatures"]}
    (applied,) = verified.applied
    assert {(group.group_id, group.minimum or 1) for group in applied.path} in [
        {(each["externalGroupID"], each["minimumSignatures"] or 1) for each in branch["sequential"]}
        for branch in envelope["approvers"]["parallel"]
    ]


def test_what_nobody_signed_is_not(sandbox: Sandbox, api: Api) -> None:
    one = create(api)
    sandbox.control.set_whitelist_status(one, "APPROVED")
    with pytest.raises(CustodyVerificationError):
        verify(sandbox, get(api, one))
    sandbox.control.sign_whitelist_requests([one])
    assert verify(sandbox, get(api, one)).user_ids == ("signer-1@example.test",)
    sandbox.control.change_whitelist_request(one, memo="other")
    with pytest.raises(CustodyVerificationError):
        verify(sandbox, get(api, one))


def test_a_signed_deletion_leaves_it_verified_until_it_takes_effect(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.configure(deletion="signed")
    one = create(api)
    sandbox.control.sign_whitelist_requests([one])
    before = get(api, one)
    assert api.post(f"{PATH}/delete", {"id": one, "comment": "sold"}).status_code == 200
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "board", "minimumSignatures": 1}]}])
    envelope = get(api, one)
    assert (envelope["status"], envelope["action"]) == ("pending", "delete")
    assert verify(sandbox, envelope) == verify(sandbox, before)


def test_rules_verify_as_the_service_shows_them(sandbox: Sandbox, api: Api) -> None:
    rules = api.get("/rules").json()["result"]
    assert len(Verifier(VerificationPins(**sandbox.control.pins())).verify_rules(rules).signed_by) == 2
    sandbox.control.configure(superadmins=3, superadmin_minimum=3)
    verifier = Verifier(VerificationPins(**sandbox.control.pins()))
    with pytest.raises(CustodyVerificationError):
        verifier.verify_rules(rules)
    assert len(verifier.verify_rules(api.get("/rules").json()["result"]).signed_by) == 3
