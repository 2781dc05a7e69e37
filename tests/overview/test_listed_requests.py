"""What an overview says of the requests that are listed: signatures, and whether they prove it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pinned_keys import pinned

from airflow_custody.client import CustodyClient
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.approval import Approver
from airflow_custody.overview import read_overview
from airflow_custody.overview.models import GroupSignatures
from airflow_custody.overview.verdict import judge_overview
from airflow_custody.sandbox import Sandbox

ONE_GROUP = [{"sequential": [{"externalGroupID": "ops", "minimumSignatures": 2}]}]
Create = Callable[..., str]


class TestSignatures:
    def test_without_pins_who_is_in_which_group_is_not_known(
        self, sandbox: Sandbox, client: CustodyClient, create: Create
    ) -> None:
        approvers = sandbox.control.add_approvers(["ann", "bob"])
        first = create(1)
        self.sign(sandbox, approvers[0], first)
        assert self.paths(client) == (
            (GroupSignatures(approvers[0]["group"], None, 1), GroupSignatures(approvers[1]["group"], None, 1)),
        )

    def test_of_one_group_it_is(self, sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
        sandbox.control.set_approvers(ONE_GROUP)
        create(1)
        assert self.paths(client) == ((GroupSignatures("ops", 0, 2),),)

    def test_with_pins_valid_signatures_are_counted(
        self, sandbox: Sandbox, pinning: CustodyClient, create: Create
    ) -> None:
        approvers = sandbox.control.add_approvers(["ann", "bob"])
        identifier = create(1)
        view = read_overview(pinning).pending.value
        assert view is not None
        assert (view.rows[0].trust, view.rows[0].signatures) == ("unsigned", 0)
        self.sign(sandbox, approvers[0], identifier)
        overview = read_overview(pinning)
        assert overview.pending.value is not None
        (row,) = overview.pending.value.rows
        assert (row.trust, row.signatures) == ("verified", 1)
        assert row.paths == (
            (GroupSignatures(approvers[0]["group"], 1, 1), GroupSignatures(approvers[1]["group"], 0, 1)),
        )
        assert judge_overview(overview).ok

    def test_a_deletion_that_is_pending_says_so(self, sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
        sandbox.control.configure(deletion="signed")
        identifier = create(1)
        sandbox.control.sign_whitelist_requests([identifier])
        client.delete_whitelist_request(identifier, "no longer used")
        view = read_overview(client).pending.value
        assert view is not None
        (row,) = view.rows
        assert row.action == "delete"
        # Those that are shown are of the whitelisting.
        assert {each.present for path in row.paths for each in path} == {None}

    @staticmethod
    def paths(client: CustodyClient) -> Any:
        view = read_overview(client).pending.value
        assert view is not None
        return view.rows[0].paths

    @staticmethod
    def sign(sandbox: Sandbox, approver: dict[str, str], identifier: str) -> None:
        with CustodyClient(sandbox.url, approver["token"]) as client:
            signer = PemSigner(lambda: approver["private_key"], name=approver["name"])
            Approver(client, signer, log=logging.getLogger(__name__)).approve([identifier], None, "checked")


class TestTrust:
    def test_what_nobody_signed_is_unverified(self, sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
        identifier = create(1)
        sandbox.control.set_whitelist_status(identifier, "APPROVED")
        overview = read_overview(pinning)
        assert overview.recent.value is not None
        (row,) = overview.recent.value.rows
        assert row.trust == "unverified"
        assert "no signature covers its text" in row.problem
        verdict = judge_overview(overview)
        assert not verdict.ok
        assert verdict.wrong[0].startswith(f"whitelisting request {identifier} (in effect): ")

    def test_other_pins(self, sandbox: Sandbox, create: Create) -> None:
        identifier = create(1)
        sandbox.control.sign_whitelist_requests([identifier])
        with CustodyClient(sandbox.url, sandbox.token, **pinned(1, 2)) as client:
            view = read_overview(client).recent.value
        assert view is not None
        assert [row.trust for row in view.rows] == ["unverified"]

    def test_a_text_without_its_hash_is_not_shown(
        self, sandbox: Sandbox, client: CustodyClient, create: Create
    ) -> None:
        identifier = create(1)
        sandbox.control.set_whitelist_metadata(identifier, hash="0" * 64)
        overview = read_overview(client)
        assert overview.pending.value is not None
        (row,) = overview.pending.value.rows
        assert (row.id, row.address, row.label, row.chain) == (identifier, "", "", "")
        assert "does not have the hash" in row.problem
        assert len(judge_overview(overview).wrong) == 1

    def test_all_that_are_listed_are_verified_and_what_fails_comes_first(
        self, sandbox: Sandbox, pinning: CustodyClient, create: Create
    ) -> None:
        ids = [create(number) for number in range(25)]
        # The unsigned dates say that it was long ago.
        sandbox.control.set_whitelist_age(ids[0], 360_000)
        sandbox.control.set_whitelist_status(ids[0], "APPROVED")
        sandbox.control.sign_whitelist_requests(ids[1:])
        overview = read_overview(pinning)
        assert overview.recent.value is not None
        assert (overview.recent.value.rows[0].id, overview.recent.value.rows[0].trust) == (ids[0], "unverified")
        assert (len(overview.recent.value.rows), overview.recent.value.faulty) == (20, 1)
        (wrong,) = judge_overview(overview).wrong
        assert wrong.startswith(f"whitelisting request {ids[0]} (in effect): ")

    def test_what_fails_and_is_not_shown_counts(self, sandbox: Sandbox, client: CustodyClient) -> None:
        rows = [{"label": f"L{n}", "address": f"0x{n:040x}", "blockchain": "ETH"} for n in range(30)]
        for each in sandbox.control.add_whitelist_requests(rows):
            sandbox.control.set_whitelist_metadata(each, hash="0" * 64)
        overview = read_overview(client)
        assert overview.recent.value is not None
        assert (len(overview.recent.value.rows), overview.recent.value.faulty) == (20, 30)
        assert judge_overview(overview).wrong[-1] == "and 10 other requests with such a problem"

    @pytest.mark.parametrize("status", ["WEIRD", "", "APPROVED_", "settled"])
    def test_what_has_another_status_word_is_shown_and_verified(
        self, sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create, status: str
    ) -> None:
        identifier = create(1)
        sandbox.control.sign_whitelist_requests([create(2)])
        sandbox.control.set_whitelist_status(identifier, status)
        for each, trust in ((client, "not checked"), (pinning, "unverified")):
            overview = read_overview(each)
            assert overview.unknown.value is not None
            (row,) = overview.unknown.value.rows
            assert (row.id, row.status, row.state, row.trust) == (identifier, status, "unknown", trust)
            verdict = judge_overview(overview)
            assert not verdict.ok
            assert verdict.wrong[-1].startswith(f"the status of 1 whitelisting request is not known ({status!r}): ")
            assert len(verdict.wrong) == (2 if trust == "unverified" else 1)

    def test_what_cannot_be_read_hides_nothing_that_is_unverified(
        self, sandbox: Sandbox, pinning: CustodyClient, create: Create
    ) -> None:
        unreadable, unverified, good = (create(number) for number in range(3))
        sandbox.control.set_whitelist_envelope(unreadable, trails="none")
        sandbox.control.set_whitelist_metadata(unverified, hash="0" * 64)
        view = read_overview(pinning).pending.value
        assert view is not None
        assert [(row.id, row.trust) for row in view.rows] == [
            (unverified, "unverified"),
            (unreadable, "not checked"),
            (good, "unsigned"),
        ]
        assert view.faulty == 2

    def test_each_request_that_is_listed_is_in_one_place(
        self, sandbox: Sandbox, client: CustodyClient, create: Create
    ) -> None:
        ids = [create(number) for number in range(5)]
        for each, status in zip(ids, ("APPROVED", "REJECTED", "WEIRD", "expired"), strict=False):
            sandbox.control.set_whitelist_status(each, status)
        overview = read_overview(client)
        views = (overview.pending.value, overview.recent.value, overview.unknown.value)
        assert [[row.id for row in view.rows] for view in views if view] == [[ids[4]], [ids[0]], [ids[2]]]
        assert overview.rejected == 2

    def test_the_copy_beside_the_text_is_never_shown(
        self, sandbox: Sandbox, client: CustodyClient, create: Create
    ) -> None:
        identifier = create(1)
        sandbox.control.set_whitelist_metadata(identifier, payload={"address": "0xevil", "label": "evil"})
        assert "evil" not in str(read_overview(client))

    def test_a_row_that_cannot_be_read_says_so(self, sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
        identifier = create(1)
        create(2)
        sandbox.control.set_whitelist_envelope(identifier, trails="none")
        view = read_overview(client).pending.value
        assert view is not None
        # Its age is not known, and what is wrong comes first.
        assert (view.rows[0].id, bool(view.rows[0].problem)) == (identifier, True)
        assert len(view.rows) == 2
        assert view.oldest_at is None
