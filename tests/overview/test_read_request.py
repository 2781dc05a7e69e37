"""All that there is to see of one request, read from a real service."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
from attacks import Unsuitable, attack, names

from airflow_custody.client import (
    CustodyClient,
    CustodyError,
    CustodyNotFoundError,
    CustodyRequestError,
    WhitelistRequest,
)
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.signing import RequestSigner
from airflow_custody.overview import read_request
from airflow_custody.sandbox import Sandbox

Create = Callable[..., str]


@pytest.fixture
def create(client: CustodyClient) -> Create:
    """Return what creates a request that is pending, and returns its id."""

    def create(**fields: Any) -> str:
        given: dict[str, Any] = {"label": "L1", "address": f"0x{1:040x}", "blockchain": "ETH", **fields}
        return client.create_whitelist_request(WhitelistRequest(**given))

    return create


def test_a_pending_request(client: CustodyClient, create: Create) -> None:
    identifier = create(memo="m", linked_wallet_ids=["7"], network="mainnet")
    view = read_request(client, identifier)
    assert (view.row.id, view.row.state, view.row.trust, view.row.problem) == (identifier, "pending", "not checked", "")
    assert [name for name, _ in view.fields] == ["currency", "network", "address", "memo", "label", "linkedWallets"]
    assert dict(view.fields)["linkedWallets"] == '[{"id": 7, "name": "Wallet 7", "path": "m/44\'/60\'/7\'"}]'
    around = dict(view.around)
    assert [around[name] for name in ("Action", "Network", "Tenant")] == ["create", "mainnet", "1"]
    assert len(around["Hash"]) == 64
    assert [each.action for each in view.trails] == ["created"]
    assert view.trails[0].at == view.row.created_at
    assert view.signatures == ()
    assert view.verification == NOT_PINNED
    assert view.row.paths == ()


def test_a_request_in_effect_with_pins(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    identifier = create()
    sandbox.control.sign_whitelist_requests([identifier])
    view = read_request(pinning, identifier)
    assert (view.row.state, view.row.trust, view.row.problem) == ("effective", "verified", "")
    assert [(each.valid, each.problem, each.comment) for each in view.signatures] == [
        (True, "", "signed by the sandbox")
    ]
    assert view.verification.startswith("Verified: signed by signer-1@example.test under rules of 2")
    assert [[(each.present, each.needed) for each in path] for path in view.row.paths] == [[(1, 1)]]
    assert len(view.trails) == 2


def test_a_pending_request_with_pins(pinning: CustodyClient, create: Create) -> None:
    view = read_request(pinning, create())
    assert (view.row.state, view.row.trust) == ("pending", "unsigned")
    assert view.verification == "Nobody has signed it yet."


def test_a_signature_over_another_text(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    identifier = create()
    sandbox.control.sign_whitelist_requests([identifier])
    sandbox.control.change_whitelist_request(identifier, label="another")
    view = read_request(pinning, identifier)
    assert (view.row.state, view.row.trust) == ("effective", "unverified")
    assert [each.valid for each in view.signatures] == [False]
    assert "another text" in view.signatures[0].problem
    assert view.row.problem == view.verification
    assert "no signature covers its text" in view.verification


@pytest.mark.parametrize("pinned", [False, True])
def test_a_rejected_request(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create, pinned: bool
) -> None:
    identifier = create()
    sandbox.control.set_whitelist_status(identifier, "rejected")
    view = read_request(pinning if pinned else client, identifier)
    assert (view.row.state, view.row.trust, view.row.problem) == ("rejected", "not checked", "")
    assert ("rejected" in view.verification) is pinned


def test_an_unknown_status(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    identifier = create()
    sandbox.control.set_whitelist_status(identifier, "resting")
    view = read_request(client, identifier)
    assert view.row.state == "unknown"
    assert view.row.problem.startswith("Its status, 'resting', and where it is listed do not say")


def test_a_text_that_cannot_be_used(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    identifier = create()
    sandbox.control.set_whitelist_metadata(identifier, hash="0" * 64)
    view = read_request(pinning, identifier)
    assert view.fields == ()
    assert (view.row.trust, view.row.address) == ("unverified", "")
    assert "does not have the hash" in view.row.problem


def test_there_is_no_such_request(client: CustodyClient) -> None:
    with pytest.raises(CustodyNotFoundError) as caught:
        read_request(client, "999")
    assert caught.value.from_service
    with pytest.raises(CustodyRequestError):
        read_request(client, "../users")


def test_no_attack_that_must_be_refused_is_called_verified(
    sandbox: Sandbox, pinning: CustodyClient, create: Create
) -> None:
    sandbox.control.add_signers(["ann", "bob"])
    plain, linked = create(), create(linked_internal_address_ids=["5"], address=f"0x{2:040x}")
    sandbox.control.sign_whitelist_requests([plain, linked])
    made = 0
    for name in names("refused"):
        for identifier in (plain, linked):
            with contextlib.suppress(Unsuitable):
                attack(sandbox.control, sandbox.token, identifier, name)
                made += 1
                # Some cannot be read at all.
                with contextlib.suppress(CustodyError):
                    row = read_request(pinning, identifier).row
                    assert row.trust == "unverified", name
                    assert row.problem, name
            sandbox.control.set_whitelist_envelope(identifier)
    assert made > 50


def test_a_pending_request_with_a_signature(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    ann, _ = sandbox.control.add_signers(["ann", "bob"])
    identifier = create()
    sign(sandbox, ann, identifier)
    view = read_request(pinning, identifier)
    assert (view.row.state, view.row.trust) == ("pending", "verified")
    assert view.verification.startswith("Each signature that it has is valid, ")
    assert [[(each.group, each.present, each.needed) for each in path] for path in view.row.paths] == [
        [("first", 1, 1), ("second", 0, 1)]
    ]


def test_without_rules_of_its_own_those_in_force_count(
    sandbox: Sandbox, pinning: CustodyClient, create: Create
) -> None:
    ann, _ = sandbox.control.add_signers(["ann", "bob"])
    identifier = create()
    sign(sandbox, ann, identifier)
    hidden = {"rulesContainer": None, "rulesSignatures": None}
    sandbox.control.set_whitelist_envelope(identifier, **hidden)
    view = read_request(pinning, identifier)
    assert (view.row.trust, [each.valid for each in view.signatures]) == ("verified", [True])
    assert [each.present for each in view.row.paths[0]] == [1, 0]
    # They are not offered, or cannot be fetched now.
    sandbox.control.add_fault("status", status=404, path="/rules", body={"message": "m", "error": "e"})
    view = read_request(pinning, identifier)
    assert (view.row.trust, [each.valid for each in view.signatures]) == ("unverified", [None])
    # What is needed is the service's word then, and whose the signature is, it does not say.
    assert [(each.group, each.present) for path in view.row.paths for each in path] == []
    sandbox.control.add_fault("status", status=503, path="/rules")
    with pytest.raises(CustodyError, match="status 503"):
        read_request(pinning, identifier)


def test_one_that_is_shown_and_not_listed(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    identifier = create()
    sandbox.control.configure(listings={"whitelist": {"orders": [[]], "totals": [None]}})
    view = read_request(client, identifier)
    assert view.row.state == "unknown"
    assert view.row.problem.endswith("and where it is listed do not say whether it is in effect.")


def test_where_several_rules_must_be_met_each_way_has_the_groups_of_all(
    sandbox: Sandbox, pinning: CustodyClient, create: Create
) -> None:
    def way(group: str, minimum: int) -> dict[str, Any]:
        return {"sequential": [{"externalGroupID": group, "minimumSignatures": minimum}]}

    sandbox.control.configure(network_is_hashed=False)
    sandbox.control.set_rules(
        [
            {"currency": "ETH", "network": "mainnet", "parallel": [way("ops", 1), way("risk", 1)]},
            {"currency": "ETH", "network": "sepolia", "parallel": [way("ops", 2)]},
        ]
    )
    identifier = create(network="mainnet")
    sandbox.control.sign_whitelist_requests([identifier])
    paths = read_request(pinning, identifier).row.paths
    assert [{each.group: each.needed for each in path} for path in paths] == [{"ops": 2}, {"risk": 1, "ops": 2}]


def sign(sandbox: Sandbox, approver: dict[str, str], identifier: str) -> None:
    with CustodyClient(sandbox.url, approver["token"]) as client:
        signer = PemSigner(lambda: approver["private_key"], name=approver["name"])
        RequestSigner(client, signer, log=logging.getLogger(__name__)).sign([identifier], None, "checked")
